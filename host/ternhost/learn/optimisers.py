"""Optimisers: how `weights`, where the next gradient is taken, move, and which `model` counts in
the end.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from tern.wire import LINEAR, LOGISTIC, SOFTMAX_GRADIENT, SVM
from ternhost.errors import UsageError
from ternhost.learn.parameters import LARGEST_WEIGHT, Floats, reading_state
from ternhost.registry import Registry

# A step must not overshoot: the loss curves by at most this times the mean of |x|**2, which is
# below d. (The hinge has a kink instead of a curvature; it is treated as the logistic loss that
# resembles it.)
CURVATURE = {LINEAR: 1.0, LOGISTIC: 0.25, SVM: 0.25, SOFTMAX_GRADIENT: 0.5}
# How much noise the last iterate's prediction may carry for |x|**2 = d, on the scale that the
# model's loss works on. `tern experiment rates` shows what other rates cost on all bundled sets.
_NOISE = {LINEAR: 0.2, LOGISTIC: 2.0, SVM: 2.0, SOFTMAX_GRADIENT: 2.0}


@dataclass(frozen=True)
class Noise:
    """The noise of a run."""

    model: int
    dimension: int
    rounds: int
    variance: float  # of a coordinate of a gradient
    kept: float = (
        1.0  # the share of the loss's curvature that is left where devices clip their gradients
    )


class Optimiser(Protocol):
    """Moves a model of d weights. `step` moves `weights`; `model` is what counts."""

    weights: Floats

    def __init__(self, dimension: int) -> None: ...

    @property
    def model(self) -> Floats: ...

    def step(self, gradient: Floats, rate: float) -> None:
        """Move against the gradient at a learning rate."""

    def state(self) -> dict[str, Any]:
        """All that changes, for JSON."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take back a `state()`.

        Raises UsageError for the state of another optimiser or dimension.
        """

    @staticmethod
    def automatic_rate(noise: Noise) -> float:
        """A learning rate for a run of this noise."""


class Averaging:
    """Projected gradient descent whose iterate t weighs about t**3 in the average (Shamir and
    Zhang, ICML 2013).
    """

    _POWER = 3.0
    _VECTORS: ClassVar[Sequence[str]] = (
        "weights",
        "_average",
    )  # that change; a state has them without the _

    weights: Floats
    _average: Floats

    def __init__(self, dimension: int) -> None:
        for name in self._VECTORS:
            setattr(self, name, np.zeros(dimension))
        self._steps = 0

    @property
    def model(self) -> Floats:
        return self._average

    def step(self, gradient: Floats, rate: float) -> None:
        self._move(self.weights - rate * gradient)

    def _move(self, to: Floats) -> None:
        self.weights = np.clip(to, -LARGEST_WEIGHT, LARGEST_WEIGHT)
        self._steps += 1
        share = (self._POWER + 1) / (self._POWER + self._steps)  # of the last iterate
        self._average = self._average + share * (self.weights - self._average)

    def state(self) -> dict[str, Any]:
        vectors = {name.lstrip("_"): getattr(self, name).tolist() for name in self._VECTORS}
        return {"steps": self._steps, **vectors}

    def restore(self, state: Mapping[str, Any]) -> None:
        vectors = read_vectors(
            state, len(self.weights), *(name.lstrip("_") for name in self._VECTORS)
        )
        vars(self).update(zip(self._VECTORS, vectors, strict=True))
        self._steps = int(state["steps"])

    @staticmethod
    def automatic_rate(noise: Noise) -> float:
        """After T steps of rate r, noise in w.x has a standard deviation of up to r sqrt(T d
        variance), if |x|**2 <= d. The rate lets it grow to a set share of the loss's scale: with n
        reports the path r T grows as sqrt(n), and the size of a group hardly matters. It is capped
        where gradient descent without noise would overshoot.
        """
        largest = 4 / (CURVATURE[noise.model] * noise.dimension * noise.kept)
        if noise.variance <= 0:
            return largest
        return min(
            largest,
            _NOISE[noise.model] / math.sqrt(noise.rounds * noise.dimension * noise.variance),
        )


class Momentum(Averaging):
    """Heavy-ball momentum (Polyak 1964), its iterates averaged.

    The rate is divided by what momentum multiplies it.
    """

    _KEPT = 0.9
    _VECTORS = (*Averaging._VECTORS, "_velocity")

    _velocity: Floats

    def step(self, gradient: Floats, rate: float) -> None:
        self._velocity = self._KEPT * self._velocity + gradient
        self._move(self.weights - (1 - self._KEPT) * rate * self._velocity)


class Adam(Averaging):
    """Adam (Kingma and Ba, ICLR 2015), its iterates averaged: steps whose size hardly depends on
    the gradient's.
    """

    _FIRST, _SECOND, _LEAST = 0.9, 0.999, 1e-8
    _REACH = 2.0  # how far a weight may go in a whole run
    _VECTORS = (*Averaging._VECTORS, "_mean", "_square")

    _mean: Floats
    _square: Floats

    def step(self, gradient: Floats, rate: float) -> None:
        self._mean = self._FIRST * self._mean + (1 - self._FIRST) * gradient
        self._square = self._SECOND * self._square + (1 - self._SECOND) * gradient**2
        steps = self._steps + 1
        mean = self._mean / (1 - self._FIRST**steps)
        square = self._square / (1 - self._SECOND**steps)
        self._move(self.weights - rate * mean / (np.sqrt(square) + self._LEAST))

    @staticmethod
    def automatic_rate(noise: Noise) -> float:
        """Steps of a rate r go r sqrt(T) far under noise alone, and r T along a gradient that keeps
        its sign.
        """
        return Adam._REACH / noise.rounds


def read_vectors(state: Mapping[str, Any], dimension: int, *names: str) -> list[Floats]:
    """The vectors of these names in a state.

    Raises UsageError for another dimension, or where they are not there.
    """
    with reading_state("training"):
        vectors = [np.array(state[name], np.float64) for name in names]
    if any(vector.shape != (dimension,) for vector in vectors):
        raise UsageError("the stored state of training is of a model of another dimension")
    return vectors


_OWN = {
    name.lower(): f"ternhost.learn.optimisers:{name}" for name in ("Averaging", "Momentum", "Adam")
}
OPTIMISERS: Registry[type[Optimiser]] = Registry("optimiser", "tern.optimisers", _OWN)
