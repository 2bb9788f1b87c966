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
import numpy.typing as npt

from tern import card as cards
from tern import wire
from tern.fixed import MAX_EPSILON, ONE
from ternhost.count.questions import Question
from ternhost.count.rounds import RoundResult
from ternhost.datasets import Holdings, Table
from ternhost.datasets.holdings import deal
from ternhost.errors import UsageError
from ternhost.learn.attribute_results import attribute_lines, error_lines, squared_errors
from ternhost.learn.attributes import columns_of
from ternhost.learn.base import Cohort, Learner, Population, report_summary
from ternhost.learn.collect import dataset_option, held_for
from ternhost.learn.designs import SEED_HELP
from ternhost.learn.devices import Devices
from ternhost.learn.estimate import QUANTILE, sums_of
from ternhost.learn.fedsum import SumDesign, UnitOptions
from ternhost.options import option, require
from ternhost.privacy import sums
from ternhost.privacy.base import MICRO
from ternhost.privacy.units import parse_unit
from ternhost.text import counted

_what = partial(option, group="what to collect")
_STEPS = 4096  # grid steps of a radius: as many as there may be
_STEPS_AT_TINY_RHO = 128  # where a report costs less than _TINY
_TINY = 100  # micro-rho
# Records of a unit, up to which no sum of theirs can be cut off at 2**29 (arithmetic.md).
_LONG = 2048
_MOST_SUMS = sums.MOST_BYTES - 1  # of a report, beside the tally, at 8 bits each


@dataclass(frozen=True)
class Options(UnitOptions):
    """Options of means as sums over units."""

    dataset: str = dataset_option()
    seed: int = _what(1, SEED_HELP, metavar="S")
    records: int = _what(500, "public number of records of a device, at most", metavar="N")

    def check(self) -> None:
        require(self.seed >= 0, "seed", "0 or more", self.seed)


@dataclass(frozen=True)
class _Part:
    """The attributes of one round."""

    columns: tuple[int, ...]
    categories: int  # of each attribute; 0: numbers
    design: SumDesign
    tally: int  # grid steps that a unit adds
    range: int
    slack: float  # of a unit's number, for the rounding

    @property
    def name(self) -> str:
        return f"of {self.categories} categories" if self.categories else "numbers"

    def question(self, width: int, first: int) -> Question:
        """The question for records of `width` features, `first` of them before the attributes."""
        is_asked = [int(column - first in self.columns) for column in range(width)]
        card, k = self.design.card.data, self.design.k
        if self.categories:
            return Question(wire.CATEGORIES, is_asked, 0, card, k, classes=self.categories)
        return Question(wire.VALUES, is_asked, 0, card, k, range=self.range)


@dataclass(frozen=True)
class _Count:
    """The number of records of all devices, as a round counted it."""

    records: float
    error: float


