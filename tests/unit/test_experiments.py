"""Experiments: each runs in a small version, writes complete files, and draws correct conclusions."""

import csv
import json
import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
import simulating

from tern.fixed import ONE
from ternhost import datasets
from ternhost.datasets import synthetic
from ternhost.errors import StorageError, UsageError
from ternhost.learn import judging
from ternhost.learn.designs import coordinates_by_rule
from ternhost.learn.optimisers import OPTIMISERS
from ternhost.planning import simulation as rounds
from ternhost.planning.statistics import beyond_noise, enough, mean_and_error, summaries, winners
from ternhost.privacy import certify, mechanisms
from ternhost.privacy.mechanisms import lhp, lower_bound
from ternhost.vectorised import gradients
from ternpapers import baseline, experiments, perturbing
from ternpapers.base import Contender, Options, Outcome
from ternpapers.experiments import coordinates, erm, mean, reports_needed, variance
from ternpapers.papers import hao

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


def test_a_paper_without_a_figure_lists_its_figures_and_runs_none(tern, here):
    listed = tern("experiment", "hao", "--json").json
    assert listed == {
        "experiment": "hao",
        "figures": {n: each.title for n, each in hao.FIGURES.items()},
    }
    assert "table-1" in tern("experiment", "zhao").out
    assert not list(here.iterdir())
    assert (
        "--figure, one of: 1, 2, 3, cost" in tern("experiment", "hao", "--figure", "9", code=2).err
    )
    assert "is of no paper" in tern("experiment", "rates", "--figure", "2", code=2).err
    assert (
        "exclude each other"
        in tern("experiment", "hao", "--figure=2", "--quick", "--in-full", code=2).err
    )


