"""Learning from a few boards with many records, by descent along sums of clipped gradients.

Each round asks every board for the clipped sum of its units' gradients with Gaussian noise
(shared_specs/cards.md, "sum"). All rules here follow from what is public, and from earlier answers.

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

# The size of a record's residual at the model 0. For regression it is a guess, rather too small,
# since nothing is known of the labels.
_RESIDUAL = {LINEAR: 0.25, LOGISTIC: 0.5, SVM: 1.0}

_FEWEST_ROUNDS = 60
_MOST_ROUNDS = 150
# The standard deviation of a weight after all steps, if there was nothing but noise.
_WALK = 1.0
_STEEPNESS = 5  # the rate without noise, times the curvature

_TALLY = 3 / 16  # what a clipped unit adds to the tally, in radii: it costs (3/16)**2, 3.5 % of rho
_CLIPPED = 0.25  # the share of units that should be clipped
# The change of that share by the logarithm of the radius: 1.3 / (twice the standard deviation of
# log |gradient|).
_SLOPE = 0.8
_SLOPE_ERROR = 0.1  # of a share that this slope predicts
_DRIFT = 0.05  # of the logarithm of the right radius in a round, as the model gets better
# The standard deviation of the logarithm of the first radius, and of the number of records.
_UNSURE = 0.5
# What is believed of the number of records, as a share of the nominal number.
_LEAST_RECORDS = 0.1
_MOST_RECORDS = 1.25


@dataclass(frozen=True)
class PublicFacts:
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
        """The number of units of all boards."""
        return self.boards * math.ceil(self.records / self.unit)

    @property
    def residual(self) -> float:
        """The size of a record's residual at the model 0."""
        if self.model in _RESIDUAL:
            return _RESIDUAL[self.model]
        return math.sqrt(1 - 1 / self.classes)


class Radius:
    """The l2 norm to which gradients are clipped, chosen so that a set share of them is.

    Each is the gradient of a unit, a run of consecutive records. The radius is updated by a factor
    in each round (Andrew et al., NeurIPS 2021), with the gain of a Kalman filter for its logarithm.
    Too small a radius costs less than too large a one, so it begins with the least that may be
    right.
    """

    def __init__(self, first: float, most: float) -> None:
        """Begin with the radius `first`; it never grows beyond `most`."""
        self.value = first
        self.variance = _UNSURE**2  # of its logarithm
        self._least = first / 256
        self._most = most

    def learn(self, excess: float, noise: float) -> None:
        """Move the radius so that it clips the right share of the units.

        The clipped share is about linear in the logarithm of the radius, with the slope -_SLOPE. So
        a Kalman filter estimates the logarithm of the right radius.

        excess: the share of units that were clipped in the last round, less what it should be.
        noise: the standard deviation of the noise in `excess`.
        """
        # The variance of `excess` that is expected: by the radius, by noise, and by the slope.
        predicted_variance = self.variance * _SLOPE**2 + noise**2 + _SLOPE_ERROR**2
        gain = self.variance * _SLOPE / predicted_variance
        self.variance = self.variance * (1 - gain * _SLOPE) + _DRIFT**2
        excess = min(max(excess, -_CLIPPED), 1 - _CLIPPED)  # a share is from 0 to 1
        moved = self.value * math.exp(gain * excess)
        self.value = min(max(moved, self._least), self._most)


class _HalfMomentum(Momentum):
    """Momentum of 0.5."""

    _KEPT = 0.5


