"""Learning from sums in four rounds, with public rows: features of records without labels, which
are nobody's secret.

With their Hessian each noisy gradient is a linear observation of the optimum, and all observations
are fitted together after every round. Public rows of another population would ruin that. So a first
round finds out, and if they do not fit, `Descent` goes on without them.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tern.wire import SVM
from ternhost.learn.descent import Descent, Public
from ternhost.learn.observations import Observation, Observations
from ternhost.learn.parameters import Floats, reading_state

ENOUGH = 300  # public rows, below which descent is the better learner
_ROUNDS = 4
_GUARD = 0.2  # the share of rho that the first round spends


def learner(public: Public, rows: Floats | None = None) -> Descent:
    """The learner for these public rows (n x features), or for none."""
    if (
        rows is None or len(rows) < ENOUGH or public.model == SVM
    ):  # the hinge's Hessian needs labels
        return Descent(public)
    return Refit(public, rows)


class Refit(Descent):
    """Newton's method on all observations, shrunk by evidence."""

    def __init__(self, public: Public, rows: Floats) -> None:
        """rows: features (n x features), real numbers."""
        super().__init__(public, float(np.quantile(np.linalg.norm(rows, axis=1), 0.8)))
        self.fits: bool = True  # the rows, as far as known
        self._observations = Observations(public.model, rows, public.classes)
        self._descent, self.rounds = self.rounds, _ROUNDS

    @property
    def weights(self) -> Floats:
        return self._observations.weights if self.fits else super().weights

    @property
    def model(self) -> Floats:
        return self._observations.weights if self.fits else super().model

    @property
    def rho_share(self) -> float:
        return (1 - _GUARD) / (self.rounds - 1) if self.round else _GUARD

    def move(self, gradient: Floats, noise: float) -> None:
        if self.fits:
            self._observations.add(Observation(self.weights, gradient, noise**2))
            if not self._observations.suited:
                self._give_up()
        if self.fits:
            self._observations.fit()
        else:
            super().move(gradient, noise)

    def _give_up(self) -> None:  # what was asked is the first round of a descent
        self.fits, self.rounds = False, self._descent

    def state(self) -> dict[str, Any]:
        return {**super().state(), "fits": self.fits, "observations": self._observations.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        super().restore(state)
        with reading_state("learning from sums"):
            self._observations.restore(state["observations"])
            if not state["fits"]:
                self._give_up()
