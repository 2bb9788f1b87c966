"""How far devices that report whatever they like can move an estimate.

A liar is a device that sends any symbol of its card (the certified table from which honest devices
draw what they report), and not one drawn for its true value. A card has finitely many symbols, so a
lie changes an estimate by at most an amount that follows from the card's integers. The bounds are
exact: some choice of liars and symbols reaches them, unless a function says otherwise.

Let a share s of the reports about an estimate be lies. With m the estimate of all reports, h the
one that the honest reports alone give, and l the mean of what the lies stand for, both weighted as
in the estimate, m = (1 - s) h + s l. Two questions follow:

- After a run m is known, and h is not: |m - h| is at most s / (1 - s) times the distance between m
  and the farthest value of a symbol (`after`).
- Before a run h may be assumed: |m - h| is at most s times the distance between h and the farthest
  value (`before`).

The share is that of the reports about the estimate. A liar cannot choose which of several values it
is asked about, since that follows from the round and the host's choice. But whoever chooses which
devices to corrupt may choose those that are asked about a certain value.

The smaller epsilon, the farther apart are the values of symbols, and the more a liar can do: local
privacy makes manipulation easier (Cheu, Smith and Ullman, IEEE S&P 2021).
"""

from ternhost.learn.liars.bounds import SHARE, Bound, Floats, Kind, after, before, liars_among
from ternhost.learn.liars.distributions import (
    cumulative,
    cumulative_of_sums,
    cumulative_shares_of_sums,
    quantile_range,
    reach_of_sums,
)
from ternhost.learn.liars.lengths import (
    length,
    length_of_means,
    length_of_projections,
    length_of_sums,
)
from ternhost.learn.liars.levels import LevelReports, levels_after, levels_before
from ternhost.learn.liars.means_and_shares import (
    extremes,
    frequencies,
    kind_of_categories,
    kind_of_means,
    means,
)
from ternhost.learn.liars.totals import Range, Total, quotient, range_of_sums

__all__ = [
    "SHARE",
    "Bound",
    "Floats",
    "Kind",
    "LevelReports",
    "Range",
    "Total",
    "after",
    "before",
    "cumulative",
    "cumulative_of_sums",
    "cumulative_shares_of_sums",
    "extremes",
    "frequencies",
    "kind_of_categories",
    "kind_of_means",
    "length",
    "length_of_means",
    "length_of_projections",
    "length_of_sums",
    "levels_after",
    "levels_before",
    "liars_among",
    "means",
    "quantile_range",
    "quotient",
    "range_of_sums",
    "reach_of_sums",
]
