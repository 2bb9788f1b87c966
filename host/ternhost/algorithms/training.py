"""LDP-FedSGD: groups of devices, one step of the model a group, and when to stop.

Every device takes part once. Round by round a new group is asked for the gradient at the current parameters; the
estimate of its mean comes from elsewhere (`aggregate.estimate`), by whatever transport. What is here is pure: no
clock, no input or output, and a state that fits in a small JSON object, so that a run can stop and be resumed.

The update is projected gradient descent with polynomial-decay averaging (Shamir and Zhang, ICML 2013): the model
that counts is an average of all iterates in which the later ones weigh more. Source of the protocol: Zhao et al., IEEE
IoT J. 8, 2021, Algorithm 7; the learning rate is ours and follows from the noise (`automatic_rate`).
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from tern.fixed import ONE
from tern.wire import LINEAR, LOGISTIC, MAX_DIMENSION, MAX_EXPONENT, MIN_EXPONENT, SVM
from ternhost.aggregate import estimate
from ternhost.datasets import CLASSIFICATION, Dataset
from ternhost.errors import UsageError

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

MODELS = {"linear": LINEAR, "logistic": LOGISTIC, "svm": SVM}

# Why a run stopped.
ROUNDS = "rounds"  # all planned rounds are done
CONVERGED = "converged"  # the parameters no longer move
QUORUM = "quorum"  # too many rounds in a row without enough reports

_MANTISSA = 32767
_AT_ONCE = 1 << 16  # records of an exact gradient
LARGEST_WEIGHT = _MANTISSA * 2.0**MAX_EXPONENT  # just under 8

# A step must not overshoot: the loss curves by at most this times the mean of |x|**2, which is below d. (The hinge has
# a kink instead of a curvature; it is treated as the logistic loss that resembles it.)
_CURVATURE = {LINEAR: 1.0, LOGISTIC: 0.25, SVM: 0.25}
# How much noise the last iterate's prediction may carry, on the scale that the model's loss works on. Logistic: chosen
# on a tenth of the training records of flights and of the synthetic set (0.25 to 1 differ little); held-out
# records took no part.
_NOISE = {LINEAR: 0.2, LOGISTIC: 0.5, SVM: 0.5}


@dataclass(frozen=True)
class Parameters:
    """What a ROUND carries: d int16 mantissas of `2**exponent`."""

    mantissas: array[int]
    exponent: int

    @property
    def values(self) -> Floats:
        return np.array(self.mantissas, np.float64) * 2.0**self.exponent


def quantise(weights: npt.ArrayLike) -> Parameters:
    """The parameters nearest to `weights` with the finest exponent that holds them all.

    Weights beyond +-LARGEST_WEIGHT are cut to it. Raises ValueError for one that is not finite.
    """
    real = np.asarray(weights, np.float64)
    if not np.isfinite(real).all():
        raise ValueError("not a finite number")
    real = np.clip(real, -LARGEST_WEIGHT, LARGEST_WEIGHT)
    exponent = MIN_EXPONENT
    if largest := float(np.abs(real).max(initial=0.0)):
        exponent = min(MAX_EXPONENT, max(MIN_EXPONENT, math.frexp(largest)[1] - 15))
        if np.rint(largest * 2.0**-exponent) > _MANTISSA:
            exponent += 1
    return Parameters(array("h", np.rint(real * 2.0**-exponent).astype(np.int16).tobytes()), exponent)


@dataclass(frozen=True)
class Settings:
    """A run, fixed before it starts. `expected` is the number of reports that a full round brings a coordinate."""

    model: int
    dimension: int
    rounds: int
    expected: float
    learning_rate: float
    regularisation: float = 1e-4
    averaging: float = 3.0  # iterate t weighs about t**averaging; 0 is the plain mean
    tolerance: float = 1e-4  # a gradient below this in every coordinate counts as none
    patience: int = 5  # so many rounds without a gradient end the run
    failures: int = 3  # so many rounds without quorum, one after the other, end the run

    def __post_init__(self) -> None:
        if self.model not in MODELS.values() or not 1 <= self.dimension <= MAX_DIMENSION:
            raise UsageError(f"no such model, or a dimension beyond {MAX_DIMENSION}")
        if self.rounds < 1 or self.expected <= 0 or self.patience < 1 or self.failures < 1:
            raise UsageError("a run needs a round, and a round needs a report")
        if not 0 < self.learning_rate < math.inf or not 0 <= self.regularisation < math.inf:
            raise UsageError("the learning rate must be above 0 and the regularisation not below it")


def plan(
    model: int,
    dimension: int,
    *,
    reports: int,
    group: int,
    k: int,
    variance: float,
    learning_rate: float | None = None,
    regularisation: float = 1e-4,
) -> Settings:
    """The settings of a run that spends `reports` reports of k coordinates, `group` a round.

    variance: of one reported value at input 0, from the card. The learning rate follows unless it is given.
    Raises UsageError for sizes that make no run.
    """
    if not 1 <= group <= reports or not 1 <= k <= dimension or variance < 0:
        raise UsageError(
            f"{reports} reports in groups of {group}, {k} of {dimension} coordinates each: that is no run",
            hint="a group has at least 1 and at most all of the reports; k is at most d",
        )
    rounds = math.ceil(reports / group)
    expected = group * k / dimension
    if learning_rate is None:
        learning_rate = automatic_rate(model, dimension, rounds, variance / expected)
    tolerance = 0.0 if variance else Settings.tolerance  # an estimate of 0 is then no sign of a gradient of 0
    return Settings(model, dimension, rounds, expected, learning_rate, regularisation, tolerance=tolerance)


def automatic_rate(model: int, dimension: int, rounds: int, variance: float) -> float:
    """A learning rate for `rounds` steps along gradients whose coordinates carry noise of that variance.

    After T steps of rate r the noise in w.x has a standard deviation of at most r sqrt(T d variance), for |x|**2 <= d.
    The rate lets that grow to a set share of the loss's own scale, so that with n reports altogether the
    length of the path, r T, grows as sqrt(n), the noise against it shrinks, and the size of a group hardly matters. It
    is capped where gradient descent without noise would begin to overshoot.
    """
    largest = 4 / (_CURVATURE[model] * dimension)
    if variance <= 0:
        return largest
    return min(largest, _NOISE[model] / math.sqrt(rounds * dimension * variance))


class Trainer:
    """One run: ask `question()`, estimate the mean gradient of a group, `update()`, until `stopped` says why."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.weights: Floats = np.zeros(settings.dimension)
        self.average: Floats = np.zeros(settings.dimension)
        self.round = 0  # rounds that have ended, with or without an update
        self.updates = 0
        self.stopped: str | None = None
        self._still = 0
        self._failed = 0

    def question(self) -> Parameters:
        """The parameters to send in the next round."""
        return quantise(self.weights)

    @property
    def model(self) -> Floats:
        """The model learnt so far: the averaged iterates, as quantised as devices would get them."""
        return quantise(self.average).values

    def update(self, mean: npt.ArrayLike, reports: npt.ArrayLike) -> None:
        """End a round with its estimated mean gradient (d values) and how many reports each coordinate rests on.

        A coordinate that nobody reported has 0 reports and any mean, nan included. Every report moves the model by
        the same amount: a coordinate with half of the expected reports makes half a step.
        """
        self._check_open()
        counts = np.asarray(reports, np.float64)
        gradient = np.where(counts > 0, np.asarray(mean, np.float64), 0.0)
        if gradient.shape != self.weights.shape or counts.shape not in (gradient.shape, ()):
            raise ValueError(f"a gradient of {self.settings.dimension} coordinates is needed")
        if not np.isfinite(gradient).all():
            raise ValueError("the gradient is not finite")
        settings = self.settings
        direction = gradient * (counts / settings.expected) + settings.regularisation * self.weights
        moved = np.clip(self.weights - settings.learning_rate * direction, -LARGEST_WEIGHT, LARGEST_WEIGHT)
        step = float(np.abs(moved - self.weights).max())
        self.weights = moved
        self.updates += 1
        share = (settings.averaging + 1) / (settings.averaging + self.updates)
        self.average = self.average + share * (moved - self.average)
        self._still = self._still + 1 if step < settings.tolerance * settings.learning_rate else 0
        self._failed = 0
        self._end_round()

    def fail(self) -> None:
        """End a round that had no report: the model stays as it is. Each one that came is unbiased, so few will do."""
        self._check_open()
        self._failed += 1
        self._end_round()

    def _check_open(self) -> None:
        if self.stopped:
            raise ValueError(f"the run has stopped: {self.stopped}")

    def _end_round(self) -> None:
        self.round += 1
        if self._failed >= self.settings.failures:
            self.stopped = QUORUM
        elif self._still >= self.settings.patience:
            self.stopped = CONVERGED
        elif self.round >= self.settings.rounds:
            self.stopped = ROUNDS

    def state(self) -> dict[str, Any]:
        """All that changes in a run, for JSON; `restore` takes it back exactly."""
        return {
            "round": self.round,
            "updates": self.updates,
            "stopped": self.stopped,
            "still": self._still,
            "failed": self._failed,
            "weights": self.weights.tolist(),
            "average": self.average.tolist(),
        }

    @classmethod
    def restore(cls, settings: Settings, state: Mapping[str, Any]) -> Trainer:
        """The trainer that gave `state()`. Raises UsageError if it is of another dimension or not a state."""
        trainer = cls(settings)
        try:
            trainer.weights = np.array(state["weights"], np.float64)
            trainer.average = np.array(state["average"], np.float64)
            trainer.round, trainer.updates = int(state["round"]), int(state["updates"])
            trainer._still, trainer._failed = int(state["still"]), int(state["failed"])
            trainer.stopped = state["stopped"]
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(f"the stored state of training cannot be read: {error}") from error
        if trainer.weights.shape != (settings.dimension,) or trainer.average.shape != (settings.dimension,):
            raise UsageError("the stored state of training is of a model of another dimension")
        return trainer


