"""Quantiles and histograms, as Python programs and notebooks get them from a result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ternhost.api.frames import frame
from ternhost.learn.distributions.distribution_entries import CollectedDistribution

if TYPE_CHECKING:
    import pandas as pd

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Quantile:
    """A quantile of an attribute, as a run has estimated it.

    All values are in the unit of the attribute's column if the schema of the data has its bounds;
    else they are scaled, so that -1 and 1 stand for the bounds. Values beyond the bounds count as
    at the bound.

    - name: of the attribute; quantile: such as 0.5 for the median
    - estimate: the quantile's value
    - low, high: its 95 % interval
    - reports: how many reports there were about the attribute
    - true: the quantile of what the clients hold, if that is known
    """

    name: str
    quantile: float
    estimate: float
    low: float
    high: float
    reports: int
    true: float | None


@dataclass(frozen=True, eq=False)
class Histogram:
    """The distribution of an attribute in B bins of equal width, as a run has estimated it.

    Shares are estimated without bias, so that small ones may be negative. Intervals are for 95 %.

    - name: of the attribute; unit: of the edges in words; empty if it has none
    - reports: how many reports there were about the attribute
    - edges: of the bins, from the lowest (B + 1), in the units of `Quantile`
    - shares: of the clients in each bin (B); intervals: the ends of the interval of each (B, 2)
    - cumulative: the share of the clients below the upper edge of each bin (B), where the last bin has
      its edge, too; cumulative_intervals: the ends of the interval of each (B, 2)
    - true, true_cumulative: the shares of what the clients hold (B), if that is known
    """

    name: str
    unit: str
    reports: int
    edges: Floats
    shares: Floats
    intervals: Floats
    cumulative: Floats
    cumulative_intervals: Floats
    true: Floats | None
    true_cumulative: Floats | None

    @classmethod
    def of(cls, collected: CollectedDistribution) -> Histogram:
        """Return the histogram of a distribution that a run has collected."""
        histogram, cumulative = collected.histogram, collected.cumulative
        return cls(
            name=collected.name,
            unit=collected.unit,
            reports=collected.reports,
            edges=histogram.edges,
            shares=histogram.shares,
            intervals=histogram.interval.T,
            cumulative=cumulative.shares,
            cumulative_intervals=cumulative.interval.T,
            true=histogram.true,
            true_cumulative=cumulative.true,
        )

    def __repr__(self) -> str:
        bins = len(self.shares)
        bounds = f"{self.edges[0]:g} to {self.edges[-1]:g} {self.unit}".rstrip()
        return f"<Histogram {self.name}: {bins} bins of {bounds}, {self.reports:,} reports>"

    def to_frame(self) -> pd.DataFrame:
        """Return a table with a row for each bin. Needs pandas.

        It has the columns `low` and `high` (its edges), `share`, `share_low`, `share_high`,
        `cumulative`, `cumulative_low`, `cumulative_high`, and `true` and `true_cumulative` if they
        are known.
        """
        columns: dict[str, Floats | None] = {
            "low": self.edges[:-1],
            "high": self.edges[1:],
            "share": self.shares,
            "share_low": self.intervals[:, 0],
            "share_high": self.intervals[:, 1],
            "cumulative": self.cumulative,
            "cumulative_low": self.cumulative_intervals[:, 0],
            "cumulative_high": self.cumulative_intervals[:, 1],
            "true": self.true,
            "true_cumulative": self.true_cumulative,
        }
        known = {name: column for name, column in columns.items() if column is not None}
        rows = [dict(zip(known, row, strict=True)) for row in zip(*known.values(), strict=True)]
        return frame(rows)


def quantiles_of(collected: CollectedDistribution) -> list[Quantile]:
    """Return the quantiles of a distribution that a run has collected."""
    quantiles = []
    for quantile in collected.quantiles:
        quantiles.append(
            Quantile(
                name=collected.name,
                quantile=quantile.level,
                estimate=quantile.value,
                low=quantile.low,
                high=quantile.high,
                reports=collected.reports,
                true=quantile.true,
            )
        )
    return quantiles