class Descent:
    """Averaged gradient descent.

    Until `done`, ask with `weights`, `radius`, `tally` and `rho_share`, and `learn` the answer.
    `model` is what has been learned so far.

    With R the radius, |x| is about R / (residual sqrt(unit)) for a classifier, as its residual is
    known at the model 0; for regression only |x|**2 <= d is known. The rate is as large as the
    curvature allows, 5 / (curvature |x|**2), but noise alone may not carry a weight further than
    _WALK, for regression in residuals. So the path is the same whatever the number of rounds, which
    only has to be so large that the curvature does not bind.
    """

    def __init__(self, facts: PublicFacts, size: float = 1.0) -> None:
        """Choose the number of rounds and the first radius.

        facts: what everybody may know of the run.
        size: the norm |x| of a record's features, rather too small. It is at least 1, since the
            constant 1 is among the features.
        """
        self.facts = facts
        self.round = 0  # rounds that have ended
        self._record_share = 1.0  # of the nominal number of records, as believed
        self._optimiser = _HalfMomentum(facts.values)

        # The standard deviation of the noise in a mean gradient, in radii, if all of the budget was
        # spent at once: that of zCDP for each board, sqrt(1 / (2 rho)), over all boards and
        # records.
        noise = math.sqrt(facts.boards / (2 * facts.rho)) / (facts.boards * facts.records)
        # So many rounds R that the noise, not the curvature, bounds the learning rate. Each round
        # has noise of sqrt(R), whose random walk grows as sqrt(R) again: so R is about |x| / noise.
        # The norm |x| is taken to be d**(1/4), between its bounds 1 and sqrt(d).
        wanted = math.sqrt(math.sqrt(facts.features)) / (16 * noise * math.sqrt(facts.unit))
        self.rounds: int = round(min(max(wanted, _FEWEST_ROUNDS), _MOST_ROUNDS))

        # The gradients of the records of a unit have random directions: their sum grows as
        # sqrt(unit).
        first_radius = size * facts.residual * math.sqrt(facts.unit)
        most_radius = 2 * facts.unit * math.sqrt(facts.features)
        self._radius = Radius(first_radius, most_radius)

    @property
    def done(self) -> bool:
        return self.round >= self.rounds

    @property
    def weights(self) -> Floats:
        """The model that the next round carries (a value for each weight)."""
        return self._optimiser.weights

    @property
    def model(self) -> Floats:
        """The model so far (a value for each weight)."""
        return self._optimiser.model

    @property
    def radius(self) -> float:
        """The l2 norm to which the next round clips a unit's gradient, a sum over its records."""
        return self._radius.value

    @property
    def tally(self) -> tuple[float, float]:
        """What each unit adds to a tally that boards report: a clipped unit, and any other one.

        Both are in the units of `radius`. In the first round they are equal, so that the tally
        counts units. Later the tally is 0 if a share _CLIPPED of the units are clipped, however
        many there are.
        """
        for_clipped = _TALLY * self.radius
        if self.round == 0:
            return for_clipped, for_clipped
        for_other = -for_clipped * _CLIPPED / (1 - _CLIPPED)
        return for_clipped, for_other

    @property
    def rho_share(self) -> float:
        """The share of rho that the next round spends.

        It is (radius**2 + tally[0]**2) / (2 sigma**2) / rho.
        """
        return 1 / self.rounds

    def learn(self, total: Floats, tally: float, sigma: float, boards: int) -> None:
        """End a round: move the model along the sum of gradients that the boards reported.

        If no board answered, the model stays as it is.

        total: the sum of all clipped gradients, with noise (a value for each weight).
        tally: the sum of a counter that units, runs of records, add to (see `tally`), with noise.
        sigma: the standard deviation of the noise that each board added to each sum.
        boards: how many answered.
        """
        if boards:
            deviation = sigma * math.sqrt(boards)
            records = self._learn_tally(tally, deviation, boards)
            mean_gradient = np.asarray(total, np.float64) / records
            self.move(mean_gradient, deviation / records)
        self.round += 1

    def _learn_tally(self, tally: float, deviation: float, boards: int) -> float:
        """Learn from the tally of a round: the number of records, or the share of clipped units.

        The first round counts units; the later ones correct the radius of clipping.

        tally: the sum of what all units added to it, with noise.
        deviation: the standard deviation of that noise.
        boards: how many answered.
        Returns the number of records that they are believed to have.
        """
        for_clipped, for_other = self.tally
        facts = self.facts
        units = facts.units * boards / facts.boards  # nominal number
        counts_units = for_clipped == for_other
        if counts_units:
            nominal_tally = for_clipped * units
            measured_share = tally / nominal_tally
            noise = deviation / nominal_tally
            # The posterior mean, where the prior has the mean 1 and the deviation _UNSURE.
            prior_variance = _UNSURE**2
            believed = 1 + (measured_share - 1) * prior_variance / (prior_variance + noise**2)
            self._record_share = min(max(believed, _LEAST_RECORDS), _MOST_RECORDS)
        else:
            # The tally is (clipped share - _CLIPPED) times this.
            scale = (for_clipped - for_other) * units * self._record_share
            self._radius.learn(tally / scale, deviation / scale)
        return facts.records * boards * self._record_share

    def move(self, gradient: Floats, noise: float) -> None:
        """Make a step of the model against the mean gradient of a record.

        The learning rate is as large as the curvature of the loss allows, _STEEPNESS / (curvature
        |x|**2). But noise alone may carry a weight no further than _WALK in all rounds; for
        regression that is counted in residuals, whose size is unknown.

        noise: the standard deviation of each value of the gradient.
        """
        facts = self.facts
        record_radius = self.radius / math.sqrt(facts.unit)
        largest_norm = math.sqrt(facts.features)  # of |x|
        if facts.model == LINEAR:
            norm = largest_norm
            walk = _WALK * (record_radius / largest_norm)
        else:
            norm = min(max(record_radius / facts.residual, 1.0), largest_norm)
            walk = _WALK
        rate = _STEEPNESS / (CURVATURE[facts.model] * norm**2)
        if noise:
            # Steps of rate r add up to a random walk of r * noise * sqrt(rounds).
            rate = min(rate, walk / (noise * math.sqrt(self.rounds)))
        self._optimiser.step(gradient, rate)

    def state(self) -> dict[str, Any]:
        """Return all that changes during a run, as an object for JSON; `restore` reads it back."""
        return {
            "round": self.round,
            "there": self._record_share,
            "radius": [self._radius.value, self._radius.variance],
            "optimiser": self._optimiser.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a stored `state()`. Raises UsageError for the state of another learner."""
        with reading_state("learning from sums"):
            self._optimiser.restore(state["optimiser"])
            self.round = int(state["round"])
            self._record_share = float(state["there"])
            radius, variance = state["radius"]
            self._radius.value, self._radius.variance = float(radius), float(variance)
