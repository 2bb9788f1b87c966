"""Curves that never fall, fitted to noisy estimates, and how far they may be from the true ones."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ternhost.learn.collecting.estimate import CONFIDENCE

Floats = npt.NDArray[np.float64]

_DRAWS = 400  # of noise, to find how far a fitted curve is from the true one
_SEED = 1  # of these draws
_TINY = 1e-12  # the least standard error, where all others are larger


@dataclass(frozen=True)
class RisingCurve:
    """A curve that never falls, fitted to estimates of a curve at m points, and how sure it is.

    fitted: the curve (m). half: half the length of the 95 % interval of each point (m). errors: of
    the estimates (m). noise: draws of the errors of all estimates (draws x m). lowest, highest: what
    the curve can be at any point.
    """

    fitted: Floats
    half: Floats
    errors: Floats
    noise: Floats
    lowest: float
    highest: float

    @classmethod
    def of(cls, values: Floats, covariance: Floats, lowest: float, highest: float) -> RisingCurve:
        """Fit a curve to estimates of it at m points.

        To find how far it is from the true one, noise is added to the curve, which is then fitted
        again. This is less than the error of a single estimate, since a curve that never falls
        averages over neighbours.

        values, covariance: the estimates (m), and their covariance (m x m).
        lowest, highest: what the curve can be at any point.
        """
        errors = np.maximum(np.sqrt(np.maximum(np.diag(covariance), 0)), _TINY)
        curve = cls(
            fitted=fit(values, errors, lowest, highest),
            half=np.zeros(len(errors)),  # replaced below
            errors=errors,
            noise=_noise_of(covariance),
            lowest=lowest,
            highest=highest,
        )
        deviations = np.abs(curve._fitted_again(curve.fitted) - curve.fitted)
        return replace(curve, half=np.quantile(deviations, CONFIDENCE, axis=0))

    def less(self, level: float) -> RisingCurve:
        """Return the curve less a number that is known."""
        return replace(
            self,
            lowest=self.lowest - level,
            highest=self.highest - level,
            fitted=self.fitted - level,
        )

    def may_be_above(self, point: int) -> bool:
        """Return whether the true curve may be 0 or more at a point where the fitted one is below.

        The closest curve that is 0 or more there is taken for the true one: it may be unless the
        fitted one would then hardly ever be as low as it is.
        """
        true = self.fitted.copy()
        true[point:] = np.maximum(true[point:], 0)
        is_as_low = self._fitted_again(true)[:, point] <= self.fitted[point]
        return bool(is_as_low.mean() > (1 - CONFIDENCE) / 2)

    def may_be_below(self, point: int) -> bool:
        """Return whether the true curve may be 0 or less at a point where the fitted one is above."""
        true = self.fitted.copy()
        true[: point + 1] = np.minimum(true[: point + 1], 0)
        is_as_high = self._fitted_again(true)[:, point] >= self.fitted[point]
        return bool(is_as_high.mean() > (1 - CONFIDENCE) / 2)

    def _fitted_again(self, true: Floats) -> Floats:
        """Return the curves that are fitted if this one is the true one (draws x m)."""
        fits = []
        for noise in self.noise:
            fits.append(fit(true + noise, self.errors, self.lowest, self.highest))
        return np.array(fits)


def fit(values: Floats, errors: Floats, lowest: float, highest: float) -> Floats:
    """Return the curve from lowest to highest that never falls and is closest to these values.

    It is the closest by least squares. errors: of the values.
    """
    from scipy.optimize import isotonic_regression  # takes long to import

    rising: Floats = isotonic_regression(values, weights=1 / np.maximum(errors, _TINY) ** 2).x
    return np.clip(rising, lowest, highest)


def _noise_of(covariance: Floats) -> Floats:
    """Draw normal noise with this covariance (_DRAWS x m)."""
    variances, directions = np.linalg.eigh(covariance)
    scaled_directions = directions * np.sqrt(np.maximum(variances, 0))
    normal_numbers = np.random.default_rng(_SEED).standard_normal((_DRAWS, len(covariance)))
    return np.asarray(normal_numbers @ scaled_directions.T)
