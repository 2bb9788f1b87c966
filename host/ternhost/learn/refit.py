"""Learning from sums in four rounds, with public rows: features of records without labels.

With the Hessian of public rows each noisy gradient is a linear observation of the optimum, and all
observations are fitted together after every round. Rows of another population would ruin that. So a
first round finds out, and if they do not fit, descent goes on without them.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tern.wire import SVM
from ternhost.learn.descent import Descent
from ternhost.learn.observations import Observation, Observations
from ternhost.learn.parameters import Floats, reading_state
from ternhost.learn.radius import Radius
from ternhost.learn.survey import PublicFacts

ENOUGH = 300  # public rows, below which descent is the better learner
_ROUNDS = 4
_TYPICAL = 0.8  # the quantile of the norms of rows that the first radius is for
_GUARD = 0.2  # the share of rho that the first round spends
_CLIPPED = 0.25  # the share of units that should be clipped
_UNSURE = 0.5  # the standard deviation of the logarithm of the first radius


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
    """Newton's method on all observations, shrunk by evidence."""

    def __init__(self, facts: PublicFacts, rows: Floats) -> None:
        """Prepare to fit the model with public rows, as long as these suit the population.

        The first round finds that out. If they do not, the run goes on with gradient descent, of
        the base class, for which more rounds are needed.

        facts: what everybody may know of the run.
        rows: features of records that are nobody's secret (n x features), as real numbers.
        """
        super().__init__(facts)
        typical_norm = float(np.quantile(np.linalg.norm(rows, axis=1), _TYPICAL))
        first_radius = typical_norm * facts.residual * math.sqrt(facts.unit)
        most_radius = 2 * facts.unit * math.sqrt(facts.features)
        self._radius_of_fit = Radius(first_radius, most_radius, _CLIPPED, _UNSURE)
        self.rows_suit: bool = True  # whether they do, as far as known
        self._observations = Observations(facts.model, rows, facts.classes)  # fit the model
        self._rounds_of_descent = self.rounds  # as the base class planned; if rows do not suit
        self.rounds = _ROUNDS

    @property
    def weights(self) -> Floats:
        if self.rows_suit:
            return self._observations.weights
        return super().weights

    @property
    def model(self) -> Floats:
        if self.rows_suit:
            return self._observations.weights
        return super().model

    @property
    def rho_share(self) -> float:
        if self.round == 0:
            return _GUARD
        return (1 - _GUARD) / (self.rounds - 1)

    @property
    def radius(self) -> float:
        if self.rows_suit:
            return self._radius_of_fit.value
        return super().radius

    @property
    def tally(self) -> tuple[float, float]:
        if not self.rows_suit:
            return super().tally
        if self.round == 0:
            return self.radius, self.radius
        return self._radius_of_fit.tally

    def learn(self, total: Floats, tally: float, sigma: float, boards: int) -> None:
        """End a round: fit the model to the gradients of all rounds, or go on by descent.

        The fit uses public rows, features that stand for those of the boards' records. It is given
        up for good as soon as a gradient shows that the rows are of another population.

        The arguments are those of `Descent.learn`.
        """
        if not self.rows_suit:
            super().learn(total, tally, sigma, boards)
            return
        if boards:
            deviation = sigma * math.sqrt(boards)
            nominal_units = self.facts.units * boards / self.facts.boards
            if self.round == 0:
                self._learn_records(tally, deviation, nominal_units)
            else:
                self._radius_of_fit.learn(tally, deviation, nominal_units * self._record_share)
            records = self.facts.records * boards * self._record_share
            variance = (deviation / records) ** 2
            self._observations.add(Observation(self.weights, total / records, variance=variance))
            if self._observations.rows_suit:
                self._observations.fit()
            else:
                self._give_up()
        self.round += 1

    def _give_up(self) -> None:
        """Go on by descent, without the rows."""
        self.rows_suit = False
        self.rounds = self._rounds_of_descent

    def state(self) -> dict[str, Any]:
        return {
            **super().state(),
            "fits": self.rows_suit,
            "radius_of_fit": self._radius_of_fit.state(),
            "observations": self._observations.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        super().restore(state)
        with reading_state("learning from sums"):
            self._observations.restore(state["observations"])
            self._radius_of_fit.restore(state["radius_of_fit"])
            if not state["fits"]:
                self._give_up()
