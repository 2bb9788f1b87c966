"""Means of what a few devices with many records each hold: one sum of all numeric attributes from every device.

The record, or a run of consecutive records, is the unit of privacy, as in FedSum. A count of the units comes with the
sums, so a mean is a quotient of two noisy numbers, and its interval is Fieller's (1954)."""

import math
from collections.abc import Mapping, Sequence
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
from ternhost.learn.base import Cohort, Devices, Learner, Population, report_summary
from ternhost.learn.collect import dataset_option, line, load
from ternhost.learn.fedsum import SumDesign, UnitOptions, guarantee
from ternhost.options import option, require
from ternhost.privacy import sums
from ternhost.privacy.base import MICRO
from ternhost.privacy.units import parse_unit
from ternhost.text import counted

_what = partial(option, group="what to collect")
_STEPS = 4096, 128  # grid steps of a radius: as many as there may be, or, at a tiny rho, fewer
_LONG = 2048  # records of a unit, up to which no sum of theirs can be cut off at 2**29 (arithmetic.md)


@dataclass(frozen=True)
class Options(UnitOptions):
    """Options of means as sums over units."""

    dataset: str = dataset_option()
    seed: int = _what(1, "seed that assigns records to devices", metavar="S")
    records: int = _what(500, "public number of records of a device, at most", metavar="N")

    def __post_init__(self) -> None:
        require(self.seed >= 0, "seed", "0 or more", self.seed)
        super().__post_init__()


