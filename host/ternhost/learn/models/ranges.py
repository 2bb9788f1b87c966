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

A card's estimate of |x| shows m (`estimate.magnitude`). Where it has none, each
`SHOW_SIZES_EVERY`-th round is asked with a card that has. For LHP, and for any card of an epsilon
of 1/4 or less, m is a prior. The constant feature's gradient shows p: its mean is 1/2 - p at a
model of 0, and tau (1 - 2 p) where both sizes are clipped. Elsewhere the features' means blur it,
so there are two estimates of p: one from all rounds, and one that trusts early rounds most.

Devices may report means of many records. All of such a mean but what the records have in common
shrinks as the square root of their number, and it is nearly normal. So m begins at a smaller prior,
and what is said above of unequal classes holds for single records alone.
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
from ternhost.learn.collecting import estimate
from ternhost.learn.parameters import Floats, reading_state
from ternhost.text import whole_number

SHOW_SIZES_EVERY = 10  # rounds; one of them is asked with a card that shows sizes
_NARROWEST = 7
_TAUS: Floats = 2.0 ** -np.arange(_NARROWEST + 1, dtype=np.float64)
_SVM_RANGES = 3
# Of means of many records: what these have in common does not shrink with their number. Measured on
# flights-planned with 100 devices of 500 records.
_RANGES_OF_MEANS = 6
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
# Of the mean square of a value: what the records of a device have in common. Measured on the same.
_IN_COMMON = 0.02
# Standard errors that are added to an estimated size: too small a range costs more than too large
# a one.
_CAUTION = 0.5
# Nine equally likely values of a standard normal variable.
_NORMAL: Floats = np.array([NormalDist().inv_cdf((i + 0.5) / 9) for i in range(9)])


def parse(clip: str | int) -> int | None:
    """Parse the option --clip: a number r, by which values are clipped to +-2**-r, or "auto".

    Returns None for "auto". Raises UsageError.
    """
    text = str(clip)
    if text == "auto":
        return None
    number = whole_number(text)
    if number is None or number > MAX_RANGE:
        hint = f"a range of r means values up to 2**-r; 0 is all of [-1, 1], and {MAX_RANGE} the narrowest"
        raise UsageError(f"--clip must be auto, or 0 to {MAX_RANGE}, not {text}", hint)
    return number


@dataclass(frozen=True)
class ReportedValues:
    """The values that devices report in a run."""

    model: int  # of the gradients
    values: int  # that a device computes, over all classes
    classes: int
    rounds: int
    reported: float  # by all devices in the whole run
    variance: float  # of a reported value whose input is 0
    records: int = 1  # of which a value is the mean


class Belief:
    """An estimate of a number near 0, which begins with a normal prior of mean 0."""

    def __init__(self, deviation: float) -> None:
        """Begin with a prior of this standard deviation."""
        self.precision = deviation**-2
        self.total = 0.0  # of the independent estimates, each times its precision

    def add(self, value: float, variance: float) -> None:
        """Take another, independent estimate of the number into account."""
        self.total += value / variance
        self.precision += 1 / variance

    @property
    def mean(self) -> float:
        """The posterior mean."""
        return self.total / self.precision


