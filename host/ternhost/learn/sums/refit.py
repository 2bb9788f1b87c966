"""Learning from sums in a few rounds, with public rows: features of records without labels.

With public rows each noisy gradient is an equation of the optimum, and all of them are solved
together after every round (`gradient_fit`). Rows of another population would ruin that. The first
rounds are cheap, and if their gradients contradict the rows, a descent begins with the rest of the
budget, as if there were no rows.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tern.wire import LINEAR, SVM
from ternhost.learn.one_answer.observations import Observation
from ternhost.learn.parameters import Floats, reading_state
from ternhost.learn.sums.descent import MOST_ROUNDS, Descent
from ternhost.learn.sums.gradient_fit import GradientFit
from ternhost.learn.sums.radius import Radius
from ternhost.learn.sums.survey import PublicFacts

ENOUGH = 300  # public rows, below which descent is the better learner
# The share of rho that the first round spends. It is cheap, since it shows already if the rows are of
# a quite different population.
_LEAST_FIRST_SHARE, _MOST_FIRST_SHARE = 0.005, 0.05
_NOISE_OF_FIRST = 0.05  # the length of the noise in its mean gradient, in radii
_GROWTH = 2.0  # of the share, from each round to the next
_LAST_ROUNDS = 3  # which share equally what is left
_MOST_RHO = 19.0  # of a round, since a card costs at most 20
# By the time that this share of rho is spent, the gradients must be so clear, in standard deviations,
# that wrong rows would show.
_DECISION = 0.12
_CLEAR = 4.0
# Where it is not known how clipping acts, hardly any units are to be clipped.
_CLIPPED = 0.05  # the share of units
_MOST_CLIPPED = 0.2  # the largest share of units by which the bias of clipping is estimated
_UNSURE = 1.0  # the standard deviation of the logarithm of the radius
_TYPICAL = 0.95  # the quantile of the norms of rows that stands for all of them
_WIDE = 1.5  # the radius, in root mean squares of the norm of a gradient
# The residual that the second round of regression is to leave unclipped. In the first one residuals
# are labels, which are at most 1.
_RESIDUAL = 0.25


def descent_for(facts: PublicFacts, rows: Floats | None = None) -> Descent:
    """Return the learner of a run whose boards send sums: with public rows, or plain descent.

    facts: what everybody may know of the run.
    rows: features of records that are nobody's secret (n x features); None: there are none.
    """
    are_enough = rows is not None and len(rows) >= ENOUGH
    # The hinge loss of an SVM has a Hessian that needs labels, which rows do not have.
    if rows is None or not are_enough or facts.model == SVM:
        return Descent(facts)
    return Refit(facts, rows)


class Refit(Descent):
    """Newton's method on all observations, shrunk by evidence; descent, if the rows do not suit."""

    def __init__(self, facts: PublicFacts, rows: Floats) -> None:
        """Prepare to fit the model with public rows, as long as these suit the population.

        facts: what everybody may know of the run.
        rows: features of records that are nobody's secret (n x features), as real numbers.
        """
        super().__init__(facts)
        self._shares = self._shares_of_rho()
        self.rounds = len(self._shares)
        records = facts.boards * facts.records
        self._fit = GradientFit(facts.model, rows, facts.classes, records)
        self._descent: Descent | None = None  # by which it goes on if the rows do not suit
        # Whether the gradients are clear enough to show whether the rows suit, as far as known.
        self.can_be_checked = True
        self._spent = 0.0  # the share of rho that was spent before that descent
        self._typical_norm = float(np.quantile(np.linalg.norm(rows, axis=1), _TYPICAL))
        self._mean_row = rows.mean(axis=0)
        # A sum over the records of a unit may be clipped, and labels of regression may be
        # anything: then rows do not show how clipping acts.
        self._clipping_is_known = facts.model != LINEAR and facts.unit == 1
        most_radius = 2 * facts.unit * math.sqrt(facts.features)
        self._clip = Radius(self._radius_at_zero(), most_radius, _CLIPPED, _UNSURE)

    @property
    def can_take_more_rounds(self) -> bool:
        return self._descent is None and not self.done

    @property
    def rows_suit(self) -> bool:
        """Whether the rows are of the population of the boards' records, as far as known."""
        return self._descent is None and self._fit.rows_suit

    @property
    def misfit(self) -> float:
        """How badly the rows explain the gradients: about 1 if only noise is left unexplained."""
        return self._fit.misfit

    @property
    def weights(self) -> Floats:
        if self._descent:
            return self._descent.weights
        return self._fit.weights

    @property
    def model(self) -> Floats:
        if self._descent:
            return self._descent.model
        return self._fit.weights

    @property
    def radius(self) -> float:
        if self._descent:
            return self._descent.radius
        return self._clip.value

    @property
    def tally(self) -> tuple[float, float]:
        if self._descent:
            return self._descent.tally
        for_clipped, for_other = self._clip.tally
        if self._counts_units:
            for_other = for_clipped
        return for_clipped, for_other

    @property
    def _counts_units(self) -> bool:
        """Whether the tally counts units, rather than show how many are clipped."""
        return self._clipping_is_known or self.round == 0

    @property
    def rho_share(self) -> float:
        if self._descent:
            return (1 - self._spent) * self._descent.rho_share
        return self._shares[min(self.round, self.rounds - 1)]  # after the last one, too

    @property
    def least_share(self) -> float:
        if self._descent:
            return self.rho_share
        # The descent may begin before the last round, with what that round would have spent.
        return min(min(self._shares), self._shares[-1] / MOST_ROUNDS)

    def _radius_at_zero(self) -> float:
        """Return the radius of the first round, at weights of 0."""
        if self._clipping_is_known:
            return self._fit.next_radius(self.facts.noise(share=self._shares[0]))
        unit = self.facts.unit
        if self.facts.model == LINEAR:  # residuals are labels, which are in [-1, 1]
            return self._typical_norm * unit
        # Gradients of the records of a unit have a random part, and a part that all of them share.
        shared = unit * float(np.linalg.norm(self._mean_row)) * self.facts.residual
        return _WIDE * math.hypot(math.sqrt(unit) * self._fit.gradient_norm(), shared)

    def _shares_of_rho(self) -> list[float]:
        """Return the share of rho that each round spends.

        The first round spends so much that its noise is _NOISE_OF_FIRST, within bounds. The second
        one spends the same, and each later one more, until the last rounds spend what is left in
        equal shares.
        """
        # If a single round spent all of rho, its noise would have this length, in radii.
        noise = self.facts.noise(share=1) * math.sqrt(self.facts.values)
        wanted = (noise / _NOISE_OF_FIRST) ** 2
        first = min(max(wanted, _LEAST_FIRST_SHARE), _MOST_FIRST_SHARE)
        shares = [first]
        share = first
        while True:
            left = 1 - sum(shares)
            last_rounds = max(_LAST_ROUNDS, math.ceil(left * self.facts.rho / _MOST_RHO))
            if share >= left / last_rounds:
                return shares + [left / last_rounds] * last_rounds
            shares.append(share)
            share *= _GROWTH

    def learn(self, total: Floats, tally: float, sigma: float, boards: int) -> None:
        """End a round; the arguments are those of `Descent.learn`."""
        if self._descent:
            self._descent.learn(total, tally, sigma, boards)
        elif boards:
            answer = self._mean_gradient(total, tally, sigma, boards)
            bias = self._clipping_bias(answer.mean_tally)
            self._fit_with(answer.gradient, answer.noise, bias)
            if not self._counts_units:
                self._clip.learn(answer.tally, answer.tally_noise, answer.units)
            if self._descent is None:
                self._choose_radius()
        self.round += 1

    def _clipping_bias(self, tally: float) -> float:
        """Return about how long the bias is that clipping leaves in a mean gradient.

        A clipped unit is taken to lose half of a radius.

        tally: the mean of what a unit added to the tally of the last round.
        """
        if self._counts_units:  # it is known how clipping acts, or nearly nothing is clipped
            return 0.0
        for_clipped, for_other = self.tally
        clipped_share = (tally - for_other) / (for_clipped - for_other)
        # If more are clipped, the model is so wrong that the gradient shall count all the same.
        clipped_share = min(max(clipped_share, _CLIPPED), _MOST_CLIPPED)
        return clipped_share / 2 * self.radius / self.facts.unit

    def _fit_with(self, gradient: Floats, noise: float, bias: float) -> None:
        """Fit the model to the gradients of all rounds, or begin a descent if rows do not suit.

        The fit is given up for good as soon as the gradients show that the rows are of another
        population, or if they turn out to be too noisy to show it.

        gradient: the mean gradient of a record in the last round (a value for each weight).
        noise: the standard deviation of each value of it. bias: the length of what clipping has left
            in it, as far as the fit does not know how clipping acts.
        """
        asked_weights = self._fit.weights
        radius = None
        if self._clipping_is_known:
            radius = self.radius
        variance = noise**2 + bias**2 / len(gradient)
        self._fit.add(Observation(asked_weights, gradient, variance=variance, radius=radius))
        self._fit.fit()
        if self._is_time_to_decide and self._fit.clarity < _CLEAR:
            self.can_be_checked = False
            self._fit.rows_suit = False
        if self._fit.rows_suit:
            return
        rounds = self.round + 1
        if rounds < self.rounds:
            self._spent = sum(self._shares[:rounds])
            self._begin_descent(rounds)
        else:  # nothing is left to go on with: the model stays
            self._fit.weights = asked_weights

    @property
    def _is_time_to_decide(self) -> bool:
        """Whether rows that cannot be checked by the gradients so far are given up.

        That is decided once, at the end of the round in which a share of _DECISION gets spent. Rows
        are kept where it is not known how clipping acts.
        """
        if not self._clipping_is_known:
            return False
        spent = sum(self._shares[: self.round + 1])
        spent_before = spent - self._shares[self.round]
        return spent_before < _DECISION <= spent

    def _choose_radius(self) -> None:
        """Choose the radius of the next round, if there is one."""
        next_round = self.round + 1
        if next_round == self.rounds:
            return
        if self._clipping_is_known:
            self._clip.value = self._fit.next_radius(
                self.facts.noise(share=self._shares[next_round])
            )
        elif self.round == 0:  # later the tally shows whether it is right
            growth = math.sqrt(self.facts.unit)  # of a sum of gradients with random directions
            if self.facts.model == LINEAR:
                self._clip.value = _RESIDUAL * self._typical_norm * growth
            else:
                self._clip.value = _WIDE * self._fit.gradient_norm() * growth

    def _begin_descent(self, rounds: int) -> Descent:
        """Go on by descent with what is left of the budget, and return that descent.

        rounds: how many there were so far.
        """
        facts = replace(self.facts, rho=self.facts.rho * (1 - self._spent))
        descent = Descent(facts)
        self.rounds = rounds + descent.rounds
        self._descent = descent
        return descent

    def state(self) -> dict[str, Any]:
        descent = None
        if self._descent:
            descent = self._descent.state()
        return {
            "round": self.round,
            "record_share": self._record_share,
            "fit": self._fit.state(),
            "radius": self._clip.state(),
            "can_be_checked": self.can_be_checked,
            "descent": descent,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        with reading_state("learning from sums"):
            self.round = int(state["round"])
            self._record_share = float(state["record_share"])
            self._fit.restore(state["fit"])
            self._clip.restore(state["radius"])
            self.can_be_checked = bool(state["can_be_checked"])
            self._descent = None
            self._spent = 0.0
            self.rounds = len(self._shares)
            if state["descent"]:
                rounds = self.round - int(state["descent"]["round"])
                self._spent = sum(self._shares[:rounds])
                self._begin_descent(rounds).restore(state["descent"])
