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
from typing import Any, ClassVar

import numpy as np

from tern.fixed import MAX_EPSILON
from ternhost.count.questions import Averaged
from ternhost.count.rounds import RoundResult
from ternhost.datasets import Table
from ternhost.errors import UsageError
from ternhost.learn import liar_results, liars
from ternhost.learn.base import Population
from ternhost.learn.collecting.attribute_results import unit_of
from ternhost.learn.collecting.counted_records import CountedRecords, CountPart
from ternhost.learn.collecting.sums_of_records import (
    LEAST_BITS,
    MOST_STEPS,
    MOST_SUMS,
    SumsOfRecords,
    narrowest_design,
    reports_line,
)
from ternhost.learn.devices import Devices
from ternhost.learn.distributions.bin_tree import Distribution
from ternhost.learn.distributions.quantile_options import Options
from ternhost.learn.distributions.quantile_results import (
    HeldValues,
    estimates_of,
    liar_lines,
    quantile_lines,
)
from ternhost.learn.models.limits import publication_of, published_lines
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


class QuantilesOfRecords(SumsOfRecords[CountPart]):
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
        self._columns = self.options.columns_of(self._table)
        self._publication = publication_of(self.options.published_quantile(), self._data)
        self._entries: list[dict[str, Any]] | None = None  # None: not computed since the last round
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

    def _plan_parts(self) -> list[CountPart]:
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

    def _parts_of_level(self, exponent: int, cost: int) -> list[CountPart]:
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
                if part is None:
                    break
                parts.append(part)
            if len(parts) == round_count:  # all of them fit
                return parts
        return self._parts_of_level(exponent, cost // 2)

    def _part(self, columns: tuple[int, ...], exponent: int, cost: int) -> CountPart | None:
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
        return CountPart(
            columns=columns, design=self._sum_design(plan, made), exponent=exponent, tally=tally
        )

    def learn(self, result: RoundResult, devices: Sequence[int] | Devices) -> None:
        super().learn(result, devices)
        self._entries = None

    # State: the number of bins, too, as a fleet may have grown since.

    def state(self) -> dict[str, Any]:
        return {**super().state(), "bins": self._bins}

    def restore(self, state: Mapping[str, Any]) -> None:
        if state["bins"] != self._bins:
            self._bins = int(state["bins"])
            self._plan_rounds(self._plan_parts())
        super().restore(state)
        self._entries = None

    # The result

    def _counted(self) -> CountedRecords:
        """Return the counts of the rounds so far."""
        return CountedRecords(self._parts, self._answers)

    def entries(self) -> list[dict[str, Any]]:
        """Return the quantiles and the histogram of each number that somebody reported, for JSON.

        They take a while, and so they are computed once for each round.
        """
        if self._entries is None:
            entries = []
            for column, tree in self._counted().trees().items():
                entries.append(self._entry(column, tree.distribution))
            self._entries = entries
        return self._entries

    def _entry(self, column: int, distribution: Distribution) -> dict[str, Any]:
        """Return the entry of an attribute. column: its number."""
        levels = []
        for part, answer in zip(self._parts, self._answers, strict=False):
            if column in part.columns:
                level = {
                    "bins": part.bins,
                    "reports": answer["reports"],
                    "mechanism": part.design.mechanism,
                }
                levels.append(level)
        values = self._values(column)
        held = None
        if values is not None:  # the host knows what the devices hold
            held = HeldValues(values, np.ones(len(values)))
        name = self._table.numeric_names[column]
        return {
            "name": name,
            "reports": max(level["reports"] for level in levels),
            **unit_of(name, self._table),
            **estimates_of(distribution, self.options.parsed_quantiles(), held),
            "levels": levels,
        }

    @property
    def published(self) -> Averaged | None:
        """The limits that boards get; None if they get none, or before all bins are counted."""
        if self._publication is None or not self.done:
            return None
        return self._publication.limits(self.entries())

    def _moved_attributes(self) -> list[dict[str, Any]]:
        """Return how far lying devices can have moved each attribute, for JSON.

        A liar can report any symbol as the number of its records in a bin, and as the tally.
        """
        counted_records = self._counted()
        reports = counted_records.most_reports
        moved = []
        for column, (distribution, of_reports) in counted_records.trees().items():
            of_shares = liars.cumulative_shares_of_sums(distribution, of_reports, reports)
            of_quantiles = {}
            for quantile in self.options.parsed_quantiles():
                of_quantiles[quantile] = liars.cumulative_of_sums(
                    distribution, of_reports, quantile, reports
                )
            name = self._table.numeric_names[column]
            moved.append(
                {
                    **liar_results.of_attribute(name, reports, of_shares),
                    "quantiles": liar_results.ranges_of_quantiles(distribution, of_quantiles),
                }
            )
        return moved

    def result(self, history: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return the quantiles and histograms of all attributes, and the number of records, for JSON.

        history: not needed, as the answers of all rounds are stored.
        """
        counted_records = self._counted()
        records = counted_records.records()
        result = {
            # What was asked.
            "data": self.options.data,
            "clients": counted_records.most_reports,
            # What was learned.
            "attributes": self.entries(),
            "liars": liar_results.of_attributes(self._moved_attributes()),
            "records": records.records,
            "records_error": math.sqrt(records.variance),
            **self._cost_and_parts(),
        }
        if self._publication is not None:
            result["published"] = self._publication.summary(self.entries())
        return result

    @classmethod
    def summary(cls, result: Mapping[str, Any]) -> list[str]:
        """Return the quantiles and the number of records, in lines for people."""
        return [
            "intervals are for the noise",
            *quantile_lines(result),
            *liar_lines(result),
            *published_lines(result),
            reports_line(result),
        ]
