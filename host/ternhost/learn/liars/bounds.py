"""The most by which lies move a weighted mean of reports, after a run and before it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]

BoundT = TypeVar("BoundT", float, Floats)

SHARE = Fraction(1, 100)  # of the devices that lie, unless the user names another one
# Estimates are computed in floats, so bounds are raised by far more than the errors of these.
_OUTWARD = 1e-11
_MOST_STEPS = 100  # of a search that ends after a few: one for each kind of report at most


class Kind(NamedTuple):
    """Reports that weigh the same in an estimate and have the same symbols, as those of one card.

    An estimate of d values is a weighted mean of what its reports stand for.
    """

    reports: Counts  # how many are about each value (d)
    weight: float  # of one report in the mean
    low: float  # the least value that a symbol stands for, on the scale of the estimate
    high: float  # the largest one


@dataclass(frozen=True)
class Bound:
    """How far lies can move an estimate of d values.

    It is nan where no honest report would be left, as where a single device reported.
    """

    up: Floats  # the most by which lies can raise each value (d)
    down: Floats  # the most by which they can lower it (d)
    liars: Counts  # how many of the reports about each value are lies (d)

    @property
    def most(self) -> Floats:
        """The most by which lies can move each value, up or down (d)."""
        return np.maximum(self.up, self.down)


def liars_among(reports: npt.ArrayLike, share: Fraction | float = SHARE) -> Counts:
    """Return how many of the reports are taken for lies: the share, rounded down, but at least one.

    reports: how many there are about each value.
    Raises ValueError for a share that is not between 0 and 1.
    """
    # The decimal number that the user wrote, and not the float next to it, which may be smaller.
    exact = share if isinstance(share, Fraction) else Fraction(str(share))
    if not 0 < exact < 1:
        raise ValueError(f"a share of liars is between 0 and 1, not {share}")
    counts = np.asarray(reports, np.int64)
    return np.maximum(1, counts * exact.numerator // exact.denominator)


def after(kinds: Sequence[Kind], estimate: npt.ArrayLike, share: Fraction | float = SHARE) -> Bound:
    """Bound how far lies have moved an estimate, given its value.

    kinds: all reports, those of liars among them.
    estimate: the weighted mean of all reports, m (d).
    """
    return _bound(kinds, np.asarray(estimate, np.float64), share, most_raised)


def before(kinds: Sequence[Kind], honest: npt.ArrayLike, share: Fraction | float = SHARE) -> Bound:
    """Bound how far lies will move an estimate, given what the honest reports alone would give.

    kinds: all reports, those of liars among them.
    honest: the weighted mean of the honest reports, h (d).
    """
    return _bound(kinds, np.asarray(honest, np.float64), share, _most_to_be_raised)


def _bound(
    kinds: Sequence[Kind],
    mean: Floats,
    share: Fraction | float,
    most: Callable[[Sequence[Kind], Floats, Counts], Floats],
) -> Bound:
    """Bound how far lies move a weighted mean, up and down.

    It is nan for values about which nobody but the liars reports.

    most: returns by how much lies raise a mean (d), from the kinds of reports, the mean, and the
        number of liars.
    """
    reports = np.sum([kind.reports for kind in kinds], axis=0)
    liars = liars_among(reports, share)
    up = most(kinds, mean, liars)
    # Lowering a value is raising its negative.
    down = most([_negated(kind) for kind in kinds], -mean, liars)
    is_enough = reports > liars
    return Bound(
        up=np.where(is_enough, up, np.nan), down=np.where(is_enough, down, np.nan), liars=liars
    )


def _negated(kind: Kind) -> Kind:
    """Return the same reports, with the negative of every value."""
    return kind._replace(low=-kind.high, high=-kind.low)


class _Lies(NamedTuple):
    """What the worst lies add to a weighted sum, by value (d each)."""

    moved: Floats  # the sum of weight * (value - centre) over all lies
    weight: Floats  # of all lies


def _worst_lies(kinds: Sequence[Kind], centre: Floats, liars: Counts, offset: Floats) -> _Lies:
    """Choose which reports are lies, so that the sum of weight * (value - centre + offset) is largest.

    Each lie is the largest symbol of its kind. The best reports are those with the largest terms;
    reports whose terms would be negative are left out.

    centre: what values are compared with (d). liars: how many lies there are, at most (d).
    offset: a number that is added to each difference (d).
    """
    weights = np.array([kind.weight for kind in kinds])[:, None]
    highs = np.array([kind.high for kind in kinds])[:, None]
    available = np.array([np.broadcast_to(kind.reports, centre.shape) for kind in kinds])
    terms = weights * (highs - centre + offset)  # kinds x d

    # The best kind first, at each value.
    order = np.argsort(-terms, axis=0, kind="stable")
    available = np.take_along_axis(np.where(terms > 0, available, 0), order, axis=0)
    taken_before = np.cumsum(available, axis=0) - available
    lies = np.clip(liars - taken_before, 0, available)
    weight_of_lies = lies * weights[order, 0]
    moved = weight_of_lies * (highs[order, 0] - centre)
    return _Lies(moved.sum(axis=0), weight_of_lies.sum(axis=0))


def most_raised(kinds: Sequence[Kind], mean: Floats, liars: Counts) -> Floats:
    """Return the most by which lies can have raised a weighted mean of all reports.

    With W the weight of all reports and V that of the lies, m - h is the sum of weight * (value -
    m) over the lies, divided by W - V. Lies of different weights change the divisor as well, so the
    best choice is searched for as usual for a quotient (Dinkelbach 1967): for a guess q of it, the
    lies with the largest sum of weight * (value - m + q) give a better q, until none does.

    mean: m (d). liars: how many lies there are (d).
    """
    weight = weight_of(kinds, mean)
    lowest, highest = range_of(kinds)
    raised = np.zeros(mean.shape)
    # What honest reports give is at least the lowest value.
    most = np.maximum(0.0, mean - lowest)
    for _ in range(_MOST_STEPS):
        lies = _worst_lies(kinds, mean, liars, offset=raised)
        honest_weight = weight - lies.weight
        with np.errstate(divide="ignore", invalid="ignore"):  # replaced where nothing is left
            quotient = np.where(honest_weight > 0, lies.moved / honest_weight, np.inf)
        better = np.minimum(np.maximum(raised, quotient), most)
        is_settled = bool(np.all(better <= raised))
        raised = better
        if is_settled:
            break
    return outward(raised, highest - lowest)


def _most_to_be_raised(kinds: Sequence[Kind], honest: Floats, liars: Counts) -> Floats:
    """Return the most by which lies can raise a weighted mean above that of the honest reports.

    With W the weight of all reports, m - h is the sum of weight * (value - h) over the lies,
    divided by W.

    honest: h (d). liars: how many of the reports are lies (d).
    """
    lies = _worst_lies(kinds, honest, liars, offset=np.zeros(honest.shape))
    lowest, highest = range_of(kinds)
    with np.errstate(invalid="ignore"):  # nan where nobody reports
        raised = lies.moved / weight_of(kinds, honest)
    return outward(raised, highest - lowest)


def weight_of(kinds: Sequence[Kind], values: Floats) -> Floats:
    """Return the weight of all reports about each value (d)."""
    weight = np.zeros(values.shape)
    for kind in kinds:
        weight += kind.weight * kind.reports
    return weight


def range_of(kinds: Sequence[Kind]) -> tuple[float, float]:
    """Return the least and the largest value that any symbol stands for."""
    return min(kind.low for kind in kinds), max(kind.high for kind in kinds)


def outward(bound: BoundT, width: float) -> BoundT:
    """Raise a bound by more than the errors of the floats in it. width: of the range of values."""
    return bound * (1 + _OUTWARD) + _OUTWARD * width
