"""LDP-FedSGD in floats, as the papers describe it: the baseline for tern's learner.

For simulations only.

Source: Zhao et al., IEEE IoT J. 8, 2021, Algorithm 1. Each client reports once: k of the d
coordinates of its gradient, clipped to [-1, 1], at epsilon / k each. The other coordinates count as
0. A step follows the mean of a group of clients, multiplied by d / k.
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


def generator(seed: int) -> np.random.Generator:
    """The generator for the draws of a run, which are independent of the synthetic records of this
    seed.
    """
    return np.random.default_rng([seed, _DRAWS])


@dataclass(frozen=True)
class Training:
    """A run of LDP-FedSGD with one report from each client, at `rate`, or rate / sqrt(t) in round t
    if it `decays`.
    """

    model: str
    epsilon: float
    reports: int
    rate: float
    decays: bool = False
    rounds: int = GROUPS
    regularisation: float = 1e-4


def train(
    run: Training, dataset: Dataset, perturb: Callable[[float], Perturb], seed: int
) -> Floats:
    """The weights (d) after all rounds.

    The clients hold the training records in random order, cyclically.

    perturb: the mechanism at the epsilon of a coordinate.
    """
    rng = generator(seed)
    k = coordinates_by_rule("paper", round(run.epsilon * MICRO), dataset.dimension)
    report = perturb(run.epsilon / k)

    def mean(x: Floats, y: Floats, weights: Floats) -> Floats:
        chosen, values = gradients(run.model, x, y, weights, k, rng)
        return mean_of(chosen, report(values, rng), x.shape)

    return descend(run, dataset, mean, rng)


def mean_of(chosen: Indices, reports: Floats, shape: tuple[int, ...]) -> Floats:
    """The estimated mean (d) of n x d values, from k reports of each row (n x k) at the `chosen`
    coordinates (n x k).

    shape: (n, d).
    """
    total = np.bincount(chosen.ravel(), reports.ravel(), shape[1])
    return (total * (shape[1] / chosen.size)).astype(np.float64)


def descend(
    run: Training,
    dataset: Dataset,
    mean: Callable[[Floats, Floats, Floats], Floats],
    rng: np.random.Generator,
) -> Floats:
    """The weights (d) after all rounds. mean: estimates the mean gradient (d) of a group from x, y
    and the weights.
    """
    training = rng.permutation(dataset.training)
    order = training[np.arange(run.reports) % len(training)]
    weights = np.zeros(dataset.dimension)
    for number, part in enumerate(np.array_split(order, min(run.rounds, run.reports)), start=1):
        step = mean(dataset.features[part] / ONE, dataset.labels[part] / ONE, weights)
        rate = run.rate / math.sqrt(number) if run.decays else run.rate
        weights = weights - rate * (step + run.regularisation * weights)
    return weights


def slopes(model: str, x: Floats, y: Floats, weights: Floats) -> Floats:
    """The slope of each record's loss over its score (n): its gradient is this times its features."""
    z = np.einsum("ij,j->i", x, weights)
    sign = np.where(y > 0, 1.0, -1.0)
    if MODELS[model] == LINEAR:
        return np.asarray(z - y)
    if MODELS[model] == SVM:
        return np.where(sign * z < 1, -sign, 0.0)
    return np.asarray(-sign / (1 + np.exp(np.minimum(sign * z, 700))))


def choose(n: int, d: int, k: int, rng: np.random.Generator) -> Indices:
    """k different random coordinates of d for each of n clients (n x k)."""
    return (
        rng.integers(d, size=(n, 1))
        if k == 1
        else rng.random((n, d)).argpartition(k - 1, axis=1)[:, :k]
    )


def gradients(
    model: str, x: Floats, y: Floats, weights: Floats, k: int, rng: np.random.Generator
) -> tuple[Indices, Floats]:
    """k different random coordinates of each record, and its gradient there, clipped to [-1, 1]:
    both n x k.
    """
    n, d = x.shape
    chosen = choose(n, d, k, rng)
    slope = slopes(model, x, y, weights)
    return chosen, np.clip(slope[:, None] * np.take_along_axis(x, chosen, axis=1), -1, 1)
