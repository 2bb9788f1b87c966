"""Experiments: each runs in a small version, writes complete files, and draws correct conclusions."""

import csv
import json
import math
import pickle

import numpy as np
import pytest

from ternhost import datasets
from ternhost.errors import StorageError, UsageError
from ternhost.learn.optimisers import OPTIMISERS
from ternhost.planning import simulation as rounds
from ternhost.planning.statistics import enough
from ternhost.privacy.mechanisms import lower_bound
from ternpapers import experiments
from ternpapers.base import Contender, Options, Outcome
from ternpapers.experiments import coordinates, erm, mean, reports_needed, variance

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
@pytest.mark.parametrize("name", experiments.EXPERIMENTS)
def test_an_experiment_runs_and_writes_its_files(name, tmp_path, monkeypatch):
    if name in SMALLER:
        monkeypatch.setattr(*SMALLER[name])
    messages, optimisers = [], list(OPTIMISERS)
    options = Options(SMALL.get(name), 1, True, progress=messages.append, workers=1)
    cells = experiments.named(name, None).cells(options)
    assert len(pickle.loads(pickle.dumps(cells))) == len(
        cells
    )  # for other processes: see test_cells
    outcome = experiments.run(name, options)
    assert list(OPTIMISERS) == optimisers  # rates registers its own for a while
    assert messages
    assert outcome.lines
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
            assert not axes.has_data() or all(
                (axes.get_xlabel(), axes.get_ylabel(), axes.get_title())
            )
        legend = [text.get_text() for text in figure.legends[0].get_texts()]
        assert len(legend) == len(set(legend))


def test_variances_cross_at_the_epsilons_of_tables_1_and_2():
    epsilons = [variance.crossing(*row) for row in variance.CROSSINGS]
    expected = [1.289784683, 2.324170122, 1.193048192, 2.56108931, 3.269358482]
    assert epsilons == pytest.approx(expected, abs=5e-9)


@pytest.mark.slow
def test_the_rule_for_collections_loses_nothing_and_the_others_do():
    for name, law in coordinates.VARIANCES.items():
        losses = [
            coordinates._losses(law, epsilon, 16) for epsilon in np.arange(0.5, 10, 0.2).tolist()
        ]
        assert max(row["variance_loss"] for row in losses) == 0
        if name != "duchi":
            assert all(
                max(row[f"{rule}_loss"] for row in losses) > 0.1
                for rule in ("wide", "paper", "one")
            )


FIGURES = [(paper, number) for paper in experiments.PAPERS for number in experiments.figures(paper)]
# Of the figures, those that load data sets in different ways.
WITH_A_DATASET = [
    *((name, None) for name in experiments.EXPERIMENTS if name != "variance"),
    *(("hao", number) for number in ("1", "2", "3")),
    *(("mindspore", number) for number in ("silhouette", "epsilons")),
    *(("wang", number) for number in ("4", "5", "9")),
    ("shen", "4"),
]


@pytest.mark.parametrize(("name", "figure"), WITH_A_DATASET)
def test_an_unknown_data_set_leaves_nothing_behind(name, figure, tmp_path):
    with pytest.raises(UsageError, match="no data set"):
        experiments.run(name, Options("weather"), tmp_path, figure)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("paper", "number"), FIGURES)
def test_a_figure_does_not_ignore_a_data_set(paper, number):
    with pytest.raises(UsageError, match=r"no data set|without a choice of --dataset"):
        experiments.figures(paper)[number].cells(Options("weather", quick=True))


@pytest.mark.parametrize(("paper", "number"), FIGURES)
def test_a_figure_does_not_ignore_a_mechanism(paper, number, monkeypatch):
    monkeypatch.setattr(
        experiments, "tables", lambda *_: pytest.fail("it runs without the mechanism")
    )
    with pytest.raises(
        UsageError, match=r"no mechanisms|without a choice of --mechanism|mechanisms, not 3r"
    ):
        experiments.run(paper, Options(quick=True, contender=Contender("3r")), figure=number)


@pytest.mark.parametrize(("paper", "number"), FIGURES)
def test_cells_of_a_figure_are_known_again_in_any_process(paper, number):
    cells = experiments.figures(paper)[number].cells(Options(quick=True))
    keys = [cell.key for cell in cells]
    assert [cell.key for cell in pickle.loads(pickle.dumps(cells))] == keys
    assert len(set(keys)) == len(keys)
    assert not [key for key in keys if " at 0x" in key], (
        "the address of a function is another in each process"
    )


@pytest.mark.parametrize("number", ["4", "5", "9"])  # of a table, of means, of models
def test_a_mechanism_of_the_papers_is_added_to_a_figure_once(number):
    figure = experiments.figures("wang")[number]
    plain, same, more = (
        [cell.key for cell in figure.cells(Options(quick=True, contender=name and Contender(name)))]
        for name in (None, "pm", "pm-opt")
    )
    assert same == plain
    assert set(more) > set(plain)
    assert {key for key in more if "mechanism='pm-opt'" in key} == set(more) - set(plain)


