"""Experiments: each runs small, its files are whole, and what it says holds."""

import csv
import json
import math
import pickle
from pathlib import Path

import numpy as np
import pytest

from ternhost import datasets, experiments
from ternhost.cli import main
from ternhost.datasets import synthetic
from ternhost.errors import StorageError, UsageError
from ternhost.experiments import Contender, Options, base, coordinates, erm, pldp, rounds, variance
from ternhost.learn.base import Population
from ternhost.learn.fedavg import FedAvg
from ternhost.learn.fedsgd import FedSGD
from ternhost.learn.optimisers import OPTIMISERS
from ternhost.run.options import RunOptions
from ternhost.run.run import Run

SMALL = {
    "mean": "breast-cancer", "erm": "breast-cancer", "discretisation": "breast-cancer",
    "pldp": "breast-cancer", "inference": "iris", "reports-needed": "diabetes", "rates": "diabetes",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", experiments.NAMES)
def test_an_experiment_runs_and_writes_its_files(name: str, tmp_path: Path) -> None:
    heard: list[str] = []
    optimisers = list(OPTIMISERS)
    options = Options(SMALL.get(name), 1, True, progress=heard.append, workers=1)
    cells = experiments._module(name).cells(options)
    assert len(pickle.loads(pickle.dumps(cells))) == len(
        cells
    )  # other processes can have them: see test_cells
    outcome = experiments.run(name, options)
    assert list(OPTIMISERS) == optimisers  # rates lends its own
    assert heard
    assert outcome.lines
    assert experiments.summary(name)
    paths = experiments.write(outcome, tmp_path / "out")
    assert {path.suffix for path in paths} == {".csv", ".json", ".png"}
    whole = json.loads((tmp_path / "out" / f"{name}.json").read_text())
    assert whole["experiment"] == name
    for table, rows in outcome.tables.items():
        with (tmp_path / "out" / f"{table}.csv").open(newline="") as file:
            assert len(list(csv.DictReader(file))) == len(rows) == len(whole["tables"][table])
    for path in paths:
        assert path.stat().st_size > (5000 if path.suffix == ".png" else 50)
    for figure in outcome.figures.values():
        for axes in figure.axes:
            if axes.has_data():
                assert axes.get_xlabel()
                assert axes.get_ylabel()
                assert axes.get_title()
        assert len(figure.legends[0].get_texts()) == len(
            {text.get_text() for text in figure.legends[0].get_texts()}
        )


def test_crossings_of_tables_1_and_2() -> None:
    found = [variance.crossing(*row) for row in variance.CROSSINGS]
    assert found == pytest.approx([1.289784683, 2.324170122, 1.193048192, 2.56108931, 3.269358482], abs=5e-9)


@pytest.mark.slow
def test_the_rule_for_what_is_collected_loses_nothing_and_the_others_do() -> None:
    for name, law in coordinates.VARIANCES.items():
        losses = [coordinates._losses(law, epsilon, 16) for epsilon in np.arange(0.5, 10, 0.1).tolist()]
        assert max(row["variance_loss"] for row in losses) == 0
        if name != "duchi":
            assert all(max(row[f"{rule}_loss"] for row in losses) > 0.1 for rule in ("wide", "paper", "one"))


@pytest.mark.parametrize("name", ["mean", "hiera", "inference", "erm", "rates", "pldp", "reports-needed"])
def test_a_data_set_that_cannot_be_leaves_nothing_behind(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no data set"):
        experiments.run(name, Options("weather"), tmp_path)
    assert not list(tmp_path.iterdir())


def test_runs_and_seeds_that_cannot_be() -> None:
    for wrong in ({"runs": 0}, {"seed": -1}):
        with pytest.raises(UsageError):
            Options(**wrong)
    with pytest.raises(UsageError, match="no experiment"):
        experiments.run("weather", Options())
    with pytest.raises(UsageError, match="no data set"):
        experiments.run("variance", Options("iris"))
    for name in ("discretisation", "pldp", "coordinates"):
        with pytest.raises(UsageError, match="two classes"):
            experiments.run(name, Options("diabetes", quick=True, runs=1))


# The loop


def test_an_experiment_learns_what_a_run_learns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    asked = FedSGD.Options(dataset="breast-cancer", reports=400, group=50, epsilon="4", k=1, seed=3)
    with Run.begin(RunOptions("fedsgd", asked, "simulated:400")) as run:
        learned = run.run()["weights"]
    own = rounds.sgd(datasets.load("breast-cancer"), 400, 3, epsilon="4", k=1)
    assert (own.options.group_size, own.rounds) == (4, rounds.GROUPS)
    own = FedSGD(asked, Population(clients=400))
    assert len(list(rounds.rounds(own, rounds.fleet_of(own, 3)))) == 8
    assert own.weights.tolist() == learned
    assert any(learned)


def test_repeated_runs_begin_anew_with_other_draws() -> None:
    values = synthetic.attributes(500, 2, seed=1).numeric
    asked = rounds.collection(values, epsilon="4", k=1)
    found = [one.state() for one in rounds.repeated(asked, (7, 8, 7))]
    assert found[0] == found[2] != found[1]
    assert [state["reports"] for state in found] == [[[500]]] * 3
    assert 0 < rounds.squared_error(asked) < 0.1


def test_a_fold_is_held_out_and_does_not_train() -> None:
    whole = datasets.load("breast-cancer")
    parts = [erm.fold("breast-cancer", i, seed=5) for i in range(10)]
    assert (sum(part.held_out.astype(int) for part in parts) == 1).all()
    assert len(whole.labels) == len(parts[0].labels)
    assert (erm.fold("breast-cancer", 10, seed=5).held_out != parts[0].held_out).any(), "divided anew"
    learner = rounds.sgd(parts[0], len(parts[0].training), 1)
    assert learner.dataset is parts[0]
    assert learner.holdings is not None
    assert sorted(learner.holdings.order) == parts[0].training.tolist()


def test_moves_beyond_the_safe_range_are_counted() -> None:
    dataset = datasets.load("breast-cancer")
    clipped = []
    for tau in (0.0005, 0.05, 7.0):
        asked = {"rounds": 2, "records": 4, "share": 0.5, "k": 1, "tau": tau}
        clipped.append(pldp._train(dataset, 1, asked)["clipped"])
        learner = FedAvg(FedAvg.Options(seed=1, **asked), Population(), dataset)
        rounds.simulate(learner, 1)
        assert pldp._train(dataset, 1, asked)["figure"] == rounds.figure_of(learner), (
            "watching changes nothing"
        )
    assert 1 >= clipped[0] > 0.9 > clipped[1] > clipped[2] == 0


# Contenders


@pytest.mark.slow
def test_a_mechanism_that_is_asked_for_is_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--dataset", "breast-cancer", "--quick", "--runs", "1", "--output", str(tmp_path)]
    own = ["--mechanism", "pm-sub", "--window", "best", "--levels", "31", "--workers", "1"]
    assert main(["experiment", "pldp", *arguments, *own, "--json"]) == 0
    capsys.readouterr()
    with (tmp_path / "tau.csv").open(newline="") as file:
        compared = [row["mechanism"] for row in csv.DictReader(file)]
    assert set(compared) == {"pdpm", "duchi", "rr3", "pm-sub, 31 levels, window best"}
    for wrong, problem in (
        (["pldp", "--window", "best"], "--window is of a mechanism"),
        (["pldp", "--mechanism", "duchi", "--window", "best"], "duchi has no option --window"),
        (["mean", "--mechanism", "lhp"], "cannot be averaged"),
        (["hiera", "--mechanism", "duchi"], "compares no mechanisms"),
    ):
        assert main(["experiment", *wrong]) == 2
        assert problem in capsys.readouterr().err


def test_a_contender_s_options_reach_its_card() -> None:
    plain, best = Contender("pm-sub", 31), Contender("pm-sub", 31, (("window", "best"),))
    assert variance.of_card(best, "4") < variance.of_card(plain, "4")
    assert list(Options(contender=best).compared("duchi")) == ["duchi", "pm-sub, 31 levels, window best"]
    with pytest.raises(UsageError, match="no option --window"):
        Contender("duchi", options=(("window", "best"),))


def test_nan_is_null_in_json(tmp_path: Path) -> None:
    outcome = base.Outcome({}, {"x": [{"a": math.nan, "b": [math.inf, 1.5]}]}, {}, name="x")
    experiments.write(outcome, tmp_path)
    assert json.loads((tmp_path / "x.json").read_text())["tables"]["x"] == [{"a": None, "b": [None, 1.5]}]


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError):
        experiments.write(base.Outcome({}, {}, {}, name="x"), tmp_path / "file" / "below")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "--dataset", "diabetes", "--runs", "1", "--quick", "--output", str(tmp_path / "out"), "--json",
    ]  # fmt: skip
    assert main(["experiment", "rates", *arguments]) == 0
    result = json.loads(capsys.readouterr().out)
    assert sorted(Path(path).name for path in result["files"]) == [
        "rates.csv", "rates.json", "rates.png", "summary.csv",
    ]  # fmt: skip
    assert main(["experiment", "erm", "--dataset", "nowhere", "--quick"]) == 2
    assert "no data set" in capsys.readouterr().err
