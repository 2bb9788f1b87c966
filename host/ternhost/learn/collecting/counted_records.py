"""What noisy counts of records tell: how many records there are, and how each number is distributed.

In a round every device counts its records in the bins of some numbers. The host has the totals over
all devices, and makes those of several rounds consistent (bin_tree.py).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tern import wire
from ternhost.count.questions import Question
from ternhost.learn import liars
from ternhost.learn.collecting.attributes import flags_of
from ternhost.learn.collecting.estimate import Floats
from ternhost.learn.collecting.sums_of_records import SumPart
from ternhost.learn.distributions.bin_tree import Distribution, SummedLevel
from ternhost.learn.liars import Range
from ternhost.privacy import sums


@dataclass(frozen=True, kw_only=True)
class CountPart(SumPart):
    """The numbers whose records one round counts, by the bins of one level.

    - exponent: there are 2**exponent bins
    - tally: grid steps that each unit adds to the tally; 0: the tally counts nothing
    """

    exponent: int
    tally: int

    @property
    def bins(self) -> int:
        """The number of bins."""
        return 1 << self.exponent

    @property
    def name(self) -> str:
        return f"numbers, in {self.bins} bins"

    def question(self, width: int, first: int) -> Question:
        """Return the question that asks devices for these counts. Parameters as of `SumPart`."""
        return Question(
            model=wire.CATEGORIES,
            parameters=flags_of(self.columns, width, first),  # 1 for each attribute asked for
            exponent=self.exponent,  # the attributes are numbers, whose bins are counted
            card=self.design.card.data,
            k=self.design.k,
            classes=self.bins,
        )


class RecordCount(NamedTuple):
    """An estimated number of records of all devices."""

    records: float
    variance: float  # of its noise
    of_report: Range  # what one device can add to it


class CountedTree(NamedTuple):
    """What was counted of one attribute."""

    distribution: Distribution
    of_reports: list[Range]  # what one device can add to each bin, for each level


class _Level(NamedTuple):
    """The numbers of records in all bins of a level, of one attribute."""

    summed: SummedLevel
    of_report: Range  # what one device can add to each


class _Answered(NamedTuple):
    """The answers of a round, over all devices."""

    part: CountPart
    totals: Floats  # of each bin of each attribute in records, and then the tally in steps
    errors: Floats  # the standard errors of these
    of_symbol: Range  # what one device can add to each, in grid steps


class CountedRecords:
    """The counts of several rounds.

    most_reports: of how many devices the round has answers that most of them answered.
    """

    def __init__(self, parts: Sequence[CountPart], answers: Sequence[Mapping[str, Any]]) -> None:
        """Take the answers of the rounds so far.

        parts: what each round asks for, also those rounds that are still to come.
        answers: the totals of each round so far, with their standard errors and the number of
            reports, as `SumsOfRecords` stores them.
        """
        self.most_reports: int = max((answer["reports"] for answer in answers), default=0)
        self._answered = []
        for part, answer in zip(parts, answers, strict=False):
            if answer["reports"]:
                self._answered.append(self._over_all_devices(part, answer))
        self._levels = self._levels_of_columns()

    def _over_all_devices(self, part: CountPart, answer: Mapping[str, Any]) -> _Answered:
        """Return the answers of a round, scaled up to all devices.

        If a device missed a round, the others stand for it: all levels have to be about the same
        number of records.
        """
        scale = self.most_reports / answer["reports"]
        return _Answered(
            part,
            totals=scale * np.array(answer["totals"]),
            errors=scale * np.array(answer["errors"]),
            of_symbol=liars.range_of_sums(sums.of(part.design.card)).times(scale),
        )

    def _levels_of_columns(self) -> dict[int, list[_Level]]:
        """Return the counts of each attribute that somebody reported, by its column."""
        levels: dict[int, list[_Level]] = {}
        for part, totals, errors, of_symbol in self._answered:
            grid_step = sums.grid(sums.of(part.design.card), range_=0)
            for i, column in enumerate(part.columns):
                of_column = slice(i << part.exponent, (i + 1) << part.exponent)
                summed = SummedLevel(totals[of_column], float(errors[of_column][0]))
                level = _Level(summed, of_symbol.times(grid_step))
                levels.setdefault(column, []).append(level)
        return dict(sorted(levels.items()))

    def records(self) -> RecordCount:
        """Return the number of records by all counts together; 0 if nobody reported."""
        return _combined([*self._tallies(), *self._counts_of_columns().values()])

    def trees(self) -> dict[int, CountedTree]:
        """Return the distribution of each attribute that somebody reported, by its column.

        The counts of each attribute tell the number of records, too. So the counts of an attribute
        are made consistent with the number that the tallies and all other attributes tell.
        """
        tallies, counts = self._tallies(), self._counts_of_columns()
        trees = {}
        for column, own_levels in self._levels.items():
            others = [count for other, count in counts.items() if other != column]
            levels = list(own_levels)
            if tallies or others:
                levels.append(_as_level(_combined([*tallies, *others])))
            trees[column] = _tree_of(levels)
        return trees

    def _tallies(self) -> list[RecordCount]:
        """Return how many records there are by the tally of each round that has one."""
        counts = []
        for part, totals, errors, of_symbol in self._answered:
            if part.tally:
                count = RecordCount(
                    records=float(totals[-1] / part.tally),
                    variance=float(errors[-1] / part.tally) ** 2,
                    of_report=of_symbol.times(1 / part.tally),
                )
                counts.append(count)
        return counts

    def _counts_of_columns(self) -> dict[int, RecordCount]:
        """Return how many records there are by the bins of each attribute, by its column."""
        return {column: _count_of(levels) for column, levels in self._levels.items()}


def _tree_of(levels: Sequence[_Level]) -> CountedTree:
    """Make the levels of an attribute consistent, and perhaps a count of all records with them."""
    distribution = Distribution([level.summed for level in levels], whole=None)
    return CountedTree(distribution, [level.of_report for level in levels])


def _count_of(levels: Sequence[_Level]) -> RecordCount:
    """Return the number of records by the counts of one attribute."""
    distribution, of_reports = _tree_of(levels)
    of_all = np.ones((1, distribution.bins))
    variance = distribution.total_error**2
    (of_report,) = liars.reach_of_sums(distribution, of_all, of_reports)
    return RecordCount(distribution.total, variance, of_report)


def _combined(counts: Sequence[RecordCount]) -> RecordCount:
    """Return the weighted mean of independent counts of all records, which has the least variance.

    It is 0 if there is no count, as nobody reported.
    """
    if not counts:
        return RecordCount(0.0, 0.0, Range(0.0, 0.0))
    precisions = np.array([1 / count.variance for count in counts])
    weights = precisions / precisions.sum()
    records = weights @ np.array([count.records for count in counts])
    low, high = weights @ np.array([count.of_report for count in counts])
    return RecordCount(float(records), float(1 / precisions.sum()), Range(float(low), float(high)))


def _as_level(count: RecordCount) -> _Level:
    """Return a count of all records as a level with a single bin."""
    summed = SummedLevel(np.array([count.records]), math.sqrt(count.variance))
    return _Level(summed, count.of_report)
