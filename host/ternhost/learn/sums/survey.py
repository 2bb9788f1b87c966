"""The first rounds of learning from sums: what must be known before a descent can begin.

Where one class is rare, a descent from 0 goes wrong: the radius of clipping follows the many easy
records, so that the gradients of the rare class are clipped, and the model never predicts it. So the
first rounds find out how frequent the classes are, and how long the features. Until then all
weights are 0, except those of the constant 1, which is the first feature of every record.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tern.wire import LINEAR, LOGISTIC, SOFTMAX_GRADIENT, SVM
from ternhost.learn.models.optimisers import CURVATURE, read_vectors
from ternhost.learn.parameters import LARGEST_WEIGHT, Floats

# The size of a record's residual at the model 0. For regression it is the most that it can be.
_RESIDUAL = {LINEAR: 1.0, LOGISTIC: 0.5, SVM: 1.0}

# What a round is for.
_RECORDS = "records"  # to count them
_NORM = "norm"  # to find the typical norm |x| of features
_POSITIVES = "positives"  # to count the records of the class +1
_SHARES = "shares"  # to take gradients at the shares of the classes

# The standard deviation of the logarithm of the typical norm, before it is known.
_NORM_UNSURE = 0.4
# How far the share of clipped units may be from one half at the typical norm, as a standard
# deviation: norms are distributed in unknown ways.
_NORM_ERROR = 0.15
# The first value of a record is 1, and so its norm is 1 or more. At this radius a gradient is clipped
# if its residual is 1, and never if it is nearly 0.
_BELOW_CONSTANT = 0.95
# What a counted unit adds to the tally, in radii. It is large, as the round is there for the count.
_COUNT = 4.0
_LEAST_SHARE = 0.01  # of a class, as believed: smaller ones would give a constant of large weight
_LEAST_CURVATURE = 0.04  # that of two classes of which one has a share of 4 %
_TINY = 1e-12  # the least standard deviation of noise


@dataclass(frozen=True)
class PublicFacts:
    """What everybody may know of a run."""

    model: int  # LINEAR, LOGISTIC, SVM or SOFTMAX_GRADIENT
    features: int  # d, each within [-1, 1], the constant 1 among them
    boards: int
    records: int  # of a board, roughly: some may have fewer, or none
    rho: float  # of a unit, for all rounds (zCDP)
    unit: int = 1  # this many consecutive records are a unit
    classes: int = 1  # of softmax regression

    @property
    def values(self) -> int:
        """The number of weights, class by class."""
        return self.classes * self.features

    @property
    def units(self) -> int:
        """The number of units of all boards."""
        return self.boards * math.ceil(self.records / self.unit)

    @property
    def residual(self) -> float:
        """The size of a record's residual at the model 0; for regression the most that it can be."""
        if self.model in _RESIDUAL:
            return _RESIDUAL[self.model]
        return math.sqrt(1 - 1 / self.classes)

    def noise(self, share: float) -> float:
        """Return the standard deviation of a value of the mean gradient, divided by the radius.

        share: the share of rho that the round spends.
        """
        of_board = 1 / math.sqrt(2 * share * self.rho)  # in the sum of a board, by zCDP
        return of_board * math.sqrt(self.boards) / (self.boards * self.records)

    @property
    def constants(self) -> slice:
        """Where the weights of the constant 1 are, one for each class."""
        return slice(0, self.values, self.features)


class Answer(NamedTuple):
    """What all boards answered in a round of the survey."""

    gradient: Floats  # the mean gradient of a record (d)
    noise: float  # the standard deviation of each value of it
    share: float  # of the units that were clipped, if the tally counted these
    share_noise: float  # the standard deviation of `share`


class _Combined:
    """The mean of several noisy estimates of the same values, weighted by their precision.

    The precision of an estimate is the inverse of the variance of its noise. Precisions add up.
    """

    def __init__(self, size: int) -> None:
        """Begin without any estimate, at 0. size: the number of values."""
        self.mean: Floats = np.zeros(size)
        self.precision = 0.0

    def add(self, estimate: Floats, noise: float) -> None:
        """Take in an estimate (size). noise: the standard deviation of each value of it."""
        precision = 1 / max(noise, _TINY) ** 2
        self.precision += precision
        weight = precision / self.precision
        self.mean = self.mean + weight * (estimate - self.mean)

    @property
    def is_known(self) -> bool:
        """Whether there is any estimate."""
        return self.precision > 0

    @property
    def noise(self) -> float:
        """The standard deviation of each value of the mean."""
        return 1 / math.sqrt(self.precision)


