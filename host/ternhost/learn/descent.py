"""Learning from a few boards with many records: each round asks every board for the clipped sum of
its units' gradients with Gaussian noise (shared_specs/cards.md, "sum"). All rules here follow from
what is public, and from earlier answers.

Without anything known of the records, `Descent` makes 60 to 150 small steps (Abadi et al., CCS
2016) and averages them.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tern.wire import LINEAR, LOGISTIC, SVM
from ternhost.learn.optimisers import CURVATURE, Momentum
from ternhost.learn.parameters import Floats, reading_state

# The size of a record's residual at the model 0. Of regression nothing is known: a guess, rather
# too small.
_RESIDUAL = {LINEAR: 0.25, LOGISTIC: 0.5, SVM: 1.0}

_FEWEST, _MOST = 60, 150  # rounds of a descent
# the standard deviation of a weight after all steps of a descent, if there was nothing but noise
_WALK = 1.0

_TALLY = 3 / 16  # what a clipped unit adds to the tally, in radii: it costs (3/16)**2, 3.5 % of rho
_CLIPPED = 0.25  # the share of units that should be clipped
# of that share by the logarithm of the radius: 1.3 / (twice the standard deviation of log
# |gradient|)
_SLOPE = 0.8
_WRONG = 0.1  # the error of a share by that slope
_DRIFT = (
    0.05  # by which the logarithm of the right radius changes in a round, as the model gets better
)
_UNSURE = (
    0.5  # the standard deviation of the logarithm of the first radius, and of the number of records
)
_RECORDS = (
    0.1,
    1.25,
)  # what is believed of the number of records, as a share of the nominal number


@dataclass(frozen=True)
class Public:
    """What everybody may know of a run."""

    model: int  # LINEAR, LOGISTIC, SVM or SOFTMAX_GRADIENT
    features: int  # d, each within [-1, 1], the constant 1 among them
    boards: int
    records: int  # of a board, roughly: some may have fewer, or none
    rho: float  # of a unit, for all rounds (zCDP)
    unit: int = 1  # this many consecutive records are a unit
    classes: int = 1  # of softmax regression

    @property
    def values(self) -> int:
        """The number of weights, class by class."""
        return self.classes * self.features

    @property
    def units(self) -> int:
        """Of all boards."""
        return self.boards * -(-self.records // self.unit)

    @property
    def residual(self) -> float:
        """The size of a record's residual at the model 0."""
        return _RESIDUAL.get(self.model) or math.sqrt(1 - 1 / self.classes)


class Radius:
    """The radius that clips a share of the units: a geometric update (Andrew et al., NeurIPS 2021)
    with the gain of a Kalman filter for the logarithm. Too small costs less than too large, so it
    begins with the least that may be.
    """

    def __init__(self, first: float, most: float) -> None:
        self.value = first
        self._least, self._most = first / 256, most
        self.variance = _UNSURE**2

    def learn(self, excess: float, noise: float) -> None:
        """excess: the share of units that were clipped, less what it should be; noise: its standard
        deviation.
        """
        total = self.variance * _SLOPE**2 + noise**2 + _WRONG**2
        gain = self.variance * _SLOPE / total
        self.variance = self.variance * (1 - gain * _SLOPE) + _DRIFT**2
        moved = self.value * math.exp(gain * min(max(excess, -_CLIPPED), 1 - _CLIPPED))
        self.value = min(max(moved, self._least), self._most)


class _Averaged(Momentum):
    """Momentum .5; iterate t weighs about t**3 in the average."""

    _KEPT = 0.5


