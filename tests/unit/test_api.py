"""The public Python API: what `import ternhost` gives, options by keyword, and results."""

import inspect
import json
import subprocess
import sys

import numpy as np
import pytest

import ternhost
from tern import card as cards
from ternhost.run.status import END

pytestmark = pytest.mark.usefixtures("here")


def small(**options):
    return ternhost.train(
        fleet="simulated:1000", reports=1000, dataset="synthetic-logistic", **options
    )


def test_importing_ternhost_imports_nothing_else():
    program = "import sys; before = set(sys.modules); import ternhost; print('numpy' in sys.modules); dir(ternhost); "
    program += (
        "print(sorted(name for name in set(sys.modules) - before if name.startswith('tern')))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ended.stdout.splitlines() == [
        "False",
        "['ternhost', 'ternhost.device_library', 'ternhost.errors', 'ternhost.text']",
    ]


def test_everything_that_is_exported_is_there_and_described():
    for name in ternhost.__all__:
        assert getattr(ternhost, name).__doc__, name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = ternhost.nothing
    assert ternhost.reach.fleet  # its modules can still be reached


def test_train_collect_and_infer_have_the_same_named_arguments():
    runs = (ternhost.train, ternhost.collect, ternhost.infer)
    train, collect, infer = (list(inspect.signature(run).parameters) for run in runs)
    assert "fleet" in train
    assert train == collect == infer


@pytest.mark.slow
def test_a_run_from_python_has_the_options_and_costs_of_the_command(tmp_path):
    statuses = []
    result = small(epsilon=4, k=2, group=250, name="mine", on_status=statuses.append)
    assert result.name == "mine"
    assert result.directory.resolve() == tmp_path / "runs" / "mine"
    assert dict(result) == json.loads((result.directory / "result.json").read_text())
    assert (
        dict(ternhost.Result.load("mine"))
        == dict(ternhost.Result.load(result.directory))
        == dict(result)
    )
    assert (result["options"]["epsilon"], result["epsilon_paid"]) == ("4", pytest.approx(4))
    assert [status.round for status in statuses if status.event == END] == [1, 2, 3, 4]
    assert result.weights.shape == (result["d"],)
    assert result.weights.tolist() == result["weights"]
    parts = ("", "_baseline", "_optimum")
    assert set(result.figures) == {f"{name}{part}" for name in result["measures"] for part in parts}
    assert result["measures"] == ["accuracy", "auc", "log_loss"]
    assert result.history["reports"].tolist() == [250] * 4
    assert result.history["accuracy"].iloc[-1] == result["accuracy"]
    assert result.missing is None
    assert "1,000 reports" in str(result)
    assert result.report().read_text().startswith("<!")
    argv = [
        "train",
        "--fleet",
        "simulated:1000",
        "--reports",
        "1000",
        "--dataset",
        "synthetic-logistic",
    ]
    argv += ["--epsilon", "4", "--k", "2", "--group", "250", "--json", "--no-report", "--quiet"]
    command = [sys.executable, "-m", "ternhost", *argv]
    of_command = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    for name in ("options", "card", "epsilon_paid", "reports"):  # the noise differs
        assert of_command[name] == result[name], name


def test_runs_are_listed_and_kept_in_the_directory_that_is_named(tmp_path):
    small(name="first", directory=tmp_path / "mine")
    small(name="second", directory=str(tmp_path / "mine"), algorithm="direct")
    listed = [(entry["run"], entry["status"]) for entry in ternhost.list_runs(tmp_path / "mine")]
    assert listed == [("first", "finished"), ("second", "finished")]
    assert ternhost.list_runs() == []
    assert ternhost.Result.load("second", tmp_path / "mine")["algorithm"] == "direct"
    with pytest.raises(ternhost.UsageError, match="no result of a run 'second'"):
        ternhost.Result.load("second")
    with pytest.raises(ternhost.UsageError, match="nowhere"):
        ternhost.list_runs("nowhere")
    again = ternhost.resume("first", directory=tmp_path / "mine")
    assert again["weights"] == ternhost.Result.load("first", tmp_path / "mine")["weights"]


def test_a_run_that_stopped_is_resumed(tmp_path):
    class Stopped(Exception):
        pass

    def stop(status):
        assert ternhost.list_runs()[0]["status"] == "running"
        if status.event == END and status.round == 2:
            raise Stopped

    with pytest.raises(Stopped):
        small(name="cut", group=250, on_status=stop)
    assert ternhost.list_runs()[0]["status"] == "stopped", "no process has its store open"
    result = ternhost.resume("cut")
    assert result["reports"] == 1000
    assert result.history["round"].tolist() == [1, 2, 3, 4]


