"""HierA in training: FedSGD whose gradients are reported as level and sign, at their true loss."""

import numpy as np
import pytest
from simulating import begin, finished, run

from tern import card as cards
from tern import wire
from tern.fixed import ONE
from ternhost import datasets
from ternhost.run.costs import costs

HIERA = {
    "dataset": "synthetic-linear",
    "model": "linear",
    "epsilon": "12",
    "reports": 40_000,
    "group": 4000,
}


@pytest.mark.usefixtures("here")
def test_it_pays_the_true_loss():
    algorithm = begin("hiera", 40_000, **HIERA)
    (design,) = algorithm.designs
    assert (design.card.shape, design.k, design.mechanism) == (cards.HIERARCHY, 1, "lhp")
    assert 11_999_000 < design.cost <= 12_000_000
    assert algorithm.modules == ("lhp",)
    (question, clients), *rest = algorithm.cohorts(range(1, 40_001))
    assert (question.model, question.card, len(clients), rest) == (
        wire.LINEAR,
        design.card.data,
        4000,
        [],
    )

    result = run("hiera", "simulated:40000", **HIERA)
    assert result["epsilon_paid"] == design.cost / 1e6
    assert result["epsilon_stated"] < 8
    assert (result["bytes_per_report"], result["measure"]) == (18, "squared_error")
    assert result["squared_error"] < result["squared_error_baseline"]
    assert "accuracy" not in result


def test_mini_batches_fit_a_regression(monkeypatch):
    rng, n = np.random.default_rng(6), 30_000
    x = np.concatenate([np.ones((n, 1)), rng.uniform(-1, 1, (n, 2))], axis=1)
    y = x @ [0.3, 0.4, -0.2]
    fixed = datasets.to_fixed(x), datasets.to_fixed(y)
    data = datasets.Dataset(
        "line", datasets.REGRESSION, ("1", "a", "b"), *fixed, datasets.held_out(n)
    )
    monkeypatch.setattr(datasets, "load", lambda name, classes=False: data)
    options = {"model": "linear", "epsilon": "8.07", "reports": 25_000, "group": 500}
    learner = finished(begin("hiera", 25_000, **options))
    result = learner.result([])
    assert result["squared_error"] < 0.3 * np.var(y)
    assert result["squared_error_optimum"] < 0.01 * np.var(y)
    assert costs(learner) == [pytest.approx(8_070_000, abs=5000)]
    assert result["epsilon_stated"] == pytest.approx(5, abs=0.01)
    assert result["squared_error_baseline"] == pytest.approx(
        np.var(data.labels[data.test] / ONE), rel=0.01
    )


def test_reuse_of_reports_depends_only_on_the_seed_and_the_round(monkeypatch):
    data = datasets.synthetic.linear(2000, 4)
    monkeypatch.setattr(datasets, "load", lambda name, classes=False: data)
    options = {"model": "linear", "epsilon": "8", "reports": 1000, "group": 250}
    weights = [finished(begin("hiera", 1000, mu=mu, **options)).weights for mu in (3, 3, 1)]
    assert (weights[0] == weights[1]).all()
    assert (weights[0] != weights[2]).any()
    clamped = finished(begin("hiera", 1000, mu=1, clamp=True, **options)).weights
    assert (weights[2] != clamped).any()
