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
from ternhost import datasets, experiments
from ternhost.datasets import synthetic
from ternhost.errors import StorageError, UsageError
from ternhost.experiments import baseline, coordinates, erm, hiera, pldp, reports_needed, rounds, variance
from ternhost.experiments.base import Contender, Options, Outcome
from ternhost.experiments.mean import _values as values_to_average
from ternhost.experiments.statistics import beyond_noise, enough, mean_and_error, summaries, winners
from ternhost.learn import judging
from ternhost.learn.base import Population
from ternhost.learn.designs import coordinates_by_rule
from ternhost.learn.fedavg import FedAvg
from ternhost.learn.optimisers import OPTIMISERS
from ternhost.privacy import certify, mechanisms
from ternhost.privacy.mechanisms import lhp, lower_bound
from ternhost.run import costs
from ternhost.vectorised import gradients

SMALL = {
    "mean": "breast-cancer", "erm": "breast-cancer", "discretisation": "breast-cancer",
    "pldp": "breast-cancer", "inference": "iris", "reports-needed": "diabetes", "rates": "diabetes",
}  # fmt: skip


# These experiments run with fewer cells than even their quick versions.
SMALLER = {
    "variance": (lower_bound, "STEPS", 12),
    "erm": (erm, "_MODELS", {datasets.CLASSIFICATION: ("logistic",)}),
    "hiera": (hiera, "_RATES", (0.1, 0.3)),
    "coordinates": (coordinates, "_KINDS", coordinates._KINDS[:2]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", experiments.EXPERIMENTS)
def test_an_experiment_runs_and_writes_its_files(name, tmp_path, monkeypatch):
    if name in SMALLER:
        monkeypatch.setattr(*SMALLER[name])
    messages, optimisers = [], list(OPTIMISERS)
    options = Options(SMALL.get(name), 1, True, progress=messages.append, workers=1)
    cells = experiments._module(name).cells(options)
    assert len(pickle.loads(pickle.dumps(cells))) == len(cells)  # for other processes: see test_cells
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
            assert not axes.has_data() or all((axes.get_xlabel(), axes.get_ylabel(), axes.get_title()))
        legend = [text.get_text() for text in figure.legends[0].get_texts()]
        assert len(legend) == len(set(legend))


def test_variances_cross_at_the_epsilons_of_tables_1_and_2():
    epsilons = [variance.crossing(*row) for row in variance.CROSSINGS]
    expected = [1.289784683, 2.324170122, 1.193048192, 2.56108931, 3.269358482]
    assert epsilons == pytest.approx(expected, abs=5e-9)


@pytest.mark.slow
def test_the_rule_for_collections_loses_nothing_and_the_others_do():
    for name, law in coordinates.VARIANCES.items():
        losses = [coordinates._losses(law, epsilon, 16) for epsilon in np.arange(0.5, 10, 0.2).tolist()]
        assert max(row["variance_loss"] for row in losses) == 0
        if name != "duchi":
            assert all(max(row[f"{rule}_loss"] for row in losses) > 0.1 for rule in ("wide", "paper", "one"))


@pytest.mark.parametrize("name", ["mean", "hiera", "inference", "erm", "rates", "pldp", "reports-needed"])
def test_an_unknown_data_set_leaves_nothing_behind(name, tmp_path):
    with pytest.raises(UsageError, match="no data set"):
        experiments.run(name, Options("weather"), tmp_path)
    assert not list(tmp_path.iterdir())


def test_invalid_options_of_an_experiment_are_refused():
    for name, options, message in (
        ("variance", {"runs": 0}, "--runs"),
        ("variance", {"seed": -1}, "--seed"),
        ("weather", {}, "no experiment"),
        ("variance", {"dataset": "iris"}, "no data set"),
        ("discretisation", {"dataset": "diabetes"}, "two classes"),
        ("pldp", {"dataset": "diabetes"}, "two classes"),
        ("coordinates", {"dataset": "diabetes"}, "two classes"),
    ):
        with pytest.raises(UsageError, match=message):
            experiments.run(name, Options(**{"quick": True, "runs": 1, **options}))


def test_an_experiment_learns_what_a_run_learns(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = {"dataset": "breast-cancer", "reports": 400, "group": 50, "epsilon": "4", "k": 1, "seed": 3}
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
    assert values_to_average(f"wisdm-records:{path}", 1, seed=1).shape == (1, 3)
    assert values_to_average("wine", 50, seed=1).shape == (50, 13)  # without the constant


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
    outcome = erm.outcome(Options(), {"folds": [{**common, **each} for each in runs], "optima": optima})
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


def test_moves_beyond_the_safe_range_are_counted():
    dataset, clipped = datasets.load("breast-cancer"), []
    for tau in (0.0005, 0.05, 7.0):
        options = {"rounds": 2, "records": 4, "share": 0.5, "k": 1, "tau": tau}
        trained = pldp._train(dataset, 1, options)
        clipped.append(trained["clipped"])
        learner = FedAvg(FedAvg.Options(seed=1, **options), Population(), dataset)
        rounds.simulate(learner, 1)
        assert trained["figure"] == rounds.figure_of(learner), "counting changes nothing"
    assert 1 >= clipped[0] > 0.9 > clipped[1] > clipped[2] == 0


@pytest.mark.slow
def test_a_mechanism_named_by_an_option_is_compared(tmp_path, tern, monkeypatch):
    monkeypatch.setattr(pldp, "_MECHANISMS", ("duchi",))
    monkeypatch.setattr(pldp, "_ALL_WEIGHTS", ())
    arguments = ["--dataset", "breast-cancer", "--quick", "--runs", "1", "--output", str(tmp_path)]
    arguments += ["--mechanism", "pm-sub", "--window", "best", "--levels", "31", "--workers", "1"]
    tern("experiment", "pldp", *arguments, "--json")
    with (tmp_path / "tau.csv").open(newline="") as file:
        compared = [row["mechanism"] for row in csv.DictReader(file)]
    assert set(compared) == {"duchi", "pm-sub, 31 levels, window best"}
    refused = tern("experiment", "hiera", "--mechanism", "duchi", code=2)
    assert "compares no mechanisms" in refused.err


def test_a_contender_s_options_reach_its_card():
    plain, best = Contender("pm-sub", 31), Contender("pm-sub", 31, (("window", "best"),))
    assert variance.of_card(best, "4") < variance.of_card(plain, "4")
    assert list(Options(contender=best).compared("duchi")) == ["duchi", "pm-sub, 31 levels, window best"]


def test_nan_is_null_in_json_and_an_output_that_cannot_be_written_is_refused(tmp_path):
    outcome = Outcome({}, {"x": [{"a": math.nan, "b": [math.inf, 1.5]}]}, {}, name="x")
    experiments.write(outcome, tmp_path)
    assert json.loads((tmp_path / "x.json").read_text())["tables"]["x"] == [{"a": None, "b": [None, 1.5]}]
    with pytest.raises(StorageError):
        experiments.write(outcome, tmp_path / "x.json" / "below")


# Conclusions: errors, intervals, and differences beyond noise; and the learners that tern is compared with


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
    close, apart = (summaries(_runs(noise), *names, larger=lambda row: larger) for noise in (1.0, 0.01))
    verdicts = [[row["verdict"] for row in rows] for rows in (close, apart)]
    assert [row["who"] for row in close + apart] == ["a", "b", "c"] * 2
    if larger:
        assert verdicts == [["worse", "worse", "best"]] * 2
    else:
        assert verdicts == [["tied", "tied", "worse"], ["best", "worse", "worse"]]
    a = close[0]
    assert a["low"] < a["figure"] < a["high"]
    assert a["high"] - a["figure"] == pytest.approx(2.262 * a["standard_error"], rel=1e-3)  # Student's t, 9
    (best,) = winners(apart, *names)
    assert (best["best"], best["wins"]) == ("c" if larger else "a", True)
    if not larger:
        (best,) = winners(close, *names)
        assert (best["best"], best["wins"], best["tied"]) == ("b", False, "a")


def test_noise_alone_is_seldom_taken_for_a_difference():
    rng = np.random.default_rng(2)
    taken = [beyond_noise(rng.normal(0, 1, 8)) or beyond_noise(rng.normal(0, 1, 8)) for _ in range(1000)]
    assert 0.025 < np.mean(taken) < 0.075
    assert not beyond_noise(np.array([3.0])), "one run shows nothing"


@pytest.mark.parametrize("name", baseline.MECHANISMS)
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_float_mechanisms_have_the_papers_mean_and_variance(name, epsilon):
    law = mechanisms.REGISTRY.named(name).variance
    assert law is not None
    n, rng = 200_000, baseline.generator(3)
    for x in (-0.8, 0.0, 0.3, 1.0):
        outputs = baseline.MECHANISMS[name](epsilon)(np.full(n, x), rng)
        assert abs(outputs.mean() - x) < 5 * (law(epsilon, x) / n) ** 0.5
        assert outputs.var() == pytest.approx(law(epsilon, x), rel=0.03)


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
        weights = baseline.train(run, data, baseline.MECHANISMS["pm-sub"], 1)
        assert (weights == baseline.train(run, data, baseline.MECHANISMS["pm-sub"], 1)).all()
        losses.append(judging.figures(data, 2, weights)["log_loss"])
    assert losses[1] < 0.45 < losses[0]
    ks = [coordinates_by_rule("paper", round(epsilon * 1e6), 16) for epsilon in (0.5, 4.9, 5.0, 8.0, 60.0)]
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
    assert len(hiera._SHAPES) == 7
    rows = [
        row for unit in hiera._UNITS for source in hiera._SHAPES
        for row in hiera._reused(unit, source, clients=100_000, seed=1)
    ]  # fmt: skip
    assert [line.partition(" than")[0] for line in hiera._about_mu(rows)] == [
        "mu 2: the error of a mean is 2.87 to 10.6 % larger",
        "mu 3: the error of a mean is 6.12 to 11.2 % larger",
        "mu 4: the error of a mean is 4.46 to 12.1 % larger",
        "mu 5: the error of a mean is 3.29 to 28.6 % larger",
    ]


def test_regression_of_hiera_is_on_the_named_data_set_in_the_paper_s_groups():
    cells = hiera.cells(Options("diabetes", 1, quick=True))
    named = {cell.table: cell.arguments.get("dataset", cell.arguments.get("source")) for cell in cells}
    assert named == {"mu": "diabetes", "means": "diabetes", "regression": "diabetes"}
    d = datasets.load("diabetes").dimension
    (row,) = hiera._on_devices(1.0, "diabetes", 2000, range(1))
    assert (row["data"], row["group"]) == ("diabetes", math.ceil(d * math.log(d)))
    assert hiera._group(0.1, d, 10_000) == math.ceil(100 * d * math.log(d))
    assert hiera._group(0.1, d, 1000) == 1000
    weights = np.full(d, 0.25)
    figure = judging.figures(datasets.load("diabetes"), 1, weights)["squared_error"]
    assert hiera._squared_error(datasets.load("diabetes"), weights) == pytest.approx(figure)


@pytest.mark.parametrize("unit", [0.1, 1.0])
def test_taking_the_level_of_another_number_costs_more(unit):
    levels = hiera.levels(unit)
    assert lhp.budgets_of(levels) == tuple(round(budget * unit * 1e6) for budget in (1, 2, 3, 4, 5))
    most = Fraction(0)
    for reported, card in enumerate(levels.body.value_cards):  # brute force over both numbers
        for sign in (0, 1):
            probabilities = [
                certify.at_knot(level_card, level)[reported] * certify.distribution(card, value)[sign]
                for level, level_card in enumerate(levels.body.level_cards)
                for value in (-ONE, -5000, 0, 77, ONE)
            ]
            most = max(most, Fraction(max(probabilities)) / Fraction(min(probabilities)))
    assert hiera.loss_by_attribute(levels) == pytest.approx(math.log(most))
    assert hiera.loss_by_attribute(levels) > levels.epsilon / 1e6


def test_reports_by_the_attribute_s_level_are_unbiased_and_less_noisy_for_a_low_attribute():
    levels, n = hiera.levels(0.5), 200_000
    spread = []
    for attribute in (-0.9, 0.9):
        estimates = hiera._by_attribute(levels, np.full(n, 0.3), np.full(n, attribute), baseline.generator(6))
        assert abs(estimates.mean() - 0.3) < 5 * estimates.std() / n**0.5
        spread.append(estimates.std())
        graded = hiera._graded(levels, np.full(n, 0.3), np.full(n, attribute), baseline.generator(7))
        assert graded.std() == pytest.approx(2**1.5 / (2.5 if attribute < 0 else 0.5), rel=0.02)
    assert spread[0] < spread[1], "the lowest range has the largest budget"


def test_a_client_that_reports_all_weights_spends_as_many_epsilons():
    data = datasets.load("flights")
    common = {"rounds": 40, "records": 9, "share": 0.1, "k": 1, "mechanism": "pdpm", "clients": 30_000}
    spent = []
    for name in ("eps1", "eps2", "eps3"):
        options = pldp.FedAvg.Options(choices=pldp._choices(name, "tau2"), **common)
        learner = pldp._AllWeights(options, Population(), data)
        assert [round(design.tau, 4) for design in learner.designs] == [0.0625, 0.125, 0.25]
        spent.append(max(costs.costs(learner)) / 1e6)
    assert (data.dimension, learner.times) == (28, 4)
    assert spent == pytest.approx([112, 336, 560], abs=0.01)
