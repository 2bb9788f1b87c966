"""Limits of features, above which a value is unusual for a fleet, as devices get them.

A limit is a high quantile of a feature over the devices of the fleet. Devices compare integers, so
that host and device agree on every row. A device finds the same with tern.limits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from tern import wire
from tern.fixed import ONE
from ternhost.count.questions import Averaged
from ternhost.errors import UsageError

Integers = npt.NDArray[np.int64]

NOTHING_UNUSUAL = -1  # in place of the number of a feature


def limits_of(quantiles: Mapping[int, float], width: int) -> Averaged:
    """Return the limits that devices get in a MODEL frame (wire.md).

    quantiles: the estimated values, scaled to [-1, 1], by the number of the feature in a record. A
        feature that is missing here, or whose value is nan, has no limit.
    width: the number of features of a record.
    """
    limits = [wire.NO_LIMIT] * width
    for feature, value in quantiles.items():
        if math.isfinite(value):
            limits[feature] = _rounded_up(value)
    return Averaged(wire.LIMITS, limits, wire.LIMITS_EXPONENT)


def _rounded_up(value: float) -> int:
    """Return a number in Q1.14, rounded up, so that no smaller value exceeds it.

    Limits beyond [-1, 1] are cut to it, as values are.
    """
    return min(max(math.ceil(value * ONE), -ONE), ONE)


def first_unusual(limits: Sequence[int], rows: npt.ArrayLike) -> Integers:
    """Return the first feature of each row that is above its limit, counted from 0; -1 for none.

    limits: of each feature of a row, in Q1.14 (d); wire.NO_LIMIT for none. rows: features in Q1.14,
    n x d, or more: what follows the d features does not count. The result (n) equals what
    `Limits.unusual` of tern.limits finds on devices. Raises UsageError for shorter rows.
    """
    values = np.atleast_2d(np.asarray(rows, np.int64))
    width = len(limits)
    if values.shape[1] < width:
        text = f"the rows have {values.shape[1]} features, and the limits are of {width}"
        raise UsageError(text, hint="use the features in the order of a record")
    is_above = values[:, :width] > np.asarray(limits, np.int64)
    found: Integers = np.where(is_above.any(axis=1), is_above.argmax(axis=1), NOTHING_UNUSUAL)
    return found
