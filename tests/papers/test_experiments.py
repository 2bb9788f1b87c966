"""Experiments: each runs in a small version, writes complete files, and draws correct conclusions."""

import csv
import json
import math
import pickle
import subprocess
import sys

import numpy as np
import pytest

from ternhost import datasets
from ternhost.errors import UsageError
from ternhost.learn.models.optimisers import OPTIMISERS
from ternhost.planning import simulation
from ternhost.planning.statistics import enough
from ternhost.privacy.mechanisms import lower_bound
from ternpapers import experiments
from ternpapers.base import Contender, Options, Outcome
from ternpapers.experiments import coordinates, erm, mean

SMALL = {
    "mean": "breast-cancer",
    "erm": "breast-cancer",
    "reports-needed": "diabetes",
    "rates": "diabetes",
}
# These experiments run with fewer cells than even their quick versions.
SMALLER = {
    "variance": (lower_bound, "STEPS", 12),
    "erm": (erm, "_MODELS", {datasets.CLASSIFICATION: ("logistic",)}),
    "coordinates": (coordinates, "_KINDS", coordinates._KINDS[:2]),
}


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", [name for name in experiments.EXPERIMENTS if name != "statements"])
def test_an_experiment_runs_and_writes_its_files(name, tmp_path, monkeypatch):
    """Each experiment, in its smallest version, prints lines and writes its tables as CSV, all of
    it as JSON, and a picture. No row is missing in the files.
    """
    if name in SMALLER:
        monkeypatch.setattr(*SMALLER[name])
    optimisers = [*OPTIMISERS]
    outcome = experiments.run(name, Options(SMALL.get(name), runs=1, quick=True, workers=1))

    assert [*OPTIMISERS] == optimisers, "rates registers its own for a while"
    assert outcome.lines
    paths = experiments.write(outcome, tmp_path / "out")
    assert {path.suffix for path in paths} == {".csv", ".json", ".png"}
    whole = json.loads((tmp_path / "out" / f"{name}.json").read_text())
    for table, rows in outcome.tables.items():
        with (tmp_path / "out" / f"{table}.csv").open(newline="") as file:
            assert len(list(csv.DictReader(file))) == len(rows) == len(whole["tables"][table])


OWN_EXPERIMENT = """
import sys

from ternhost.planning.cells import Cell
from ternpapers.base import Outcome
from ternpapers.experiments import EXPERIMENTS

SUMMARY = "squares of small numbers"


def square(number):
    return [{"number": number, "square": number**2}]


def cells(options):
    return [Cell("squares", square, {"number": number}) for number in range(3)]


def outcome(options, tables):
    return Outcome({}, tables, {}, ["done"])


EXPERIMENTS.register("squares", sys.modules[__name__])
"""


@pytest.mark.slow
def test_an_experiment_in_a_file_of_a_user_runs_in_several_processes(here):
    """`tern --with FILE.py` registers what the file defines; the processes that run the cells of
    the experiment must know it, too.
    """
    (here / "squares.py").write_text(OWN_EXPERIMENT)
    words = "--with squares.py papers squares --workers 2 --output out"

    subprocess.run([sys.executable, "-m", "ternhost", *words.split()], cwd=here, check=True)

    with (here / "out" / "squares.csv").open(newline="") as file:
        squares = [row["square"] for row in csv.DictReader(file)]
    assert squares == ["0", "1", "4"]


# Options


FIGURES = [(paper, number) for paper in experiments.PAPERS for number in experiments.figures(paper)]
EACH_FIGURE = pytest.mark.parametrize(("paper", "number"), FIGURES)


@EACH_FIGURE
def test_a_figure_does_not_ignore_a_data_set(paper, number):
    with pytest.raises(UsageError, match=r"no data set|without a choice of --data"):
        experiments.figures(paper)[number].cells(Options("weather", quick=True))


@EACH_FIGURE
def test_a_figure_does_not_ignore_a_mechanism(paper, number, monkeypatch):
    runs = Options(quick=True, contender=Contender("3r"))
    monkeypatch.setattr(experiments, "run_cells", lambda *_: pytest.fail("it runs without it"))
    with pytest.raises(UsageError, match="mechanism"):
        experiments.run(paper, runs, figure=number)


@EACH_FIGURE
def test_cells_of_a_figure_are_known_again_in_any_process(paper, number):
    cells = experiments.figures(paper)[number].cells(Options(quick=True))
    keys = [cell.key for cell in cells]
    assert [cell.key for cell in pickle.loads(pickle.dumps(cells))] == keys
    assert len(set(keys)) == len(keys)
    assert " at 0x" not in "".join(keys), "the address of a function is another in each process"


