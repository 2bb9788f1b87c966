"""The range of a round, tau: how much of [-1, 1] the reported values need, chosen by what the
reports tell.

With tau = 2**-r each device multiplies its values by 2**r and clips them before the card; the host
divides the estimate by 2**r. The noise's variance falls by 4**r, but clipping leaves a bias that
more reports do not remove. Privacy is that of the card: it is certified for every input in [-1, 1],
and the range depends only on earlier reports.

The choice is the tau of the least expected squared error. With n reports of k of d values and a
card of variance V at 0, the error has these parts:

- noise: (d**2 V / (k n)) (tau / (1 - exp(-tau / m)))**2, summed over the values. Sizes are taken to
  be exponential with mean m: a share exp(-tau / m) of them is clipped, and shrinks the signal
  together with the noise.
- clipping: m exp(-tau / m) of a value, which cancels among records but for a share `_UNBALANCED` of
  it.
- unequal classes: with a share p of positive labels, residuals of logistic and softmax regression
  are about p or 1 - p, and are clipped unequally. `_class_error` is the square of the bias of the
  constant's gradient. In logistic regression `Ranges.skew` corrects it, and the bias of the other
  features remains. There the weight of `_class_error` is their squared means: `_CENTRED`, plus up
  to `_LEANING` if many values are clipped. In softmax regression it is `_FEATURE`. All are priors.

A card's estimate of |x| tells m (`estimate.magnitude`); where it has none, each `SCOUTED`-th round
is asked with a card that has. For LHP and any card of an epsilon of 1/4 or less, m is a prior. The
constant feature's gradient tells p: its mean is 1/2 - p at a model of 0, and tau (1 - 2 p) where
both sizes are clipped. Otherwise the features' means blur it, so that early rounds are believed
beside all of them.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import Any

import numpy as np

from tern.wire import LOGISTIC, MAX_RANGE, SOFTMAX_GRADIENT, SVM
from ternhost.count import estimate
from ternhost.count.rounds import CohortCounts
from ternhost.errors import UsageError
from ternhost.learn.parameters import Floats, reading_state

SCOUTED = 10  # rounds
_NARROWEST = 7
_TAUS: Floats = 2.0 ** -np.arange(_NARROWEST + 1, dtype=np.float64)
_UNBALANCED = 0.05
_FEATURE = 0.35  # mean square of a feature
_CENTRED, _LEANING = 0.05, 0.7
_SHARE = 0.07  # prior standard deviation of the share of positive labels from 1/2
_MEMORY = 0.1  # of the run: sizes of longer ago count little
_LEAST_MEMORY = 5  # rounds
_LARGEST_MEAN = 1.0
_PRIOR_SIZE = 0.25  # of what is lossless at first: the mean size of values where no card tells it
# standard errors that are added to an estimated size: too small a range costs more than too large a
# one
_BETWEEN = 0.5
_NORMAL: Floats = np.array(
    [NormalDist().inv_cdf((i + 0.5) / 9) for i in range(9)]
)  # equally likely values


class Belief:
    """A number near 0 with this standard deviation, before independent estimates of it come."""

    def __init__(self, deviation: float) -> None:
        self.precision = deviation**-2
        self.total = 0.0  # of the estimates, each times its precision

    def add(self, estimate: float, variance: float) -> None:
        self.total += estimate / variance
        self.precision += 1 / variance

    @property
    def mean(self) -> float:
        return self.total / self.precision


class Ranges:
    """Chooses the range of the next round, `exponent` (tau is 2**-exponent), from the counts of
    those before.
    """

    def __init__(
        self,
        model: int,
        values: int,
        classes: int,
        *,
        rounds: int,
        values_reported: float,
        variance: float,
        fixed: int | None = None,
    ) -> None:
        """values: how many a device computes, over all `classes`. values_reported: by all devices
        in the whole run. variance: of the card at 0. fixed: the range of all rounds.
        """
        self._fixed = fixed
        self._noise = values**2 * variance / values_reported
        self._variance = variance
        self._values = values
        self._classes = classes if model == SOFTMAX_GRADIENT else 1
        self._two_sizes = model in (LOGISTIC, SOFTMAX_GRADIENT)
        self._learns_share = model == LOGISTIC
        # The hinge's residual is 0 or 1: a gradient that is not 0 is as large as its feature.
        self._taus = _TAUS[:3] if model == SVM else _TAUS
        self._memory = max(_LEAST_MEMORY, _MEMORY * rounds)
        # At a model of 0 a residual is at most 1/2 for two classes, else at most 1: a range of
        # `start` is lossless.
        start = int(model == LOGISTIC)
        self.exponent = start if fixed is None else fixed
        self.mean_size = _PRIOR_SIZE * 2.0**-start  # of values, as far as known
        self._sizes = 0.0  # estimated sum of min(|x|, tau) of recent values, weighted
        self._seen = 0.0  # how many they were
        self._spread = 0.0  # standard deviation of the estimate from one value
        # The share of positive labels, less 1/2: from all rounds, and from those whose model is
        # near 0.
        self._always, self._early = Belief(_SHARE), Belief(_SHARE)
        self._rounds = 0  # rounds with evidence of it
        if fixed is None:
            self._choose()  # by the priors

    def kept(self, tau: float) -> float:
        """The share of values that a round of range tau does not clip: as much of the loss's
        curvature is left.
        """
        return -math.expm1(-tau / self.mean_size)

    def skew(self, weights: Floats, tau: float) -> float:
        """What clipping adds to the constant's mean gradient where these weights are right, so that
        it should be 0: the rarer class has the larger residuals, and loses more. Scores are taken
        to be normal around the constant's.
        """
        if not self._learns_share:
            return 0.0
        spread = math.sqrt(_FEATURE * float(np.square(weights[1:]).sum()))
        positive = 1 / (1 + np.exp(-weights[0] - spread * _NORMAL))
        negative = 1 - positive
        return float(
            (negative * np.minimum(positive, tau) - positive * np.minimum(negative, tau)).mean()
        )

    def learn(
        self, weights: Floats, mean: Floats, reports: Floats, cohorts: Sequence[CohortCounts]
    ) -> None:
        """Learn from a round at these weights: the mean gradient, the reports of each coordinate,
        and the counts.
        """
        reporting = [cohort for cohort in cohorts if cohort.counts.sum()]
        if self._fixed is not None or not reporting:
            return
        tau = 2.0 ** -reporting[0].question.range
        self._learn_sizes(tau, reporting)
        if self._learns_share and reports[0]:
            self._learn_positives(tau, weights, float(mean[0]), float(reports[0]))
        self._choose()

    def _learn_sizes(self, tau: float, cohorts: Sequence[CohortCounts]) -> None:
        if tau != 2.0**-self.exponent:
            return  # of a round that was asked before the range changed
        seen, sizes, spread = 0.0, 0.0, 0.0
        for cohort in cohorts:
            magnitude = estimate.magnitude(cohort.card.data)
            if magnitude is not None:
                seen += float(cohort.counts.sum())
                sizes += float(cohort.counts.sum(axis=0) @ magnitude.scores)
                spread = max(spread, magnitude.deviation)
        if seen:
            kept = 1 - 1 / self._memory
            self._sizes = kept * self._sizes + tau * sizes
            self._seen = kept * self._seen + seen
            self._spread = spread

    def _learn_positives(self, tau: float, weights: Floats, mean: float, reports: float) -> None:
        likely = 1 / (
            1 + math.exp(-weights[0])
        )  # of a record, to be positive: all that is known of it
        # Gradients of a negative and of a positive record.
        negative, positive = min(likely, tau), min(1 - likely, tau)
        share = (negative - mean) / (negative + positive) - 0.5
        noise = self._variance / reports * (tau / (negative + positive)) ** 2
        self._always.add(share, noise)
        # The unknown effect of the features' means is alike in all rounds; with weights, later
        # rounds tell little more.
        unknown = min(float(np.square(weights[1:]).sum()) / 64, 1 / 16)
        self._rounds += 1
        self._early.add(share, noise + self._rounds * unknown)

    def _choose(self) -> None:
        tau = 2.0**-self.exponent
        if self._seen:
            clipped = self._sizes / self._seen + _BETWEEN * tau * self._spread / math.sqrt(
                self._seen
            )
            self.mean_size = _mean_size(clipped, tau)
        mean = self.mean_size
        taus = self._taus
        error = self._noise * (taus / -np.expm1(-taus / mean)) ** 2
        error += self._values * (_UNBALANCED * mean * np.exp(-taus / mean)) ** 2
        if self._two_sizes:
            left = _CENTRED + _LEANING * np.exp(-taus / mean)  # by `skew`
            weight = left if self._learns_share else _FEATURE * self._classes
            error += weight * _class_error(self._positives(), taus)
        new = int(np.argmin(error))
        if new != self.exponent:  # what is remembered is what the new range would have told
            self._sizes = self._seen * mean * -math.expm1(-(2.0**-new) / mean)
            self.exponent = new

    def _positives(self) -> float:
        """The share of the rarer class's labels, as far from 1/2 as is expected."""
        if not self._learns_share:
            return 1 / self._classes
        early = self._early.mean**2 - 1 / self._early.precision
        away = math.sqrt(max(self._always.mean**2, early) + 1 / self._always.precision)
        return max(0.5 - away, 0.02)

    def state(self) -> dict[str, Any]:
        """All that changes, for JSON."""
        sizes = {
            "sizes": self._sizes,
            "seen": self._seen,
            "spread": self._spread,
            "mean": self.mean_size,
        }
        beliefs = {"always": self._always, "early": self._early}
        positives = {name: [belief.total, belief.precision] for name, belief in beliefs.items()}
        return {"exponent": self.exponent, **sizes, "rounds": self._rounds, **positives}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take back a `state()`. Raises UsageError for something else."""
        with reading_state("the range"):
            self._sizes, self._seen = float(state["sizes"]), float(state["seen"])
            self._spread, self.mean_size = float(state["spread"]), float(state["mean"])
            for belief, name in ((self._always, "always"), (self._early, "early")):
                belief.total, belief.precision = map(float, state[name])
            self._rounds = int(state["rounds"])
            self.exponent = int(state["exponent"])


def _mean_size(clipped: float, tau: float) -> float:
    """The mean of exponential sizes whose mean is `clipped` once they are clipped at tau."""
    clipped = min(max(clipped, 1e-4), 0.98 * tau)
    low, high = clipped, 100 * tau
    while low < (middle := (low + high) / 2) < high:  # until no float is left between them
        if middle * -math.expm1(-tau / middle) < clipped:
            low = middle
        else:
            high = middle
    return min(low, _LARGEST_MEAN)


def _class_error(positives: float, taus: Floats) -> Floats:
    """The square of the bias of the constant's gradient over the share of the loss's curvature that
    clipping leaves. A size beyond tau leaves a part of its curvature, since residuals are not all
    of these two sizes.
    """
    p = positives
    bias = (1 - p) * np.maximum(p - taus, 0) - p * np.maximum(1 - p - taus, 0)
    kept = (1 - p) * np.minimum(1, taus / p) ** 2 + p * np.minimum(1, taus / (1 - p)) ** 2
    return (bias / kept) ** 2


def named(text: str) -> int | None:
    """The range that `--range` names: None for auto. Raises UsageError."""
    if text == "auto":
        return None
    if not text.isdecimal() or int(text) > MAX_RANGE:
        hint = f"a range of r means values up to 2**-r; 0 is all of [-1, 1], and {MAX_RANGE} the narrowest"
        raise UsageError(f"--range must be auto, or 0 to {MAX_RANGE}, not {text}", hint)
    return int(text)