# Groups


def groups(positions: npt.ArrayLike, size: int, seed: int) -> list[Indices]:
    """Deal `positions` at random into groups of `size`, each position in one; the last group may be smaller."""
    order = np.random.default_rng(seed).permutation(np.asarray(positions, np.int64))
    return [order[start : start + size] for start in range(0, len(order), size)]


def choose_groups(dataset: Dataset, reports: int, group: int, seed: int) -> list[Indices]:
    """The groups of a run: `reports` training records, chosen and dealt by `seed`.

    Raises UsageError where the data set has fewer.
    """
    training = dataset.training
    if reports > len(training):
        raise UsageError(
            f"{dataset.name} has {len(training)} records to train on, and each reports once: "
            f"{reports} reports cannot be had",
            hint=f"ask for at most --reports {len(training)}",
        )
    chosen = np.random.default_rng(seed).permutation(training)[:reports]
    return groups(chosen, group, seed + 1)


@dataclass(frozen=True)
class Repeated(Sequence[Indices]):
    """`reports` positions in groups of `size`, those of `order` over and over; a group is made when it is asked for."""

    order: Indices
    reports: int
    size: int

    def __len__(self) -> int:
        return math.ceil(self.reports / self.size)

    def __getitem__(self, index: int) -> Indices:  # type: ignore[override]
        if not 0 <= index < len(self):
            raise IndexError(index)
        start = index * self.size
        return self.order[np.arange(start, min(start + self.size, self.reports)) % len(self.order)]