class Sizes:
    """The mean absolute value of what devices report, estimated from the counts of recent rounds."""

    def __init__(self, memory: float, prior: float, is_usual: bool = False) -> None:
        """Begin without any reports.

        The mean absolute value is estimated from sums over all reported values x. Values of earlier
        rounds count less and less.

        memory: about how many rounds count; older ones fade out.
        prior: the mean as long as no reports show it.
        is_usual: whether reports only move the mean away from the prior as far as they are certain.
        """
        self._usual: float | None = None
        if is_usual:
            self._usual = prior
        self._forget = 1 - 1 / memory  # the factor by which old sums are multiplied in each round
        self.mean = prior  # the estimate
        self.value_count = 0.0  # the number of reported values, older ones counted less
        self.size_sum = 0.0  # the sum of min(|x|, tau) over them, estimated from the reports
        self.deviation = 0.0  # the standard deviation of such an estimate from a single value

    def learn(self, tau: float, cohorts: Sequence[CohortCounts]) -> None:
        """Add the sizes of the values that were reported in a round.

        The symbols of a card (the table that perturbs values) have scores whose mean is |x|, so
        that the mean score of the reports estimates the mean size. Sizes of earlier rounds are
        multiplied by a factor below 1, so that they fade out.

        tau: devices clipped their values to +-tau, and reported them as shares of it.
        cohorts: counts of the reported symbols; cards whose symbols show no sizes are left out.
        """
        reported_values, new_sum, deviation = 0.0, 0.0, 0.0
        for cohort in cohorts:
            magnitude = estimate.magnitude(cohort.card.data)
            if magnitude is None:
                continue
            symbol_counts = cohort.counts.sum(axis=0)  # over all coordinates
            reported_values += float(cohort.counts.sum())  # a report has one or several values
            new_sum += float(symbol_counts @ magnitude.scores)  # in units of tau
            deviation = max(deviation, magnitude.deviation)  # of the score of one value
        if reported_values:
            self.size_sum = self._forget * self.size_sum + tau * new_sum
            self.value_count = self._forget * self.value_count + reported_values
            self.deviation = deviation

    def update_mean(self, tau: float) -> None:
        """Estimate the mean size anew from the sums so far, of values that were clipped to +-tau."""
        if not self.value_count:
            return
        standard_error = tau * self.deviation / math.sqrt(self.value_count)
        clipped_mean = self.size_sum / self.value_count
        if self._usual is None:
            # Too small a range costs more than too large a one: so the size is estimated a bit high.
            clipped_mean += _CAUTION * standard_error
        else:
            # The usual mean may be wrong by as much as itself.
            usual = -self._usual * math.expm1(-tau / self._usual)
            certainty = usual**2 / (usual**2 + standard_error**2)
            clipped_mean = certainty * clipped_mean + (1 - certainty) * usual
        self.mean = _mean_size(clipped_mean, tau)

    def change_range(self, tau: float) -> None:
        """Replace the sums so far by what values clipped to another +-tau would have shown.

        If sizes are exponential with mean m, the mean of min(|x|, tau) is m (1 - exp(-tau / m)).
        """
        unclipped_share = -math.expm1(-tau / self.mean)
        self.size_sum = self.value_count * self.mean * unclipped_share


