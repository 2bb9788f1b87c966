"""Learning from sums in four rounds, with public rows: features of records without labels.

With the Hessian of public rows each noisy gradient is a linear observation of the optimum, and all
observations are fitted together after every round. Rows of another population would ruin that. So a
first round finds out, and if they do not fit, descent goes on without them.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tern.wire import SVM
from ternhost.learn.descent import Descent, PublicFacts
from ternhost.learn.observations import Observation, Observations
from ternhost.learn.parameters import Floats, reading_state

ENOUGH = 300  # public rows, below which descent is the better learner
_ROUNDS = 4
_TYPICAL = 0.8  # the quantile of the norms of rows that the first radius is for
_GUARD = 0.2  # the share of rho that the first round spends


def descent_for(facts: PublicFacts, rows: Floats | None = None) -> Descent:
    """Return the learner for a run whose boards send sums: one that uses public rows, or plain
    descent.

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
        """Begin with a first round that finds out whether the rows suit the population.

        facts: what everybody may know of the run.
        rows: features of records that are nobody's secret (n x features), as real numbers.
        """
        typical_norm = float(np.quantile(np.linalg.norm(rows, axis=1), _TYPICAL))
        super().__init__(facts, typical_norm)
        self.fits: bool = True  # the rows, as far as known
        self._observations = Observations(facts.model, rows, facts.classes)
        self._rounds_of_descent, self.rounds = self.rounds, _ROUNDS

    @property
    def weights(self) -> Floats:
        if self.fits:
            return self._observations.weights
        return super().weights

    @property
    def model(self) -> Floats:
        if self.fits:
            return self._observations.weights
        return super().model

    @property
    def rho_share(self) -> float:
        if self.round == 0:
            return _GUARD
        return (1 - _GUARD) / (self.rounds - 1)

    def move(self, gradient: Floats, noise: float) -> None:
        """Fit the model to the gradients of all rounds, or, if the rows do not suit, make a step.

        gradient: the mean gradient of a record in the last round (values).
        noise: the standard deviation of each value of it.
        """
        if self.fits:
            observation = Observation(self.weights, gradient, variance=noise**2)
            self._observations.add(observation)
            if not self._observations.suited:
                self._give_up()
        if self.fits:
            self._observations.fit()
        else:
            super().move(gradient, noise)

    def _give_up(self) -> None:
        """Go on by descent, without the rows; the rounds so far count as the first ones of it."""
        self.fits = False
        self.rounds = self._rounds_of_descent

    def state(self) -> dict[str, Any]:
        return {**super().state(), "fits": self.fits, "observations": self._observations.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        super().restore(state)
        with reading_state("learning from sums"):
            self._observations.restore(state["observations"])
            if not state["fits"]:
                self._give_up()