def choose_simulated_groups(
    dataset: Dataset, clients: int, reports: int, group: int, seed: int
) -> Sequence[Indices]:
    """The groups of a run on `clients` simulated clients: those of `choose_groups`, and beyond the data set's size
    its training records once more, each for a client of its own. Raises UsageError for more reports than clients.
    """
    if reports > clients:
        raise UsageError(
            f"{clients} simulated clients, each of which reports once, cannot give {reports} reports",
            hint=f"simulate more: --fleet simulated:{reports}",
        )
    if reports <= len(dataset.training):
        return choose_groups(dataset, reports, group, seed)
    return Repeated(np.random.default_rng(seed).permutation(dataset.training), reports, group)


# Judging, and the same run without noise


def scores(features: npt.ArrayLike, weights: Floats) -> Floats:
    """w.x of every row of Q1.14 features."""
    result: Floats = np.asarray(features) @ (weights / ONE)
    return result


def accuracy(dataset: Dataset, weights: Floats) -> float:
    """The share of held-out records whose sign w.x tells (0 counts as -1)."""
    test = dataset.test
    return float(np.mean((scores(dataset.features[test], weights) > 0) == (dataset.labels[test] > 0)))


def majority(dataset: Dataset) -> float:
    """The accuracy of always answering what most training records say: the least that a model must beat."""
    answer = np.mean(dataset.labels[dataset.training] > 0) > 0.5
    return float(np.mean((dataset.labels[dataset.test] > 0) == answer))


