"""Means and histograms of what a few devices with many records each hold.

They follow from sums over all records of a device. The record, or a run of consecutive records, is
the unit of privacy, as in FedSum. One round sums all numeric attributes, and one counts the
categories of those of each size. A count of the units comes with the sums, so every estimate is a
quotient of two noisy numbers, and its interval is Fieller's (1954).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from tern import wire
from tern.fixed import MAX_EPSILON, ONE
from ternhost.count.questions import Question
from ternhost.datasets import Table
from ternhost.datasets.holdings import counts_of_owners
from ternhost.errors import UsageError
from ternhost.learn import liar_results, liars
from ternhost.learn.base import Population
from ternhost.learn.collecting.attribute_results import (
    attribute_lines,
    error_lines,
    squared_errors,
    unit_of,
)
from ternhost.learn.collecting.attributes import columns_of, flags_of
from ternhost.learn.collecting.estimate import Uncertain, fieller
from ternhost.learn.collecting.sums_of_records import (
    LEAST_BITS,
    MOST_STEPS,
    MOST_SUMS,
    SumPart,
    SumsOfRecords,
    narrowest_design,
    reports_line,
)
from ternhost.learn.data_options import OwnerOptions
from ternhost.learn.record_bound import records_option
from ternhost.learn.sums.fedsum import RECORDS, UnitOptions
from ternhost.options import option, require
from ternhost.privacy import sums

_GROUP = "what to collect"  # of options, in the help
_what = partial(option, group=_GROUP)
_STEPS_AT_TINY_RHO = 128  # where a report costs less than _TINY_RHO
_TINY_RHO = 100  # micro-rho
# Records of a unit, up to which no sum of theirs can be cut off at 2**29 (arithmetic.md).
_LONG_RUN = 2048
_FINE_BITS_OF_NUMBERS = 4  # `SumPlan.fine`; flags of categories need none
_MOST_EXCESS = 0.05  # by which a count of units may overestimate the number of records


@dataclass(frozen=True)
class Options(UnitOptions, OwnerOptions):
    """Options of means as sums over units."""

    seed: int = _what(1, metavar="S")
    records: int | None = records_option(RECORDS, group=_GROUP)

    def check(self) -> None:
        require(self.seed >= 0, "seed", "0 or more", self.seed)


@dataclass(frozen=True, kw_only=True)
class _Part(SumPart):
    """The attributes that one round asks for, and how devices report their sums."""

    categories: int  # of each attribute; 0: they are numbers
    tally: int  # grid steps that each unit adds to the count of units
    range: int  # the r of the question: devices multiply values by 2**r
    slack: float  # by how much rounding may change the value of a unit, at most

    @property
    def name(self) -> str:
        return f"of {self.categories} categories" if self.categories else "numbers"

    def question(self, width: int, first: int) -> Question:
        """Return the question that asks devices for the sums of these attributes.

        width: the number of features in a record.
        first: the number of features that come before the attributes; they are never asked for.
        """
        # A question has the fields of one for the gradient of a model.
        model, range_ = wire.VALUES, self.range
        if self.categories:  # what is summed are flags, 0 or 1
            model, range_ = wire.CATEGORIES, 0
        return Question(
            model=model,
            parameters=flags_of(self.columns, width, first),  # 1 for each attribute asked for
            exponent=0,  # so that the flags are whole numbers
            card=self.design.card.data,
            k=self.design.k,
            classes=self.categories or 1,  # sums for each attribute
            range=range_,
        )


@dataclass(frozen=True)
class _Count:
    """The number of records of all devices, as a round counted it."""

    records: float  # the estimate
    error: float  # its standard error


class Means(SumsOfRecords[_Part]):
    """Asks every device in each round, for sums of all its records."""

    name = "means"
    about = "noisy sums; protects records of a device, or runs of them"
    example = "--records 500"
    collects = "means and frequencies"
    Options: ClassVar[Any] = Options
    instead_of_serving = (
        "serve the fleet with 'tern serve values', or collect in runs: tern collect means"
    )

    def __init__(self, options: Any, population: Population, data: Table | None = None) -> None:
        """Plan one round for each group of attributes, and share the privacy budget out among them.

        In a round each device reports the sums of a group of attributes over all its records.

        options: the `Options` of this module.
        population: the devices that can be asked.
        data: what the devices hold, instead of the data set that the options name.
        Raises UsageError if the fleet is served round after round without an end, or if the
        attributes cannot be summed.
        """
        super().__init__(options, population, data)
        self._plan_rounds(self._plan_parts(self._groups()))

    def _require_suited(self) -> None:
        """Raise UsageError if a count of units would not tell the number of records of owners.

        Devices report how many units they have, and each unit counts as equally many records. That
        is wrong where devices have few units, and not equally many records.
        """
        table = self._table
        if table.owners is None:
            return
        counts = np.minimum(counts_of_owners(table, table.training), self.options.records)
        units = np.ones(len(counts))
        if self.unit:
            units = np.ceil(counts / self.unit)
        counted_records = units.sum() * self.options.records / self._units
        if counted_records > (1 + _MOST_EXCESS) * counts.sum():
            text = (
                f"devices of {table.name} have {counts.min():,} to {counts.max():,} records, and a "
                f"count of units would make {counted_records:,.0f} of {counts.sum():,}"
            )
            raise UsageError(text, "use a smaller --unit, such as --unit record")

    def _groups(self) -> list[tuple[tuple[int, ...], int]]:
        """Divide the attributes among rounds, so that the sums of each round fit into one report.

        A number needs one sum, and an attribute with n categories needs n. Returns for each round
        its columns, and the number of categories of each (0: numbers). Raises UsageError for an
        attribute with too few or too many categories.
        """
        groups = []
        for category_count, columns in columns_of(self._table).items():
            if category_count == 1 or category_count > wire.MAX_DIMENSION:
                text = (
                    f"sums over units count 2 to {wire.MAX_DIMENSION} categories of an attribute, "
                    f"not {category_count}"
                )
                raise UsageError(text, "collect at the device's unit, without --unit")
            sums_per_column = max(1, category_count)
            columns_per_round = MOST_SUMS // sums_per_column  # as many as a report has room for
            for start in range(0, len(columns), columns_per_round):
                groups.append((columns[start : start + columns_per_round], category_count))
        return groups

    def _plan_parts(self, groups: Sequence[tuple[tuple[int, ...], int]]) -> list[_Part]:
        """Plan a round for each group of attributes, with a share of the budget for each attribute.

        groups: the columns of each round and the number of their categories, as of `_groups`.
        """
        attribute_count = sum(len(columns) for columns, _ in groups)
        # In millionths of rho, the privacy loss of zCDP, of all rounds together. A card may cost
        # MAX_EPSILON at most.
        total_cost = min(self._budget, MAX_EPSILON)
        fewest_columns = min(len(columns) for columns, _ in groups)
        least_cost = math.ceil(attribute_count / fewest_columns)  # pays for each round
        if total_cost < least_cost:
            least = sums.epsilon_that_pays(least_cost, sums.parse_delta(self.options.delta))
            text = (
                f"--run-epsilon {self.options.run_epsilon} is too little for {len(groups)} rounds"
            )
            raise UsageError(text, f"name {least} or more")
        parts = []
        for columns, categories in groups:
            cost = total_cost * len(columns) // attribute_count
            parts.append(self._part(columns, categories, cost))
        return parts

    def _part(self, columns: tuple[int, ...], categories: int, cost: int) -> _Part:
        """Plan the round that asks for the sums of these columns.

        Each device sends the sums over its records and a tally, the count of its units, with
        discrete Gaussian noise on all of them. A unit is a run of records that are protected
        together. No unit is clipped, as its values are at most those of its records. A symbol has
        room for the largest sum and its noise. If the symbols of all sums do not fit into a report,
        the round costs half as much, which makes the noise larger and the grid of the sums coarser.
        A symbol is a noisy sum as it is sent, and a card the table from which noise is drawn.

        columns: the numbers of the columns.
        categories: the number of categories of each column; 0: they are numbers.
        cost: what the round may cost a device, in micro-rho of zCDP.
        """
        plan = self._sum_plan(columns, categories, cost)
        # In grid steps, of which a radius has plan.steps: a unit adds plan.clipped to the tally, and
        # at most 1 for each of its records to any other sum.
        largest_sum = self._units * max(
            plan.clipped,
            math.ceil(self._records_per_unit * plan.steps / plan.radius),
        )
        made = narrowest_design(plan, largest_sum)
        if made is None:  # the symbols do not fit into a report
            return self._part(columns, categories, cost // 2)

        design = self._sum_design(plan, made)
        return _Part(
            columns=columns,
            categories=categories,
            design=design,
            tally=plan.clipped,
            range=made.range,
            slack=sums.grid(sums.of(design.card), made.range) / 2,  # half a grid step
        )

    def _sum_plan(self, columns: tuple[int, ...], categories: int, cost: int) -> sums.SumPlan:
        """Return what a card has to do that adds noise to the sums of these columns and to a tally.

        A card is a table from which devices draw noise. The tally counts units, runs of records
        that are protected together.

        columns: the numbers of the columns. categories: how many each has; 0: they are numbers.
        cost: what a report may cost, in micro-rho of zCDP.
        """
        records = self._records_per_unit
        sum_count = len(columns) * max(1, categories)  # a sum for each number or category

        # The largest l2 norm of a unit. A record has the norm sqrt(columns) at most, as each value
        # is at most 1. (A category is sent as flags, one of which is 1.)
        record_radius = math.sqrt(len(columns))
        if records > _LONG_RUN:  # so that no sum is cut off by the device's integers
            record_radius = max(record_radius, 2)
        radius = records * record_radius

        steps = MOST_STEPS
        if cost < _TINY_RHO:
            steps = _STEPS_AT_TINY_RHO
        # This gives the least variance to a quotient near 1 of a sum and the tally.
        tally = round(steps / sum_count**0.25)
        fine = _FINE_BITS_OF_NUMBERS
        if categories:  # flags are whole numbers
            fine = 0
        return sums.SumPlan(
            cost=cost,
            unit=self.unit,
            radius=radius,
            units=self._units,
            steps=steps,
            clipped=tally,  # every unit adds the same to the tally, clipped or not
            kept=tally,
            values=sum_count + 1,  # and the tally
            bits=LEAST_BITS,
            fine=fine,
        )

    # The result

    def result(self, history: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return the estimates of all attributes, and the number of records, for JSON.

        history: not needed, as the answers of all rounds are stored.
        """
        record_counts = []
        for part, answer in zip(self._parts, self._answers, strict=True):
            record_counts.append(self._count(part, answer))

        entries = self.entries()
        # Each round counts the records of all devices; the count with the least error is shown.
        most_exact = min(record_counts, key=lambda count: count.error)
        return {
            # What was asked.
            "data": self.options.data,
            "clients": max(answer["reports"] for answer in self._answers),
            # What was learned.
            **squared_errors(entries),
            "attributes": entries,
            "liars": liar_results.of_attributes(self._moved_attributes()),
            "records": most_exact.records,
            "records_error": most_exact.error,
            **self._cost_and_parts(),
        }

    def entries(self) -> list[dict[str, Any]]:
        """Return the entries of the attributes that rounds have asked for so far."""
        entry_of_column: dict[int, dict[str, Any]] = {}
        for part, answer in zip(self._parts, self._answers, strict=False):
            entry_of_column |= self._entries(part, answer, self._count(part, answer))
        return [entry_of_column[column] for column in sorted(entry_of_column)]

    def _moved_attributes(self) -> list[dict[str, Any]]:
        """Return how far lying devices can have moved each estimate, for JSON, in order of columns.

        A liar can report any symbol as a sum and any other one as the count of its units.
        """
        names = (*self._table.numeric_names, *self._table.categorical_names)
        moved_by_column = {}
        for part, answer in zip(self._parts, self._answers, strict=True):
            body = sums.of(part.design.card)
            of_symbol = liars.range_of_sums(body)
            grid_step = sums.grid(body, part.range)
            if part.categories:
                grid_step = sums.grid(body, 0)
            records_per_step = self._count(part, {"totals": [1.0], "errors": [0.0]}).records
            count = liars.Total(
                self._count(part, answer).records, of_symbol.times(records_per_step)
            )
            sums_per_column = max(1, part.categories)
            for i, column in enumerate(part.columns):
                bounds = []
                for total in answer["totals"][i * sums_per_column : (i + 1) * sums_per_column]:
                    of_sum = liars.Total(total, of_symbol.times(grid_step))
                    bounds.append(liars.quotient(of_sum, count, answer["reports"]))
                moved_by_column[column] = liar_results.of_attribute(
                    names[column], answer["reports"], np.array(bounds)
                )
        return [moved_by_column[column] for column in sorted(moved_by_column)]

    def _count(self, part: _Part, answer: Mapping[str, Any]) -> _Count:
        """Estimate the number of records of all devices from the tally of a round.

        The tally, the last value of an answer, counts units, which are runs of consecutive records;
        each unit adds `part.tally` steps to it. The last unit of a device may be shorter than the
        others, so each unit counts as the average number of records of a unit.

        part: the plan of the round.
        answer: the totals of the round and their standard errors.
        """
        records_per_unit = self.options.records / self._units
        records_per_step = records_per_unit / part.tally
        return _Count(
            records=answer["totals"][-1] * records_per_step,
            error=answer["errors"][-1] * records_per_step,
        )

    def _entries(
        self, part: _Part, answer: Mapping[str, Any], count: _Count
    ) -> dict[int, dict[str, Any]]:
        """Return the result of each attribute of a round, by its column.

        A result has the form of an entry of attribute_results.py: a mean or frequencies, with
        intervals.

        part: the attributes of the round; either all are numbers, or all have the same number of
            categories.
        answer: the totals and standard errors of the round; each attribute has a slice of them.
        count: the estimated number of records of all devices, by which totals are divided.
        """
        names = (*self._table.numeric_names, *self._table.categorical_names)
        sums_per_column = max(1, part.categories)  # one for a number, else one for each category
        entries = {}
        for i, column in enumerate(part.columns):
            of_column = slice(i * sums_per_column, (i + 1) * sums_per_column)
            totals, errors = answer["totals"][of_column], answer["errors"][of_column]
            entry: dict[str, Any] = {"name": names[column], "reports": answer["reports"]}
            if part.categories:
                entry |= self._frequencies(part, column, totals, errors, count)
            else:
                mean, interval = self._quotient(part, totals[0], errors[0], count)
                entry |= {"mean": mean, "interval": interval}
                entry |= unit_of(names[column], self._table)
                values = self._values(column)  # in fixed point: 1 is ONE
                if values is not None:  # the host knows what the devices hold
                    entry["true"] = float(values.mean() / ONE)
            entries[column] = entry
        return entries

    def _frequencies(
        self,
        part: _Part,
        column: int,
        totals: Sequence[float],
        errors: Sequence[float],
        count: _Count,
    ) -> dict[str, Any]:
        """Return the estimated frequency of each category of an attribute, with its interval.

        If the host knows what the devices hold, the result has the true frequencies, too.

        part: the plan of the round that asked for the attribute.
        column: the number of the attribute in the table, where numeric attributes come first.
        totals: the number of records of each category, with noise.
        errors: the standard errors of the totals.
        count: the estimated number of records of all devices.
        """
        categories = self._table.categories[column - len(self._table.numeric_names)]
        frequencies, intervals = [], []
        for total, error in zip(totals, errors, strict=True):
            frequency, interval = self._quotient(part, total, error, count)
            frequencies.append(frequency)
            intervals.append(interval)

        entry: dict[str, Any] = {"categories": list(categories), "frequencies": frequencies}
        entry["intervals"] = None  # unless all categories have one
        if all(intervals):
            entry["intervals"] = intervals
        values = self._values(column)  # what the devices hold, as numbers of categories
        if values is not None:
            record_counts = np.bincount(values, minlength=part.categories)
            entry["true"] = (record_counts / len(values)).tolist()
        return entry

    def _quotient(
        self, part: _Part, total: float, error: float, count: _Count
    ) -> tuple[float, list[float] | None]:
        """Divide a total by the number of records; return the mean and its 95 % interval.

        part: the plan of the round that the total is of.
        total, error: a sum over all records, and the standard error that its noise gives it.
        count: the estimated number of records.
        The interval also covers the rounding on the devices: each rounds the sum of a unit (a run of
        records) to a step of a grid. It is None if there may be no record.
        """
        mean = 0.0
        if count.records:
            mean = total / count.records
        interval = fieller(Uncertain(total, error), Uncertain(count.records, count.error))
        if interval is None:
            return mean, None
        low, high = interval
        # The most that rounding changes a record's value on average: that of a unit, over its records.
        most_rounding = part.slack * self._units / self.options.records
        return mean, [low - most_rounding, high + most_rounding]

    @classmethod
    def summary(cls, result: Mapping[str, Any]) -> list[str]:
        """Return the estimates and the number of records, in lines for people."""
        return [
            "intervals are for the noise",
            *attribute_lines(result),
            *liar_results.collecting_lines(result),
            reports_line(result),
            *error_lines(result),
        ]