@pytest.mark.parametrize(
    ("name", "figure", "options", "message"),
    [
        ("variance", None, {"runs": 0}, "--runs"),
        ("variance", None, {"seed": -1}, "--seed"),
        ("weather", None, {}, "no experiment"),
        ("pldp", None, {}, "no experiment"),
        ("variance", None, {"dataset": "iris"}, "no data set"),
        ("coordinates", None, {"dataset": "diabetes"}, "two classes"),
        ("frequencies", None, {"dataset": "diabetes"}, "no categorical attribute"),
        ("zhao", None, {}, "name a figure of zhao"),
        ("zhao", "1", {}, "zhao has no figure 1"),
        ("hao", "table-1", {}, "hao has no figure table-1"),
        ("mean", "2", {}, "'mean' is of no paper"),
        ("mean", None, {"in_full": True, "quick": False}, "is of no paper, and has no --in-full"),
        ("hao", "2", {"in_full": True, "quick": True}, "--quick and --in-full exclude each other"),
        ("shen", "4", {"dataset": "diabetes"}, "the labels of diabetes are no classes"),
        ("shen", "table-2", {"dataset": "diabetes"}, "the labels of diabetes are no classes"),
        ("mindspore", "epsilons", {"dataset": "diabetes"}, "diabetes has no classes"),
        ("wang", "9", {"dataset": "diabetes"}, "do not suit a logistic model"),
        ("wang", "11", {"dataset": "breast-cancer"}, "do not suit a linear model"),
        ("wang", "4", {"dataset": "breast-cancer"}, "no categorical attribute"),
        ("wang", "5", {"contender": Contender("optimal")}, "compare their mechanisms, not optimal"),
        (
            "wang",
            "5",
            {"contender": Contender("pm", 31)},
            "compare their mechanisms, not pm, 31 levels",
        ),
        (
            "wang",
            "1",
            {"dataset": "iris", "runs": None},
            "a formula, without a choice of --dataset",
        ),
        ("wang", "1", {}, "a formula, without a choice of --runs"),
        (
            "wang",
            "1",
            {"contender": Contender("duchi"), "runs": None},
            "without a choice of --mechanism",
        ),
        ("hao", "cost", {}, "a formula, without a choice of --runs"),
    ],
)
def test_invalid_options_of_an_experiment_are_refused(name, figure, options, message, tmp_path):
    with pytest.raises(UsageError, match=message):
        experiments.run(name, Options(**{"quick": True, "runs": 1, **options}), tmp_path, figure)
    assert not list(tmp_path.iterdir())


def test_means_are_those_of_numbers_and_not_of_columns_for_categories(tmp_path):
    path = tmp_path / "raw.txt"
    path.write_text("33,Jogging,1,-0.5,20.5,0.5;\n1,Walking,2,5,-10,0;\n")
    assert mean._values(f"wisdm-records:{path}", 1, seed=1).shape == (1, 3)
    assert mean._values("wine", 50, seed=1).shape == (50, 13)  # without the constant


def test_a_picture_of_a_data_set_in_a_file_is_named_without_its_path():
    common = {
        "data": "vehicle:/a/b",
        "model": "svm",
        "epsilon": 1.0,
        "measure": "accuracy",
        "reports": 9,
        "d": 2,
        "k": 1,
    }
    runs = [
        {"mechanism": name, "run": i, "figure": i / 9}
        for name in ("tern", "three-outputs", "pm")
        for i in (1, 2)
    ]
    optima = [{"data": "vehicle:/a/b", "model": "svm", "run": 1, "optimum": 0.9}]
    outcome = erm.outcome(
        Options(), {"folds": [{**common, **each} for each in runs], "optima": optima}
    )
    assert [*outcome.figures] == ["erm-vehicle"]


def test_a_fold_is_held_out_and_does_not_train():
    folds = [erm.fold("breast-cancer", i, seed=5) for i in range(10)]
    assert (sum(fold.held_out.astype(int) for fold in folds) == 1).all()
    first = folds[0]
    assert len(datasets.load("breast-cancer").labels) == len(first.labels)
    assert (erm.fold("breast-cancer", 10, seed=5).held_out != first.held_out).any(), "divided anew"
    learner = rounds.sgd(first, len(first.training), 1)
    assert learner.dataset is first
    assert learner.holdings is not None
    assert sorted(learner.holdings.order) == first.training.tolist()


