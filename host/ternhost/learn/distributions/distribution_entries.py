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

from ternhost.learn.collecting.attribute_results import in_unit
from ternhost.learn.distributions.quantile_options import name_of
from ternhost.text import visible

Floats = npt.NDArray[np.float64]

_MOST_POINTS = 128  # of a distribution that is only drawn


@dataclass(frozen=True)
class Shares:
    """Estimated shares of devices or records, one for each of n bins.

    In a histogram they are the shares in the bins, and in a cumulative distribution those below the
    upper edges of the bins.
    """

    edges: Floats  # n + 1 numbers, between which the bins lie
    shares: Floats  # n
    interval: Floats  # 2 x n: the lower ends of their 95 % intervals, then the upper ends
    true: Floats | None = None  # n: what the clients really hold, if that is known


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
        return name_of(self.level)


@dataclass(frozen=True)
class CollectedDistribution:
    """What a run has collected about the distribution of one number."""

    name: str  # of the attribute
    unit: str  # empty if it has none, or if it is not known
    is_scaled: bool  # all numbers are scaled to [-1, 1], since the bounds are not known
    reports: int
    quantiles: tuple[Quantile, ...]
    histogram: Shares  # of the finest bins
    cumulative: Shares
    shown: Shares  # a histogram of bins that are wide enough to be drawn

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> Self:
        """Read the distribution from the entry of an attribute that has a histogram."""
        quantiles = tuple(_quantile(entry, each) for each in entry["quantiles"])
        edges = entry["histogram"]["edges"]
        histogram = _shares(entry, entry["histogram"], edges)
        shown = histogram
        if "shown_histogram" in entry:
            shown_edges = entry["shown_histogram"]["edges"]
            shown = _shares(entry, entry["shown_histogram"], shown_edges)
        return cls(
            name=entry["name"],
            unit=entry.get("unit", ""),
            is_scaled="low" not in entry,
            reports=entry["reports"],
            quantiles=quantiles,
            histogram=histogram,
            cumulative=_shares(entry, entry["cumulative"], entry["cumulative"].get("edges", edges)),
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


def thinned(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an entry with at most `_MOST_POINTS` bins, which is enough to draw it.

    Its histogram is the one that pictures show, and its cumulative distribution has fewer points,
    with `edges` of their own. An entry without a histogram is returned as it is.
    """
    if "histogram" not in entry:
        return entry
    bins = len(entry["histogram"]["shares"])
    step = -(-bins // _MOST_POINTS)  # rounded up
    # The last bins of groups of `step` bins, so that the last one of all is among them.
    kept = range((bins - 1) % step, bins, step)
    cumulative: dict[str, Any] = {
        name: [values[index] for index in kept] for name, values in entry["cumulative"].items()
    }
    edges = entry["histogram"]["edges"]
    cumulative["edges"] = [edges[0], *[edges[index + 1] for index in kept]]
    histogram = entry.get("shown_histogram", entry["histogram"])
    without_pictures = {name: entry[name] for name in entry if name != "shown_histogram"}
    return {**without_pictures, "histogram": histogram, "cumulative": cumulative}


def _shares(
    entry: Mapping[str, Any], member: Mapping[str, Any], scaled_edges: Sequence[float]
) -> Shares:
    """Read a histogram or a cumulative distribution, with edges in the unit of the attribute."""
    true = None
    if "true" in member:
        true = np.array(member["true"], np.float64)
    return Shares(
        edges=np.array([in_unit(entry, edge) for edge in scaled_edges], np.float64),
        shares=np.array(member["shares"], np.float64),
        interval=np.array(member["intervals"], np.float64).T,
        true=true,
    )


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
