"""Means and histograms of what a few devices with many records each hold, from sums over all their
records.

The record, or a run of consecutive records, is the unit of privacy, as in FedSum. One round sums
all numeric attributes, and one counts the categories of those of each size. A count of the units
comes with the sums, so every estimate is a quotient of two noisy numbers, and its interval is
Fieller's (1954).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from tern import card as cards
from tern import wire
from tern.fixed import MAX_EPSILON, ONE
from ternhost.count.estimate import QUANTILE, sums_of
from ternhost.count.questions import Question
from ternhost.count.rounds import RoundResult
from ternhost.datasets import Table
from ternhost.datasets.holdings import deal
from ternhost.errors import UsageError
from ternhost.learn.attributes import columns_of
from ternhost.learn.base import Cohort, Devices, Learner, Population, report_summary
from ternhost.learn.collect import (
    attribute_lines,
    dataset_option,
    error_lines,
    squared_errors,
    table_for,
)
from ternhost.learn.designs import SEED_HELP
from ternhost.learn.fedsum import SumDesign, UnitOptions
from ternhost.options import option, require
from ternhost.privacy import sums
from ternhost.privacy.base import MICRO
from ternhost.privacy.units import parse_unit
from ternhost.text import counted

_what = partial(option, group="what to collect")
_STEPS = 4096, 128  # grid steps of a radius: as many as there may be, or, at a tiny rho, fewer
_LONG = (
    2048  # records of a unit, up to which no sum of theirs can be cut off at 2**29 (arithmetic.md)
)
_MOST_SUMS = sums.MOST_BYTES - 1  # of a report, beside the tally, at 8 bits each


@dataclass(frozen=True)
class Options(UnitOptions):
    """Options of means as sums over units."""

    dataset: str = dataset_option()
    seed: int = _what(1, SEED_HELP, metavar="S")
    records: int = _what(500, "public number of records of a device, at most", metavar="N")

    def __post_init__(self) -> None:
        require(self.seed >= 0, "seed", "0 or more", self.seed)
        super().__post_init__()


@dataclass(frozen=True)
class _Part:
    """The attributes of one round."""

    columns: tuple[int, ...]
    categories: int  # of each attribute; 0: numbers
    design: SumDesign
    tally: int  # grid steps that a unit adds
    range: int
    slack: float  # of a unit's number, for the rounding

    def question(self, width: int, first: int) -> Question:
        """For records of `width` features; `columns` count from the `first` of them."""
        asked = [int(column - first in self.columns) for column in range(width)]
        card, k = self.design.card.data, self.design.k
        if not self.categories:
            return Question(wire.VALUES, asked, 0, card, k, range=self.range)
        return Question(wire.CATEGORIES, asked, 0, card, k, classes=self.categories)


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
        self._table, records, self._first, self._width = table_for(
            options.dataset, population, data
        )
        groups = self._groups()
        self.unit, self.delta = parse_unit(options.unit), sums.parse_delta(options.delta)
        self.clients = population.clients or population.boards or population.devices or None
        self.holdings = None
        each, boards = options.records, self.clients or 1
        if population.knows_records:
            self.holdings = deal(
                self._table.name, records, self._table.training, boards, each, options.seed
            )
        self._units = math.ceil(each / self.unit) if self.unit else 1
        attributes = sum(len(columns) for columns, _ in groups)
        budget = min(options.budget, MAX_EPSILON)  # what one report may cost
        self._parts = [self._part(*group, budget * len(group[0]) // attributes) for group in groups]
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
            groups += [(columns[i : i + most], size) for i in range(0, len(columns), most)]
        return groups

    def _part(self, columns: tuple[int, ...], categories: int, cost: int) -> _Part:
        """No unit is clipped, as its numbers are at most those of its records, and no sum leaves
        the symbols, for which more noise may be needed.
        """
        d, run = len(columns), self.unit or self.options.records
        values = d * (categories or 1)
        radius = run * max(math.sqrt(d), 2 if run > _LONG else 1)
        steps = _STEPS[cost < 100]
        tally = round(steps / values**0.25)  # least variance of a quotient near 1
        given: dict[str, Any] = {
            "cost": cost,
            "unit": self.unit,
            "radius": radius,
            "units": self._units,
        }
        given |= {"steps": steps, "clipped": tally, "kept": tally, "values": values + 1}
        most = self._units * max(tally, math.ceil(run * steps / radius))
        for bits in range(8, min(16, 8 * sums.MOST_BYTES // (values + 1)) + 1):
            made = sums.design(**given, bits=bits, fine=0 if categories else 4)
            body = sums.of(cards.decode(made.card))
            if most + 8 * math.sqrt(sums.variance(body)) < 2 ** (body.coarse + bits - 1):
                break
        else:
            return self._part(columns, categories, cost // 2)
        card, budget = cards.decode(made.card), self.options.budget
        design = SumDesign(card, values + 1, made.sigma**2, "gaussian", budget, delta=self.delta)
        return _Part(
            columns, categories, design, tally, made.range, sums.grid(body, made.range) / 2
        )

    @property
    def done(self) -> bool:
        return len(self._answers) >= len(self._parts)

    def cohorts(self, devices: Sequence[int] | Devices) -> list[Cohort]:
        return [(self._parts[len(self._answers)].question(self._width, self._first), devices)]

    def learn(self, result: RoundResult, devices: Sequence[int] | Devices) -> None:
        (cohort,) = result.cohorts
        total, error = sums_of(cohort) if cohort.reports else np.zeros((2, len(cohort.counts)))
        self._answers.append(
            {"totals": total.tolist(), "errors": error.tolist(), "reports": result.reports}
        )

    def state(self) -> dict[str, Any]:
        return {"answers": list(self._answers)}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._answers = list(state["answers"])

    def result(self, history: Sequence[dict[str, Any]]) -> dict[str, Any]:
        found: dict[int, dict[str, Any]] = {}
        parts, counted_records = [], []
        for part, answer in zip(self._parts, self._answers, strict=True):
            # Units in records: the last run of a device may be shorter.
            to_records = self.options.records / self._units / part.tally
            counted_records.append(
                (answer["totals"][-1] * to_records, answer["errors"][-1] * to_records)
            )
            found |= self._entries(part, answer, *counted_records[-1])
            kind = f"of {part.categories} categories" if part.categories else "numbers"
            design, d = part.design, len(part.columns)
            about = report_summary(design, part.question(self._width, self._first))
            settings = {
                "name": kind,
                "d": d,
                **design.summary(1),
                "k": d,
                "reports": answer["reports"],
            }
            parts.append(settings | about)
        entries = [found[column] for column in sorted(found)]
        records, spread = min(counted_records, key=lambda each: each[1])
        return {
            "dataset": self.options.dataset,
            "method": "sums over units",
            "clients": max(answer["reports"] for answer in self._answers),
            **squared_errors(entries),
            "attributes": entries,
            "records": records,
            "records_error": spread,
            "unit": self.unit,
            "delta": self.delta,
            "rho": sum(part.design.cost for part in self._parts) / MICRO,
            "parts": parts,
        }

    def _entries(
        self, part: _Part, answer: Mapping[str, Any], count: float, spread: float
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        """The entry of each column of a round. count: of the records, as the round told it; spread:
        its error.
        """
        each = part.categories or 1
        slack = part.slack * self._units / self.options.records
        names = *self._table.numeric_names, *self._table.categorical_names
        held = None if self.holdings is None else self.holdings.records[self.holdings.order]
        for i, column in enumerate(part.columns):
            chosen = slice(i * each, (i + 1) * each)
            shares, bounds = [], []
            for total, error in zip(
                answer["totals"][chosen], answer["errors"][chosen], strict=True
            ):
                interval = fieller(total, error, count, spread)
                bounds.append(interval and [interval[0] - slack, interval[1] + slack])
                shares.append(total / count if count else 0.0)
            entry: dict[str, Any] = {"name": names[column], "reports": answer["reports"]}
            if not part.categories:
                entry |= {"mean": shares[0], "interval": bounds[0]}
                if held is not None:
                    entry["true"] = float(held[:, column].mean() / ONE)
            else:
                values = self._table.categories[column - len(self._table.numeric_names)]
                entry |= {"categories": list(values), "frequencies": shares}
                entry["intervals"] = bounds if all(bounds) else None
                if held is not None:
                    entry["true"] = (
                        np.bincount(held[:, column], minlength=each) / len(held)
                    ).tolist()
            yield column, entry

    @classmethod
    def summary(cls, result: Mapping[str, Any]) -> list[str]:
        asked = f"{counted(result['reports'], 'report')} about {result['records']:,.0f} records"
        return [
            "intervals are for the noise",
            *attribute_lines(result),
            f"{asked} (+-{QUANTILE * result['records_error']:.0f}) in {result['seconds']:.1f} s",
            *error_lines(result),
        ]


def fieller(a: float, a_error: float, b: float, b_error: float) -> list[float] | None:
    """The 95 % interval of a quotient a / b of independent normal estimates; None where b may be 0."""
    square = QUANTILE**2
    lead, middle, last = b * b - square * b_error**2, a * b, a * a - square * a_error**2
    if b <= 0 or lead <= 0:
        return None
    half = math.sqrt(max(0.0, middle * middle - lead * last))
    return [(middle - half) / lead, (middle + half) / lead]
