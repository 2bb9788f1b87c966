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
from ternhost.learn.optimisers import CURVATURE, read_vectors
from ternhost.learn.parameters import LARGEST_WEIGHT, Floats

# The size of a record's residual at the model 0. For regression it is the most that it can be.
_RESIDUAL = {LINEAR: 1.0, LOGISTIC: 0.5, SVM: 1.0}

# What a round is for.
_RECORDS = "records"  # to count them
_NORM = "norm"  # to find the typical norm |x| of features
_POSITIVES = "positives"  # to count the records of the class +1
_SHARES = "shares"  # to take gradients at the shares of the classes

_NORM_UNSURE = (
    0.4  # the standard deviation of the logarithm of the typical norm, before it is known
)
_NORM_ERROR = 0.15  # of what is read off the share of clipped units
_COUNT = 4.0  # what a counted unit adds to the tally, in radii, where only the count matters
_BELOW_CONSTANT = 0.95  # a radius below the norm of a record with a residual of 1
_LEAST_SHARE = 0.01  # of a class
_LEAST_CURVATURE = 0.04
_TINY = 1e-12  # the least standard deviation


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

    @property
    def constants(self) -> slice:
        """Where the weights of the constant 1 are, one for each class."""
        return slice(0, self.values, self.features)


class Answer(NamedTuple):
    """What all boards answered in a round of the survey."""

    gradient: Floats  # the mean gradient of a record (d)
    noise: float  # the standard deviation of each value of it
    share: float  # of the units that were clipped, if the tally counted these
    share_noise: float


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
        # Estimates of the mean label, or of the share of each class, with the inverse variance.
        self._centre: Floats = np.zeros(facts.classes)
        self._centre_precision = 0.0
        # The mean gradient at the shares of the classes.
        self.gradient: Floats = np.zeros(facts.values)
        self._gradient_precision = 0.0

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
        weights = np.zeros(self._facts.values)
        weights[self._facts.constants] = self._asked_constants
        return weights

    @property
    def weights_found(self) -> Floats:
        """The model that predicts the shares of the classes, or the mean label (d)."""
        weights = np.zeros(self._facts.values)
        weights[self._facts.constants] = self.constants
        return weights

    @property
    def _asked_constants(self) -> Floats:
        """The weights of the constant in the next round (classes)."""
        step = self._rounds[self._step]
        if step == _POSITIVES:
            return np.array([-LARGEST_WEIGHT])  # which predicts the class -1
        if step == _SHARES:
            return self.constants
        return np.zeros(self._facts.classes)

    @property
    def constants(self) -> Floats:
        """The weights of the constant by which the shares of the classes are predicted (classes)."""
        facts = self._facts
        if not self._centre_precision or facts.model == SVM:
            return np.zeros(facts.classes)
        if facts.model == LINEAR:
            return np.clip(self._centre, -1, 1)
        shares = self.shares
        if facts.model == LOGISTIC:
            return np.log(shares / (1 - shares))
        logarithms = np.log(shares)
        centred: Floats = logarithms - logarithms.mean()
        return centred

    @property
    def shares(self) -> Floats:
        """The share of each class (classes), of two classes that of +1.

        None is so small that noise could have hidden it.
        """
        facts = self._facts
        if not self._centre_precision:
            return np.full(facts.classes, 1 / max(2, facts.classes))
        least = max(_LEAST_SHARE, 0.5 / math.sqrt(self._centre_precision))
        if facts.model == LOGISTIC:
            return np.clip(self._centre, min(least, 0.5), max(1 - least, 0.5))
        shares = np.maximum(self._centre, least)
        normalised: Floats = shares / shares.sum()
        return normalised

    @property
    def rarest(self) -> float:
        """The share of the rarest class."""
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
        return self._gradient_precision > 0

    @property
    def gradient_noise(self) -> float:
        """The standard deviation of each value of `gradient`."""
        return 1 / math.sqrt(self._gradient_precision)

    @property
    def radius(self) -> float:
        """The l2 norm to which the next round clips a unit's gradient."""
        facts = self._facts
        step = self._rounds[min(self._step, len(self._rounds) - 1)]
        if step == _POSITIVES:
            return _BELOW_CONSTANT
        residual = facts.residual
        if step == _SHARES:
            residual = self.largest_residual
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
        """End a round of the survey."""
        facts, step = self._facts, self._rounds[self._step]
        # At weights that depend on no feature, the gradient's value for the constant is the mean
        # prediction less the mean label.
        centre = self._prediction() - answer.gradient[facts.constants]
        if step == _NORM:
            if facts.model != LINEAR:
                self._learn_norm(answer.share, answer.share_noise)
            if not self._can_count:
                self._learn_centre(centre, answer.noise)
        elif step == _POSITIVES:
            self._learn_centre(np.array([answer.share]), answer.share_noise)
        elif step == _SHARES:
            self._learn_centre(centre, answer.noise)
            self._learn_gradient(answer.gradient, answer.noise)
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

    def _learn_gradient(self, gradient: Floats, noise: float) -> None:
        """Take in a mean gradient at the shares of the classes (d)."""
        precision = 1 / max(noise, _TINY) ** 2
        self._gradient_precision += precision
        weight = precision / self._gradient_precision
        self.gradient = self.gradient + weight * (gradient - self.gradient)

    def _learn_centre(self, estimate: Floats, noise: float) -> None:
        """Take in a noisy estimate of the mean label, or of the share of each class (classes)."""
        precision = 1 / max(noise, _TINY) ** 2
        self._centre_precision += precision
        weight = precision / self._centre_precision
        self._centre = self._centre + weight * (estimate - self._centre)

    def _learn_norm(self, clipped_share: float, noise: float) -> None:
        """Learn the typical norm from the share of gradients that were longer than it, ideally half.

        noise: the standard deviation of the noise in that share.
        """
        facts = self._facts
        variance = self._norm_variance
        gain = variance / (variance + noise**2 + _NORM_ERROR**2)
        self._norm_variance = variance * (1 - gain)
        excess = min(max(clipped_share, 0.0), 1.0) - 0.5
        moved = self.norm * math.exp(gain * excess)
        self.norm = min(max(moved, 1.0), math.sqrt(facts.features))

    def state(self) -> dict[str, Any]:
        """Return all that changes during a run, as an object for JSON; `restore` reads it back."""
        return {
            "step": self._step,
            "norm": [self.norm, self._norm_variance],
            "centre": self._centre.tolist(),
            "gradient": self.gradient.tolist(),
            "precisions": [self._centre_precision, self._gradient_precision],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a stored `state()`. Raises ValueError, KeyError or TypeError for another one."""
        facts = self._facts
        self._step = int(state["step"])
        self.norm, self._norm_variance = _numbers(state["norm"])
        (self._centre,) = read_vectors(state, facts.classes, "centre")
        (self.gradient,) = read_vectors(state, facts.values, "gradient")
        self._centre_precision, self._gradient_precision = _numbers(state["precisions"])


def _numbers(pair: Sequence[float]) -> tuple[float, float]:
    """Return a pair as floats. Raises ValueError or TypeError for something else."""
    first, second = pair
    return float(first), float(second)
