"""Distributions of numbers in the results of collecting, in the units of their attributes.

The result of a run has an entry for each attribute, in which edges, quantiles and intervals are
scaled to [-1, 1], as means are. Tables, pictures and pages show them in the unit of the attribute,
if it has one.

An entry has a `histogram` of its finest bins and a `cumulative` distribution at their upper edges.
Fine bins may be too noisy for a picture. Then it also has a `shown_histogram`, with fewer bins.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from ternhost.learn.attribute_results import in_unit
from ternhost.text import visible

Floats = npt.NDArray[np.float64]

_NAMES = {0.5: "median"}  # of quantiles that have one


@dataclass(frozen=True)
class Shares:
    """Estimated shares of devices or records, one for each of n bins."""

    shares: Floats  # n
    interval: Floats  # 2 x n: the lower ends of their 95 % intervals, then the upper ends
    true: Floats | None = None  # n: what the clients really hold, if that is known

    @classmethod
    def of(cls, member: Mapping[str, Any]) -> Self:
        """Read the shares from a member of an entry: from a histogram or a distribution."""
        true = None
        if "true" in member:
            true = np.array(member["true"], np.float64)
        interval = np.array(member["intervals"], np.float64).T
        return cls(np.array(member["shares"], np.float64), interval=interval, true=true)


@dataclass(frozen=True)
class Histogram:
    """The shares of bins. edges: n + 1 numbers, between which the n bins lie."""

    edges: Floats
    bins: Shares


@dataclass(frozen=True)
class Quantile:
    """An estimated quantile with the ends of its 95 % interval.

    level: the share of the values that are at most as large as the quantile, such as 0.5.
    """

    level: float
    value: float
    low: float
    high: float
    true: float | None = None  # among the clients, if that is known

    @property
    def name(self) -> str:
        """What people call the quantile: "median", "p90" or "p99.9"."""
        return _NAMES.get(self.level, f"p{100 * self.level:.6g}")


@dataclass(frozen=True)
class CollectedDistribution:
    """What a run has collected about the distribution of one number."""

    name: str  # of the attribute
    unit: str  # empty if it has none, or if it is not known
    is_scaled: bool  # all numbers are scaled to [-1, 1], since the bounds are not known
    reports: int
    quantiles: tuple[Quantile, ...]
    histogram: Histogram  # of the finest bins
    cumulative: Shares  # the shares up to the upper edge of each of these bins
    shown: Histogram  # of bins that are wide enough to be drawn

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> Self:
        """Read the distribution from the entry of an attribute that has a histogram."""
        quantiles = tuple(_quantile(entry, each) for each in entry["quantiles"])
        histogram = _histogram(entry, entry["histogram"])
        shown = histogram
        if "shown_histogram" in entry:
            shown = _histogram(entry, entry["shown_histogram"])
        return cls(
            name=entry["name"],
            unit=entry.get("unit", ""),
            is_scaled="low" not in entry,
            reports=entry["reports"],
            quantiles=quantiles,
            histogram=histogram,
            cumulative=Shares.of(entry["cumulative"]),
            shown=shown,
        )

    def with_unit(self, value: float) -> str:
        """Write a value of the attribute with its unit, such as "12.3 min"."""
        return f"{value:.4g} {visible(self.unit)}".rstrip()

    @property
    def axis(self) -> str:
        """What the values of the attribute are, as the name of an axis: "delay in min"."""
        if self.is_scaled:
            return f"{self.name}, scaled to [-1, 1]"
        if self.unit:
            return f"{self.name} in {self.unit}"
        return self.name


def distributions_of(entries: Iterable[Mapping[str, Any]]) -> Sequence[CollectedDistribution]:
    """Read all distributions from the entries of attributes; other attributes are left out."""
    return [CollectedDistribution.of(entry) for entry in entries if "histogram" in entry]


def _histogram(entry: Mapping[str, Any], member: Mapping[str, Any]) -> Histogram:
    """Read a histogram of an entry, with its edges in the unit of the attribute."""
    edges = [in_unit(entry, edge) for edge in member["edges"]]
    return Histogram(np.array(edges, np.float64), Shares.of(member))


def _quantile(entry: Mapping[str, Any], member: Mapping[str, Any]) -> Quantile:
    """Read a quantile of an entry, in the unit of the attribute."""
    low, high = member["interval"]
    true = None
    if "true" in member:
        true = in_unit(entry, member["true"])
    return Quantile(
        level=member["quantile"],
        value=in_unit(entry, member["value"]),
        low=in_unit(entry, low),
        high=in_unit(entry, high),
        true=true,
    )
