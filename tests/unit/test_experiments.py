"""Experiments: each runs small, its files are whole, and what it says holds."""

import csv
import json
import math
import pickle
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tern.fixed import ONE
from ternhost import datasets, experiments
from ternhost.cli import main
from ternhost.datasets import synthetic
from ternhost.errors import StorageError, UsageError
from ternhost.experiments import (
    Contender,
    Options,
    base,
    baseline,
    coordinates,
    erm,
    hiera,
    pldp,
    reports_needed,
    rounds,
    variance,
)
from ternhost.experiments.statistics import beyond_noise, enough, mean_and_error, summaries, winners
from ternhost.learn import judging
from ternhost.learn.base import Population
from ternhost.learn.designs import coordinates_by_rule
from ternhost.learn.fedavg import FedAvg
from ternhost.learn.fedsgd import FedSGD
from ternhost.learn.optimisers import OPTIMISERS
from ternhost.privacy import certify, mechanisms
from ternhost.privacy.mechanisms import lhp, lower_bound
from ternhost.run import costs
from ternhost.run.options import RunOptions
from ternhost.run.run import Run
from ternhost.vectorised import gradients

SMALL = {
    "mean": "breast-cancer", "erm": "breast-cancer", "discretisation": "breast-cancer",
    "pldp": "breast-cancer", "inference": "iris", "reports-needed": "diabetes", "rates": "diabetes",
}  # fmt: skip


