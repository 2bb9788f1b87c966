"""The range of a round, tau: how much of [-1, 1] the reported values need.

With tau = 2**-r each device multiplies its values by 2**r and clips them before the card; the host
divides the estimate by 2**r. The noise's variance falls by 4**r, but clipping leaves a bias that
more reports do not remove. Privacy is that of the card: it is certified for every input in [-1, 1],
and the range depends only on earlier reports.

The choice is the tau of the least expected squared error. With n reports of k of d values and a
card of variance V at 0, the error has these parts:

- Noise: (d**2 V / (k n)) (tau / (1 - exp(-tau / m)))**2, summed over the values. Sizes are taken to
  be exponential with mean m: a share exp(-tau / m) of them is clipped, which shrinks the signal
  together with the noise.
- Clipping: m exp(-tau / m) of a value. This cancels among records but for a share `_UNBALANCED`.
- Unequal classes: with a share p of positive labels, residuals of logistic and softmax regression
  are about p or 1 - p, and are clipped unequally. `_class_error` is the square of the bias that
  this leaves in the constant's gradient. In logistic regression `Ranges.skew` corrects it, and the
  bias of the other features remains: their squared means weigh it, `_CENTRED`, plus up to
  `_LEANING` if many values are clipped. In softmax regression the weight is `_FEATURE`. All are
  priors.

A card's estimate of |x| shows m (`estimate.magnitude`). Where it has none, each `SCOUTED`-th round
is asked with a card that has. For LHP, and for any card of an epsilon of 1/4 or less, m is a prior.
The constant feature's gradient shows p: its mean is 1/2 - p at a model of 0, and tau (1 - 2 p)
where both sizes are clipped. Elsewhere the features' means blur it, so there are two estimates of
p: one from all rounds, and one that trusts early rounds most.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from tern.wire import LOGISTIC, MAX_RANGE, SOFTMAX_GRADIENT, SVM
from ternhost.count.rounds import CohortCounts
from ternhost.errors import UsageError
from ternhost.learn import estimate
from ternhost.learn.parameters import Floats, reading_state

SCOUTED = 10  # rounds
_NARROWEST = 7
_TAUS: Floats = 2.0 ** -np.arange(_NARROWEST + 1, dtype=np.float64)
_SVM_RANGES = 3
_UNBALANCED = 0.05
_FEATURE = 0.35  # mean square of a feature
_CENTRED = 0.05
_LEANING = 0.7
_SHARE = 0.07  # prior standard deviation of the share of positive labels from 1/2
_RAREST = 0.02  # the least share of positive labels that is believed
_MEMORY = 0.1  # of the run: sizes of longer ago count little
_LEAST_MEMORY = 5  # rounds
_LARGEST_MEAN = 1.0  # of sizes
_PRIOR_SIZE = 0.25  # the mean size where no card shows it, as a share of what is lossless at first
# Standard errors that are added to an estimated size: too small a range costs more than too large
# a one.
_CAUTION = 0.5
# Nine equally likely values of a standard normal variable.
_NORMAL: Floats = np.array([NormalDist().inv_cdf((i + 0.5) / 9) for i in range(9)])


def parse(text: str) -> int | None:
    """The range that `--range` names, None for auto. Raises UsageError."""
    if text == "auto":
        return None
    if not text.isdecimal() or int(text) > MAX_RANGE:
        hint = f"a range of r means values up to 2**-r; 0 is all of [-1, 1], and {MAX_RANGE} the narrowest"
        raise UsageError(f"--range must be auto, or 0 to {MAX_RANGE}, not {text}", hint)
    return int(text)


@dataclass(frozen=True)
class ReportedValues:
    """The values that devices report in a run."""

    model: int  # of the gradients
    values: int  # that a device computes, over all classes
    classes: int
    rounds: int
    reported: float  # by all devices in the whole run
    variance: float  # of a reported value whose input is 0


class Belief:
    """An estimate of a number near 0, which starts from a normal prior of this standard deviation."""

    def __init__(self, deviation: float) -> None:
        self.precision = deviation**-2
        self.total = 0.0  # of the independent estimates, each times its precision

    def add(self, value: float, variance: float) -> None:
        """Take another estimate of the number, of this variance, into account."""
        self.total += value / variance
        self.precision += 1 / variance

    @property
    def mean(self) -> float:
        """The posterior mean."""
        return self.total / self.precision


class Sizes:
    """The mean size of reported values, estimated from the counts of recent rounds."""

    def __init__(self, memory: float, prior: float) -> None:
        """memory: rounds that count. prior: the mean where no card shows it."""
        self._forget = 1 - 1 / memory
        self.mean = prior
        self.seen = 0.0  # reported values, weighted by age
        self.total = 0.0  # estimated sum of min(|x|, tau) over them
        self.deviation = 0.0  # of the estimate from one value

    def learn(self, tau: float, cohorts: Sequence[CohortCounts]) -> None:
        """Take the counts of a round at this range."""
        seen, total, deviation = 0.0, 0.0, 0.0
        for cohort in cohorts:
            magnitude = estimate.magnitude(cohort.card.data)
            if magnitude is None:
                continue
            seen += float(cohort.counts.sum())
            total += float(cohort.counts.sum(axis=0) @ magnitude.scores)
            deviation = max(deviation, magnitude.deviation)
        if seen:
            self.total = self._forget * self.total + tau * total
            self.seen = self._forget * self.seen + seen
            self.deviation = deviation

    def update_mean(self, tau: float) -> None:
        """Set the mean from what is known, of values that were clipped at tau."""
        if not self.seen:
            return
        caution = _CAUTION * tau * self.deviation / math.sqrt(self.seen)
        self.mean = _mean_size(self.total / self.seen + caution, tau)

    def change_range(self, tau: float) -> None:
        """Replace what is remembered by what values clipped at another tau would have shown."""
        self.total = self.seen * self.mean * -math.expm1(-tau / self.mean)


class Ranges:
    """Chooses the range of each round from the counts of earlier ones."""

    def __init__(self, reported: ReportedValues, fixed: int | None = None) -> None:
        """fixed: the range of all rounds; None: choose."""
        model = reported.model
        self._reported = reported
        self._fixed = fixed
        self._noise = reported.values**2 * reported.variance / reported.reported
        self._classes = reported.classes if model == SOFTMAX_GRADIENT else 1
        # The hinge's residual is 0 or 1: a gradient that is not 0 is as large as its feature.
        self._taus = _TAUS[:_SVM_RANGES] if model == SVM else _TAUS
        # At a model of 0 a residual is at most 1/2 for two classes, else at most 1, so that this
        # range is lossless.
        start = 1 if model == LOGISTIC else 0
        self.exponent = start if fixed is None else fixed  # tau is 2**-exponent
        memory = max(_LEAST_MEMORY, _MEMORY * reported.rounds)
        self._sizes = Sizes(memory, _PRIOR_SIZE * 2.0**-start)
        # The share of positive labels, less 1/2.
        self._always = Belief(_SHARE)  # from all rounds
        self._early = Belief(_SHARE)  # mostly from those whose model is near 0
        self._rounds = 0  # with evidence of it
        if fixed is None:
            self._choose()  # by the priors

    @property
    def mean_size(self) -> float:
        """The mean size of values, as far as known."""
        return self._sizes.mean

    @property
    def _learns_share(self) -> bool:
        """Whether the share of positive labels is learned: in logistic regression."""
        return self._reported.model == LOGISTIC

    def kept(self, tau: float) -> float:
        """The share of values that a round of range tau does not clip.

        As much of the loss's curvature is left.
        """
        return -math.expm1(-tau / self.mean_size)

    def skew(self, weights: Floats, tau: float) -> float:
        """What clipping adds to the constant's mean gradient at these weights, if they are right.

        Without clipping it would be 0 there. The rarer class has the larger residuals, and loses
        more of them. Scores are taken to be normal around the constant's weight.
        """
        if not self._learns_share:
            return 0.0
        spread = math.sqrt(_FEATURE * float(np.square(weights[1:]).sum()))
        positive = 1 / (1 + np.exp(-weights[0] - spread * _NORMAL))
        negative = 1 - positive
        clipped = negative * np.minimum(positive, tau) - positive * np.minimum(negative, tau)
        return float(clipped.mean())

    def learn(
        self, weights: Floats, mean: Floats, reports: Floats, cohorts: Sequence[CohortCounts]
    ) -> None:
        """Learn from a round at these weights (d), and choose the next range.

        mean: the mean gradient (d). reports: of each coordinate (d). cohorts: their counts.
        """
        reporting = [cohort for cohort in cohorts if cohort.counts.sum()]
        if self._fixed is not None or not reporting:
            return
        tau = 2.0 ** -reporting[0].question.range
        # Sizes at another range, of a round that was asked before it changed, do not add up.
        if tau == 2.0**-self.exponent:
            self._sizes.learn(tau, reporting)
        if self._learns_share and reports[0]:
            self._learn_share(tau, weights, float(mean[0]), float(reports[0]))
        self._choose()

    def _learn_share(self, tau: float, weights: Floats, mean: float, reports: float) -> None:
        """Learn the share of positive labels from the constant's mean gradient."""
        # The probability of a positive label, of a record of which nothing else is known.
        likely = 1 / (1 + math.exp(-weights[0]))
        negative_gradient = min(likely, tau)
        positive_gradient = min(1 - likely, tau)
        sizes = negative_gradient + positive_gradient
        share = (negative_gradient - mean) / sizes - 0.5
        noise = self._reported.variance / reports * (tau / sizes) ** 2
        self._always.add(share, noise)
        # The unknown effect of the features' means is alike in all rounds. With weights, later
        # rounds show little more.
        unknown = min(float(np.square(weights[1:]).sum()) / 64, 1 / 16)
        self._rounds += 1
        self._early.add(share, noise + self._rounds * unknown)

    def _choose(self) -> None:
        """Choose the range of the least expected error."""
        self._sizes.update_mean(2.0**-self.exponent)
        exponent = int(np.argmin(self._errors(self._taus)))
        if exponent != self.exponent:
            self._sizes.change_range(2.0**-exponent)
            self.exponent = exponent

    def _errors(self, taus: Floats) -> Floats:
        """The expected squared error at each of these ranges."""
        mean = self.mean_size
        clipped = np.exp(-taus / mean)
        error: Floats = self._noise * (taus / -np.expm1(-taus / mean)) ** 2
        error += self._reported.values * (_UNBALANCED * mean * clipped) ** 2
        if self._reported.model == LOGISTIC:
            error += (_CENTRED + _LEANING * clipped) * _class_error(self._rarer_share(), taus)
        elif self._reported.model == SOFTMAX_GRADIENT:
            error += _FEATURE * self._classes * _class_error(1 / self._classes, taus)
        return error

    def _rarer_share(self) -> float:
        """The share of the rarer class's labels, as far from 1/2 as is expected."""
        early = self._early.mean**2 - 1 / self._early.precision
        away = math.sqrt(max(self._always.mean**2, early) + 1 / self._always.precision)
        return max(0.5 - away, _RAREST)

    def state(self) -> dict[str, Any]:
        """All that changes, for JSON."""
        return {
            "exponent": self.exponent,
            "sizes": self._sizes.total,
            "seen": self._sizes.seen,
            "spread": self._sizes.deviation,
            "mean": self._sizes.mean,
            "rounds": self._rounds,
            "always": [self._always.total, self._always.precision],
            "early": [self._early.total, self._early.precision],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take back a `state()`. Raises UsageError for something else."""
        with reading_state("the range"):
            self._sizes.total = float(state["sizes"])
            self._sizes.seen = float(state["seen"])
            self._sizes.deviation = float(state["spread"])
            self._sizes.mean = float(state["mean"])
            self._always.total, self._always.precision = map(float, state["always"])
            self._early.total, self._early.precision = map(float, state["early"])
            self._rounds = int(state["rounds"])
            self.exponent = int(state["exponent"])


def _mean_size(clipped: float, tau: float) -> float:
    """The mean of exponential sizes whose mean is `clipped` once they are clipped at tau."""
    clipped = min(max(clipped, 1e-4), 0.98 * tau)
    low, high = clipped, 100 * tau
    while True:
        middle = (low + high) / 2
        if not low < middle < high:  # no float is left between them
            return min(low, _LARGEST_MEAN)
        if middle * -math.expm1(-tau / middle) < clipped:
            low = middle
        else:
            high = middle


def _class_error(positives: float, taus: Floats) -> Floats:
    """The squared bias of the constant's gradient, where this share of labels is positive.

    It is divided by the square of the share of the loss's curvature that clipping leaves. A size
    beyond tau leaves a part of its curvature, since residuals are not all of these two sizes.
    """
    p = positives
    bias = (1 - p) * np.maximum(p - taus, 0) - p * np.maximum(1 - p - taus, 0)
    kept = (1 - p) * np.minimum(1, taus / p) ** 2 + p * np.minimum(1, taus / (1 - p)) ** 2
    return (bias / kept) ** 2
