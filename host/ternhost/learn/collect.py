"""Means and frequencies of what clients hold, by Algorithm 6 of Zhao et al. 2021 (attributes.py).

Means divide by the number of reports that an attribute really had; the paper of Algorithm 6 scales
a sum by d / k.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from tern import wire
from tern.card import Card
from tern.fixed import ONE
from ternhost import datasets
from ternhost.count.questions import Question
from ternhost.count.rounds import CohortCounts, Counts, RoundResult
from ternhost.datasets import Floats, Holdings, Table
from ternhost.datasets.base import CONSTANT
from ternhost.errors import UsageError
from ternhost.learn import attributes, estimate
from ternhost.learn.attribute_results import (
    attribute_lines,
    error_lines,
    intervals_of,
    squared_errors,
)
from ternhost.learn.attributes import Part
from ternhost.learn.base import (
    Cohort,
    Learner,
    Population,
    report_summary,
    require_clients,
    require_everybody,
)
from ternhost.learn.designs import (
    SEED_HELP,
    BudgetOptions,
    DeviceClass,
    MechanismOptions,
    by_class,
    class_of,
    in_privacy,
    stated,
)
from ternhost.learn.devices import Devices
from ternhost.options import OptionGroup, option, require
from ternhost.privacy.base import MICRO
from ternhost.text import counted

ALGORITHM6 = "algorithm6"
Interval = list[float]  # the lower and the upper end

_what = partial(option, group="what to collect")


def dataset_option() -> Any:
    """The option of what clients hold."""
    names = ", ".join((*datasets.TABLES, *datasets.DATASETS))
    return _what(
        "flights", f"data set of the clients: {names}; or NAME:PATH, in a file", metavar="D"
    )


@dataclass(frozen=True)
class ClientOptions(OptionGroup):
    """Which clients report, and about what."""

    dataset: str = dataset_option()
    clients: int = _what(
        0, "number of clients to ask", shown="all, or 1000 on emulated boards", metavar="N"
    )
    seed: int = _what(1, SEED_HELP, metavar="S")

    def check(self) -> None:
        require(self.clients >= 0, "clients", "0 (all) or more", self.clients)
        require(self.seed >= 0, "seed", "0 or more", self.seed)


@dataclass(frozen=True)
class Options(MechanismOptions, BudgetOptions, ClientOptions):
    """Options of collecting by Algorithm 6."""

    method: str = in_privacy(
        ALGORITHM6, "how numbers are reported; algorithm6: by their values", choices=(ALGORITHM6,)
    )
    choices: str | None = in_privacy(
        None,
        "tau, epsilon and share of each class of clients, whose numbers are clipped to +-TAU, a power of two",
        metavar="TAU:E:SHARE,...",
        instead_of=("epsilon", "epsilons"),
    )

    def check(self) -> None:
        require(self.method == ALGORITHM6, "method", ALGORITHM6, self.method)
        for device_class in self.chosen():
            attributes.range_of(device_class.tau)

    def chosen(self) -> list[DeviceClass]:
        """The classes of clients, with a safe range if they were given one. Raises UsageError."""
        if self.choices is None:
            return self.classes()
        return DeviceClass.parse(self.choices, "such as 0.25:1:0.5,1:1:0.5")


def load(name: str) -> tuple[Table, int]:
    """The attributes of a data set: its table, else its features without the constant.

    Also returns the number of features before them in the records of `tern up --dataset`: the
    constant one, or none. Raises UsageError.
    """
    kind, _, path = name.partition(":")
    if name in datasets.TABLES:
        return datasets.TABLES[name](), 0
    source = datasets.SOURCES.get(kind)
    if source is not None and source.table is not None:
        file = Path(path).expanduser() if path else None
        return source.table(file), 0
    dataset = datasets.load(name)
    first = int(dataset.feature_names[0] == CONSTANT)
    features = np.delete(dataset.features, dataset.public, axis=0)  # nobody holds public rows
    return Table(dataset.name, dataset.feature_names[first:], features[:, first:]), first


class Held(NamedTuple):
    """What clients hold, and where the attributes are in a record of theirs."""

    table: Table
    records: npt.NDArray[np.int16]  # n x (width + 1), the unused label last
    first: int  # features that come before the attributes
    width: int  # features of a record


def held_for(name: str, population: Population, data: Table | None) -> Held:
    """What clients hold: `data`, or the data set of this name. Raises UsageError."""
    table, first = load(name) if data is None else (data, 0)
    # Boards that were provisioned with the data set hold its constant, too; nobody asks for that.
    if population.knows_records:
        first = 0
    records = table.records(table.training)
    width = first + records.shape[1] - 1
    if width > wire.MAX_DIMENSION:
        raise UsageError(
            f"{table.name} has {width} attributes; a device holds up to {wire.MAX_DIMENSION}"
        )
    return Held(table, records, first, width)


def plan(options: Options, table: Table) -> list[list[Part]]:
    """The parts of the clients of each class, of which a client reports one.

    One costs at most the epsilon of the class. Raises UsageError.
    """
    return [attributes.parts_of(options, table, each) for each in options.chosen()]


class Reports(NamedTuple):
    """What was reported of one part so far."""

    part: Part
    counts: Counts  # attributes x symbols, or, if they are hashed, attributes x categories
    reports: int


class Collect(Learner):
    """Asks every client once, for one part of its attributes; a served fleet over and over."""

    name = "collect"
    command = "collect"
    Options: ClassVar[Any] = Options

    def __init__(self, options: Any, population: Population, data: Table | None = None) -> None:
        """data: what the clients hold, instead of the data set that the options name."""
        self.options = options
        require_everybody(population, "collecting")
        self._held = held_for(options.dataset, population, data)
        self.plan = self.make_plan(self._held.table)
        self.individual = any(part.hashed for part in itertools.chain(*self.plan))
        self.modules = ("collect",)
        self.designs = []
        for parts in self.plan:
            # Whichever part a client gives, it pays at most for the dearest.
            dearest = max((part.design for part in parts), key=lambda design: design.cost)
            self.designs.append(replace(dearest, epsilon=dearest.cost, what="attribute"))
        self._plan_rounds(population)

        # By class and part, as `plan`.
        self.counts = [[np.zeros(part.shape, np.int64) for part in parts] for parts in self.plan]
        self._reports = [[0] * len(parts) for parts in self.plan]
        self._most = 0  # reports of a round
        self._round = 0

    def make_plan(self, table: Table) -> list[list[Part]]:
        """The parts of the clients of each class: see `plan`."""
        return plan(self.options, table)

    def _plan_rounds(self, population: Population) -> None:
        """Set how many rounds and clients there will be, and what clients hold."""
        schedule = population.schedule
        self.rounds = schedule.rounds if schedule else 1
        self.times = self.rounds or 1
        self.clients = self.options.clients or None
        if population.knows_records:
            records = self._held.records
            there = population.clients or len(records)
            hint = f"ask for --clients {there} or fewer"
            require_clients(self.clients, there, " to report", hint)
            if not schedule and not self.clients:
                wanted = population.clients or population.most or there
                self.clients = min(there, wanted)
            order = np.random.default_rng(self.options.seed).permutation(len(records))
            self.holdings = Holdings(records, order)
        self.reports = None
        if self.clients is not None and self.rounds is not None:
            self.reports = self.clients * self.rounds

    @property
    def done(self) -> bool:
        return self.rounds is not None and self._round >= self.rounds

    def question(self, part: Part) -> Question:
        """The question for a part of the attributes."""
        return part.question(self._held.width, self._held.first)

    def cohorts(self, devices: Sequence[int] | Devices) -> list[Cohort]:
        cohorts: list[Cohort] = []
        # Anew in each round, and apart from what a client's class is.
        seed = self.options.seed + ((self._round + 1) << 32)
        for members in by_class(self.designs, devices[: self.clients], self.options.seed):
            parts = self.plan[members.number]
            attribute_counts = np.array([len(part.columns) for part in parts])
            shares = (attribute_counts / attribute_counts.sum()).tolist()
            part_of_each = class_of(members.devices, shares, seed)
            for j, part in enumerate(parts):
                chosen = members.devices[part_of_each == j]
                if len(chosen):
                    cohorts.append((self.question(part), chosen))
        return cohorts

    def learn(self, result: RoundResult, devices: Sequence[int] | Devices) -> None:
        places = {}
        for i, parts in enumerate(self.plan):
            for j, part in enumerate(parts):
                places[_key(self.question(part))] = i, j
        for cohort in result.cohorts:
            i, j = places[_key(cohort.question)]
            self.counts[i][j] += _counts_of(self.plan[i][j], cohort, result.number)
            self._reports[i][j] += cohort.reports
        self._most = max(self._most, result.reports)
        self._round += 1

    def state(self) -> dict[str, Any]:
        return {
            "round": self._round,
            "reports": self._reports,
            "most": self._most,
            "counts": [[counts.tolist() for counts in parts] for parts in self.counts],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self._round, self._most = int(state["round"]), int(state["most"])
        self._reports = [list(parts) for parts in state["reports"]]
        self.counts = [
            [np.array(counts, np.int64) for counts in parts] for parts in state["counts"]
        ]

    # The result

    def result(self, history: Sequence[dict[str, Any]]) -> dict[str, Any]:
        entries = [*self._numeric_entries(), *self.categorical_entries()]
        result = {
            "dataset": self.options.dataset,
            "method": self.options.method,
            "clients": self._most,
            **squared_errors(entries),
            "attributes": entries,
            "parts": [self._part_summary(*row) for row in itertools.chain(*self._by_class())],
        }
        least = min(part.design.tau or 1.0 for part in itertools.chain(*self.plan))
        if least < 1:
            result["clipped_at"] = least
        return result

    def _by_class(self) -> list[list[Reports]]:
        """What was reported of each part, by class."""
        classes = []
        for parts in zip(self.plan, self.counts, self._reports, strict=True):
            classes.append([Reports(*row) for row in zip(*parts, strict=True)])
        return classes

    def _part_summary(self, part: Part, counts: Counts, reports: int) -> dict[str, Any]:
        design = part.design
        return {
            "name": part.name,
            "d": len(part.columns),
            "k": design.k,
            "share": design.share,
            "tau": design.tau,
            "epsilon": design.cost / MICRO,
            **report_summary(design, self.question(part)),
            "reports": reports,
        }

    @cached_property
    def _holders(self) -> npt.NDArray[np.int64] | None:
        """The number of clients that hold each record; None where the host does not know."""
        if self.holdings is None or self.clients is None:
            return None
        order = self.holdings.order
        whole, rest = divmod(self.clients, len(order))
        holders = np.full(len(order), whole)
        holders[order[:rest]] += 1
        return holders

    def _numeric_entries(self) -> list[dict[str, Any]]:
        names = self._held.table.numeric_names
        if not names:
            return []
        # Numbers are the first part of each class.
        first = [parts[0] for parts in self._by_class()]
        counts = [(each.part.design.card, each.counts) for each in first]
        means, intervals = self.means(counts, [each.part.design.tau or 1.0 for each in first])
        reports = np.sum([each.counts.sum(axis=1) for each in first], axis=0)
        entries = []
        for column, name in enumerate(names):
            if not np.isfinite(means[column]):
                continue  # nobody reported it
            entry = {
                "name": name,
                "mean": float(means[column]),
                "interval": intervals[column],
                "reports": int(reports[column]),
            }
            if self._holders is not None:
                values = self._held.records[:, column]
                entry["true"] = float(values @ self._holders / self._holders.sum() / ONE)
            entries.append(entry)
        return entries

    def means(
        self, counts: Sequence[tuple[Card, Counts]], taus: Sequence[float]
    ) -> tuple[Floats, Sequence[Interval | None]]:
        """The means of all numbers and their intervals.

        counts: the card of each class, and its counts (numbers x symbols). taus: the safe range of
        each class. A mean is nan where nobody reported the number.
        """
        combined = estimate.combine(counts, tau=taus)
        return combined.mean, intervals_of(combined)

    def categorical_entries(self) -> list[dict[str, Any]]:
        """An entry of the result for each attribute of categories."""
        table = self._held.table
        entries = []
        for column, name in enumerate(table.categorical_names, len(table.numeric_names)):
            values = table.categories[column - len(table.numeric_names)]
            shares = estimate.combine_frequencies(self._reports_about(column))
            reports = int(shares.reports[0])
            frequencies: list[float | None] = []
            for share in shares.mean.tolist():
                frequencies.append(share if math.isfinite(share) else None)
            entry: dict[str, Any] = {
                "name": name,
                "categories": list(values),
                "reports": reports,
                "frequencies": frequencies,
                "intervals": intervals_of(shares) if reports else None,
            }
            if self._holders is not None:
                codes = self._held.records[:, column]
                held = np.bincount(codes, self._holders, len(values))
                entry["true"] = (held / self._holders.sum()).tolist()
            entries.append(entry)
        return entries

    def _reports_about(self, column: int) -> list[tuple[Card, Counts, int | None]]:
        """The reports of an attribute by class, for `estimate.combine_frequencies`."""
        rows = []
        for part, counts, reports in itertools.chain(*self._by_class()):
            if column in part.columns:
                of_column = counts[part.columns.index(column)]
                reports_if_hashed = reports if part.hashed else None
                rows.append((part.design.card, of_column, reports_if_hashed))
        return rows

    @classmethod
    def summary(cls, result: Mapping[str, Any]) -> list[str]:
        reports, clients = (
            counted(result["reports"], "report"),
            counted(result["clients"], "client"),
        )
        return [
            *attribute_lines(result),
            f"{reports} of {clients} in {result['seconds']:.1f} s",
            *stated(result),
            *error_lines(result),
        ]


def _key(question: Question) -> tuple[Any, ...]:
    """The parts of a question that are equal in two questions for the same attributes."""
    return (
        question.model,
        question.range,
        tuple(question.parameters),
        bytes(question.card),
        question.k,
    )


def _counts_of(part: Part, cohort: CohortCounts, number: int) -> Counts:
    """The counts of a cohort in a round of this number, as `Reports.counts`."""
    if not part.hashed:
        return cohort.counts
    if cohort.supports is not None:  # somebody else has counted them
        return cohort.supports[None]
    if cohort.answers is None:  # nobody has answered
        return np.zeros(part.shape, np.int64)
    devices, symbols = cohort.answers.devices, cohort.answers.symbols[:, 0]
    buckets = cohort.card.symbols
    return estimate.supports(devices, symbols, number, buckets, part.categories)[None]
