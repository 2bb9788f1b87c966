"""Learners on simulated clients learn what runs learn, and conclusions from repeated runs are right."""

import numpy as np
import pytest
import simulating

from ternhost import datasets
from ternhost.planning import simulation
from ternhost.planning.statistics import beyond_noise, enough, mean_and_error, summaries, winners


def test_a_simulated_learner_learns_what_a_run_learns(tmp_path, monkeypatch):
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
    learner = simulation.sgd(datasets.load("breast-cancer"), 400, 3, epsilon="4", k=1)
    assert (learner.options.group, learner.rounds) == (4, simulation.GROUPS)
    learner = simulating.begin("fedsgd", 400, **options)
    assert len(list(simulation.rounds(learner, simulation.fleet_of(learner, 3)))) == 8
    assert learner.weights.tolist() == learned
    assert any(learned)


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


def test_enough_reports_are_interpolated_over_the_logarithm():
    reports, losses = [1000, 10_000, 100_000], np.array([0.6, 0.5, 0.4])
    assert enough(reports, losses - 0.45) == pytest.approx(10**4.5)
    assert enough(reports, losses - 0.7) == 1000
    assert enough(reports, losses - 0.3) is None
