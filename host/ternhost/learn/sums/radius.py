"""The radius to which boards clip gradients, chosen so that a set share of them is clipped.

It is adjusted by a factor in each round (Andrew et al., NeurIPS 2021), with the gain of a Kalman
filter for its logarithm.
"""

import math
from statistics import NormalDist
from typing import Any

_NORMAL = NormalDist()
_TALLY = 3 / 16  # what a clipped unit adds to the tally, in radii: it costs (3/16)**2, 3.5 % of rho
_SPREAD = 0.4  # the standard deviation of the logarithm of a gradient's norm, over units
_SLOPE_ERROR = 1 / 8  # how uncertain the slope is, as a share of it
_DRIFT = 0.05  # of the logarithm of the right radius in a round, as the model gets better
_LEAST = 1 / 4096  # of the first radius


class Radius:
    """The l2 norm to which the gradients of units are clipped.

    A unit is a run of consecutive records, whose gradients are added up.
    """

    def __init__(self, first: float, most: float, clipped_share: float, uncertainty: float) -> None:
        """Begin with the radius `first`; it never grows beyond `most`.

        clipped_share: the share of units that should be clipped.
        uncertainty: the standard deviation of the logarithm of the first radius.
        """
        self.first = first
        self.value = first
        self.clipped_share = clipped_share
        self._variance = uncertainty**2  # of the logarithm
        self._least = first * _LEAST
        self._most = most

    @property
    def tally(self) -> tuple[float, float]:
        """What a clipped unit adds to a noisy counter, and what any other unit adds.

        The counter is 0 if the right share of the units are clipped, however many there are.
        """
        for_clipped = _TALLY * self.value
        # The solution of share * for_clipped + (1 - share) * for_other = 0.
        for_other = -for_clipped * self.clipped_share / (1 - self.clipped_share)
        return for_clipped, for_other

    def learn(self, tally: float, noise: float, units: float) -> None:
        """Move the radius so that it clips the right share of the units.

        The clipped share is about linear in the logarithm of the radius, with the slope -s. So a
        Kalman filter estimates the logarithm of the right radius:

            log radius += gain * excess,   where gain = V s / (V s**2 + variance of excess)

        V is the variance of the estimate so far.

        tally: what all units added to the counter of `tally`, with noise.
        noise: the standard deviation of that noise.
        units: how many units there are.
        """
        for_clipped, for_other = self.tally
        scale = (for_clipped - for_other) * units
        excess = tally / scale  # the share that was clipped, less what it should be
        error = noise / scale

        # Norms are taken to be lognormal, so that the slope is the density at the quantile.
        quantile = _NORMAL.inv_cdf(self.clipped_share)
        slope = _NORMAL.pdf(quantile) / _SPREAD
        # The variance of `excess` that is expected: by the radius, by noise, and by the slope.
        predicted_variance = self._variance * slope**2 + error**2 + (_SLOPE_ERROR * slope) ** 2
        gain = self._variance * slope / predicted_variance
        # The observation makes the estimate more certain; then the right radius drifts.
        self._variance = self._variance * (1 - gain * slope) + _DRIFT**2

        # Noise may lead beyond what is possible: a share is from 0 to 1.
        excess = min(max(excess, -self.clipped_share), 1 - self.clipped_share)
        moved = self.value * math.exp(gain * excess)
        self.value = min(max(moved, self._least), self._most)

    def state(self) -> list[float]:
        """Return all that changes during a run, for JSON; `restore` reads it back."""
        return [self.value, self._variance]

    def restore(self, state: Any) -> None:
        """Go back to a stored `state()`. Raises ValueError or TypeError for something else."""
        value, variance = state
        self.value, self._variance = float(value), float(variance)
