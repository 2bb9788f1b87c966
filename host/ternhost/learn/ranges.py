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
_LEAST_CLIPPED_MEAN = 1e-4  # of sizes after clipping
_MOST_CLIPPED_SHARE = 0.98  # of tau: the largest mean after clipping that tells anything
_PRIOR_SIZE = 0.25  # the mean size where no card shows it, as a share of what is lossless at first
# Standard errors that are added to an estimated size: too small a range costs more than too large
# a one.
_CAUTION = 0.5
# Nine equally likely values of a standard normal variable.
_NORMAL: Floats = np.array([NormalDist().inv_cdf((i + 0.5) / 9) for i in range(9)])


def parse(text: str) -> int | None:
    """Parse the option `--range`: a number, or None for auto. Raises UsageError."""
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
        """Begin without any counts.

        memory: the number of rounds that count. prior: the mean as long as no card shows it.
        """
        self._forget = 1 - 1 / memory
        self.mean = prior
        self.seen = 0.0  # reported values, weighted by age
        self.total = 0.0  # estimated sum of min(|x|, tau) over them
        self.deviation = 0.0  # of the estimate from one value

    def learn(self, tau: float, cohorts: Sequence[CohortCounts]) -> None:
        """Add the sizes that the counts of a round show; earlier rounds count a little less.

        tau: the size to which devices clipped their values. cohorts: those whose cards do not show
        sizes are left out.
        """
        reported_values, size_sum, deviation = 0.0, 0.0, 0.0
        for cohort in cohorts:
            magnitude = estimate.magnitude(cohort.card.data)
            if magnitude is None:
                continue
            reported_values += float(cohort.counts.sum())
            size_sum += float(cohort.counts.sum(axis=0) @ magnitude.scores)  # in units of tau
            deviation = max(deviation, magnitude.deviation)
        if reported_values:
            self.total = self._forget * self.total + tau * size_sum
            self.seen = self._forget * self.seen + reported_values
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
        """Choose the range of the first round by the priors.

        reported: the values of the whole run. fixed: the range of all rounds, if the user named it.
        """
        self._reported = reported
        self._fixed = fixed
        self._noise = reported.values**2 * reported.variance / reported.reported
        self._classes = 1
        if reported.model == SOFTMAX_GRADIENT:
            self._classes = reported.classes
        self._taus = _TAUS
        if reported.model == SVM:
            # The hinge's residual is 0 or 1: a gradient that is not 0 is as large as its feature.
            self._taus = _TAUS[:_SVM_RANGES]
        # At a model of 0 a residual is at most 1/2 for two classes, else at most 1, so that this
        # range is lossless.
        lossless = 0
        if reported.model == LOGISTIC:
            lossless = 1
        self.exponent = lossless  # tau is 2**-exponent
        if fixed is not None:
            self.exponent = fixed
        memory = max(_LEAST_MEMORY, _MEMORY * reported.rounds)
        self._sizes = Sizes(memory, _PRIOR_SIZE * 2.0**-lossless)
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
        """Return the share of values that a round does not clip at tau.

        Clipping leaves the same share of the loss's curvature.
        """
        return -math.expm1(-tau / self.mean_size)

    def skew(self, weights: Floats, tau: float) -> float:
        """Return the bias that clipping at tau leaves in the constant's mean gradient.

        weights: the model (d), the constant's weight first. If they are right, the gradient would
        be 0 without clipping. The rarer class has the larger residuals, and loses more of them.
        Scores are taken to be normal around the constant's weight.
        """
        if not self._learns_share:
            return 0.0
        score_deviation = math.sqrt(_FEATURE * float(np.square(weights[1:]).sum()))
        # The probabilities of both classes at nine equally likely scores.
        positive = 1 / (1 + np.exp(-weights[0] - score_deviation * _NORMAL))
        negative = 1 - positive
        # The residual of a record is the probability of the other class.
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
        """Learn the share of positive labels from the constant's gradient in a round.

        weights: the model (d) at which it was asked for. mean: the estimated gradient, from this
        number of reports.
        """
        # The probability of a positive label, of a record of which nothing else is known.
        positive = 1 / (1 + math.exp(-weights[0]))
        # The sizes of the gradients of a negative and of a positive record. The mean gradient is
        # (1 - share) negative_size - share positive_size.
        negative_size = min(positive, tau)
        positive_size = min(1 - positive, tau)
        sizes = negative_size + positive_size
        excess = (negative_size - mean) / sizes - 0.5  # of the share over 1/2
        noise = self._reported.variance / reports * (tau / sizes) ** 2
        self._always.add(excess, noise)
        # The unknown effect of the features' means is alike in all rounds. With weights, later
        # rounds show little more.
        unknown = min(float(np.square(weights[1:]).sum()) / 64, 1 / 16)
        self._rounds += 1
        self._early.add(excess, noise + self._rounds * unknown)

    def _choose(self) -> None:
        """Choose the range of the least expected error."""
        self._sizes.update_mean(2.0**-self.exponent)
        exponent = int(np.argmin(self._errors(self._taus)))
        if exponent != self.exponent:
            self._sizes.change_range(2.0**-exponent)
            self.exponent = exponent

    def _errors(self, taus: Floats) -> Floats:
        """Return the expected squared error at each tau: noise, clipping, and unequal classes.

        The parts are those of the module's docstring.
        """
        mean = self.mean_size
        clipped_share = np.exp(-taus / mean)
        error: Floats = self._noise * (taus / -np.expm1(-taus / mean)) ** 2
        error += self._reported.values * (_UNBALANCED * mean * clipped_share) ** 2
        if self._reported.model == LOGISTIC:
            class_error = _class_error(self._rarer_share(), taus)
            error += (_CENTRED + _LEANING * clipped_share) * class_error
        elif self._reported.model == SOFTMAX_GRADIENT:
            error += _FEATURE * self._classes * _class_error(1 / self._classes, taus)
        return error

    def _rarer_share(self) -> float:
        """Return the share of the rarer class's labels, as far below 1/2 as is expected."""
        early_square = self._early.mean**2 - 1 / self._early.precision
        expected_square = max(self._always.mean**2, early_square) + 1 / self._always.precision
        return max(0.5 - math.sqrt(expected_square), _RAREST)

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
    """Return the mean of exponential sizes whose mean is `clipped` once they are clipped at tau.

    It is the solution m of m (1 - exp(-tau / m)) = clipped, found by bisection.
    """
    clipped = min(max(clipped, _LEAST_CLIPPED_MEAN), _MOST_CLIPPED_SHARE * tau)
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
    """Return the squared bias of the constant's gradient at each tau.

    positives: the share of positive labels, p. Negative records have residuals of size p, positive
    ones of size 1 - p. The bias is divided by the share of the loss's curvature that clipping
    leaves. A size beyond tau leaves a part of its curvature, since residuals are not all of these
    two sizes.
    """
    negatives = 1 - positives
    lost_by_negatives = negatives * np.maximum(positives - taus, 0)
    lost_by_positives = positives * np.maximum(1 - positives - taus, 0)
    kept_by_negatives = negatives * np.minimum(1, taus / positives) ** 2
    kept_by_positives = positives * np.minimum(1, taus / (1 - positives)) ** 2
    bias = lost_by_negatives - lost_by_positives
    return np.asarray((bias / (kept_by_negatives + kept_by_positives)) ** 2)
