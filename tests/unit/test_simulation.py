"""Learners on simulated clients learn what runs learn, and conclusions from repeated runs are right."""

import numpy as np
import pytest
import simulating

from ternhost.planning import simulation
from ternhost.planning.statistics import beyond_noise, mean_and_error, summaries


def test_a_simulated_learner_learns_what_a_run_learns(here):
    """Experiments simulate learners without files, stores and commands. With the same seed, they
    learn exactly the weights of a whole run.
    """
    options = {"data": "breast-cancer", "reports": 400, "group": 50, "k": 1, "seed": 3}
    learned = simulating.run("fedsgd", "simulated:400", epsilon="4", **options)["weights"]

    learner = simulating.begin("fedsgd", 400, epsilon="4", **options)
    simulated = list(simulation.rounds(learner, simulation.fleet_of(learner, 3)))
    assert len(simulated) == 400 // 50
    assert learner.weights.tolist() == learned
    assert any(learned), "not all weights are 0"


def test_folds_that_share_records_have_a_larger_error():
    values = [1.0, 2.0, 3.0, 4.0]
    mean, error = mean_and_error(values)
    assert (mean, error) == (2.5, pytest.approx(np.std(values, ddof=1) / 2))
    assert mean_and_error(values, shared=1 / 9)[1] == pytest.approx(error * (1 + 4 / 9) ** 0.5)
    assert mean_and_error([7.0]) == (7.0, 0.0)


def runs_with_noise(noise):
    """Ten runs of three methods: a, one that is better by .1 and by noise of its own, and c, which
    is far better. Of each run, all three share a part, which pairing removes.
    """
    random = np.random.default_rng(1)
    common = random.normal(0, 1, 10)
    figures = {"a": 5 + common, "b": 5.1 + common + random.normal(0, noise, 10), "c": 8 + common}
    rows = []
    for method, values in figures.items():
        for i, value in enumerate(values):
            rows.append({"set": "s", "who": method, "run": i, "figure": float(value)})
    return rows


@pytest.mark.parametrize(
    ("larger_is_better", "noise", "verdicts"),
    [
        (True, 1.0, ["worse", "worse", "best"]),
        (True, 0.01, ["worse", "worse", "best"]),
        (False, 1.0, ["tied", "tied", "worse"]),
        (False, 0.01, ["best", "worse", "worse"]),
    ],
    ids=[
        "accuracy, much noise",
        "accuracy, little noise",
        "loss, much noise",
        "loss, little noise",
    ],
)
def test_a_summary_says_which_is_better_beyond_noise(larger_is_better, noise, verdicts):
    """Methods are compared over ten repeated runs. Method c is far above the others; b is above a
    by 0.1, which is certain only where the noise of b is small. A method is "tied" with the best if
    the difference, run by run, may be chance. The interval of a mean is that of Student's t.
    """
    rows = summaries(
        runs_with_noise(noise), ("set",), "who", "figure", larger=lambda row: larger_is_better
    )
    assert [row["who"] for row in rows] == ["a", "b", "c"]
    assert [row["verdict"] for row in rows] == verdicts

    first = rows[0]
    students_t = 2.262  # 95 %, of 9 degrees of freedom
    half_width = students_t * first["standard_error"]
    assert first["high"] - first["figure"] == pytest.approx(half_width, rel=1e-3)


def test_noise_alone_is_seldom_taken_for_a_difference():
    rng = np.random.default_rng(2)
    taken = [
        beyond_noise(rng.normal(0, 1, 8)) or beyond_noise(rng.normal(0, 1, 8)) for _ in range(1000)
    ]
    assert 0.025 < np.mean(taken) < 0.075
    assert not beyond_noise(np.array([3.0])), "one run shows nothing"
