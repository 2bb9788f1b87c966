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

        A unit is a run of records, whose summed gradient is clipped to the radius. The clipped
        share is about linear in the logarithm of the radius, with the slope -_SLOPE. So a Kalman
        filter estimates the logarithm of the right radius:

            log radius += gain * excess,   where gain = V s / (V s**2 + variance of excess)

        V is the variance of the estimate so far, and s is _SLOPE.

        excess: the share of units that were clipped in the last round, less what it should be.
        noise: the standard deviation of the noise in `excess`.
        """
        # The variance of `excess` that is expected: by the radius, by noise, and by the slope.
        predicted_variance = self.variance * _SLOPE**2 + noise**2 + _SLOPE_ERROR**2
        gain = self.variance * _SLOPE / predicted_variance
        # The observation makes the estimate more certain; then the right radius drifts.
        self.variance = self.variance * (1 - gain * _SLOPE) + _DRIFT**2
        # Noise may lead beyond what is possible: a share, which is excess + _CLIPPED, is from 0 to 1.
        excess = min(max(excess, -_CLIPPED), 1 - _CLIPPED)
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
        """Choose the number of rounds and the first radius, to which gradients are clipped.

        A unit is a run of records that are protected together; its gradient is the sum of theirs.

        facts: what everybody may know of the run, such as the number of records of a board and rho,
            the privacy budget in zCDP.
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
        # The norm |x| is taken to be d**(1/4), between its bounds 1 and sqrt(d). The factor 16 is of
        # the order of residual * _STEEPNESS / curvature, which is 10 for logistic regression.
        wanted = math.sqrt(math.sqrt(facts.features)) / (16 * noise * math.sqrt(facts.unit))
        self.rounds: int = round(min(max(wanted, _FEWEST_ROUNDS), _MOST_ROUNDS))

        # The gradient of a record is its residual times its features. The gradients of the records
        # of a unit have random directions, so that their sum grows as sqrt(unit). It is at most
        # 2 sqrt(d) for each record.
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
        """What a clipped unit adds to a tally, and what any other unit does, in units of `radius`.

        Boards report the tally, a noisy counter, together with the sum of their units' gradients.
        In the first round both numbers are equal, so that the tally counts units. Later they are
        such that the tally is 0 if a share _CLIPPED of the units are clipped, however many units
        there are; so it shows whether the radius clips too many.
        """
        for_clipped = _TALLY * self.radius
        if self.round == 0:
            return for_clipped, for_clipped
        # The solution of _CLIPPED * for_clipped + (1 - _CLIPPED) * for_other = 0.
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

        A unit is a run of records that are protected together.

        total: the sum of the clipped gradients of all units, with noise (a value for each weight).
        tally: what all units added to a counter, with noise. It shows how many units there are, or
            how many were clipped (see the property `tally`).
        sigma: the standard deviation of the noise that each board added to each sum.
        boards: how many answered.
        """
        if boards:
            deviation = sigma * math.sqrt(boards)  # of the noise in the sum over all boards
            records = self._learn_tally(tally, deviation, boards)  # as many as they have
            mean_gradient = np.asarray(total, np.float64) / records
            self.move(mean_gradient, deviation / records)
        self.round += 1

    def _learn_tally(self, tally: float, deviation: float, boards: int) -> float:
        """Learn from the tally of a round: the number of records, or the share of clipped units.

        The tally is a noisy counter to which every unit, a run of records, adds something. In the
        first round all add the same, so that it counts units. Later clipped units add more than
        others, so that it shows whether the radius of clipping is right.

        tally: the sum of what all units added to it, with noise.
        deviation: the standard deviation of that noise.
        boards: how many answered.
        Returns the number of records that they are believed to have.
        """
        for_clipped, for_other = self.tally  # what a unit added
        facts = self.facts
        units = facts.units * boards / facts.boards  # the nominal number, of these boards
        counts_units = for_clipped == for_other
        if counts_units:
            nominal_tally = for_clipped * units
            measured_share = tally / nominal_tally
            noise = deviation / nominal_tally
            # The posterior mean of the true number as a share of the nominal one: the measured
            # share, weighted against a prior of mean 1 and standard deviation _UNSURE.
            prior_variance = _UNSURE**2
            believed = 1 + (measured_share - 1) * prior_variance / (prior_variance + noise**2)
            self._record_share = min(max(believed, _LEAST_RECORDS), _MOST_RECORDS)
        else:
            # The tally is (clipped share - _CLIPPED) times this scale.
            scale = (for_clipped - for_other) * units * self._record_share
            self._radius.learn(tally / scale, deviation / scale)
        return facts.records * boards * self._record_share

    def move(self, gradient: Floats, noise: float) -> None:
        """Make a step of the model against the mean gradient of a record.

        The learning rate is as large as the curvature of the loss allows, _STEEPNESS / (curvature
        |x|**2), where x are the features of a record. But noise alone may carry a weight no further
        than _WALK in all rounds; for regression that is counted in residuals, whose size is unknown.

        The norm |x| is not known, either. For classifiers it follows from the radius to which
        gradients are clipped, since a gradient is a residual, of known size, times x. For
        regression only its upper bound is known, the root of the number of features.

        gradient: a value for each weight.
        noise: the standard deviation of each value of the gradient.
        """
        facts = self.facts
        # The radius is for a unit, a run of records. Their gradients have random directions, so that
        # the norm of the sum grows as the root of their number.
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
