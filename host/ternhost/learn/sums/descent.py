"""Learning from a few boards with many records, by descent along sums of clipped gradients.

Each round asks every board for the clipped sum of its units' gradients with Gaussian noise
(shared_specs/cards.md, "sum"). All rules here follow from what is public, and from earlier answers.

Without anything known of the records, `Descent` makes 60 to 150 small steps (Abadi et al., CCS
2016) and averages them. It begins at the shares of the classes, which a `Survey` finds out.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from tern.wire import LINEAR, LOGISTIC, SOFTMAX_GRADIENT
from ternhost.learn.models.optimisers import Momentum
from ternhost.learn.parameters import Floats, reading_state
from ternhost.learn.sums.radius import Radius
from ternhost.learn.sums.survey import Answer, PublicFacts, Survey

_FEWEST_ROUNDS = 60
MOST_ROUNDS = 150
# Divides the number of rounds at which noise and curvature bound the learning rate alike; about the
# residual at 0 times _STEEPNESS, divided by the curvature.
_ROUNDS_DIVISOR = 16
# The rate without noise, times the curvature. With a momentum of 0.8 steps up to 18 are stable.
_STEEPNESS = 12.0
# How much smaller than the first radius the present one may count, where the rate follows it.
_MOST_SHRINKAGE = 4.0
# Each gradient of the survey at the shares of the classes counts as a step. Such a step has no
# momentum from before, and so is made this many times as long.
_WITHOUT_MOMENTUM = 2.0

# The share of units that should be clipped: of records, of which at most half of a rare class may
# be, and of runs of records.
_CLIPPED = 0.1
_CLIPPED_OF_RAREST = 0.5
_CLIPPED_RUNS = 0.25

# How far noise alone may carry a prediction, its reach, as a share of the standard deviation of the
# predictions.
_REACH = 1.4
_LEAST_REACH = 0.8  # in scores of a classifier
# Of regression, in typical residuals.
_LEAST_RESIDUALS = 0.2
_MOST_RESIDUALS = 4.0
_RESIDUALS_OF_RUNS = 2.0
_DOUBT = 1.25  # standard deviations of noise that are taken off what the predictions vary

# The standard deviation of the logarithm of the first radius.
_UNSURE = 0.3
_UNSURE_OF_REGRESSION = 1.0
# The first radius of regression, in norms of a record. Residuals can be far smaller than labels, and
# too small a radius costs less than too large a one.
_FIRST_OF_REGRESSION = 0.15
_FIRST_OF_RUNS = 0.25
_DEVIATIONS = 1.6  # of a normal residual, at the radius that clips a share of _CLIPPED

# What is believed of the number of records, as a share of the nominal number.
_UNSURE_RECORDS = 0.5  # its standard deviation
_LEAST_RECORDS = 0.1
_MOST_RECORDS = 1.25


class _StrongMomentum(Momentum):
    """Momentum of 0.8."""

    _KEPT = 0.8


class RoundAnswer(NamedTuple):
    """What all boards answered in a round, and how many units they are believed to have."""

    gradient: Floats  # the mean gradient of a record (a value for each weight)
    noise: float  # the standard deviation of each value of it
    units: float  # how many units there are, as believed
    tally: float  # what all units added to the tally, with noise
    tally_noise: float  # the standard deviation of that noise

    @property
    def mean_tally(self) -> float:
        """What a unit added to the tally on average, with noise."""
        return self.tally / self.units

    @property
    def mean_tally_noise(self) -> float:
        """The standard deviation of the noise in `mean_tally`."""
        return self.tally_noise / self.units


class Descent:
    """Averaged gradient descent, after a survey.

    Until `done`, ask with `weights`, `radius`, `tally` and `rho_share`, and `learn` the answer.
    `model` is what has been learned so far.

    The rate is as large as the curvature allows, but noise alone may not carry a prediction further
    than what there is to learn. So the path is the same whatever the number of rounds, which only
    has to be so large that the curvature does not bind.
    """

    def __init__(self, facts: PublicFacts) -> None:
        """Choose the number of rounds.

        facts: what everybody may know of the run, such as the number of records of a board and rho,
            the privacy budget in zCDP.
        """
        self.facts = facts
        self.round = 0  # rounds that have ended
        self._record_share = 1.0  # of the nominal number of records, as believed
        self._survey = Survey(facts)
        self._optimiser = _StrongMomentum(facts.values)

        noise = facts.noise(share=1)  # if all of the budget was spent at once
        # So many rounds R that the noise, not the curvature, bounds the learning rate. Each round
        # has noise of sqrt(R), whose random walk grows as sqrt(R) again: so R is about |x| / noise.
        # The norm |x| is what the survey begins with.
        wanted = self._survey.norm / (_ROUNDS_DIVISOR * noise * math.sqrt(facts.unit))
        self.rounds: int = round(min(max(wanted, _FEWEST_ROUNDS), MOST_ROUNDS))
        # Both are set anew when the survey is done.
        self._radius = self._first_radius()
        self._reach = math.inf  # how far noise alone may carry a prediction

    @property
    def done(self) -> bool:
        return self.round >= self.rounds

    @property
    def can_take_more_rounds(self) -> bool:
        """Whether there may be more rounds than planned so far."""
        return False

    @property
    def weights(self) -> Floats:
        """The model that the next round carries (a value for each weight)."""
        if not self._survey.done:
            return self._survey.weights
        return self._optimiser.weights

    @property
    def model(self) -> Floats:
        """The model so far (a value for each weight)."""
        if not self._survey.done:
            return self._survey.weights_found
        return self._optimiser.model

    @property
    def radius(self) -> float:
        """The l2 norm to which the next round clips a unit's gradient, a sum over its records."""
        if not self._survey.done:
            return self._survey.radius
        return self._radius.value

    @property
    def tally(self) -> tuple[float, float]:
        """What a clipped unit adds to a tally, and what any other unit does, in units of `radius`.

        Boards report the tally, a noisy counter, together with the sum of their units' gradients.
        """
        if not self._survey.done:
            return self._survey.tally
        return self._radius.tally

    @property
    def rho_share(self) -> float:
        """The share of rho that the next round spends.

        It is (radius**2 + tally[0]**2) / (2 sigma**2) / rho.
        """
        return 1 / self.rounds

    @property
    def least_share(self) -> float:
        """A share of rho that no round from now on falls below."""
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
            answer = self._mean_gradient(total, tally, sigma, boards)
            if self._survey.done:
                self._radius.learn(answer.tally, answer.tally_noise, answer.units)
                self._move(answer.gradient, answer.noise)
            else:
                self._learn_survey(answer)
        self.round += 1

    @property
    def _counts_units(self) -> bool:
        """Whether every unit adds the same to the tally of the next round, which counts them."""
        return not self._survey.done and self._survey.counts_units

    def _mean_gradient(self, total: Floats, tally: float, sigma: float, boards: int) -> RoundAnswer:
        """Divide the sums of a round by the number of records; learn that number if it is counted.

        The arguments are those of `learn`, but at least one board has answered.
        """
        noise_of_sum = sigma * math.sqrt(boards)  # over all boards
        nominal_units = self.facts.units * boards / self.facts.boards
        if self._counts_units:
            self._learn_records(tally, noise_of_sum, nominal_units)
        records = self.facts.records * boards * self._record_share
        return RoundAnswer(
            gradient=np.asarray(total, np.float64) / records,
            noise=noise_of_sum / records,
            units=nominal_units * self._record_share,
            tally=tally,
            tally_noise=noise_of_sum,
        )

    def _learn_records(self, tally: float, deviation: float, nominal_units: float) -> None:
        """Learn how many records there are, from a tally to which every unit added the same.

        tally: the sum of what all units added, with noise. deviation: the standard deviation of that
        noise. nominal_units: how many units the boards that answered should have.
        """
        of_unit, _ = self.tally
        measured_share = tally / (of_unit * nominal_units)
        noise = deviation / (of_unit * nominal_units)
        # The posterior mean of the true number as a share of the nominal one: the measured share,
        # weighted against a prior of mean 1 and standard deviation _UNSURE_RECORDS.
        prior_variance = _UNSURE_RECORDS**2
        believed = 1 + (measured_share - 1) * prior_variance / (prior_variance + noise**2)
        self._record_share = min(max(believed, _LEAST_RECORDS), _MOST_RECORDS)

    def _learn_survey(self, answer: RoundAnswer) -> None:
        """End a round of the survey; after the last one, begin the descent."""
        of_clipped, _ = self.tally
        share, share_noise = 0.0, 1.0  # nothing is known of it
        if of_clipped:
            share = answer.mean_tally / of_clipped
            share_noise = answer.mean_tally_noise / of_clipped
        self._survey.learn(Answer(answer.gradient, answer.noise, share, share_noise))
        if self._survey.done:
            self._begin()

    def _begin(self) -> None:
        """Begin the descent at the shares of the classes, along the gradient there."""
        facts, survey = self.facts, self._survey
        self._optimiser.begin_at(survey.weights_found)
        self._radius = self._first_radius()
        if not survey.has_gradient:
            return
        self._reach = self._reach_by_survey()
        if facts.model == LINEAR:
            return
        gradient = survey.gradient.copy()
        gradient[facts.constants] = 0  # these weights are at their place already
        steps = survey.gradient_rounds
        noise_of_round = survey.gradient_noise * math.sqrt(steps)
        rate = steps * _WITHOUT_MOMENTUM * self._rate(noise_of_round)
        self._optimiser.step(gradient, min(rate, self._steepest_rate()))

    def _first_radius(self) -> Radius:
        """Return the radius with which the descent begins, as far as the survey knows it."""
        facts, survey = self.facts, self._survey
        norm = survey.norm
        if facts.unit > 1:
            norm = 1.0  # the least that is possible, as the survey has not found it
        # The gradients of the records of a unit have random directions, so that their sum grows as
        # sqrt(unit). It is at most 2 sqrt(d) for each record.
        length = norm * math.sqrt(facts.unit)
        most = 2 * facts.unit * math.sqrt(facts.features)
        if facts.model == LINEAR:
            first, uncertainty = _FIRST_OF_REGRESSION * length, _UNSURE_OF_REGRESSION
            if facts.unit > 1:
                first = _FIRST_OF_RUNS * length
        else:
            first, uncertainty = survey.largest_residual * length, _UNSURE
        return Radius(first, most, self._clipped_share(), uncertainty)

    def _clipped_share(self) -> float:
        """Return the share of units that should be clipped."""
        if self.facts.unit > 1:
            return _CLIPPED_RUNS
        if self.facts.model in (LOGISTIC, SOFTMAX_GRADIENT):
            return min(_CLIPPED, _CLIPPED_OF_RAREST * self._survey.rarest)
        return _CLIPPED

    def _reach_by_survey(self) -> float:
        """Return how far noise alone may carry a prediction.

        It is about as far as the predictions of the best model are expected to vary, by the gradient
        g at the shares of the classes. If features are uncorrelated, this model is g d / (c |x|**2),
        where c is the curvature, and its predictions have the variance |g|**2 d / (c |x|)**2.
        """
        facts, survey = self.facts, self._survey
        of_features = np.delete(survey.gradient, facts.constants)
        variance = survey.gradient_noise**2
        # Noise alone adds chi-squared times its variance to |g|**2: by its mean, the count, and by some
        # of its standard deviations, sqrt(2 count).
        count = len(of_features)
        by_noise = count * variance + _DOUBT * math.sqrt(2 * count) * variance
        squared_length = max(float(of_features @ of_features) - by_noise, 0.0)
        deviation = math.sqrt(squared_length * facts.features / facts.classes)
        return _REACH * deviation / (survey.curvature * survey.norm)

    def _steepest_rate(self) -> float:
        """Return the largest learning rate that the curvature of the loss allows.

        The curvature is at most that of the loss in a score times |x|**2. For classifiers it falls
        as the square of the residuals, which the radius of clipping follows.
        """
        facts, survey = self.facts, self._survey
        if facts.model == LINEAR:
            return _STEEPNESS / (survey.curvature * facts.features)
        norm = min(survey.norm, math.sqrt(facts.features))
        shrinkage = self._radius.first / self._radius.value
        shrinkage = min(max(shrinkage, 1.0), _MOST_SHRINKAGE)
        return _STEEPNESS * shrinkage**2 / (survey.curvature * norm**2)

    def _rate(self, noise: float) -> float:
        """Return the learning rate: as large as curvature and noise allow.

        noise: the standard deviation of each value of the gradient of a round.
        """
        rate = self._steepest_rate()
        if noise:
            least, most = self._limits_of_reach()
            reach = min(max(self._reach, least), most)
            # Steps of rate r add up to a random walk of a weight of r * noise * sqrt(rounds).
            rate = min(rate, reach / self._survey.norm / (noise * math.sqrt(self.rounds)))
        return rate

    def _limits_of_reach(self) -> tuple[float, float]:
        """Return the least and the most that noise alone may carry a prediction, whatever the survey.

        Scores of a classifier are compared with 1. Those of regression are compared with the typical
        residual, which follows from the radius of clipping.
        """
        facts, survey = self.facts, self._survey
        if facts.model != LINEAR:
            return _LEAST_REACH, survey.norm
        radius_of_record = self.radius / math.sqrt(facts.unit)
        residual = radius_of_record / survey.norm / _DEVIATIONS
        most = _MOST_RESIDUALS
        if not survey.has_gradient:
            most = _RESIDUALS_OF_RUNS
        return _LEAST_RESIDUALS * residual, most * residual

    def _move(self, gradient: Floats, noise: float) -> None:
        """Make a step of the model against the mean gradient of a record.

        gradient: a value for each weight. noise: the standard deviation of each value of it.
        """
        self._optimiser.step(gradient, self._rate(noise))

    def state(self) -> dict[str, Any]:
        """Return all that changes during a run, as an object for JSON; `restore` reads it back."""
        return {
            "round": self.round,
            "record_share": self._record_share,
            "survey": self._survey.state(),
            "radius": self._radius.state(),
            "reach": self._reach if math.isfinite(self._reach) else None,
            "optimiser": self._optimiser.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a stored `state()`. Raises UsageError for the state of another learner."""
        with reading_state("learning from sums"):
            self._optimiser.restore(state["optimiser"])
            self.round = int(state["round"])
            self._record_share = float(state["record_share"])
            self._survey.restore(state["survey"])
            self._radius = self._first_radius()
            self._radius.restore(state["radius"])
            self._reach = math.inf
            if state["reach"] is not None:
                self._reach = float(state["reach"])