@pytest.mark.slow
def test_a_mechanism_named_by_an_option_is_compared(tmp_path, tern, monkeypatch):
    monkeypatch.setattr(mean, "_COMPARED", ("duchi",))
    arguments = [
        "--dataset",
        "breast-cancer",
        "--quick",
        "--runs",
        "1",
        "--output",
        str(tmp_path / "mean"),
    ]
    arguments += ["--mechanism", "pm-sub", "--window", "best", "--levels", "31", "--workers", "1"]
    tern("experiment", "mean", *arguments, "--json")
    with (tmp_path / "mean" / "figure.csv").open(newline="") as file:
        compared = [row["curve"] for row in csv.DictReader(file)]
    assert compared == ["duchi", "pm-sub, 31 levels, window best"] * 2  # at two epsilons
    monkeypatch.setattr(
        experiments, "tables", lambda *_: pytest.fail("it runs without the mechanism")
    )
    for name in {*experiments.EXPERIMENTS} - {*experiments.COMPARING}:
        output = tmp_path / name
        refused = tern("experiment", name, "--mechanism", "duchi", "--output", str(output), code=2)
        assert f"{name!r} compares no mechanisms" in refused.err
        assert not output.exists()


def test_a_contender_s_options_reach_its_card():
    plain, best = Contender("pm-sub", 31), Contender("pm-sub", 31, (("window", "best"),))
    assert variance.of_card(best, "4") < variance.of_card(plain, "4")
    assert list(Options(contender=best).compared("duchi")) == [
        "duchi",
        "pm-sub, 31 levels, window best",
    ]


def test_nan_is_null_in_json_and_an_output_that_cannot_be_written_is_refused(tmp_path):
    outcome = Outcome({}, {"x": [{"a": math.nan, "b": [math.inf, 1.5]}]}, {}, name="x")
    experiments.write(outcome, tmp_path)
    assert json.loads((tmp_path / "x.json").read_text())["tables"]["x"] == [
        {"a": None, "b": [None, 1.5]}
    ]
    with pytest.raises(StorageError):
        experiments.write(outcome, tmp_path / "x.json" / "below")


# Conclusions: errors, intervals, and differences beyond noise; and the learners that tern is
# compared with


def test_reports_needed_are_interpolated_between_two_numbers():
    counts, losses = [1000, 10_000, 100_000], np.array([0.6, 0.5, 0.4])
    assert round(enough(counts, losses - 0.45) or 0) == round(10**4.5)
    assert enough(counts, losses - 0.7) == 1000
    assert enough(counts, losses - 0.3) is None
    assert (enough(counts, np.array([0.4, 0.6, 0.4]) - 0.5) or 0) > 10_000, "luck is not enough"
    common = {"data": "d", "epsilon": 1.0, "setting": "", "runs": 5, "standard_error": 0.005}
    by_learner = {reports_needed._TERN: (0.6, 0.5, 0.4), reports_needed._PAPERS: (0.7, 0.6, 0.5)}
    rows = [
        {**common, "learner": learner, "reports": n, "loss": loss}
        for learner, of_learner in by_learner.items()
        for n, loss in zip(counts, of_learner, strict=True)
    ]
    row = reports_needed._needed(rows, reports_needed._PAPERS)
    assert (row["papers_reports"], row["tern_reports"], row["at_most"]) == (100_000, 10_000, False)
    assert row["low"] < 10_000 < row["high"]
    assert "10,000 reports (" in reports_needed._words(row)
    assert "more reports" in reports_needed._words({**row, "tern_reports": None})


def test_each_run_of_the_papers_learner_is_tuned_by_the_others():
    by_learner = {"lucky": [0.1, 0.9, 0.9, 0.9], "good": [0.4] * 4, "bad": [0.8] * 4}
    rows = [
        {"learner": name, "run": run, "loss": loss}
        for name, losses in by_learner.items()
        for run, loss in enumerate(losses)
    ]
    assert reports_needed._best(rows) == ("good", [0.4] * 4), "luck in one run does not count"
    assert reports_needed._best([row for row in rows if row["run"] == 0]) == ("lucky", [0.1])


@pytest.mark.parametrize(("measure", "sign"), [("accuracy", 1), ("squared_error", -1)])
def test_a_summary_says_whether_ranges_are_better_than_none(measure, sign):
    rng = np.random.default_rng(3)
    common = rng.normal(0, 1, 10)
    asked = {"model": "m", "epsilon": 1.0, "measure": measure}
    rows = [
        {**asked, "data": data, "mechanism": name, "run": i, "figure": x}
        for data, by in (("more", 0.2), ("less", -0.2), ("same", 0.0))
        for name, add in ((erm._TERN, sign * by), (erm._LIKE_TERN, 0.0))
        for i, x in enumerate(common + add + rng.normal(0, 0.05, 10))
    ]
    compared = {row["data"]: row for row in erm._ranges(rows)}
    verdicts = {data: row["verdict"] for data, row in compared.items()}
    assert verdicts == {"more": "better", "less": "worse", "same": "tied"}
    assert compared["more"]["better_by"] == pytest.approx(0.2, abs=0.1)
