"""Figures of a model and their intervals, by hand and by scikit-learn, and the optimum without
privacy.
"""

from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest

from tern import wire
from tern.fixed import ONE
from ternhost import datasets
from ternhost.datasets import bundled
from ternhost.learn import judging
from ternhost.learn.optimum import fit, optimum

# For every task, a dataset whose held-out records have more than one label.
DATA = {
    wire.LINEAR: lambda: datasets.load("diabetes"),
    wire.LOGISTIC: lambda: datasets.load("breast-cancer"),
    wire.SVM: lambda: datasets.load("breast-cancer"),
    wire.SOFTMAX_GRADIENT: lambda: bundled.multiclass("digits"),
}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TERN_CACHE", str(tmp_path))


@pytest.mark.parametrize("model", [wire.LOGISTIC, wire.SVM])
def test_figures_of_two_classes_equal_those_of_scikit_learn(model):
    """Accuracy, AUC and log loss of a model with random weights, on the test set. Features are
    fixed-point numbers, in which ONE stands for 1.
    """
    from sklearn import metrics

    data = DATA[model]()
    weights = np.random.default_rng(3).normal(size=data.dimension)
    scores = data.features[data.test] / ONE @ weights
    positive = data.labels[data.test] > 0

    figures = judging.figures(data, model, weights)

    assert figures["accuracy"] == metrics.accuracy_score(positive, scores > 0)
    assert figures["auc"] == pytest.approx(metrics.roc_auc_score(positive, scores), abs=1e-4)
    if model == wire.LOGISTIC:  # scores of an SVM are no probabilities
        log_loss = metrics.log_loss(positive, 1 / (1 + np.exp(-scores)))
        assert figures["log_loss"] == pytest.approx(log_loss)


def test_figures_of_several_classes_equal_those_of_scikit_learn():
    """Accuracy and log loss of softmax regression with random weights, on the test set of the ten
    digits. Features are fixed-point numbers, in which ONE stands for 1.
    """
    from sklearn import metrics

    data = bundled.multiclass("digits")
    weights = np.random.default_rng(3).normal(size=10 * data.dimension)
    scores = data.features[data.test] / ONE @ weights.reshape(10, -1).T
    labels = data.labels[data.test]
    odds = np.exp(scores)

    figures = judging.figures(data, wire.SOFTMAX_GRADIENT, weights)

    assert figures["accuracy"] == metrics.accuracy_score(labels, scores.argmax(axis=1))
    log_loss = metrics.log_loss(labels, odds / odds.sum(axis=1, keepdims=True))
    assert figures["log_loss"] == pytest.approx(log_loss)


@pytest.mark.parametrize(("positive", "negative"), [(20, 30), (100, 900)], ids=["few", "many"])
@pytest.mark.parametrize("true", [0.5, 0.95])
def test_intervals_of_an_auc_cover_it(positive, negative, true):
    """The AUC is the probability that a record of the positive class scores above one of the other.
    With normal scores, shifted for one class so that the true AUC is known, 95 percent of the
    intervals are to hold it.
    """
    rng = np.random.default_rng(positive)
    shift = NormalDist().inv_cdf(true) * 2**0.5
    labels = np.arange(positive + negative) < positive

    covered = 0
    for _ in range(400):
        scores = rng.normal(size=len(labels)) + shift * labels
        low, high = judging.auc_interval(judging._auc(scores, labels), positive, negative)
        covered += low <= true <= high

    assert 0.92 <= covered / 400 <= 0.985


# The optimum without privacy


def loss(model, data, weights, regularisation):
    """The objective of scikit-learn: mean loss plus penalty."""
    x, y = data.features[data.training] / ONE, data.labels[data.training] / ONE
    z = x @ weights.reshape(-1, data.dimension).T
    if model == wire.LINEAR:
        each = (z[:, 0] - y) ** 2 / 2
    elif model == wire.SVM:
        each = np.maximum(0, 1 - np.sign(y) * z[:, 0])
    elif model == wire.LOGISTIC:
        each = np.log1p(np.exp(-np.sign(y) * z[:, 0]))
    else:
        each = np.log(np.exp(z).sum(axis=1)) - z[np.arange(len(z)), data.labels[data.training]]
    return each.mean() + regularisation / 2 * (weights**2).sum()


@pytest.mark.parametrize("model", DATA)
def test_the_optimum_equals_that_of_scikit_learn(model):
    """The optimum, to which private models are compared, has the same loss as the model that
    scikit-learn fits with the same penalty, for every kind of model.
    """
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.svm import LinearSVC

    data = DATA[model]()
    x, y = data.features[data.training] / ONE, data.labels[data.training]
    weight = 1e-3  # of the penalty
    # scikit-learn counts the penalty against the sum of losses, or (C) the other way round.
    common = {"C": 1 / (weight * len(x)), "fit_intercept": False}
    logistic = LogisticRegression(**common, max_iter=10_000)
    theirs = {
        wire.LINEAR: Ridge(alpha=weight * len(x), fit_intercept=False, tol=1e-10),
        wire.LOGISTIC: logistic,
        wire.SVM: LinearSVC(**common, loss="hinge", max_iter=200_000, tol=1e-6),
        wire.SOFTMAX_GRADIENT: logistic,
    }[model].fit(x, y / ONE if model == wire.LINEAR else y)

    ours = fit(model, data, weight)

    expected = loss(model, data, np.ravel(theirs.coef_), weight)
    assert loss(model, data, ours, weight) == pytest.approx(expected, rel=2e-3)


def test_an_optimum_is_fitted_once(tmp_path, monkeypatch):
    data = datasets.load("breast-cancer")
    first = optimum(wire.LOGISTIC, data, 1e-4)
    optimum(wire.LOGISTIC, replace(data, labels=-data.labels), 1e-4)  # of other data
    assert len(list((tmp_path / "optima").iterdir())) == 2
    monkeypatch.setattr("ternhost.learn.optimum.fit", lambda *_: pytest.fail("fitted again"))
    assert (optimum(wire.LOGISTIC, data, 1e-4) == first).all()
