"""Optimisers: they move `weights`, where the next gradient is taken, and average them into a
`model`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tern.wire import LINEAR, LOGISTIC, SOFTMAX_GRADIENT, SVM
from ternhost.errors import UsageError
from ternhost.learn.parameters import LARGEST_WEIGHT, Floats, reading_state
from ternhost.registry import Registry

# A step must not overshoot: the loss curves by at most this times the mean of |x|**2, which is
# below d. (The hinge has a kink instead of a curvature; it is treated as the logistic loss that
# resembles it.)
CURVATURE = {LINEAR: 1.0, LOGISTIC: 0.25, SVM: 0.25, SOFTMAX_GRADIENT: 0.5}
# How much noise the last iterate's prediction may carry for |x|**2 = d, on the scale of the model's
# loss. `tern papers rates` shows what other rates cost on all bundled sets.
_NOISE = {LINEAR: 0.2, LOGISTIC: 2.0, SVM: 2.0, SOFTMAX_GRADIENT: 2.0}


@dataclass(frozen=True)
class Noise:
    """The noise of a run, from which a learning rate follows."""

    model: int
    dimension: int
    rounds: int
    variance: float  # of a coordinate of a gradient
    # The share of the loss's curvature that is left where devices clip their gradients.
    curvature_share: float = 1.0


class Optimiser(Protocol):
    """Moves a model of d weights in steps."""

    weights: Floats  # where the next gradient is taken

    def __init__(self, dimension: int) -> None: ...

    @property
    def model(self) -> Floats:
        """The weights that count in the end."""

    def begin_at(self, weights: Floats) -> None:
        """Begin at these weights (d) instead of 0."""

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
    """Projected gradient descent with averaged iterates.

    Iterate t weighs about t**3 in the average (Shamir and Zhang, ICML 2013).
    """

    _POWER = 3.0

    def __init__(self, dimension: int) -> None:
        self.weights: Floats = np.zeros(dimension)
        self._average: Floats = np.zeros(dimension)
        self._steps = 0

    @property
    def model(self) -> Floats:
        return self._average

    def begin_at(self, weights: Floats) -> None:
        self.weights = weights.copy()
        self._average = weights.copy()

    def step(self, gradient: Floats, rate: float) -> None:
        self._move(self.weights - rate * gradient)

    def _move(self, weights: Floats) -> None:
        """Move to these weights, as far as devices can take them, and update the weighted average.

        With t steps made, the new weights get the share 4 / (3 + t), so that each iterate counts
        about as the cube of its number (Shamir and Zhang, ICML 2013).
        """
        self.weights = np.clip(weights, -LARGEST_WEIGHT, LARGEST_WEIGHT)
        self._steps += 1
        share = (self._POWER + 1) / (self._POWER + self._steps)  # of the last iterate
        self._average = self._average + share * (self.weights - self._average)

    def state(self) -> dict[str, Any]:
        return {
            "steps": self._steps,
            "weights": self.weights.tolist(),
            "average": self._average.tolist(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        dimension = len(self.weights)
        self.weights, self._average = read_vectors(state, dimension, "weights", "average")
        self._steps = int(state["steps"])

    @staticmethod
    def automatic_rate(noise: Noise) -> float:
        """Return the learning rate that lets noise grow to a set share of the loss's scale.

        After T steps of rate r, the noise in a score w.x has a standard deviation of up to r sqrt(T
        d variance), if |x|**2 <= d. So with n reports the path r T grows as sqrt(n), and the size
        of a group hardly matters. The rate is capped where gradient descent without noise would
        overshoot.

        noise: the noise of each gradient in a run, and what else the rate depends on.
        """
        curvature = CURVATURE[noise.model] * noise.dimension * noise.curvature_share
        largest = 4 / curvature
        if noise.variance <= 0:
            return largest
        walk_per_rate = math.sqrt(noise.rounds * noise.dimension * noise.variance)
        return min(largest, _NOISE[noise.model] / walk_per_rate)


class Momentum(Averaging):
    """Heavy-ball momentum (Polyak 1964), its iterates averaged.

    The rate is divided by what momentum multiplies it.
    """

    _KEPT = 0.9

    def __init__(self, dimension: int) -> None:
        super().__init__(dimension)
        self._velocity: Floats = np.zeros(dimension)

    def step(self, gradient: Floats, rate: float) -> None:
        self._velocity = self._KEPT * self._velocity + gradient
        self._move(self.weights - (1 - self._KEPT) * rate * self._velocity)

    def state(self) -> dict[str, Any]:
        return {**super().state(), "velocity": self._velocity.tolist()}

    def restore(self, state: Mapping[str, Any]) -> None:
        super().restore(state)
        (self._velocity,) = read_vectors(state, len(self.weights), "velocity")


class Adam(Averaging):
    """Adam (Kingma and Ba, ICLR 2015), its iterates averaged.

    The size of its steps hardly depends on that of the gradient.
    """

    _FIRST, _SECOND, _LEAST = 0.9, 0.999, 1e-8
    _REACH = 2.0  # how far a weight may go in a whole run

    def __init__(self, dimension: int) -> None:
        super().__init__(dimension)
        self._mean: Floats = np.zeros(dimension)
        self._square: Floats = np.zeros(dimension)

    def step(self, gradient: Floats, rate: float) -> None:
        """Move the weights by Adam's rule, at a learning rate.

        The step is the running mean of gradients over their running root mean square. Both begin at
        0; this bias is divided out, as in the paper.
        """
        self._mean = self._FIRST * self._mean + (1 - self._FIRST) * gradient
        self._square = self._SECOND * self._square + (1 - self._SECOND) * gradient**2
        steps = self._steps + 1
        mean = self._mean / (1 - self._FIRST**steps)
        square = self._square / (1 - self._SECOND**steps)
        self._move(self.weights - rate * mean / (np.sqrt(square) + self._LEAST))

    def state(self) -> dict[str, Any]:
        state = super().state()
        return {**state, "mean": self._mean.tolist(), "square": self._square.tolist()}

    def restore(self, state: Mapping[str, Any]) -> None:
        super().restore(state)
        self._mean, self._square = read_vectors(state, len(self.weights), "mean", "square")

    @staticmethod
    def automatic_rate(noise: Noise) -> float:
        """Return the rate at which a weight moves by _REACH if its gradient keeps its sign.

        Steps of a rate r go r T far in T rounds then, and r sqrt(T) under noise alone.
        """
        return Adam._REACH / noise.rounds


def read_vectors(state: Mapping[str, Any], dimension: int, *names: str) -> list[Floats]:
    """Read the vectors of these names from the stored state of a run.

    Each has `dimension` values. Raises UsageError if one is missing, or has another number of them.
    """
    vectors = []
    for name in names:
        with reading_state("training"):
            vector = np.array(state[name], np.float64)
        if vector.shape != (dimension,):
            raise UsageError("the stored state of training is of a model of another dimension")
        vectors.append(vector)
    return vectors


OPTIMISERS: Registry[type[Optimiser]] = Registry(
    "optimiser",
    "tern.optimisers",
    {
        "averaging": "ternhost.learn.models.optimisers:Averaging",
        "momentum": "ternhost.learn.models.optimisers:Momentum",
        "adam": "ternhost.learn.models.optimisers:Adam",
    },
)
