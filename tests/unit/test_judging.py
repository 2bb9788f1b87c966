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
from ternhost.datasets.shipped import bundled
from ternhost.learn.models import judging
from ternhost.learn.models.optimum import fit, optimum

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


# Decisions


def rare(share, *, of_training=None, records=200):
    """Records of one feature, the constant, of which a share is of the class "yes".

    All records judge a model, and all but them are to learn from: as many again, of which the
    share `of_training` is of the class, by default the same.
    """
    labels = []
    for each in (share, share if of_training is None else of_training):
        positive = round(each * records)
        labels += [ONE] * positive + [-ONE] * (records - positive)
    return datasets.Dataset(
        name="rare",
        task=datasets.CLASSIFICATION,
        feature_names=("constant",),
        features=np.full((len(labels), 1), ONE, np.int16),
        labels=np.array(labels, np.int16),
        held_out=np.arange(len(labels)) < records,
        classes=("no", "yes"),
    )


def logistic(data, probability):
    """The weights of a model that gives the same probability of "yes" to each of these records."""
    return np.array([judging.logit(probability)])


def decide(data, probability, threshold=0.5):
    return judging.decisions(data, wire.LOGISTIC, logistic(data, probability), threshold)


def test_recall_and_precision_equal_those_of_scikit_learn():
    from sklearn import metrics

    data = DATA[wire.LOGISTIC]()
    weights = np.random.default_rng(3).normal(size=data.dimension)
    rarer = data.shares.argmin()
    is_rarer = (data.labels[data.test] > 0) == rarer
    is_predicted = (data.features[data.test] / ONE @ weights > 0) == rarer

    found = judging.decisions(data, wire.LOGISTIC, weights)

    assert found["recall"] == pytest.approx(metrics.recall_score(is_rarer, is_predicted))
    assert found["precision"] == pytest.approx(metrics.precision_score(is_rarer, is_predicted))


def test_the_rarer_class_is_that_of_the_records_to_learn_from():
    assert decide(rare(0.9, of_training=0.1), 0.5)["rarer"] == "yes"
    assert decide(rare(0.1, of_training=0.9), 0.5)["rarer"] == "no"


def test_a_class_that_is_never_predicted_has_no_recall_and_no_precision():
    found = decide(rare(0.1), 0.1)
    assert (found["predicted"], found["recall"], found["precision"]) == (0, 0, None)


def test_the_recall_of_a_class_that_no_held_out_record_has_is_not_known():
    found = decide(rare(0, of_training=0.1), 0.1)
    assert found["recall"] is None


def test_a_model_that_predicts_no_record_to_be_of_the_rarer_class_misses_it():
    assert judging.never_predicted(decide(rare(0.1), 0.1)) == ["yes"]


def test_a_model_misses_no_class_that_no_held_out_record_has():
    assert judging.never_predicted(decide(rare(0, of_training=0.1), 0.1)) == []


@pytest.mark.parametrize(("share", "expected"), [(0.1, 0.3), (0.9, 0.7)], ids=["yes", "no"])
def test_the_mean_probability_is_that_of_the_rarer_class(share, expected):
    assert decide(rare(share), 0.3)["mean_probability"] == pytest.approx(expected)


def test_the_real_share_is_that_among_held_out_records():
    assert decide(rare(0.1, of_training=0.3), 0.3)["share"] == pytest.approx(0.1)


@pytest.mark.parametrize(("threshold", "predicted"), [(0.09, 1), (0.11, 0)])
def test_a_model_predicts_a_class_whose_probability_is_above_the_threshold(threshold, predicted):
    found = decide(rare(0.1), 0.1, threshold)
    assert found["predicted"] == predicted


def test_the_accuracy_is_that_of_the_decisions_at_the_threshold():
    data = rare(0.1)
    weights = logistic(data, 0.3)
    assert judging.figures(data, wire.LOGISTIC, weights)["accuracy"] == pytest.approx(0.9)
    at_low = judging.figures(data, wire.LOGISTIC, weights, threshold=0.2)
    assert at_low["accuracy"] == pytest.approx(0.1)


def test_the_interval_of_an_accuracy_is_that_at_the_threshold():
    data = rare(0.1)
    low, high = judging.intervals(data, wire.LOGISTIC, logistic(data, 0.3), 0.2)["accuracy"]
    assert low < 0.1 < high < 0.5


def test_the_log_loss_of_a_single_record_has_no_interval():
    data = rare(1.0, records=1, of_training=0.0)
    found = judging.intervals(data, wire.LOGISTIC, logistic(data, 0.3))
    assert found["log_loss"] is None


def test_a_threshold_changes_neither_auc_nor_log_loss():
    data = DATA[wire.LOGISTIC]()
    weights = np.random.default_rng(3).normal(size=data.dimension)
    before = judging.figures(data, wire.LOGISTIC, weights)
    after = judging.figures(data, wire.LOGISTIC, weights, threshold=0.9)
    assert (before["auc"], before["log_loss"]) == (after["auc"], after["log_loss"])


def test_scores_of_a_support_vector_machine_are_no_probabilities():
    data = rare(0.1)
    found = judging.decisions(data, wire.SVM, np.array([1.0]))
    assert (found["mean_probability"], found["threshold"]) == (None, None)


def test_the_recall_of_each_class_of_a_softmax_model_equals_that_of_scikit_learn():
    from sklearn import metrics

    data = bundled.multiclass("digits")
    weights = np.random.default_rng(3).normal(size=10 * data.dimension)
    predicted = (data.features[data.test] / ONE @ weights.reshape(10, -1).T).argmax(axis=1)

    found = judging.decisions(data, wire.SOFTMAX_GRADIENT, weights)

    expected = metrics.recall_score(data.labels[data.test], predicted, average=None)
    assert list(found["recall_of_class"].values()) == pytest.approx(list(expected))
    assert tuple(found["recall_of_class"]) == data.classes


def test_a_softmax_model_names_the_classes_that_it_never_predicts():
    data = bundled.multiclass("digits")
    weights = np.zeros((10, data.dimension))
    weights[[3, 5], 0] = 1  # of the constant: all other classes are less probable
    found = judging.decisions(data, wire.SOFTMAX_GRADIENT, weights.ravel())
    assert found["never_predicted"] == [name for name in data.classes if name != data.classes[3]]


def test_labels_that_are_numbers_have_no_decisions():
    data = DATA[wire.LINEAR]()
    assert judging.decisions(data, wire.LINEAR, np.zeros(data.dimension)) == {}


# Intervals


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
    monkeypatch.setattr("ternhost.learn.models.optimum.fit", lambda *_: pytest.fail("fitted again"))
    assert (optimum(wire.LOGISTIC, data, 1e-4) == first).all()