class Means(Learner):
    """Asks every device once, for the sum of all its records."""

    name = "means"
    command = "collect"
    Options: ClassVar[Any] = Options
    modules = ("sums",)
    rounds = 1

    def __init__(self, options: Any, population: Population, data: Table | None = None) -> None:
        """data: what the devices hold, instead of the data set that the options name."""
        self.options = options
        if population.schedule is not None:
            hint = "serve the fleet with collect, or collect in runs: tern collect --unit record"
            raise UsageError("means as sums over units spend a budget in one round", hint)
        self._table, first = load(options.dataset) if data is None else (data, 0)
        # Boards that were provisioned with the data set hold its constant, too; nobody asks for that.
        self._first = 0 if population.knows_records else first
        records = self._table.records(self._table.training)
        self._width, self._names = self._first + records.shape[1] - 1, self._table.numeric_names
        if not 1 <= len(self._names) <= self._width <= wire.MAX_DIMENSION:
            text = f"{self._table.name} has {len(self._names)} numbers among {self._width} attributes"
            hint = f"a device holds up to {wire.MAX_DIMENSION}; sums over units are of numbers"
            raise UsageError(text, hint)
        self.unit, self.delta = parse_unit(options.unit), sums.parse_delta(options.delta)
        self.clients = population.clients or population.boards or population.devices or None
        self.reports, self.holdings = self.clients, None
        each, boards = options.records, self.clients or 1
        if population.knows_records:
            self.holdings = deal(self._table.name, records, self._table.training, boards, each, options.seed)
        self._units = math.ceil(each / self.unit) if self.unit else 1
        self._design(min(options.budget, MAX_EPSILON))  # what one report may cost
        self._answer: dict[str, Any] | None = None

    def _design(self, cost: int) -> None:
        """No unit is clipped, as |x_j| <= 1, and no sum leaves the symbols, for which more noise may be needed."""
        d, run = len(self._names), self.unit or self.options.records
        radius = run * max(math.sqrt(d), 2 if run > _LONG else 1)
        steps = _STEPS[cost < 100]
        tally = round(steps / d**0.25)  # least variance of a quotient near 1
        given: dict[str, Any] = {"cost": cost, "unit": self.unit, "radius": radius, "units": self._units}
        for bits in range(8, min(16, 8 * sums.MOST_BYTES // (d + 1)) + 1):
            made = sums.design(**given, steps=steps, clipped=tally, kept=tally, values=d + 1, bits=bits)
            body = sums.of(cards.decode(made.card))
            if self._units * tally + 8 * math.sqrt(sums.variance(body)) < 2 ** (body.coarse + bits - 1):
                break
        else:
            return self._design(cost // 2)
        self._tally, self._range, card = tally, made.range, cards.decode(made.card)
        self._rounding = sums.grid(body, made.range) / 2  # of a unit's number
        budget = self.options.budget
        self.designs = [SumDesign(card, d + 1, made.sigma**2, "gaussian", budget, delta=self.delta)]

    @property
    def done(self) -> bool:
        return self._answer is not None

    def _question(self) -> Question:
        design, end = self.designs[0], self._first + len(self._names)
        asked = [int(self._first <= column < end) for column in range(self._width)]
        return Question(wire.VALUES, asked, 0, design.card.data, design.k, range=self._range)

    def cohorts(self, devices: Sequence[int] | Devices) -> list[Cohort]:
        return [(self._question(), devices)]

    def learn(self, result: RoundResult, devices: Sequence[int] | Devices) -> None:
        (cohort,) = result.cohorts
        total, error = sums_of(cohort) if cohort.reports else np.zeros((2, len(self._names) + 1))
        self._answer = {"totals": total.tolist(), "errors": error.tolist(), "reports": result.reports}

    def state(self) -> dict[str, Any]:
        return {"answer": self._answer}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._answer = state["answer"]

    def result(self, history: Sequence[dict[str, Any]]) -> dict[str, Any]:
        answer, design, entries = self._answer, self.designs[0], []
        assert answer is not None
        *numbers, (units, units_error) = zip(answer["totals"], answer["errors"], strict=True)
        # Units in records: the last run of a device may be shorter.
        each, to_records = self.options.records, self.options.records / self._units / self._tally
        count, spread = units * to_records, units_error * to_records
        for j, (name, (total, error)) in enumerate(zip(self._names, numbers, strict=True)):
            interval = fieller(total, error, count, spread)
            slack = self._rounding * self._units / each
            bounds = interval and [interval[0] - slack, interval[1] + slack]
            mean = total / count if count else 0.0
            entries.append({"name": name, "mean": mean, "interval": bounds, "reports": answer["reports"]})
            if self.holdings is not None:
                entries[-1]["true"] = float(self.holdings.records[self.holdings.order, j].mean() / ONE)
        errors = [entry["mean"] - entry["true"] for entry in entries if "true" in entry]
        part = {"name": "numbers", "d": len(numbers), **design.summary(1), "reports": answer["reports"]}
        return {
            "dataset": self.options.dataset, "method": "sums over units", "clients": answer["reports"],
            "mean_squared_error": float(np.mean(np.square(errors))) if errors else None,
            "attributes": entries, "records": count, "records_error": spread, "unit": self.unit,
            "delta": self.delta, "rho": design.cost / MICRO,
            "parts": [{**part, "k": len(numbers), **report_summary(design, self._question())}],
        }  # fmt: skip

    @classmethod
    def summary(cls, result: Mapping[str, Any]) -> list[str]:
        asked = f"{counted(result['reports'], 'report')} about {result['records']:,.0f} records"
        return [
            guarantee(result),
            "means are scaled: -1 and 1 are the bounds of an attribute's public range; intervals are for the noise",
            *map(line, result["attributes"]),
            f"{asked} (+-{QUANTILE * result['records_error']:.0f}) in {result['seconds']:.1f} s",
        ]


def fieller(a: float, a_error: float, b: float, b_error: float) -> list[float] | None:
    """The 95 % interval of a quotient a / b of independent normal estimates; None where b may be 0."""
    square = QUANTILE**2
    lead, middle, last = b * b - square * b_error**2, a * b, a * a - square * a_error**2
    if b <= 0 or lead <= 0:
        return None
    half = math.sqrt(max(0.0, middle * middle - lead * last))
    return [(middle - half) / lead, (middle + half) / lead]