class Means(Learner):
    """Asks every device in each round, for sums of all its records."""

    name = "means"
    command = "collect"
    Options: ClassVar[Any] = Options
    modules = ("sums",)

    def __init__(self, options: Any, population: Population, data: Table | None = None) -> None:
        """data: what the devices hold, instead of the data set that the options name."""
        self.options = options
        if population.schedule is not None:
            hint = "serve the fleet with collect, or collect in runs: tern collect --unit record"
            raise UsageError("sums over units spend a budget in a planned number of rounds", hint)
        self._held = held_for(options.dataset, population, data)
        self._table = self._held.table
        groups = self._groups()
        self.unit, self.delta = parse_unit(options.unit), sums.parse_delta(options.delta)
        self._units = math.ceil(options.records / self.unit) if self.unit else 1  # of a device
        self.clients = population.clients or population.boards or population.devices or None
        if population.knows_records:
            stock = Holdings(self._held.records, self._table.training, options.records)
            self.holdings = deal(stock, self._table.name, self.clients or 1, options.seed)

        self._budget: int = options.budget_in_rho()
        attributes = sum(len(columns) for columns, _ in groups)
        largest = min(self._budget, MAX_EPSILON)  # what one report may cost
        self._parts = []
        for columns, categories in groups:
            cost = largest * len(columns) // attributes
            self._parts.append(self._part(columns, categories, cost))

        self.rounds = self.times = len(groups)
        self.reports = None if self.clients is None else self.clients * self.rounds
        self.designs = [max((part.design for part in self._parts), key=lambda design: design.cost)]
        self._answers: list[dict[str, Any]] = []

    def _groups(self) -> list[tuple[tuple[int, ...], int]]:
        """The columns of each round, and the categories of each of its attributes (0: numbers)."""
        groups = []
        for size, columns in columns_of(self._table).items():
            if size == 1 or size > wire.MAX_DIMENSION:
                text = f"sums over units count 2 to {wire.MAX_DIMENSION} categories of an attribute, not {size}"
                raise UsageError(text, "collect at the device's unit, without --unit")
            most = _MOST_SUMS // max(1, size)
            for start in range(0, len(columns), most):
                groups.append((columns[start : start + most], size))
        return groups

    def _part(self, columns: tuple[int, ...], categories: int, cost: int) -> _Part:
        """The part of a round that costs at most so much, in micro-rho.

        No unit is clipped, as its numbers are at most those of its records. No sum leaves the
        symbols, for which more noise, at less cost, may be needed.
        """
        d, run = len(columns), self.unit or self.options.records
        values = d * (categories or 1)
        least_radius = 2 if run > _LONG else 1  # of one record
        radius = run * max(math.sqrt(d), least_radius)
        steps = _STEPS_AT_TINY_RHO if cost < _TINY else _STEPS
        tally = round(steps / values**0.25)  # least variance of a quotient near 1
        largest_sum = self._units * max(tally, math.ceil(run * steps / radius))

        most_bits = min(16, 8 * sums.MOST_BYTES // (values + 1))
        for bits in range(8, most_bits + 1):
            plan = sums.SumPlan(
                cost=cost,
                unit=self.unit,
                radius=radius,
                units=self._units,
                steps=steps,
                clipped=tally,
                kept=tally,
                values=values + 1,
                bits=bits,
                fine=0 if categories else 4,
            )
            made = sums.design(plan)
            body = sums.of(cards.decode(made.card))
            noise = math.sqrt(sums.variance(body))
            if largest_sum + 8 * noise < 2 ** (body.coarse + bits - 1):
                break
        else:
            return self._part(columns, categories, cost // 2)

        design = SumDesign(
            card=cards.decode(made.card),
            k=values + 1,
            variance=made.sigma**2,
            mechanism="gaussian",
            epsilon=self._budget,
            delta=self.delta,
        )
        return _Part(
            columns=columns,
            categories=categories,
            design=design,
            tally=tally,
            range=made.range,
            slack=sums.grid(body, made.range) / 2,
        )

    @property
    def done(self) -> bool:
        return len(self._answers) >= len(self._parts)

    def _question(self, part: _Part) -> Question:
        return part.question(self._held.width, self._held.first)

    def cohorts(self, devices: Sequence[int] | Devices) -> list[Cohort]:
        return [(self._question(self._parts[len(self._answers)]), devices)]

    def learn(self, result: RoundResult, devices: Sequence[int] | Devices) -> None:
        (cohort,) = result.cohorts
        total, error = np.zeros((2, len(cohort.counts)))
        if cohort.reports:
            total, error = sums_of(cohort)
        self._answers.append(
            {"totals": total.tolist(), "errors": error.tolist(), "reports": result.reports}
        )

    def state(self) -> dict[str, Any]:
        return {"answers": list(self._answers)}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._answers = list(state["answers"])

    # The result

    def result(self, history: Sequence[dict[str, Any]]) -> dict[str, Any]:
        by_column: dict[int, dict[str, Any]] = {}
        parts, counts = [], []
        for part, answer in zip(self._parts, self._answers, strict=True):
            count = self._count(part, answer)
            counts.append(count)
            by_column |= self._entries(part, answer, count)
            parts.append(self._part_summary(part, answer["reports"]))
        entries = [by_column[column] for column in sorted(by_column)]
        best = min(counts, key=lambda count: count.error)
        return {
            "dataset": self.options.dataset,
            "method": "sums over units",
            "clients": max(answer["reports"] for answer in self._answers),
            **squared_errors(entries),
            "attributes": entries,
            "records": best.records,
            "records_error": best.error,
            "unit": self.unit,
            "delta": self.delta,
            "rho": sum(part.design.cost for part in self._parts) / MICRO,
            "parts": parts,
        }

    def _count(self, part: _Part, answer: Mapping[str, Any]) -> _Count:
        """The number of records by the tally of a round, which counts units.

        The last unit of a device may be shorter than the others.
        """
        to_records = self.options.records / self._units / part.tally
        return _Count(answer["totals"][-1] * to_records, answer["errors"][-1] * to_records)

    def _part_summary(self, part: _Part, reports: int) -> dict[str, Any]:
        d = len(part.columns)
        return {
            "name": part.name,
            "d": d,
            **part.design.summary(1),
            "k": d,
            "reports": reports,
            **report_summary(part.design, self._question(part)),
        }

    def _entries(
        self, part: _Part, answer: Mapping[str, Any], count: _Count
    ) -> dict[int, dict[str, Any]]:
        """The entry of each column of a round (attribute_results.py)."""
        names = (*self._table.numeric_names, *self._table.categorical_names)
        size = part.categories or 1
        entries = {}
        for i, column in enumerate(part.columns):
            chosen = slice(i * size, (i + 1) * size)
            totals, errors = answer["totals"][chosen], answer["errors"][chosen]
            entry: dict[str, Any] = {"name": names[column], "reports": answer["reports"]}
            if part.categories:
                entry |= self._frequencies(part, column, totals, errors, count)
            else:
                mean, interval = self._quotient(part, totals[0], errors[0], count)
                entry |= {"mean": mean, "interval": interval}
                values = self._values(column)
                if values is not None:
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
        """The frequencies of the categories of a column, with their intervals."""
        categories = self._table.categories[column - len(self._table.numeric_names)]
        shares, intervals = [], []
        for total, error in zip(totals, errors, strict=True):
            share, interval = self._quotient(part, total, error, count)
            shares.append(share)
            intervals.append(interval)
        entry = {
            "categories": list(categories),
            "frequencies": shares,
            "intervals": intervals if all(intervals) else None,
        }
        values = self._values(column)
        if values is not None:
            held = np.bincount(values, minlength=part.categories)
            entry["true"] = (held / len(values)).tolist()
        return entry

    def _quotient(
        self, part: _Part, total: float, error: float, count: _Count
    ) -> tuple[float, list[float] | None]:
        """A total for each record, and its interval, which also covers the rounding."""
        mean = total / count.records if count.records else 0.0
        interval = fieller(total, error, count.records, count.error)
        if interval:
            slack = part.slack * self._units / self.options.records
            interval = [interval[0] - slack, interval[1] + slack]
        return mean, interval

    def _values(self, column: int) -> npt.NDArray[np.int16] | None:
        """What all devices hold in a column; None where the host does not know."""
        if self.holdings is None:
            return None
        values: npt.NDArray[np.int16] = self.holdings.records[self.holdings.order, column]
        return values

    @classmethod
    def summary(cls, result: Mapping[str, Any]) -> list[str]:
        reports = f"{counted(result['reports'], 'report')} about {result['records']:,.0f} records"
        return [
            "intervals are for the noise",
            *attribute_lines(result),
            f"{reports} (+-{QUANTILE * result['records_error']:.0f}) in {result['seconds']:.1f} s",
            *error_lines(result),
        ]


def fieller(a: float, a_error: float, b: float, b_error: float) -> list[float] | None:
    """The 95 % interval of a quotient a / b of independent normal estimates (Fieller 1954).

    None where b may be 0.
    """
    square = QUANTILE**2
    lead = b * b - square * b_error**2
    middle = a * b
    last = a * a - square * a_error**2
    if b <= 0 or lead <= 0:
        return None
    half = math.sqrt(max(0.0, middle * middle - lead * last))
    return [(middle - half) / lead, (middle + half) / lead]