class Ranges:
    """Chooses the range of each round from the counts of earlier ones."""

    def __init__(self, reported: ReportedValues, fixed: int | None = None) -> None:
        """Choose the range of the first round by what is usual, before any report.

        With a range r, devices clip the values of their gradients to +-2**-r. A gradient is a
        residual (predicted less true label) times the features, each of which is within [-1, 1].

        reported: what devices report in the whole run.
        fixed: the range of all rounds, if the user named it; None: it is chosen for each round.
        """
        self._reported = reported
        self._fixed = fixed
        # The variance of all values together, for a range of 0: d**2 V / (k n), as in the module's
        # docstring.
        self._noise = reported.values**2 * reported.variance / reported.reported
        self._classes = 1
        if reported.model == SOFTMAX_GRADIENT:
            self._classes = reported.classes

        self._taus = _TAUS  # from which the tau of a round is chosen
        if reported.model == SVM:
            # The hinge's residual is 0 or 1: a gradient that is not 0 is as large as its feature.
            self._taus = _TAUS[:_SVM_RANGES]
        elif reported.records > 1:
            self._taus = _TAUS[:_RANGES_OF_MEANS]
        # The largest range that clips nothing at a model of 0, where a residual is at most 1/2 in
        # logistic regression, and at most 1 in other models.
        lossless = 0
        if reported.model == LOGISTIC:
            lossless = 1
        self.exponent = lossless  # the range: tau is 2**-exponent
        if fixed is not None:
            self.exponent = fixed

        # What is learned of the values: their mean size, and the share of positive labels less 1/2.
        memory = max(_LEAST_MEMORY, _MEMORY * reported.rounds)
        prior_of_record = _PRIOR_SIZE * 2.0**-lossless
        self._sizes = Sizes(memory, prior=prior_of_record)
        if reported.records > 1:
            prior = prior_of_record * math.sqrt(1 / reported.records + _IN_COMMON)
            self._sizes = Sizes(memory, prior, is_usual=True)
        self._share_by_all = Belief(_SHARE)  # from all rounds
        self._share_by_early = Belief(_SHARE)  # mostly from those whose model is near 0
        self._rounds = 0  # that showed something of the share
        if fixed is None:
            self._choose()

    @property
    def mean_size(self) -> float:
        """The mean size of values, as far as known."""
        return self._sizes.mean

    @property
    def _learns_share(self) -> bool:
        """Whether the share of positive labels is learned.

        That is so in logistic regression by gradients of single records.
        """
        return self._reported.model == LOGISTIC and self._reported.records == 1

    def unclipped_share(self, tau: float) -> float:
        """Return the share of values that are not clipped, if devices clip to +-tau.

        Sizes are taken to be exponential, so it is 1 - exp(-tau / mean size). Clipping leaves the
        same share of the loss's curvature, on which the learning rate depends.
        """
        return -math.expm1(-tau / self.mean_size)

    def skew(self, weights: Floats, tau: float) -> float:
        """Return the bias of the constant feature's mean gradient, if values are clipped to +-tau.

        The constant feature is always 1, so that its gradient is the residual: the predicted
        probability less the label, 0 or 1. Its mean is 0 at the right weights. But the rarer class
        has the larger residuals, and loses more of them by clipping, which leaves a bias. It is
        computed for logistic regression; other models have 0.

        weights: the model (d), the constant's weight first. Scores are taken to be normal around
            it.
        """
        if not self._learns_share:
            return 0.0
        score_deviation = math.sqrt(_FEATURE * float(np.square(weights[1:]).sum()))
        # The probabilities of both classes at nine equally likely scores; _NORMAL has nine equally
        # likely values of a standard normal variable.
        positive = 1 / (1 + np.exp(-weights[0] - score_deviation * _NORMAL))
        negative = 1 - positive
        # The residual of a record has the size of the probability of the other class, and is clipped
        # at tau. It is positive for negative records, and negative for positive ones.
        mean_residual = negative * np.minimum(positive, tau) - positive * np.minimum(negative, tau)
        return float(mean_residual.mean())

    def learn(
        self, weights: Floats, mean: Floats, reports: Floats, cohorts: Sequence[CohortCounts]
    ) -> None:
        """Learn from the reports of a round how large values are, and choose the next range.

        weights: the model at which the gradients of the round were taken (d).
        mean: the mean gradient that was estimated (d).
        reports: the number of reports of each coordinate (d).
        cohorts: the counts of the reported symbols.
        """
        reporting = [cohort for cohort in cohorts if cohort.counts.sum()]  # somebody answered
        if self._fixed is not None or not reporting:
            return
        tau = 2.0 ** -reporting[0].question.range
        # Sizes at another range, of a round that was asked before it changed, do not add up.
        is_current_range = tau == 2.0**-self.exponent
        if is_current_range:
            self._sizes.learn(tau, reporting)
        # The gradient of the first feature, the constant 1, shows how frequent the classes are.
        if self._learns_share and reports[0]:
            self._learn_share(tau, weights, mean=float(mean[0]), reports=float(reports[0]))
        self._choose()

    def _learn_share(self, tau: float, weights: Floats, mean: float, reports: float) -> None:
        """Learn the share of positive labels from the gradient of the constant feature in a round.

        The constant feature is always 1, so that its gradient is the residual: the predicted
        probability less the label. Its mean is (1 - share) * negative_size - share * positive_size,
        where the sizes are those of the clipped residuals of a negative and of a positive record;
        this is solved for the share. Sets two estimates of `share - 1/2`: one from all rounds
        alike, and one that trusts early rounds most.

        tau: devices clipped their values to +-tau.
        weights: the model at which the gradient was taken (d), the constant's weight first.
        mean: the gradient, estimated from this number of reports.
        """
        # The probability of a positive label, for a record of which nothing else is known.
        positive = 1 / (1 + math.exp(-weights[0]))
        negative_size = min(positive, tau)
        positive_size = min(1 - positive, tau)
        sizes = negative_size + positive_size
        share = (negative_size - mean) / sizes
        excess = share - 0.5
        noise = self._reported.variance / reports * (tau / sizes) ** 2  # the variance of `excess`
        self._share_by_all.add(excess, noise)
        # The means of the other features shift predictions, too, by an unknown amount. It grows with
        # the weights: if each feature has a mean of 1/2, it moves a share by up to |w| / 8, since
        # the logistic function has a slope of at most 1/4. It is taken to be 1/4 at most. So its
        # variance is |w|**2 / 64, and at most 1/16.
        unknown = min(float(np.square(weights[1:]).sum()) / 64, 1 / 16)
        # The shift is alike in all rounds, so that more rounds do not average it out: its variance
        # counts more with each of them.
        self._rounds += 1
        self._share_by_early.add(excess, noise + self._rounds * unknown)

    def _choose(self) -> None:
        """Choose the range of the least expected error, by all that is known of the values."""
        self._sizes.update_mean(2.0**-self.exponent)
        exponent = int(np.argmin(self._errors(self._taus)))  # tau i of the candidates is 2**-i
        if exponent != self.exponent:
            self._sizes.change_range(2.0**-exponent)
            self.exponent = exponent

    def _errors(self, taus: Floats) -> Floats:
        """Return the squared error of the mean gradient that is expected at each tau.

        Devices clip values to +-tau. A small tau gives less noise, but more is clipped; the tau of
        the least error is used. Sizes of values are taken to be exponential with mean m, so that a
        share exp(-tau / m) of them is clipped. The error, summed over the d values of the gradient, has three parts:
        - noise: (tau / (1 - exp(-tau / m)))**2 times its variance at tau = 1, since clipping
          shrinks the signal by the share that it leaves;
        - clipping: m exp(-tau / m) of a value, of which only a part _UNBALANCED does not cancel
          among records;
        - unequal classes: see `_class_error`. Its weight is a prior, as the module's docstring
          says. Means of several records do not have it.

        taus: the candidates. The result has an error for each.
        """
        mean = self.mean_size
        clipped_share = np.exp(-taus / mean)
        unclipped_share = -np.expm1(-taus / mean)
        noise = self._noise * (taus / unclipped_share) ** 2
        clipping = self._reported.values * (_UNBALANCED * mean * clipped_share) ** 2
        error: Floats = noise + clipping
        if self._reported.records > 1:
            return error
        if self._reported.model == LOGISTIC:
            class_error = _class_error(self._rarer_share(), taus)
            error += (_CENTRED + _LEANING * clipped_share) * class_error
        elif self._reported.model == SOFTMAX_GRADIENT:
            share_of_class = 1 / self._classes
            error += _FEATURE * self._classes * _class_error(share_of_class, taus)
        return error

    def _rarer_share(self) -> float:
        """Return the share of the rarer class among the labels that is expected, 1/2 at most.

        There are two estimates of how far the share is from 1/2: by all rounds, and mostly by early
        ones, whose model is near 0. The larger one is used, but the variance of the early estimate
        is taken from its square first. The expected square of the distance is that of the estimate
        plus its variance.
        """
        by_all, by_early = self._share_by_all, self._share_by_early
        early_square = by_early.mean**2 - 1 / by_early.precision
        squared_estimate = max(by_all.mean**2, early_square)
        expected_square = squared_estimate + 1 / by_all.precision
        return max(0.5 - math.sqrt(expected_square), _RAREST)

    def state(self) -> dict[str, Any]:
        """Return all that changes during a run, as an object for JSON; `restore` reads it back."""
        return {
            "exponent": self.exponent,
            # How large values are.
            "sizes": self._sizes.size_sum,
            "seen": self._sizes.value_count,
            "spread": self._sizes.deviation,
            "mean": self._sizes.mean,
            # The share of positive labels: a weighted sum of estimates, and the sum of weights.
            "rounds": self._rounds,
            "always": [self._share_by_all.total, self._share_by_all.precision],
            "early": [self._share_by_early.total, self._share_by_early.precision],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a stored `state()`. Raises UsageError for anything else."""
        with reading_state("the range"):
            self._sizes.size_sum = float(state["sizes"])
            self._sizes.value_count = float(state["seen"])
            self._sizes.deviation = float(state["spread"])
            self._sizes.mean = float(state["mean"])
            self._share_by_all.total, self._share_by_all.precision = map(float, state["always"])
            self._share_by_early.total, self._share_by_early.precision = map(float, state["early"])
            self._rounds = int(state["rounds"])
            self.exponent = int(state["exponent"])


def _mean_size(clipped: float, tau: float) -> float:
    """Return the mean of exponentially distributed sizes, given their mean after clipping at tau.

    It is the solution m of m (1 - exp(-tau / m)) = clipped, found by bisection. Results above
    _LARGEST_MEAN are cut off, as no value is larger than 1.

    clipped: the mean of min(size, tau), which noise may have made too small or too large.
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
    """Return the squared bias that clipping to +-tau leaves where classes are unequally frequent.

    It is that of the constant feature's mean gradient, at each tau. With a share p of positive
    labels, negative records have residuals of size p, and positive ones of size 1 - p. Clipping
    takes max(size - tau, 0) from each. The bias is the difference of what both classes lose,
    divided by the share of the loss's curvature that clipping leaves: min(1, tau / size)**2 of each
    class, as residuals are not all of these two sizes.

    positives: p.
    """
    negatives = 1 - positives
    lost_by_negatives = negatives * np.maximum(positives - taus, 0)
    lost_by_positives = positives * np.maximum(1 - positives - taus, 0)
    kept_by_negatives = negatives * np.minimum(1, taus / positives) ** 2
    kept_by_positives = positives * np.minimum(1, taus / (1 - positives)) ** 2
    bias = lost_by_negatives - lost_by_positives
    return np.asarray((bias / (kept_by_negatives + kept_by_positives)) ** 2)