def test_an_experiment_learns_what_a_run_learns(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = {
        "dataset": "breast-cancer",
        "reports": 400,
        "group": 50,
        "epsilon": "4",
        "k": 1,
        "seed": 3,
    }
    learned = simulating.run("fedsgd", "simulated:400", **options)["weights"]
    learner = rounds.sgd(datasets.load("breast-cancer"), 400, 3, epsilon="4", k=1)
    assert (learner.options.group, learner.rounds) == (4, rounds.GROUPS)
    learner = simulating.begin("fedsgd", 400, **options)
    assert len(list(rounds.rounds(learner, rounds.fleet_of(learner, 3)))) == 8
    assert learner.weights.tolist() == learned
    assert any(learned)


def test_repeated_runs_begin_anew_with_other_draws():
    learner = rounds.collection(synthetic.attributes(500, 2, seed=1).numeric, epsilon="4", k=1)
    states = [repeated.state() for repeated in rounds.repeated(learner, (7, 8, 7))]
    assert states[0] == states[2] != states[1]
    assert [state["reports"] for state in states] == [[[500]]] * 3
    assert 0 < rounds.squared_error(learner) < 0.1


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


def test_folds_that_share_records_have_a_larger_error():
    values = [1.0, 2.0, 3.0, 4.0]
    mean, error = mean_and_error(values)
    assert (mean, error) == (2.5, pytest.approx(np.std(values, ddof=1) / 2))
    assert mean_and_error(values, shared=1 / 9)[1] == pytest.approx(error * (1 + 4 / 9) ** 0.5)
    assert mean_and_error([7.0]) == (7.0, 0.0)


def _runs(noise):
    rng = np.random.default_rng(1)
    common = rng.normal(0, 1, 10)  # the part of a run that all share, which pairing removes
    figures = {"a": 5 + common, "b": 5.1 + common + rng.normal(0, noise, 10), "c": 8 + common}
    return [
        {"set": "s", "who": who, "run": i, "figure": float(value)}
        for who, values in figures.items()
        for i, value in enumerate(values)
    ]


@pytest.mark.parametrize("larger", [True, False])
def test_a_summary_says_which_is_better_beyond_noise(larger):
    names = (("set",), "who", "figure")
    close, apart = (
        summaries(_runs(noise), *names, larger=lambda row: larger) for noise in (1.0, 0.01)
    )
    verdicts = [[row["verdict"] for row in rows] for rows in (close, apart)]
    assert [row["who"] for row in close + apart] == ["a", "b", "c"] * 2
    if larger:
        assert verdicts == [["worse", "worse", "best"]] * 2
    else:
        assert verdicts == [["tied", "tied", "worse"], ["best", "worse", "worse"]]
    a = close[0]
    assert a["low"] < a["figure"] < a["high"]
    assert a["high"] - a["figure"] == pytest.approx(
        2.262 * a["standard_error"], rel=1e-3
    )  # Student's t, 9
    (best,) = winners(apart, *names)
    assert (best["best"], best["wins"]) == ("c" if larger else "a", True)
    if not larger:
        (best,) = winners(close, *names)
        assert (best["best"], best["wins"], best["tied"]) == ("b", False, "a")


def test_noise_alone_is_seldom_taken_for_a_difference():
    rng = np.random.default_rng(2)
    taken = [
        beyond_noise(rng.normal(0, 1, 8)) or beyond_noise(rng.normal(0, 1, 8)) for _ in range(1000)
    ]
    assert 0.025 < np.mean(taken) < 0.075
    assert not beyond_noise(np.array([3.0])), "one run shows nothing"


# SCDF and Staircase by equation 2 of Wang et al.: m, and the density within m of 0, from epsilon
# and e^-epsilon. The density falls by e^-epsilon at m and at each step of 2 beyond it.
STEPS = {
    "scdf": lambda epsilon, e: (2 * (1 - e - epsilon * e) / (epsilon * (1 - e)), epsilon / 4),
    "staircase": lambda epsilon, e: (
        (m := 2 / (1 + math.exp(epsilon / 2))),
        (1 - e) / (2 * m + 4 * e - 2 * m * e),
    ),
}


@pytest.mark.parametrize("name", [name for name in perturbing.MECHANISMS if name not in STEPS])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_float_mechanisms_have_the_papers_mean_and_variance(name, epsilon):
    law = mechanisms.REGISTRY.named(name).variance
    assert law is not None
    n, rng = 200_000, baseline.generator(3)
    for x in (-0.8, 0.0, 0.3, 1.0):
        outputs = perturbing.MECHANISMS[name](epsilon)(np.full(n, x), rng)
        assert abs(outputs.mean() - x) < 5 * (law(epsilon, x) / n) ** 0.5
        assert outputs.var() == pytest.approx(law(epsilon, x), rel=0.03)


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_noise_of_steps_has_the_mean_and_the_variance_of_its_density(name, epsilon):
    m, height = STEPS[name](epsilon, math.exp(-epsilon))
    width = 2e-4
    y = np.arange(width / 2, 2 + 80 / epsilon, width)  # of one side
    density = height * np.exp(-epsilon * np.maximum(0, np.ceil((y - m) / 2)))
    assert 2 * width * density.sum() == pytest.approx(1, rel=1e-3)
    variance_of_density = 2 * width * (y * y * density).sum()
    n, rng = 200_000, baseline.generator(3)
    for x in (-0.8, 0.0, 1.0):
        outputs = perturbing.MECHANISMS[name](epsilon)(np.full(n, x), rng)
        assert abs(outputs.mean() - x) < 5 * (variance_of_density / n) ** 0.5
        assert outputs.var() == pytest.approx(variance_of_density, rel=0.03)
        assert np.mean(np.abs(outputs - x) < m) == pytest.approx(2 * m * height, abs=0.006)


@pytest.mark.parametrize("model", ["linear", "logistic", "svm"])
def test_float_gradients_agree_with_the_gradients_of_devices(model):
    data = datasets.load("diabetes" if model == "linear" else "breast-cancer")
    d = data.dimension
    weights = np.random.default_rng(4).normal(0, 0.3, d)
    x, y = data.features[:200] / ONE, data.labels[:200] / ONE
    chosen, components = baseline.gradients(model, x, y, weights, 3, np.random.default_rng(5))
    assert all(len(set(row)) == 3 for row in chosen.tolist())
    mantissas = np.rint(weights * 2**12).astype(np.int64)
    number = {"linear": 1, "logistic": 2, "svm": 3}[model]
    exact = gradients(number, mantissas, -12, data.records(np.arange(200)))
    assert np.abs(np.take_along_axis(exact, chosen, axis=1) / ONE - components).max() < 2e-3
    everything = baseline.mean_of(np.tile(np.arange(d), (200, 1)), exact / ONE, (200, d))
    assert everything == pytest.approx((exact / ONE).mean(axis=0))


def test_the_float_learner_learns_and_k_follows_the_paper_s_rule():
    data = datasets.load("synthetic-logistic")
    losses = []
    for reports in (1000, 50_000):
        run = baseline.Training("logistic", 4.0, reports, 1.0, decays=True)
        weights = baseline.train(run, data, perturbing.MECHANISMS["pm-sub"], 1)
        assert (weights == baseline.train(run, data, perturbing.MECHANISMS["pm-sub"], 1)).all()
        losses.append(judging.figures(data, 2, weights)["log_loss"])
    assert losses[1] < 0.45 < losses[0]
    ks = [
        coordinates_by_rule("paper", round(epsilon * 1e6), 16)
        for epsilon in (0.5, 4.9, 5.0, 8.0, 60.0)
    ]
    assert ks == [1, 1, 2, 3, 16]


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


def test_the_baseline_and_synthetic_records_have_different_draws():
    assert baseline.generator(1).random() != np.random.default_rng(1).random()


def test_the_more_often_reports_count_the_larger_is_the_error():
    assert len(hao._SHAPES) == 7
    rows = [
        row
        for unit in hao._UNITS
        for source in hao._SHAPES
        for row in hao._reused(unit, source, clients=100_000, seed=1)
    ]
    ranges = {}
    for mu in hao._MUS:
        more = [100 * (row["over_mu_1"] - 1) for row in rows if row["mu"] == mu]
        assert len(more) == 28
        ranges[mu] = f"{min(more):.3g} to {max(more):.3g} %"
    assert ranges == {
        1: "0 to 0 %",
        2: "2.87 to 10.6 %",
        3: "6.12 to 11.2 %",
        4: "4.46 to 12.1 %",
        5: "3.29 to 28.6 %",
    }
    assert list(hao._about_mu(rows).values()) == [False]


def test_regression_with_hiera_is_on_the_named_data_set_in_the_paper_s_groups():
    for number in ("1", "2", "3"):
        cells = hao.FIGURES[number].cells(Options("diabetes", quick=True))
        named = {cell.arguments.get("dataset", cell.arguments.get("source")) for cell in cells}
        assert named == {"diabetes"}
    d = datasets.load("diabetes").dimension
    (row,) = hao._on_devices(1.0, "diabetes", 2000, range(1))
    assert (row["panel"], row["group"]) == ("diabetes", math.ceil(d * math.log(d)))
    assert hao._group(0.1, d, 10_000) == math.ceil(100 * d * math.log(d))
    assert hao._group(0.1, d, 1000) == 1000
    weights = np.full(d, 0.25)
    figure = judging.figures(datasets.load("diabetes"), 1, weights)["squared_error"]
    assert hao._squared_error(datasets.load("diabetes"), weights) == pytest.approx(figure)


@pytest.mark.parametrize(("unit", "cost"), [(0.1, "0.972"), (0.5, "4.65"), (1.0, "9.04")])
def test_taking_the_level_of_another_number_costs_more(unit, cost):
    levels = hao.levels(unit)
    assert lhp.budgets_of(levels) == tuple(round(budget * unit * 1e6) for budget in (1, 2, 3, 4, 5))
    most = Fraction(0)
    for reported, card in enumerate(levels.body.value_cards):  # brute force over both numbers
        for sign in (0, 1):
            probabilities = [
                certify.at_knot(level_card, level)[reported]
                * certify.distribution(card, value)[sign]
                for level, level_card in enumerate(levels.body.level_cards)
                for value in (-ONE, -5000, 0, 77, ONE)
            ]
            most = max(most, Fraction(max(probabilities)) / Fraction(min(probabilities)))
    assert hao.loss_by_attribute(levels) == pytest.approx(math.log(most))
    assert f"{hao.loss_by_attribute(levels):.3g}" == cost
    assert hao.loss_by_attribute(levels) > levels.epsilon / 1e6


def test_reports_by_the_attribute_s_level_are_unbiased_and_less_noisy_for_a_low_attribute():
    levels, n = hao.levels(0.5), 200_000
    spread = []
    for attribute in (-0.9, 0.9):
        estimates = hao._by_attribute(
            levels, np.full(n, 0.3), np.full(n, attribute), baseline.generator(6)
        )
        assert abs(estimates.mean() - 0.3) < 5 * estimates.std() / n**0.5
        spread.append(estimates.std())
        graded = hao._graded(levels, np.full(n, 0.3), np.full(n, attribute), baseline.generator(7))
        assert graded.std() == pytest.approx(2**1.5 / (2.5 if attribute < 0 else 0.5), rel=0.02)
    assert spread[0] < spread[1], "the lowest range has the largest budget"
