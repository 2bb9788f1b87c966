"""What experiments conclude: errors, intervals, who is better beyond noise; and the learners that tern is beside."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tern.fixed import ONE
from ternhost import datasets
from ternhost.experiments import baseline, erm, hiera, pldp, reports_needed
from ternhost.experiments.statistics import beyond_noise, enough, mean_and_error, summaries, winners
from ternhost.learn import judging
from ternhost.learn.base import Population
from ternhost.privacy import certify, mechanisms
from ternhost.run import costs
from ternhost.vectorised import gradients


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
        run = baseline.Run("logistic", 4.0, reports, 1.0, decays=True)
        weights = baseline.train(run, data, baseline.MECHANISMS["pm-sub"], 1)
        assert (weights == baseline.train(run, data, baseline.MECHANISMS["pm-sub"], 1)).all()
        losses.append(judging.figures(data, 2, weights)["log_loss"])
    assert losses[1] < 0.45 < losses[0]
    ks = [baseline.Run("linear", epsilon, 1, 1).coordinates(16) for epsilon in (0.5, 4.9, 5.0, 8.0, 60.0)]
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
    assert of.budgets == tuple(round(budget * unit * 1e6) for budget in (1, 2, 3, 4, 5)), (
        "from the top range down"
    )
    most = Fraction(0)
    for reported, card in enumerate(of.composite.value_cards):  # brute force over both numbers
        for sign in (0, 1):
            told = [
                certify.at_knot(level_card, level)[reported] * certify.distribution(card, value)[sign]
                for level, level_card in enumerate(of.composite.level_cards)
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
        graded = hiera._graded(of, np.full(n, 0.3), np.full(n, attribute))(baseline.generator(7))
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
