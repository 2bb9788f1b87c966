"""The threshold of a model of two classes: the probability above which it predicts the positive one.

Each of two classes has a probability of 1/2 or more only if it is the more probable one. A rare
class often never is. With a smaller threshold, a model predicts it all the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np

from ternhost.count.questions import Averaged
from ternhost.errors import UsageError
from ternhost.learn.models.judging import EVEN, LARGEST, LEAST, logit
from ternhost.learn.parameters import LARGEST_WEIGHT, Floats, quantise

_HINT = (
    "a probability, such as 0.3; the costs of a false alarm and of a miss, such as 1:5; "
    "or the share of records to predict as positive, such as 24%"
)


@dataclass(frozen=True)
class Threshold:
    """A threshold as a user names it: a probability, or a share of records. The other one is None.

    - probability: the threshold itself
    - share: of the records that judge a model: so many are predicted to be of the positive class
    """

    probability: float | None = EVEN
    share: float | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a threshold in one of three forms.

        - 0.3: a probability
        - 1:5: the cost of a false alarm, and that of a miss. A prediction of the positive class
          pays where its probability is above 1 / (1 + 5)
        - 24%: a share of the records that judge the model

        Raises UsageError for other texts, and for a threshold that is not above 0 and below 1.
        """
        if text.endswith("%"):
            return cls(probability=None, share=_part_of_one(text, _number(text[:-1]) / 100))
        false_alarm, colon, miss = text.partition(":")
        if not colon:
            return cls(_part_of_one(text, _number(text)))
        costs = _number(false_alarm), _number(miss)
        if not all(0 < cost < math.inf for cost in costs):
            raise UsageError(f"--threshold {text} does not have two costs above 0", _HINT)
        return cls(_part_of_one(text, costs[0] / sum(costs)))

    def of(self, scores: Floats) -> float:
        """Return the threshold as a probability.

        scores: those that the model gives to the records that judge it (n). A share is of them. The
        threshold of a share lies in the middle between two scores. If many scores are equal there,
        the model predicts fewer records to be of the positive class than the share says.
        """
        if self.probability is not None:
            return self.probability
        assert self.share is not None
        from scipy.special import expit  # takes long to import

        descending = -np.sort(-scores)
        # With a score above all records and one below all: the threshold of none, or of all of them,
        # lies between two scores as well.
        candidates = [descending[0] + 1, *descending, descending[-1] - 1]
        positive = round(self.share * len(scores))
        lowest_above, highest_below = candidates[positive], candidates[positive + 1]
        threshold = float(expit((lowest_above + highest_below) / 2))
        return min(max(threshold, LEAST), LARGEST)


def require_threshold(threshold: float) -> None:
    """Raise UsageError unless a number can be a threshold."""
    _part_of_one(str(threshold), threshold)


def for_decisions(averaged: Averaged, threshold: float | None) -> Averaged:
    """Return a model in the form in which devices decide by it.

    A device predicts the positive class if the score is above 0. So that this means a probability
    above the threshold, the score at the threshold is subtracted from the weight of the constant,
    which is the first feature. If a weight is then too large for a device, all are scaled down,
    which changes no decision. Probabilities that a device computes with this model are too high or
    too low: 1/2 stands for the threshold.

    threshold: of a logistic model. None: the model has none, and is returned as it is.
    """
    if threshold is None or threshold == EVEN:
        return averaged
    weights = averaged.weights.reshape(-1)
    weights[0] -= logit(threshold)
    weights *= min(1.0, LARGEST_WEIGHT / np.abs(weights).max())
    parameters = quantise(weights)
    return Averaged(averaged.model, parameters.mantissas.tolist(), parameters.exponent)


def _number(text: str) -> float:
    """Return the number of a text; NaN, which no comparison holds for, if it is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def _part_of_one(text: str, number: float) -> float:
    """Return a number above 0 and below 1. Raises UsageError for another one. text: for the message."""
    if not 0 < number < 1:
        raise UsageError(f"--threshold must be between 0 and 1 (100 %), not {text}", _HINT)
    return number
