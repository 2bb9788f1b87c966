"""Trains one model by LDP-FedSGD with a mechanism, and computes its error."""

import math
from dataclasses import dataclass
from itertools import count

import numpy as np

from ternhost.datasets import Dataset, Floats
from ternhost.learn.models import judging
from ternhost.learn.models.judging import ACCURACY, SQUARED_ERROR
from ternhost.learn.models.optimum import optimum
from ternhost.learn.models.training import TrainingPlan
from ternhost.learn.parameters import MODELS
from ternpapers import baseline
from ternpapers.comparison.reports import of_a_number
from ternpapers.figure import NON_PRIVATE

LINEAR_MODEL = "linear"  # the model whose labels are numbers
_DRAWS_OF_ROUND = 2  # distinguishes the draws of a round from the other draws of a seed


@dataclass(frozen=True)
class Setting:
    """How a model is trained.

    model: its name. mechanism, epsilon, outputs: as of `reported`. Without privacy, epsilon
    and outputs do not count.
    """

    model: str
    mechanism: str
    epsilon: float = math.inf
    outputs: int | None = None


def error_of(model: str, fold: Dataset, weights: Floats) -> float:
    """Return the error of a model on the held-out fold.

    For a linear model this is the mean squared error of its scores. Any other model predicts a class
    by the sign of its score, and its error is the misclassification rate. weights: the model (d).
    """
    if model == LINEAR_MODEL:
        return float(judging.figures(fold, MODELS[LINEAR_MODEL], weights)[SQUARED_ERROR])
    # Judged as an SVM, whose class is the sign of the score.
    return 1 - float(judging.figures(fold, MODELS["svm"], weights)[ACCURACY])


def trained_weights(setting: Setting, dataset: Dataset, reports: int, seed: int) -> Floats:
    """Train a model by LDP-FedSGD, or without privacy, and return its weights (d).

    Clients clip each number of their gradients to [-1, 1], and report it as `reported` does.
    reports: how many clients there are. seed: with the same one, the clients of a round draw the
    same numbers with each mechanism, also if they drew more of them in an earlier round.
    """
    if setting.mechanism == NON_PRIVATE:
        return optimum(MODELS[setting.model], dataset, TrainingPlan.regularisation)

    rounds = count()
    d = dataset.dimension
    k, perturb = of_a_number(setting.mechanism, setting.epsilon, d, setting.outputs)

    def mean_gradient(x: Floats, y: Floats, weights: Floats) -> Floats:
        """Estimate the mean gradient (d) of records with features x and labels y."""
        rng = np.random.default_rng([seed, _DRAWS_OF_ROUND, next(rounds)])
        if k < d:
            coordinates, values = baseline.gradients(setting.model, x, y, weights, k, rng)
            return baseline.mean_of(coordinates, perturb(values, rng), x.shape)
        slopes = baseline.slopes(setting.model, x, y, weights)
        gradients = np.clip(slopes[:, None] * x, -1, 1)
        return np.asarray(perturb(gradients, rng).mean(axis=0))

    training = baseline.Training(setting.model, setting.epsilon, reports, rate=1.0, decays=True)
    return baseline.descend(training, dataset, mean_gradient, baseline.generator(seed))