# Even smaller than a quick version: the same cells, fewer of them.
SMALLER: dict[str, tuple[Any, str, Any]] = {
    "variance": (lower_bound, "STEPS", 12),
    "erm": (erm, "_MODELS", {datasets.CLASSIFICATION: ("logistic",)}),
    "hiera": (hiera, "_RATES", (0.1, 0.3)),
    "coordinates": (coordinates, "_KINDS", coordinates._KINDS[:2]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", experiments.EXPERIMENTS)
def test_an_experiment_runs_and_writes_its_files(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name in SMALLER:
        monkeypatch.setattr(*SMALLER[name])
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
        losses = [coordinates._losses(law, epsilon, 16) for epsilon in np.arange(0.5, 10, 0.2).tolist()]
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
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pldp, "_MECHANISMS", ("duchi",))
    monkeypatch.setattr(pldp, "_ALL_WEIGHTS", ())
    arguments = ["--dataset", "breast-cancer", "--quick", "--runs", "1", "--output", str(tmp_path)]
    own = ["--mechanism", "pm-sub", "--window", "best", "--levels", "31", "--workers", "1"]
    assert main(["experiment", "pldp", *arguments, *own, "--json"]) == 0
    capsys.readouterr()
    with (tmp_path / "tau.csv").open(newline="") as file:
        compared = [row["mechanism"] for row in csv.DictReader(file)]
    assert set(compared) == {"duchi", "pm-sub, 31 levels, window best"}
    for wrong, problem in (
        (["pldp", "--window", "best"], "--window is an option of a mechanism"),
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


def test_nan_is_null_in_json_and_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    outcome = base.Outcome({}, {"x": [{"a": math.nan, "b": [math.inf, 1.5]}]}, {}, name="x")
    experiments.write(outcome, tmp_path)
    assert json.loads((tmp_path / "x.json").read_text())["tables"]["x"] == [{"a": None, "b": [None, 1.5]}]
    with pytest.raises(StorageError):
        experiments.write(outcome, tmp_path / "x.json" / "below")


# What experiments conclude: errors, intervals, who is better beyond noise; and the learners that tern is beside


def test_folds_that_share_records_have_a_larger_error() -> None:
    values = [1.0, 2.0, 3.0, 4.0]
    mean, error = mean_and_error(values)
    assert (mean, error) == (2.5, pytest.approx(np.std(values, ddof=1) / 2))
    assert mean_and_error(values, shared=1 / 9)[1] == pytest.approx(error * (1 + 4 / 9) ** 0.5)
    assert mean_and_error([7.0]) == (7.0, 0.0)


def _runs(noise: float) -> list[dict[str, Any]]:
    rng = np.random.default_rng(1)
    common = rng.normal(0, 1, 10)  # of the run, which all share: what pairing takes away
    figures = {"a": 5 + common, "b": 5.1 + common + rng.normal(0, noise, 10), "c": 8 + common}
    return [
        {"set": "s", "who": who, "run": i, "figure": float(value)}
        for who, values in figures.items()
        for i, value in enumerate(values)
    ]


@pytest.mark.parametrize("larger", [True, False])
def test_who_is_better_beyond_noise(larger: bool) -> None:
    close, apart = (
        summaries(_runs(noise), ("set",), "who", "figure", larger=lambda row: larger) for noise in (1.0, 0.01)
    )
    assert {row["who"]: row["verdict"] for row in close} == (
        {"a": "worse", "b": "worse", "c": "best"} if larger else {"a": "tied", "b": "tied", "c": "worse"}
    )
    assert {row["who"]: row["verdict"] for row in apart} == (
        {"a": "worse", "b": "worse", "c": "best"} if larger else {"a": "best", "b": "worse", "c": "worse"}
    )
    a = close[0]
    assert a["low"] < a["figure"] < a["high"]
    assert a["high"] - a["figure"] == pytest.approx(2.262 * a["standard_error"], rel=1e-3)  # Student's t, 9
    (best,) = winners(apart, ("set",), "who", "figure")
    assert (best["best"], best["wins"]) == ("c" if larger else "a", True)
    if not larger:
        (best,) = winners(close, ("set",), "who", "figure")
        assert (best["best"], best["wins"], best["tied"]) == ("b", False, "a")


def test_noise_alone_is_seldom_taken_for_more() -> None:
    rng = np.random.default_rng(2)
    found = [beyond_noise(rng.normal(0, 1, 8)) or beyond_noise(rng.normal(0, 1, 8)) for _ in range(1000)]
    assert 0.025 < np.mean(found) < 0.075
    assert not beyond_noise(np.array([3.0])), "one run tells nothing"


# The float baseline


@pytest.mark.parametrize("name", baseline.MECHANISMS)
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_float_mechanisms_have_the_papers_mean_and_variance(name: str, epsilon: float) -> None:
    law = mechanisms.REGISTRY.named(name).variance
    assert law is not None
    n, rng = 200_000, baseline.generator(3)
    for x in (-0.8, 0.0, 0.3, 1.0):
        found = baseline.MECHANISMS[name](epsilon)(np.full(n, x), rng)
        assert abs(found.mean() - x) < 5 * (law(epsilon, x) / n) ** 0.5
        assert found.var() == pytest.approx(law(epsilon, x), rel=0.03)


@pytest.mark.parametrize("model", ["linear", "logistic", "svm"])
def test_float_gradients_are_those_of_devices(model: str) -> None:
    data = datasets.load("diabetes" if model == "linear" else "breast-cancer")
    d = data.dimension
    weights = np.random.default_rng(4).normal(0, 0.3, d)
    x, y = data.features[:200] / ONE, data.labels[:200] / ONE
    chosen, found = baseline.gradients(model, x, y, weights, 3, np.random.default_rng(5))
    assert all(len(set(row)) == 3 for row in chosen.tolist())
    mantissas = np.rint(weights * 2**12).astype(np.int64)
    exact = gradients(
        {"linear": 1, "logistic": 2, "svm": 3}[model], mantissas, -12, data.records(np.arange(200))
    )
    assert np.abs(np.take_along_axis(exact, chosen, axis=1) / ONE - found).max() < 2e-3
    everything = baseline.mean_of(np.tile(np.arange(d), (200, 1)), exact / ONE, (200, d))
    assert everything == pytest.approx((exact / ONE).mean(axis=0))


def test_the_float_learner_learns_and_k_follows_the_paper_s_rule() -> None:
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


def test_reports_needed_are_read_off_between_two_numbers() -> None:
    counts = [1000, 10_000, 100_000]
    losses = np.array([0.6, 0.5, 0.4])
    assert round(enough(counts, losses - 0.45) or 0) == round(10**4.5)
    assert enough(counts, losses - 0.7) == 1000
    assert enough(counts, losses - 0.3) is None
    assert (enough(counts, np.array([0.4, 0.6, 0.4]) - 0.5) or 0) > 10_000, "luck is not enough"
    common = {"data": "d", "epsilon": 1.0, "setting": "", "runs": 5}
    rows = [
        {**common, "learner": learner, "reports": n, "loss": loss, "standard_error": 0.005}
        for learner, losses in (
            (reports_needed._TERN, (0.6, 0.5, 0.4)),
            (reports_needed._PAPERS, (0.7, 0.6, 0.5)),
        )
        for n, loss in zip(counts, losses, strict=True)
    ]
    row = reports_needed._needed(rows, reports_needed._PAPERS)
    assert (row["papers_reports"], row["tern_reports"], row["at_most"]) == (100_000, 10_000, False)
    assert row["low"] < 10_000 < row["high"]
    assert "10,000 reports (" in reports_needed._words(row)
    assert "more reports" in reports_needed._words({**row, "tern_reports": None})


def test_each_run_of_the_papers_learner_is_tuned_by_the_others() -> None:
    losses = {"lucky": [0.1, 0.9, 0.9, 0.9], "good": [0.4, 0.4, 0.4, 0.4], "bad": [0.8, 0.8, 0.8, 0.8]}
    rows = [
        {"learner": name, "run": run, "loss": loss}
        for name, own in losses.items()
        for run, loss in enumerate(own)
    ]
    assert reports_needed._best(rows) == ("good", [0.4] * 4), "luck in one run is no merit"
    assert reports_needed._best([row for row in rows if row["run"] == 0]) == ("lucky", [0.1])


@pytest.mark.parametrize(("measure", "sign"), [("accuracy", 1), ("squared_error", -1)])
def test_where_ranges_are_better_than_none(measure: str, sign: int) -> None:
    rng = np.random.default_rng(3)
    common = rng.normal(0, 1, 10)
    rows = [
        {
            "data": data, "model": "m", "epsilon": 1.0, "measure": measure, "mechanism": name, "run": i,
            "figure": x,
        }
        for data, by in (("more", 0.2), ("less", -0.2), ("same", 0.0))
        for name, add in ((erm._TERN, sign * by), (erm._LIKE_TERN, 0.0))
        for i, x in enumerate(common + add + rng.normal(0, 0.05, 10))
    ]  # fmt: skip
    found = {row["data"]: row for row in erm._ranges(rows)}
    assert {data: row["verdict"] for data, row in found.items()} == {
        "more": "better", "less": "worse", "same": "tied",
    }  # fmt: skip
    assert found["more"]["better_by"] == pytest.approx(0.2, abs=0.1)


def test_draws_are_other_ones_than_those_of_synthetic_records() -> None:
    assert baseline.generator(1).random() != np.random.default_rng(1).random()


# HierA


@pytest.mark.parametrize("unit", [0.1, 1.0])
def test_a_level_of_another_number_costs_more(unit: float) -> None:
    of = hiera.levels(unit)
    assert lhp.budgets_of(of) == tuple(round(budget * unit * 1e6) for budget in (1, 2, 3, 4, 5)), (
        "from the top range down"
    )
    most = Fraction(0)
    for reported, card in enumerate(of.hierarchy.value_cards):  # brute force over both numbers
        for sign in (0, 1):
            told = [
                certify.at_knot(level_card, level)[reported] * certify.distribution(card, value)[sign]
                for level, level_card in enumerate(of.hierarchy.level_cards)
                for value in (-ONE, -5000, 0, 77, ONE)
            ]
            most = max(most, Fraction(max(told)) / Fraction(min(told)))
    assert hiera.loss_by_attribute(of) == pytest.approx(math.log(most))
    assert hiera.loss_by_attribute(of) > of.epsilon / 1e6


def test_reports_by_the_attribute_s_level_are_unbiased_and_less_noisy_where_it_is_low() -> None:
    of, n = hiera.levels(0.5), 200_000
    spread = []
    for attribute in (-0.9, 0.9):
        found = hiera._by_attribute(of, np.full(n, 0.3), np.full(n, attribute), baseline.generator(6))
        assert abs(found.mean() - 0.3) < 5 * found.std() / n**0.5
        spread.append(found.std())
        graded = hiera._graded(of, np.full(n, 0.3), np.full(n, attribute), baseline.generator(7))
        assert graded.std() == pytest.approx(2**1.5 / (2.5 if attribute < 0 else 0.5), rel=0.02)
    assert spread[0] < spread[1], "the lowest range has the largest budget"


# PLDP-FL


def test_a_client_that_reports_all_weights_spends_as_many_epsilons() -> None:
    data = datasets.load("flights")
    asked = {"rounds": 40, "records": 9, "share": 0.1, "k": 1, "mechanism": "pdpm", "clients": 30_000}
    spent = []
    for name in ("eps1", "eps2", "eps3"):
        options = pldp.FedAvg.Options(choices=pldp._choices(name, "tau2"), **asked)
        learner = pldp._AllWeights(options, Population(), data)
        assert [round(own.tau, 4) for own in learner.designs] == [0.0625, 0.125, 0.25]
        spent.append(max(costs.costs(learner)) / 1e6)
    assert (data.dimension, learner.times) == (28, 4)
    assert spent == pytest.approx([112, 336, 560], abs=0.01)
