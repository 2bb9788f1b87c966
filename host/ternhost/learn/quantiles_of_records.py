"""Quantiles and histograms of what a few devices with many records each hold.

They follow from counts over all records of a device. The record, or a run of consecutive records,
is the unit of privacy, as in FedSum. Every device counts how many of its records are in each of
4 bins, then in each of 16, and then in each of 64, and sends the counts with discrete Gaussian
noise. The host makes these levels consistent by least squares (bin_tree.py).

A cumulative share adds up many noisy bins of one level, but few of several levels. By the mean
variance of the cumulative counts, at the same rho:

    64 bins in one level                13.5
    8 and 64                             6.3
    4, 16 and 64                         5.5
    2, 4, 8, 16, 32 and 64               5.0

(in units of 1 / (2 rho), for one attribute, with the best budget of each level and of the count of
all records.) Three levels need half the rounds of six, for standard errors that are 4 % larger.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tern import wire
from tern.fixed import MAX_EPSILON
from ternhost.count.questions import Averaged, Question
from ternhost.datasets import Table
from ternhost.errors import UsageError
from ternhost.learn.attribute_results import unit_of
from ternhost.learn.attributes import flags_of
from ternhost.learn.base import Population
from ternhost.learn.bin_tree import Distribution, SummedLevel
from ternhost.learn.estimate import QUANTILE
from ternhost.learn.limits import publication_of, published_lines
from ternhost.learn.quantile_options import Options
from ternhost.learn.quantile_results import HeldValues, estimates_of, quantile_lines
from ternhost.learn.sums_of_records import (
    LEAST_BITS,
    MOST_STEPS,
    MOST_SUMS,
    SumPart,
    SumsOfRecords,
    narrowest_design,
)
from ternhost.options import require
from ternhost.privacy import sums
from ternhost.privacy.base import MICRO
from ternhost.text import counted

# The levels of a tree with so many finest bins: for the exponent e of each, which has 2**e bins, its
# part of the budget. The parts are within 1 % of the best, by the variance above. A question counts
# at most 128 categories.
_LEVELS = {16: {2: 2, 4: 3}, 64: {2: 2, 4: 2, 6: 3}}
_FEW_BINS, _MANY_BINS = _LEVELS
# The mean variance of a cumulative count, in units of 1 / (2 rho), by _MANY_BINS.
_VARIANCE_OF_MANY = 5.5
# The standard error of a cumulative share from which fewer bins are better. With _FEW_BINS the
# variance is smaller by 44 %, but numbers may be anywhere within a bin of 1/8: both weigh the same
# at this error, if numbers are spread evenly.
_LARGE_ERROR = 0.03
# What a unit adds to the tally, as a part of the radius. Its square is the part of the budget that
# the count of all records gets: within 2 % of the best for 1 to 12 attributes.
_TALLY = 1 / 4
# By how much a radius is larger than the longest vector of a unit. Devices compare it with an upper
# bound of the length, which is up to a relative 2**-11 too large.
_MARGIN = 1.001
# The records of a unit in one bin that a device can count: its total ends at 2**29 (arithmetic.md).
_LONGEST_UNIT = 1 << 15
_LONGEST_RADIUS = (1 << 16) - 1  # that a card can have
_MOST_SIGMA = 1 << 18  # standard deviation of the noise in grid steps that every card can have


@dataclass(frozen=True, kw_only=True)
class _Part(SumPart):
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


class _Count(NamedTuple):
    """An estimated number of records of all devices, and the variance of its noise."""

    records: float
    variance: float


class _Estimated(NamedTuple):
    """The result after so many rounds."""

    rounds: int
    result: dict[str, Any]


class QuantilesOfRecords(SumsOfRecords[_Part]):
    """Asks every device in each round how many of its records are in each bin.

    The attributes of a result have the form that quantile_results.py describes.
    """

    name = "quantiles"
    collects = "quantiles and histograms"
    Options: ClassVar[Any] = Options
    instead_of_serving = "serve the fleet with 'tern serve quantiles', without --unit"

    def __init__(self, options: Any, population: Population, data: Table | None = None) -> None:
        """Plan a round or more for each level of bins, and share the privacy budget out among them.

        options: the `Options` of quantiles.
        population: the devices that can be asked.
        data: what the devices hold, instead of the data set that the options name.
        Raises UsageError if the fleet is served round after round without an end, or if the bins
        cannot be counted.
        """
        super().__init__(options, population, data)
        self._estimated: _Estimated | None = None
        self._columns = self.options.columns_of(self._table)
        self._publication = publication_of(options.published_quantile(), self._data)
        self._bins = self._bins_to_count()
        self._plan_rounds(self._plan_parts())
        self.notes += (
            f"{self._bins} bins of {counted(len(self._columns), 'number')}, in "
            f"{len(_LEVELS[self._bins])} levels: every device counts its records in them",
        )

    def _require_suited(self) -> None:
        """Raise UsageError for bins or a unit that devices cannot count."""
        bins = self.options.bins
        must = f"{_FEW_BINS} or {_MANY_BINS}, as devices count no more bins of records"
        require(bins is None or bins in _LEVELS, "bins", must, bins)
        must = f"at most {_LONGEST_UNIT:,} records, which is what devices count in a bin"
        require(self.unit <= _LONGEST_UNIT, "unit", must, self.unit)

    # The plan

    def _plan_parts(self) -> list[_Part]:
        """Plan the rounds of each level, which all share the budget. Raises UsageError."""
        budgets = _LEVELS[self._bins]
        # In millionths of rho, the privacy loss of zCDP, of all rounds together. A card may cost
        # MAX_EPSILON at most.
        total_cost = min(self._budget, MAX_EPSILON)
        parts = []
        for exponent, budget in budgets.items():
            parts += self._parts_of_level(exponent, total_cost * budget // sum(budgets.values()))
        return parts

    def _bins_to_count(self) -> int:
        """Return the number of the finest bins: as the user says, or fewer if there is much noise."""
        if self.options.bins is not None:
            return int(self.options.bins)
        if self.clients is None:
            return _MANY_BINS
        # A record is in a bin of each attribute; and if one of a unit's records matters, then all.
        variance = _VARIANCE_OF_MANY * len(self._columns) / (2 * self._budget / MICRO)
        error = self._records_per_unit * math.sqrt(variance * self.clients)
        if error > _LARGE_ERROR * self.clients * self.options.records:
            return _FEW_BINS
        return _MANY_BINS

    def _parts_of_level(self, exponent: int, cost: int) -> list[_Part]:
        """Plan the rounds that count the bins of one level: as few as a report has room for.

        If not even the counts of a single attribute fit, the level costs half as much, so that its
        noise is larger and its grid coarser.

        exponent: the level has 2**exponent bins. cost: of the level, in micro-rho of zCDP.
        Raises UsageError if the cost is too little.
        """
        column_count = len(self._columns)
        most_columns = min(column_count, MOST_SUMS >> exponent)  # of a round
        for round_count in range(math.ceil(column_count / most_columns), column_count + 1):
            parts = []
            for columns in np.array_split(self._columns, round_count):
                of_round = tuple(int(column) for column in columns)
                part = self._part(of_round, exponent, cost * len(columns) // column_count)
                if part is not None:
                    parts.append(part)
            if len(parts) == round_count:  # all of them fit
                return parts
        return self._parts_of_level(exponent, cost // 2)

    def _part(self, columns: tuple[int, ...], exponent: int, cost: int) -> _Part | None:
        """Plan the round that counts the records in the bins of these columns.

        Each device sends its counts and a tally, with discrete Gaussian noise on all of them. The
        tally counts units where each of them is one record: this is the best estimate of the number
        of records. Longer units may have fewer records than they could, so their number tells little.

        A step of the grid is a power of two, or one divided by it, so that the counts of a unit are
        whole steps, and no unit is as long as the radius: then devices round nothing. Only for
        units of hundreds of records may a step be more than a record, far below the noise.

        columns: the numbers of the columns. exponent: each has 2**exponent bins. cost: of the round,
        in micro-rho of zCDP.
        Returns None if a report has no room for the counts. Raises UsageError if the cost is too
        little.
        """
        if cost == 0:
            text = f"--run-epsilon {self.options.run_epsilon} is too little for so many counts"
            raise UsageError(text, "name a larger one, fewer --attributes, or fewer --bins")
        counts_records = self.unit == 1
        tally_part = _TALLY if counts_records else 0.0

        # The largest l2 norm of a unit's vector: all its records are in the same bins.
        longest = _MARGIN * self._records_per_unit * math.sqrt(len(columns))
        if longest > _LONGEST_RADIUS:
            return None
        # The noise of a radius of one step, in steps. (The variance is the squared length of what a
        # unit adds, over 2 rho.)
        sigma_of_step = math.sqrt((1 + tally_part**2) / (2 * cost / MICRO))
        most_steps = min(MOST_STEPS, _MOST_SIGMA / sigma_of_step)
        steps_of_record = 2.0 ** math.floor(math.log2(most_steps / longest))
        radius = math.ceil(longest * steps_of_record)  # in steps
        tally = round(radius * tally_part)

        plan = sums.SumPlan(
            cost=cost,
            unit=self.unit,
            radius=radius / steps_of_record,
            units=self._units,
            steps=radius,
            clipped=tally,  # no unit is clipped
            kept=tally,
            values=(len(columns) << exponent) + 1,  # and the tally
            bits=LEAST_BITS,
            fine=0,  # counts are whole numbers
        )
        largest_count = math.ceil(self.options.records * steps_of_record)
        made = narrowest_design(plan, largest_sum=max(largest_count, self._units * tally))
        if made is None:
            return None
        return _Part(
            columns=columns, design=self._sum_design(plan, made), exponent=exponent, tally=tally
        )

    # State: the number of bins, too, as a fleet may have grown since.

    def state(self) -> dict[str, Any]:
        return {**super().state(), "bins": self._bins}

    def restore(self, state: Mapping[str, Any]) -> None:
        if state["bins"] != self._bins:
            self._bins = int(state["bins"])
            self._plan_rounds(self._plan_parts())
        super().restore(state)
        self._estimated = None

    # The result

    def entries(self) -> list[dict[str, Any]]:
        """Return the entries of all attributes once the last round has ended; before it, none."""
        if not self.done:  # the fine bins are counted last
            return []
        entries: list[dict[str, Any]] = self.result([])["attributes"]
        return entries

    def result(self, history: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return the quantiles and histograms of all attributes, and the number of records, for JSON.

        They take a while, and so they are computed once.

        history: not needed, as the answers of all rounds are stored.
        """
        if self._estimated is None or self._estimated.rounds != len(self._answers):
            self._estimated = _Estimated(len(self._answers), self._estimate())
        return dict(self._estimated.result)

    def _estimate(self) -> dict[str, Any]:
        """Return what `result` does, from the answers as they are now."""
        levels_of_column: dict[int, list[SummedLevel]] = {column: [] for column in self._columns}
        summaries_of_column: dict[int, list[dict[str, Any]]] = {
            column: [] for column in self._columns
        }
        counts, part_summaries = [], []
        clients = max(answer["reports"] for answer in self._answers)
        for part, answer in zip(self._parts, self._answers, strict=True):
            reports = answer["reports"]
            part_summaries.append(self._part_summary(part, reports))
            for column in part.columns:
                level = {"bins": part.bins, "reports": reports, "mechanism": part.design.mechanism}
                summaries_of_column[column].append(level)
            if not reports:
                continue
            # If a device missed the round, the others stand for it: all levels have to be about the
            # same number of records.
            scale = clients / reports
            totals, errors = scale * np.array(answer["totals"]), scale * np.array(answer["errors"])
            if part.tally:
                counts.append(_Count(totals[-1] / part.tally, (errors[-1] / part.tally) ** 2))
            for i, column in enumerate(part.columns):
                of_column = slice(i << part.exponent, (i + 1) << part.exponent)
                level_totals = SummedLevel(totals[of_column], float(errors[of_column][0]))
                levels_of_column[column].append(level_totals)

        # Each attribute's counts tell the number of records, too. So it is estimated from all, and
        # the counts of an attribute are made consistent with what the others tell.
        count_of_column = {}
        for column, levels in levels_of_column.items():
            if levels:
                count_of_column[column] = _count_of(levels)
        entries = []
        for column, levels in levels_of_column.items():
            if not levels:  # nobody reported the attribute
                continue
            others = [count for other, count in count_of_column.items() if other != column]
            summaries = summaries_of_column[column]
            estimates = self._estimates(column, [*levels, *_as_levels([*counts, *others])])
            entry = {
                "name": self._table.numeric_names[column],
                "reports": max(level["reports"] for level in summaries),
                **unit_of(self._table.numeric_names[column], self._table),
                **estimates,
                "levels": summaries,
            }
            entries.append(entry)
        records = _combined([*counts, *count_of_column.values()])
        cost_of_all = sum(part.design.cost for part in self._parts)  # in micro-rho
        result = {
            # What was asked.
            "data": self.options.data,
            "clients": clients,
            # What was learned.
            "attributes": entries,
            "records": records.records,
            "records_error": math.sqrt(records.variance),
            # What it cost, and of which reports.
            "unit": self.unit,
            "delta": self.delta,
            "rho": cost_of_all / MICRO,
            "parts": part_summaries,
        }
        if self._publication is not None:
            result["published"] = self._publication.summary(entries)
        return result

    @property
    def published(self) -> Averaged | None:
        """The limits that boards get; None if they get none, or before all bins are counted."""
        if self._publication is None or not self.done:
            return None
        return self._publication.limits(self.result([])["attributes"])

    def _estimates(self, column: int, levels: Sequence[SummedLevel]) -> dict[str, Any]:
        """Return the quantiles and the histogram of an attribute, for JSON.

        column: its number. levels: counts of its bins, and of all records.
        """
        values = self._values(column)
        held = None
        if values is not None:  # the host knows what the devices hold
            held = HeldValues(values, np.ones(len(values)))
        distribution = Distribution(levels, whole=None)
        return estimates_of(distribution, self.options.parsed_quantiles(), held)

    @classmethod
    def summary(cls, result: Mapping[str, Any]) -> list[str]:
        """Return the quantiles and the number of records, in lines for people."""
        reports = f"{counted(result['reports'], 'report')} about {result['records']:,.0f} records"
        half_interval = QUANTILE * result["records_error"]
        return [
            "intervals are for the noise",
            *quantile_lines(result),
            *published_lines(result),
            f"{reports} (+-{half_interval:.0f}) in {result['seconds']:.1f} s",
        ]


def _count_of(levels: Sequence[SummedLevel]) -> _Count:
    """Return the number of records by the counts of one attribute."""
    distribution = Distribution(levels, whole=None)
    total = distribution.linear(np.ones((1, distribution.bins)))
    return _Count(float(total.values[0]), float(total.covariance[0, 0]))


def _combined(counts: Sequence[_Count]) -> _Count:
    """Return the weighted mean of independent counts of all records, which has the least variance.

    It is 0 if there is no count, as nobody reported.
    """
    if not counts:
        return _Count(0.0, 0.0)
    weights = np.array([1 / count.variance for count in counts])
    records = np.array([count.records for count in counts])
    return _Count(float(records @ weights / weights.sum()), float(1 / weights.sum()))


def _as_levels(counts: Sequence[_Count]) -> list[SummedLevel]:
    """Return counts of all records as a level with a single bin; none if there is no count."""
    if not counts:
        return []
    count = _combined(counts)
    return [SummedLevel(np.array([count.records]), math.sqrt(count.variance))]