def squared_error(dataset: Dataset, weights: Floats) -> float:
    """The mean squared error of w.x on held-out records."""
    return float(_squares(dataset, weights).mean())


def _squares(dataset: Dataset, weights: Floats) -> Floats:
    test = dataset.test
    squares: Floats = (scores(dataset.features[test], weights) - dataset.labels[test] / ONE) ** 2
    return squares


def exact_gradient(model: int, features: npt.ArrayLike, labels: npt.ArrayLike, weights: Floats) -> Floats:
    """The mean over records of the gradient that a device of one record computes, clipped as there, in floats."""
    x = np.asarray(features, np.float64) / ONE
    y = np.asarray(labels, np.float64) / ONE
    z = x @ weights
    if model == LINEAR:
        residual = z - y
    else:
        sign = np.where(y > 0, 1.0, -1.0)
        if model == SVM:
            residual = np.where(sign * z < 1, -sign, 0.0)
        else:
            residual = -sign / (1 + np.exp(np.clip(sign * z, -700, 700)))
    mean: Floats = np.clip(residual[:, None] * x, -1, 1).mean(axis=0)
    return mean


def _mean_gradient(model: int, dataset: Dataset, group: Indices, weights: Floats) -> Floats:
    # by parts, so that the memory is bounded whatever the group's size
    total = np.zeros(len(weights))
    for start in range(0, len(group), _AT_ONCE):
        part = group[start : start + _AT_ONCE]
        total += len(part) * exact_gradient(model, dataset.features[part], dataset.labels[part], weights)
    mean: Floats = total / len(group)
    return mean


def train_exactly(
    settings: Settings,
    dataset: Dataset,
    dealt: Sequence[Indices],
    after_round: Callable[[Trainer], None] | None = None,
) -> Trainer:
    """The same optimiser on the same groups, with exact gradients instead of private reports."""
    trainer = Trainer(settings)
    for group in dealt:
        if trainer.stopped:
            break
        weights = trainer.question().values
        mean = _mean_gradient(settings.model, dataset, group, weights)
        full = settings.expected * len(group) / len(dealt[0])
        trainer.update(mean, np.full(settings.dimension, full))
        if after_round:
            after_round(trainer)
    return trainer


def judge(dataset: Dataset, weights: Floats) -> float:
    """The figure that a run is judged by: accuracy for classification, mean squared error for regression."""
    return accuracy(dataset, weights) if dataset.task == CLASSIFICATION else squared_error(dataset, weights)


def judge_interval(dataset: Dataset, weights: Floats) -> tuple[float, float]:
    """The 95 % confidence interval of that figure, for records like the held-out ones: it tells how far their number
    lets the model be judged, not what another run would give."""
    if dataset.task == CLASSIFICATION:
        return estimate.share_interval(accuracy(dataset, weights), len(dataset.test))
    squares = _squares(dataset, weights)
    half = NormalDist().inv_cdf(0.975) * float(squares.std(ddof=1)) / math.sqrt(len(squares))
    mean = float(squares.mean())
    return mean - half, mean + half


def baseline(dataset: Dataset) -> float:
    """The same figure of the answer that knows no features: the majority's, or the mean label's."""
    if dataset.task == CLASSIFICATION:
        return majority(dataset)
    mean = dataset.labels[dataset.training].mean()
    return float(np.mean((dataset.labels[dataset.test] / ONE - mean / ONE) ** 2))
