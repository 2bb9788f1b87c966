"""LDP-FedSGD in floats, as the papers describe it, to compare tern's learner with.

It is for simulations only.

Source: Zhao et al., IEEE IoT J. 8, 2021, Algorithm 1. Each client reports once: k of the d
coordinates of its gradient, clipped to [-1, 1], at epsilon / k each. The other coordinates count as
0. A step follows the mean of a group of clients, multiplied by d / k. There are no more steps when
every client has reported, or when a step hardly moves the weights.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tern.fixed import ONE
from tern.wire import LINEAR, SVM
from ternhost.datasets import Dataset, Floats, Indices
from ternhost.learn.designs import coordinates_by_rule
from ternhost.learn.parameters import MODELS
from ternhost.planning.simulation import GROUPS
from ternhost.privacy.base import MICRO
from ternpapers.perturbing import Perturb

_DRAWS = 1  # distinguishes the draws of runs from those of synthetic records
_MOST_EXPONENT = 700  # exp of more than 709 overflows


def generator(seed: int) -> np.random.Generator:
    """Return the generator for the draws of a run, independent of the synthetic records of its seed."""
    return np.random.default_rng([seed, _DRAWS])


@dataclass(frozen=True)
class Training:
    """A run of LDP-FedSGD with one report from each client.

    model: the name of the model. epsilon: that of a report. reports: their number. rate: the
    learning rate of every round, or rate / sqrt(t) in round t if it `decays`. rounds: how many
    groups the clients are divided into. regularisation: the factor of the weights that is added to
    a gradient. tolerance: a round that moves no weight by more is the last one; 0: all are made. The
    paper names no tolerance for its experiments.
    """

    model: str
    epsilon: float
    reports: int
    rate: float
    decays: bool = False
    rounds: int = GROUPS
    regularisation: float = 1e-4
    tolerance: float = 0.0


def train(
    run: Training, dataset: Dataset, perturb: Callable[[float], Perturb], seed: int
) -> Floats:
    """Train a model; return its weights (d) after the last round.

    The clients hold the training records in random order, which is repeated if there are more
    clients. perturb: returns the mechanism at the epsilon of a coordinate. seed: that of all draws.
    """
    rng = generator(seed)
    k = numbers_in_report(run.epsilon, dataset.dimension)
    perturb_coordinates = perturb(run.epsilon / k)

    def mean_gradient(x: Floats, y: Floats, weights: Floats) -> Floats:
        """Estimate the mean gradient (d) of records with features x and labels y."""
        coordinates, values = gradients(run.model, x, y, weights, k, rng)
        reports = perturb_coordinates(values, rng)
        return mean_of(coordinates, reports, x.shape)

    return descend(run, dataset, mean_gradient, rng)


def numbers_in_report(epsilon: float, d: int) -> int:
    """Return k, how many of d numbers a client reports at epsilon / k each, by the papers' rule.

    Source: Wang et al., ICDE 2019, equation 12, and Zhao et al., equation 36.
    """
    return coordinates_by_rule("paper", round(epsilon * MICRO), d)


def mean_of(chosen: Indices, reports: Floats, shape: tuple[int, ...]) -> Floats:
    """Estimate the mean (d) of n x d values, of which each row reports k.

    chosen: the coordinates that each row reports (n x k). reports: their values (n x k). shape: the
    pair n, d. The sum of a coordinate is divided by n k / d, the number of its reports on average.
    """
    _, d = shape
    sums = np.bincount(chosen.ravel(), weights=reports.ravel(), minlength=d)
    return (sums * (d / chosen.size)).astype(np.float64)


def descend(
    run: Training,
    dataset: Dataset,
    mean: Callable[[Floats, Floats, Floats], Floats],
    rng: np.random.Generator,
) -> Floats:
    """Follow estimated gradients, one group of records after the other; return the weights (d).

    mean: estimates the mean gradient (d) of a group from its features, its labels and the weights.
    rng: draws which client holds which record.
    """
    training = rng.permutation(dataset.training)
    order = training[np.arange(run.reports) % len(training)]  # the record of each client
    groups = np.array_split(order, min(run.rounds, run.reports))
    weights = np.zeros(dataset.dimension)
    for number, group in enumerate(groups, start=1):
        features, labels = dataset.features[group] / ONE, dataset.labels[group] / ONE
        gradient = mean(features, labels, weights)
        rate = run.rate
        if run.decays:
            rate = run.rate / math.sqrt(number)
        step = rate * (gradient + run.regularisation * weights)
        weights = weights - step
        if run.tolerance > 0 and np.abs(step).max() <= run.tolerance:
            break
    return weights


def slopes(model: str, x: Floats, y: Floats, weights: Floats) -> Floats:
    """Return the derivative of each record's loss by its score (n).

    A record's gradient is this times its features. With the score z and the label y it is z - y for
    linear regression. With y = 1 or -1 it is -y if y z < 1, else 0, for an SVM, and
    -y / (1 + exp(y z)) for logistic regression. x, y: the features and labels of n records.
    """
    scores = np.einsum("ij,j->i", x, weights)
    sign = np.where(y > 0, 1.0, -1.0)
    if MODELS[model] == LINEAR:
        return np.asarray(scores - y)
    if MODELS[model] == SVM:
        return np.where(sign * scores < 1, -sign, 0.0)
    margin = np.minimum(sign * scores, _MOST_EXPONENT)
    return np.asarray(-sign / (1 + np.exp(margin)))


def choose(n: int, d: int, k: int, rng: np.random.Generator) -> Indices:
    """Draw k different coordinates of d for each of n clients (n x k)."""
    if k == 1:
        return rng.integers(d, size=(n, 1))
    # The positions of the k smallest of d random numbers.
    numbers = rng.random((n, d))
    return numbers.argpartition(k - 1, axis=1)[:, :k]


def gradients(
    model: str, x: Floats, y: Floats, weights: Floats, k: int, rng: np.random.Generator
) -> tuple[Indices, Floats]:
    """Draw k coordinates of each record, and return them with its gradient there (both n x k).

    The gradient is clipped to [-1, 1]. model, x, y, weights: as of `slopes`.
    """
    n, d = x.shape
    coordinates = choose(n, d, k, rng)
    features = np.take_along_axis(x, coordinates, axis=1)
    slope = slopes(model, x, y, weights)
    return coordinates, np.clip(slope[:, None] * features, -1, 1)