class Survey:
    """The rounds before the descent.

    In the first rounds the model is 0, where the residual of every record has the same size: so the
    share of clipped gradients shows how long the features are. For two classes a further round
    counts one of them, by a model that predicts the other for sure: then exactly the records of the
    counted class have gradients that are clipped. The last rounds take gradients at the shares of
    the classes, which show how much there is to learn.
    """

    def __init__(self, facts: PublicFacts) -> None:
        """Begin without any answer."""
        self._facts = facts
        self._can_count = facts.model == LOGISTIC
        if facts.unit > 1:
            # A unit of several records has records of all classes, so that nothing can be counted,
            # and no class is clipped away.
            self._rounds: tuple[str, ...] = (_RECORDS,)
        elif self._can_count:
            self._rounds = (_RECORDS, _NORM, _NORM, _POSITIVES, _SHARES, _SHARES)
        else:
            self._rounds = (_RECORDS, _NORM, _NORM, _SHARES, _SHARES)
        self._step = 0  # how many of them have been answered
        # The typical |x|; 1 and sqrt(d) are its bounds.
        self.norm: float = facts.features**0.25
        self._norm_variance = _NORM_UNSURE**2  # of its logarithm
        # The mean label, which for classes is the share of each (of two classes that of +1).
        self._mean_labels = _Combined(facts.classes)
        self._gradients = _Combined(facts.values)  # at the shares of the classes

    @property
    def done(self) -> bool:
        return self._step == len(self._rounds)

    @property
    def counts_units(self) -> bool:
        """Whether each unit adds the same to the tally of the next round, which counts them."""
        return self._rounds[self._step] == _RECORDS

    @property
    def weights(self) -> Floats:
        """The model at which the next round takes gradients (d)."""
        return self._with_constants(self._asked_constants)

    @property
    def weights_found(self) -> Floats:
        """The model that predicts the shares of the classes, or the mean label (d)."""
        return self._with_constants(self.constants)

    def _with_constants(self, constants: Floats) -> Floats:
        """Return the model (d) whose only weights are those of the constant (classes)."""
        weights = np.zeros(self._facts.values)
        weights[self._facts.constants] = constants
        return weights

    @property
    def _asked_constants(self) -> Floats:
        """The weights of the constant in the next round (classes)."""
        step = self._rounds[self._step]
        if step == _POSITIVES:
            # So surely predicts the class -1 that only records of +1 have a residual, of 1.
            return np.array([-LARGEST_WEIGHT])
        if step == _SHARES:
            return self.constants
        return np.zeros(self._facts.classes)

    @property
    def constants(self) -> Floats:
        """The weights of the constant by which the shares of the classes are predicted (classes)."""
        facts = self._facts
        if not self._mean_labels.is_known or facts.model == SVM:
            return np.zeros(facts.classes)
        if facts.model == LINEAR:
            return np.clip(self._mean_labels.mean, -1, 1)
        shares = self.shares
        if facts.model == LOGISTIC:
            return np.log(shares / (1 - shares))
        # Softmax predicts the same if all scores move together: so their mean can be 0.
        logarithms = np.log(shares)
        centred: Floats = logarithms - logarithms.mean()
        return centred

    @property
    def shares(self) -> Floats:
        """The share of each class (classes), of two classes that of +1.

        None is below half of the standard deviation of the noise, which could have hidden it. As long
        as nothing is known, all classes have the same share.
        """
        facts = self._facts
        if not self._mean_labels.is_known:
            return np.full(facts.classes, 1 / max(2, facts.classes))
        least = max(_LEAST_SHARE, 0.5 * self._mean_labels.noise)
        if facts.model == LOGISTIC:
            return np.clip(self._mean_labels.mean, min(least, 0.5), max(1 - least, 0.5))
        shares = np.maximum(self._mean_labels.mean, least)
        normalised: Floats = shares / shares.sum()
        return normalised

    @property
    def rarest(self) -> float:
        """The share of the rarest class, as of `shares`."""
        if self._facts.model == LOGISTIC:
            share = float(self.shares[0])
            return min(share, 1 - share)
        return float(self.shares.min())

    @property
    def largest_residual(self) -> float:
        """The residual of a record of the rarest class at the shares of the classes.

        For regression it is the most that a residual can be.
        """
        facts = self._facts
        if facts.model in (LINEAR, SVM):
            return facts.residual
        if facts.model == LOGISTIC:
            return 1 - self.rarest
        # The residual of a record of the class c has the values p of all shares, but p_c - 1 for c.
        # This is a little more than its norm, as p_c itself is added, too.
        return math.sqrt((1 - self.rarest) ** 2 + float(np.square(self.shares).sum()))

    @property
    def curvature(self) -> float:
        """The largest curvature of the loss in a score, at the shares of the classes."""
        facts = self._facts
        if facts.model == LOGISTIC:
            return max(self.rarest * (1 - self.rarest), _LEAST_CURVATURE)
        if facts.model == SOFTMAX_GRADIENT:
            shares = self.shares
            covariance = np.diag(shares) - np.outer(shares, shares)
            return max(float(np.linalg.eigvalsh(covariance).max()), _LEAST_CURVATURE)
        return CURVATURE[facts.model]

    @property
    def has_gradient(self) -> bool:
        """Whether a round took gradients at the shares of the classes."""
        return self._gradients.is_known

    @property
    def gradient_rounds(self) -> int:
        """How many rounds take gradients at the shares of the classes."""
        return self._rounds.count(_SHARES)

    @property
    def gradient(self) -> Floats:
        """The mean gradient at the shares of the classes (d)."""
        return self._gradients.mean

    @property
    def gradient_noise(self) -> float:
        """The standard deviation of each value of `gradient`."""
        return self._gradients.noise

    @property
    def radius(self) -> float:
        """The l2 norm to which the next round clips a unit's gradient."""
        facts = self._facts
        step = self._rounds[self._step]
        if step == _POSITIVES:
            return _BELOW_CONSTANT
        residual = facts.residual
        if step == _SHARES:
            residual = self.largest_residual
        # Gradients of the records of a unit have random directions: their sum grows as sqrt(unit).
        return residual * self.norm * math.sqrt(facts.unit)

    @property
    def tally(self) -> tuple[float, float]:
        """What a clipped unit adds to the tally of the next round, and what any other unit adds."""
        step = self._rounds[self._step]
        if step == _RECORDS:
            return self.radius, self.radius
        if step == _NORM:
            return self.radius, 0.0
        if step == _POSITIVES:
            return _COUNT * self.radius, 0.0
        return 0.0, 0.0

    def learn(self, answer: Answer) -> None:
        """End a round of the survey.

        The caller has counted the records itself (`counts_units`): such a round teaches nothing else.
        """
        facts, step = self._facts, self._rounds[self._step]
        # At weights that depend on no feature, the gradient's value for the constant is the mean
        # prediction less the mean label.
        mean_labels = self._prediction() - answer.gradient[facts.constants]
        if step == _NORM:
            # The residuals of regression differ, so that clipping does not show the norm.
            if facts.model != LINEAR:
                self._learn_norm(answer.share, answer.share_noise)
            # The clipping to the typical norm biases this estimate. It is not needed where a
            # later round counts.
            if not self._can_count:
                self._mean_labels.add(mean_labels, answer.noise)
        elif step == _POSITIVES:
            # Exactly the records of the class +1 were clipped.
            self._mean_labels.add(np.array([answer.share]), answer.share_noise)
        elif step == _SHARES:
            self._mean_labels.add(mean_labels, answer.noise)
            self._gradients.add(answer.gradient, answer.noise)
        self._step += 1

    def _prediction(self) -> Floats:
        """Return what the model of this round predicts for every record (classes)."""
        facts, constants = self._facts, self._asked_constants
        if facts.model in (LINEAR, SVM):
            return constants
        if facts.model == LOGISTIC:
            return 1 / (1 + np.exp(-constants))
        powers = np.exp(constants)
        probabilities: Floats = powers / powers.sum()
        return probabilities

    def _learn_norm(self, clipped_share: float, noise: float) -> None:
        """Learn the typical norm from the share of gradients that were longer than it, ideally half.

        A Kalman filter estimates the logarithm of the right norm. The share of longer gradients,
        less one half, is about as large as what is missing of that logarithm: the density of a
        lognormal norm with a spread of 0.4 has this slope at its median.

        noise: the standard deviation of the noise in that share.
        """
        variance = self._norm_variance
        gain = variance / (variance + noise**2 + _NORM_ERROR**2)
        self._norm_variance = variance * (1 - gain)
        excess = min(max(clipped_share, 0.0), 1.0) - 0.5
        moved = self.norm * math.exp(gain * excess)
        # The first feature is 1, and no feature is larger.
        self.norm = min(max(moved, 1.0), math.sqrt(self._facts.features))

    def state(self) -> dict[str, Any]:
        """Return all that changes during a run, as an object for JSON; `restore` reads it back."""
        return {
            "step": self._step,
            "norm": [self.norm, self._norm_variance],
            "mean_labels": self._mean_labels.mean.tolist(),
            "gradient": self._gradients.mean.tolist(),
            "precisions": [self._mean_labels.precision, self._gradients.precision],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a stored `state()`. Raises ValueError, KeyError or TypeError for another one."""
        facts = self._facts
        self._step = int(state["step"])
        self.norm, self._norm_variance = _numbers(state["norm"])
        (self._mean_labels.mean,) = read_vectors(state, facts.classes, "mean_labels")
        (self._gradients.mean,) = read_vectors(state, facts.values, "gradient")
        precisions = _numbers(state["precisions"])
        self._mean_labels.precision, self._gradients.precision = precisions


def _numbers(pair: Sequence[float]) -> tuple[float, float]:
    """Return a pair as floats. Raises ValueError or TypeError for something else."""
    first, second = pair
    return float(first), float(second)