def test_a_result_says_which_figures_are_chance():
    single = ternhost.train(fleet="simulated:1", reports=1, epsilon=2)
    assert "all reports together 1 direction: the figure is chance" in str(single)
    good = ternhost.train(fleet="simulated:5000", reports=5000, epsilon=8)
    assert "chance" not in str(good)
    bad = ternhost.Result({**good, "auc": good["auc_baseline"] - 0.1})
    assert (
        "do not tell this model from the answer that knows no features: the figure is chance"
        in str(bad)
    )


def test_the_attributes_of_a_collection_are_a_data_frame(tmp_path):
    result = ternhost.collect(fleet="simulated:500", dataset="wine", epsilon="4")
    frame = result.attributes
    assert frame.columns.tolist() == ["name", "mean", "low", "high", "reports", "true"]
    assert len(frame) == 13
    assert (frame["low"] <= frame["mean"]).all()
    squared_error = np.mean((frame["mean"] - frame["true"]) ** 2)
    assert squared_error == pytest.approx(result.figures["mean_squared_error"])
    assert result.weights is None


@pytest.mark.slow
def test_inference_has_its_score_among_its_figures():
    result = ternhost.infer(fleet="simulated:75", epsilon=8)
    assert {"score", "score_without_noise", "agreement"} <= result.figures.keys()


def test_a_card_may_be_a_design_or_bytes_or_a_file(tmp_path):
    design = ternhost.design("pm-sub", 2, 7)
    assert design.card == ternhost.design("pm-sub", "2", levels=7).card
    assert cards.certify(cards.decode(design.card), 2_000_000)
    (tmp_path / "mine.card").write_bytes(design.card)
    for card in (design, design.card, tmp_path / "mine.card", "mine.card"):
        assert small(card=card, epsilon=2)["card"] == design.card.hex()
    assert small(mechanism="pm-sub", mechanism_options={"window": "best"})["mechanism"] == "pm-sub"
    with pytest.raises(ternhost.UsageError, match="no mechanism 'none'"):
        ternhost.design("none", 1)
    with pytest.raises(ternhost.UsageError, match="--card and --mechanism exclude each other"):
        small(card=design, mechanism="pm-sub")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"raports": 5}, TypeError, r"train\(\) has no option 'raports'; did you mean 'reports'\?"),
        ({"bananas": 5}, TypeError, r"train\(\) has no option 'bananas'$"),
        (
            {"local_rate": 2},
            ternhost.UsageError,
            "--local-rate belongs to fedavg, and this run is fedsgd",
        ),
        ({"seed": "one"}, TypeError, "seed must be a whole number, not 'one'"),
        ({"seed": 1.5}, TypeError, "seed must be a whole number, not 1.5"),
        ({"seed": True}, TypeError, "seed must be a whole number, not True"),
        ({"seed": None}, TypeError, "seed must be a whole number, not None"),
        ({"deadline": "5"}, TypeError, "deadline must be a number, not '5'"),
        ({"model": ["linear"]}, TypeError, r"model must be a text or a number, not \['linear'\]"),
        ({"seed": -1}, ternhost.UsageError, "--seed must be 0 or more, not -1"),
        ({"epsilon": 0}, ternhost.UsageError, "epsilon 0 is not a number"),
        ({"algorithm": "collect"}, ternhost.UsageError, "ternhost.train does not run collect"),
        ({"algorithm": "none"}, ternhost.UsageError, "there is no algorithm 'none'"),
    ],
)
def test_an_invalid_option_is_refused_and_no_run_begins(options, error, message, tmp_path):
    with pytest.raises(error, match=message):
        small(**options)
    assert not (tmp_path / "runs").exists()


def test_options_may_be_numbers_of_numpy():
    result = ternhost.train(
        fleet="simulated:400",
        reports=np.int64(400),
        epsilon=np.float64(2),
        regularisation=np.float32(0.5),
    )
    assert (result["reports"], result["options"]["epsilon"]) == (400, "2.0")


def test_without_pandas_a_data_frame_names_the_extra_that_installs_it(monkeypatch):
    result = ternhost.Result({"history": [], "run": "mine"})
    monkeypatch.setitem(sys.modules, "pandas", None)  # as if it were not installed
    with pytest.raises(ternhost.UsageError, match="pandas is not installed") as caught:
        _ = result.history
    assert "tern-ldp[data]" in caught.value.hint