@pytest.mark.parametrize("number", ["4", "9"], ids=["of a table", "of models"])
def test_a_mechanism_of_the_papers_is_added_to_a_figure_once(number):
    """Figures compare mechanisms; with an option, a user adds another.

    PM is among those of Wang et al. and adds nothing; PM-OPT is not, and adds only cells of its
    own.
    """
    figure = experiments.figures("wang")[number]

    def keys(mechanism=None):
        contender = Contender(mechanism) if mechanism else None
        return [cell.key for cell in figure.cells(Options(quick=True, contender=contender))]

    assert keys("pm") == keys()
    added = {*keys("pm-opt")} - {*keys()}
    assert added == {key for key in keys("pm-opt") if "mechanism='pm-opt'" in key} != set()


@pytest.mark.parametrize(
    ("name", "figure", "options", "message"),
    [
        ("variance", None, {"runs": 0}, "--runs"),
        ("variance", None, {"data": "iris"}, "no data set"),
        ("mean", None, {"data": "weather"}, "no data set"),
        ("coordinates", None, {"data": "diabetes"}, "two classes"),
        ("frequencies", None, {"data": "diabetes"}, "no categorical attribute"),
        ("zhao", "2", {}, "zhao has no figure 2"),
        ("mean", "2", {}, "'mean' is of no paper"),
        ("hao", "2", {"in_full": True}, "--quick and --in-full exclude each other"),
        ("wang", "9", {"data": "diabetes"}, "do not suit a logistic model"),
        ("wang", "1", {}, "a formula, without a choice of --runs"),
    ],
)
def test_invalid_options_of_an_experiment_are_refused(name, figure, options, message, tmp_path):
    with pytest.raises(UsageError, match=message):
        experiments.run(name, Options(**{"quick": True, "runs": 1, **options}), tmp_path, figure)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_mechanism_named_by_an_option_is_compared(tmp_path, tern, monkeypatch):
    """`tern papers mean` compares mechanisms by the error of a mean; one that the user names becomes
    another curve, beside Duchi's.
    """
    monkeypatch.setattr(mean, "_COMPARED", ("duchi",))
    run = "--data breast-cancer --quick --runs 1 --workers 1"
    words = [*run.split(), "--mechanism", "pm-sub", "--output", str(tmp_path / "mean")]
    tern("papers", "mean", *words)
    with (tmp_path / "mean" / "figure.csv").open(newline="") as file:
        compared = [row["curve"] for row in csv.DictReader(file)]
    assert compared == ["duchi", "pm-sub"] * 2  # at two epsilons


# Data and files


def test_means_are_those_of_numbers_and_not_of_columns_for_categories(tmp_path):
    path = tmp_path / "raw.txt"
    path.write_text("33,Jogging,1,-0.5,20.5,0.5;\n1,Walking,2,5,-10,0;\n")
    assert mean._values(f"wisdm-records:{path}", 1, seed=1).shape == (1, 3)
    assert mean._values("wine", 50, seed=1).shape == (50, 13)  # without the constant


def test_a_fold_is_held_out_and_does_not_train():
    """In ten-fold cross-validation each record is held out in exactly one of ten folds, and the
    learner of a fold trains on the others alone.
    """
    first, *others = [erm.fold("breast-cancer", number, seed=5) for number in range(10)]

    times_held_out = first.held_out.astype(int) + sum(fold.held_out for fold in others)
    learner = simulation.sgd(first, len(first.training), 1)

    assert (times_held_out == 1).all()
    assert sorted(learner.holdings.order) == first.training.tolist()


def test_nan_is_null_in_json(tmp_path):
    outcome = Outcome({}, {"x": [{"a": math.nan, "b": [math.inf, 1.5]}]}, {}, name="x")
    experiments.write(outcome, tmp_path)
    written = json.loads((tmp_path / "x.json").read_text())
    assert written["tables"]["x"] == [{"a": None, "b": [None, 1.5]}]


# Conclusions: errors, intervals, and differences beyond noise

REPORTS = [1000, 10_000, 100_000]
LOSSES = np.array([0.6, 0.5, 0.4])  # of a model that so many reports have trained


@pytest.mark.parametrize(
    ("goal", "reports"),
    [
        pytest.param(0.45, 10**4.5, id="half way between two numbers, by their logarithms"),
        pytest.param(0.7, 1000, id="the least number is enough"),
        pytest.param(0.3, None, id="no number is enough"),
    ],
)
def test_the_reports_that_a_loss_needs_are_interpolated(goal, reports):
    assert enough(REPORTS, LOSSES - goal) == pytest.approx(reports)


def test_luck_with_few_reports_is_not_enough():
    lucky_with_1000 = np.array([0.4, 0.6, 0.4])
    assert enough(REPORTS, lucky_with_1000 - 0.5) > 10_000
