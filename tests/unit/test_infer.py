"""`tern infer` on simulated fleets, and what it refuses."""

import json
from pathlib import Path

import pytest

from ternhost.cli import main
from ternhost.errors import UsageError
from ternhost.runs import inference_run
from ternhost.runs.inference_run import Options


def test_simulated_clients_score_beside_the_exact_result(tmp_path):
    options = Options(dataset="wine", epsilon="20", fleet="simulated:600", cluster_client_num=500)
    result = inference_run.begin(options, tmp_path / "store.sqlite")
    assert (result["reports"], result["classes"], result["features"]) == (500, 3, 14)
    assert (result["epsilon_true"], result["laplace_eval_eps"]) == (20, 10)
    assert result["epsilon_per_client"] <= 20
    assert result["score_without_noise"] > 0.7 > result["score"] > 0.4
    assert result["agreement"] > 0.95
    assert result["accounting"]["epsilon_user_level"] == 20
    assert json.loads((tmp_path / "result.json").read_text()) == result
    assert inference_run.begin(options, tmp_path / "store.sqlite")["score"] == result["score"]


def test_without_noise_a_simulation_shows_the_exact_score(tmp_path):
    options = Options(privacy_eval_type="NOT_ENCRYPT", fleet="simulated:75", eval_type="CALINSKI_HARABASZ")
    result = inference_run.begin(options, tmp_path / "store.sqlite")
    assert result["score"] == result["score_without_noise"] > 50
    assert result["agreement"] == 1
    assert result["epsilon_true"] is None
    assert "card" not in result


def test_clients_hold_records_that_the_classifier_has_not_seen():
    run = inference_run._Run(Options(fleet="simulated:75"), Path("x"), inference_run.Watcher())
    assert set(run._positions) <= set(run._dataset.test)
    assert not set(run._positions) & set(run._dataset.training)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"privacy_eval_type": "NOT_ENCRYPT", "fleet": "emulated:1"}, "no device sends"),
        ({"held_out": 1.0}, "held-out share"),
        ({"quorum": 0.0}, "quorum"),
        ({"epsilon": "21"}, "epsilon"),
        ({"laplace_eval_eps": "11"}, "protects nothing"),
        ({"eval_type": "F1"}, "eval_type"),
        ({"fleet": "emulated"}, "number of boards"),
    ],
)
def test_options_that_cannot_be(options, message):
    with pytest.raises(UsageError, match=message):
        Options(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dataset": "diabetes"}, "has no classes"),
        ({"cluster_client_num": 76}, "there are 75"),
        ({"fleet": "emulated:80"}, "leave boards without one"),
        ({"epsilon": "0.000001"}, "too small"),
    ],
)
def test_runs_that_cannot_be(tmp_path, options, message):
    with pytest.raises(UsageError, match=message):
        inference_run.begin(Options(**options), tmp_path / "store.sqlite")


def test_a_classifier_too_large_for_a_frame(tmp_path, monkeypatch):
    monkeypatch.setattr(inference_run.wire, "MAX_PARAMETERS", 14)
    with pytest.raises(UsageError, match="3 classes of 5 features are more than the 14 parameters"):
        inference_run.begin(Options(fleet="simulated:50"), tmp_path / "store.sqlite")


def test_nothing_to_resume(tmp_path):
    from ternhost.aggregate.store import Store

    Store(tmp_path / "store.sqlite").close()
    with pytest.raises(UsageError, match="holds no run of tern infer"):
        inference_run.resume(tmp_path)


def test_the_command(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["infer", "--fleet", "simulated:200", "--laplace-eval-eps", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["epsilon_true"] == 6
    assert main(["infer", "--fleet", "simulated:200", "--epsilon", "6"]) == 0
    out = capsys.readouterr().out
    assert "true epsilon 6 a client (laplace_eval_eps 3)" in out
    assert "keep their cluster" in out
    assert main(["infer", "--epsilon", "1", "--laplace-eval-eps", "1"]) == 2
    assert "say the same" in capsys.readouterr().err
    assert main(["infer", "--resume", "runs", "--seed", "3"]) == 2
    assert "keeps its options" in capsys.readouterr().err
