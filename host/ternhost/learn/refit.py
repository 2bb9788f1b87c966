"""Learning from sums in four rounds, with public rows: features of records without labels, which are nobody's secret.

With their Hessian each noisy gradient is a linear observation of the optimum, and all observations are fitted together
after every round. Public rows of another population would ruin that. So a first round finds out, and if they do not
fit, `Descent` goes on without them."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tern.wire import LINEAR, LOGISTIC, SVM
from ternhost.learn.descent import Descent, Public
from ternhost.learn.optimisers import read_vectors
from ternhost.learn.parameters import LARGEST_WEIGHT, Floats, reading_state

ENOUGH = 300  # public rows, below which descent is the better learner
_ROUNDS = 4
_GUARD = 0.2  # the share of rho that the first round spends
_FITS, _FIT = 6, 0.7  # Gauss-Newton steps of a fit, each so much of the way
_VARIANCES = 10.0 ** np.arange(-4, 4, 0.25)  # of weights, among which the evidence chooses


def learner(public: Public, rows: Floats | None = None) -> Descent:
    """The learner for these public rows (n x features), or for none."""
    if rows is None or len(rows) < ENOUGH or public.model == SVM:  # the hinge's Hessian needs labels
        return Descent(public)
    return Refit(public, rows)


class Refit(Descent):
    """Newton's method on all observations, shrunk by evidence."""

    def __init__(self, public: Public, rows: Floats) -> None:
        """rows: features (n x features), real numbers."""
        super().__init__(public, float(np.quantile(np.linalg.norm(rows, axis=1), 0.8)))
        self.fits: bool = True  # the rows, as far as known
        self._rows = rows
        self._fitted: Floats = np.zeros(public.values)
        self._seen: list[tuple[Floats, Floats, float]] = []  # weights asked at, gradient, its variance
        self._descent, self.rounds = self.rounds, _ROUNDS

    @property
    def weights(self) -> Floats:
        return self._fitted if self.fits else super().weights

    @property
    def model(self) -> Floats:
        return self._fitted if self.fits else super().model

    @property
    def rho_share(self) -> float:
        return (1 - _GUARD) / (self.rounds - 1) if self.round else _GUARD

    def move(self, gradient: Floats, noise: float) -> None:
        if self.fits and not self._seen and not self._suited(gradient, noise):
            self._give_up()
        if self.fits:
            self._seen.append((self._fitted, gradient, noise**2))
            self._fit()
        else:
            super().move(gradient, noise)

    def _suited(self, gradient: Floats, noise: float) -> bool:
        """Whether a gradient at the model 0 has as much evidence by the rows as by uncorrelated features."""
        uncorrelated = np.eye(self.public.features) * math.sqrt(np.square(self._rows).sum(axis=1).mean())
        both = self._rows, uncorrelated
        hessians = (self._hessian(rows, self._means(rows, self._fitted)) for rows in both)
        mine, other = (shrink(hessian, -gradient, noise**2)[1] for hessian in hessians)
        return mine >= other

    def _give_up(self) -> None:  # what was asked is the first round of a descent
        self.fits, self.rounds = False, self._descent

    def _fit(self) -> None:
        """With h the mean of a label, round s observed E[(h(x w) - h(x w_s)) x] = -gradient_s + noise, where E is
        the mean over the public rows. As they are few, it has noise of its own."""
        rows, n, weights = self._rows, len(self._rows), self._fitted
        size = np.square(rows).mean(axis=1) / n**2
        then = [self._means(rows, asked) for asked, _, _ in self._seen]
        for _ in range(_FITS):
            means = self._means(rows, weights)
            hessian = self._hessian(rows, means)
            target, certainty = np.zeros_like(weights), 0.0
            for before, (_, gradient, variance) in zip(then, self._seen, strict=True):
                moved = means - before  # n x classes
                certain = 1 / max(variance + float(np.square(moved).mean(axis=1) @ size), 1e-12)
                certainty += certain
                target += certain * (hessian @ weights - gradient - (moved.T @ rows).reshape(-1) / n)
            fitted = shrink(hessian, target / certainty, 1 / certainty)[0]
            weights = np.clip(weights + _FIT * (fitted - weights), -LARGEST_WEIGHT, LARGEST_WEIGHT)
        self._fitted = weights

    def _means(self, rows: Floats, weights: Floats) -> Floats:
        """The mean label of each row by a model (n x classes)."""
        z: Floats = rows @ weights.reshape(self.public.classes, -1).T
        if self.public.model == LINEAR:
            return z
        if self.public.model == LOGISTIC:
            return (1 + np.tanh(z / 2)) / 2
        each = np.exp(z - z.max(axis=1, keepdims=True))
        return np.asarray(each / each.sum(axis=1, keepdims=True))

    def _hessian(self, rows: Floats, means: Floats) -> Floats:
        """Of the mean loss (values x values)."""
        (n, d), classes = rows.shape, self.public.classes
        blocks = np.empty((classes, d, classes, d))
        for i in range(classes):
            for j in range(classes):
                slopes = np.ones(n) if self.public.model == LINEAR else means[:, i] * ((i == j) - means[:, j])
                blocks[i, :, j] = (rows * slopes[:, None]).T @ rows / n
        return blocks.reshape(classes * d, classes * d)

    def state(self) -> dict[str, Any]:
        seen = [[asked.tolist(), gradient.tolist(), variance] for asked, gradient, variance in self._seen]
        return {**super().state(), "fits": self.fits, "fitted": self._fitted.tolist(), "seen": seen}

    def restore(self, state: Mapping[str, Any]) -> None:
        super().restore(state)
        (self._fitted,) = read_vectors(state, self.public.values, "fitted")
        with reading_state("learning from sums"):
            self._seen = [(np.array(w, float), np.array(g, float), float(v)) for w, g, v in state["seen"]]
            if not state["fits"]:
                self._give_up()


def shrink(hessian: Floats, target: Floats, variance: float) -> tuple[Floats, float]:
    """The mean of w given hessian w = target + noise of this variance and w ~ N(0, s), and its log evidence (but for a
    constant), at the s of the largest."""
    curvatures, directions = np.linalg.eigh(hessian)
    along = directions.T @ target
    variances = np.square(curvatures) * _VARIANCES[:, None] + variance + 1e-300
    evidence = -0.5 * (np.square(along) / variances + np.log(variances)).sum(axis=1)
    best = int(evidence.argmax())
    return directions @ (curvatures * _VARIANCES[best] * along / variances[best]), float(evidence[best])
