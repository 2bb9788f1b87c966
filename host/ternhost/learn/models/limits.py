"""Limits of features, above which a value is unusual for a fleet, as devices get them.

A limit is a high quantile of a feature over the devices of the fleet: the estimate itself, so that
about the expected share of the devices is above it. The upper end of its 95 % interval would be no
better: for a fleet of 10,000 devices, that of p99 is nearly always the largest value that there
can be, and nothing is above it (docs/guides/unusual.md).

Devices compare integers, so that host and device agree on every row. A device finds the same with
tern.limits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tern import wire
from tern.fixed import ONE
from ternhost.count.questions import Averaged
from ternhost.errors import UsageError
from ternhost.learn.distributions.quantile_options import name_of
from ternhost.text import counted

if TYPE_CHECKING:
    from ternhost.learn.collecting.collect import ClientData

Integers = npt.NDArray[np.int64]

NOTHING_UNUSUAL = -1  # in place of the number of a feature


@dataclass(frozen=True)
class Publication:
    """Which quantile boards get as limits, and where attributes are in their records.

    quantile: such as 0.99. features: the numbers of the features of a record, by the names of
    attributes. width: the number of features of a record.
    """

    quantile: float
    features: Mapping[str, int]
    width: int

    def limits(self, entries: Sequence[Mapping[str, Any]]) -> Averaged | None:
        """Return the limits that boards get; None if there are none, as before the first report.

        A number has no limit if its quantile may be anything.

        entries: of the attributes, with their `quantiles` (quantile_results.py).
        """
        values = {}
        for entry in entries:
            for estimate in entry["quantiles"]:
                low, high = estimate["interval"]
                may_be_anything = low <= -1 and high >= 1
                if estimate["quantile"] == self.quantile and not may_be_anything:
                    values[self.features[entry["name"]]] = estimate["value"]
        if not values:
            return None
        return limits_of(values, self.width)

    def summary(self, entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the quantile and the limits for JSON, in Q1.14 in the order of a record."""
        limits = self.limits(entries)
        parameters = None if limits is None else list(limits.parameters)
        return {"quantile": self.quantile, "limits": parameters}


def publication_of(quantile: float | None, data: ClientData) -> Publication | None:
    """Return how boards get a quantile as limits; None for no quantile.

    data: what clients hold, and where it is in their records.
    """
    if quantile is None:
        return None
    names = data.table.numeric_names
    features = {name: data.first + column for column, name in enumerate(names)}
    return Publication(quantile, features, data.width)


def published_lines(result: Mapping[str, Any]) -> list[str]:
    """Return the line for people that says which limits boards get; none if they get none."""
    published = result.get("published")
    if published is None or published["limits"] is None:
        return []
    count = sum(limit != wire.NO_LIMIT for limit in published["limits"])
    name = name_of(published["quantile"])
    numbers = counted(count, "number")
    return [f"boards get the {name} of {numbers} as limits: a value above them is unusual"]


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
    bounds = _whole_numbers(limits, "limits", dimensions=1)
    values = np.atleast_2d(_whole_numbers(rows, "rows"))
    width = len(bounds)
    if values.ndim != 2 or values.shape[1] < width:
        text = f"the rows have {values.shape[-1]} features, and the limits are of {width}"
        raise UsageError(text, hint="use the features in the order of a record")
    is_above = np.zeros((len(values), width + 1), bool)
    is_above[:, :width] = values[:, :width] > bounds
    is_above[:, width] = True  # reached where no limit is exceeded
    first = is_above.argmax(axis=1)
    found: Integers = np.where(first < width, first, NOTHING_UNUSUAL)
    return found


def _whole_numbers(numbers: npt.ArrayLike, what: str, dimensions: int | None = None) -> Integers:
    """Return whole numbers as an array.

    what: their parameter, for the message. dimensions: of the array; None: any. Raises UsageError
    for anything else.
    """
    text = f"{what} must be whole numbers in Q1.14"
    try:
        given = np.asarray(numbers)
    except ValueError:  # lists of different lengths
        raise UsageError(text) from None
    if given.dtype.kind not in "iu" or dimensions not in (None, given.ndim):
        raise UsageError(text)
    return given.astype(np.int64)