class Descent:
    """Averaged gradient descent.

    Ask with `weights`, `radius`, `tally` and `rho_share`, `take` the answer, go on until `done`.
    `model` is what has been learned so far.

    With R the radius, |x| is about R / (residual sqrt(unit)) for a classifier, as its residual is
    known at the model 0; for regression only |x|**2 <= d is known. The rate is as large as the
    curvature allows, 5 / (curvature |x|**2), but noise alone may not carry a weight further than
    _WALK, for regression in residuals. So the path is the same whatever the number of rounds, which
    only has to be so large that the curvature does not bind.
    """

    def __init__(self, public: Public, size: float = 1.0) -> None:
        """size: of |x|; rather too small. It is at least 1, with the constant."""
        self.public = public
        self.round = 0  # rounds that have ended
        # The noise of a mean gradient in radii, if all of rho was spent at once.
        noise = math.sqrt(public.boards / (2 * public.rho)) / (public.boards * public.records)
        wanted = math.sqrt(math.sqrt(public.features)) / (16 * noise * math.sqrt(public.unit))
        self.rounds: int = round(min(max(wanted, _FEWEST), _MOST))
        first = size * public.residual * math.sqrt(public.unit)
        self._radius = Radius(first, 2 * public.unit * math.sqrt(public.features))
        self._there = 1.0  # records, as a share of the nominal number
        self._optimiser = _Averaged(public.values)

    @property
    def weights(self) -> Floats:
        """The model that the next round carries (values)."""
        return self._optimiser.weights

    @property
    def model(self) -> Floats:
        """The answer so far (values)."""
        return self._optimiser.model

    @property
    def done(self) -> bool:
        return self.round >= self.rounds

    @property
    def radius(self) -> float:
        """The l2 norm to which the next round clips the gradient of a unit, which is a sum over its
        records.
        """
        return self._radius.value

    @property
    def tally(self) -> tuple[float, float]:
        """What a clipped unit and any other add to the tally of the next round, in the measure of
        `radius`. The first round counts units. Later the sum is 0 where 25 % of the units are
        clipped, however many there are.
        """
        most = _TALLY * self.radius
        return (most, most if self.round == 0 else -most * _CLIPPED / (1 - _CLIPPED))

    @property
    def rho_share(self) -> float:
        """The share of rho that the next round spends: it is (radius**2 + tally[0]**2) / (2
        sigma**2) / rho.
        """
        return 1 / self.rounds

    def take(self, total: Floats, tally: float, sigma: float, boards: int) -> None:
        """End a round: the sums of the boards that answered (values) and their tally, each with
        noise of standard deviation sigma from every board. Without boards the model stays as it is.
        """
        if boards:
            self.move(*self._read(total, tally, sigma * math.sqrt(boards), boards))
        self.round += 1

    def _read(
        self, total: Floats, tally: float, deviation: float, boards: int
    ) -> tuple[Floats, float]:
        """The mean gradient of a record (values), and the standard deviation of each coordinate.

        Takes the tally.
        """
        clipped, other = self.tally
        units = self.public.units * boards / self.public.boards
        if clipped == other:
            seen, noise = tally / (clipped * units), deviation / (clipped * units)
            believed = 1 + (seen - 1) * _UNSURE**2 / (_UNSURE**2 + noise**2)
            self._there = min(max(believed, _RECORDS[0]), _RECORDS[1])
        else:
            scale = (clipped - other) * units * self._there
            self._radius.learn(tally / scale, deviation / scale)
        records = self.public.records * boards * self._there
        return np.asarray(total, np.float64) / records, deviation / records

    def move(self, gradient: Floats, noise: float) -> None:
        """Take what `_read` returns."""
        public = self.public
        record, size, walk = self.radius / math.sqrt(public.unit), math.sqrt(public.features), _WALK
        if public.model == LINEAR:
            walk *= record / size
        else:
            size = min(max(record / public.residual, 1.0), size)
        rate = 5 / (CURVATURE[public.model] * size**2)
        if noise:
            rate = min(rate, walk / (noise * math.sqrt(self.rounds)))
        self._optimiser.step(gradient, rate)

    def state(self) -> dict[str, Any]:
        """All that changes in a run, for JSON; `restore` takes it back exactly."""
        radius = [self._radius.value, self._radius.variance]
        known = {"round": self.round, "there": self._there, "radius": radius}
        return {**known, "optimiser": self._optimiser.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take back a `state()`. Raises UsageError for the state of another learner."""
        with reading_state("learning from sums"):
            self._optimiser.restore(state["optimiser"])
            self.round, self._there = int(state["round"]), float(state["there"])
            self._radius.value, self._radius.variance = map(float, state["radius"])
