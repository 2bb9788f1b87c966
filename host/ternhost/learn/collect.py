"""Means and frequencies of what clients hold, by Algorithm 6 of Zhao et al. 2021 (attributes.py).

Means divide by the number of reports that an attribute really had; the paper of Algorithm 6 scales
a sum by d / k.
"""

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
    """Load the attributes of a data set: its table, else its features without the constant.

    name: of the data set, or NAME:PATH. Also returns the number of features that come before the
    attributes in the records of `tern up --dataset`: 1 for the constant, or 0. Raises UsageError.
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
    """Return what clients hold: the table `data`, or, if it is None, the data set of this name.

    Raises UsageError if there is no such data set, or if its records do not fit on a device.
    """
    if data is None:
        table, first = load(name)
    else:
        table, first = data, 0
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
        """Plan which parts of their attributes the clients of each class report.

        data: what the clients hold, instead of the data set that the options name. Raises
        UsageError if the options do not suit the data or the population.
        """
        self.options = options
        require_everybody(population, "collecting")
        self._held = held_for(options.dataset, population, data)
        self.plan = self.make_plan(self._held.table)
        self.modules = ("collect",)
        self.individual = False
        self.designs = []
        self.counts: list[list[Counts]] = []  # of each class and each of its parts, as in `plan`
        self._reports: list[list[int]] = []  # the number of reports of each class and part
        for parts in self.plan:
            if any(part.hashed for part in parts):
                self.individual = True
            designs = [part.design for part in parts]
            # Whichever part a client reports, it pays at most for the one that costs most.
            dearest = max(designs, key=lambda design: design.cost)
            self.designs.append(replace(dearest, epsilon=dearest.cost, what="attribute"))
            self.counts.append([np.zeros(part.shape, np.int64) for part in parts])
            self._reports.append([0] * len(parts))
        self._plan_rounds(population)
        self._most = 0  # the largest number of reports in a round
        self._round = 0

    def make_plan(self, table: Table) -> list[list[Part]]:
        """The parts of the clients of each class: see `plan`."""
        return plan(self.options, table)

    def _plan_rounds(self, population: Population) -> None:
        """Set how many rounds, clients and reports there will be, and what the clients hold.

        Raises UsageError if the user asks for more clients than there are.
        """
        schedule = population.schedule
        self.rounds = 1
        if schedule:
            self.rounds = schedule.rounds
        self.times = self.rounds or 1
        self.clients = self.options.clients or None
        if population.knows_records:
            records = self._held.records
            available = population.clients or len(records)
            hint = f"ask for --clients {available} or fewer"
            require_clients(self.clients, available, " to report", hint)
            if not schedule and not self.clients:
                wanted = population.clients or population.most or available
                self.clients = min(available, wanted)
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
        """Divide the devices of each class among its parts, in proportion to their attributes."""
        cohorts: list[Cohort] = []
        # The seed of the parts is new in each round, and not that of the classes.
        seed = self.options.seed + ((self._round + 1) << 32)
        for members in by_class(self.designs, devices[: self.clients], self.options.seed):
            parts = self.plan[members.number]
            attribute_counts = np.array([len(part.columns) for part in parts])
            part_shares = (attribute_counts / attribute_counts.sum()).tolist()
            part_of_device = class_of(members.devices, part_shares, seed)
            for number, part in enumerate(parts):
                part_devices = members.devices[part_of_device == number]
                if len(part_devices):
                    cohorts.append((self.question(part), part_devices))
        return cohorts

    def learn(self, result: RoundResult, devices: Sequence[int] | Devices) -> None:
        """Add the counts of the round to those of the class and part that each cohort reported."""
        part_of_question = {}  # its class, and its number among the parts of the class
        for class_number, parts in enumerate(self.plan):
            for part_number, part in enumerate(parts):
                part_of_question[_key(self.question(part))] = class_number, part_number

        for cohort in result.cohorts:
            class_number, part_number = part_of_question[_key(cohort.question)]
            part = self.plan[class_number][part_number]
            self.counts[class_number][part_number] += _counts_of(part, cohort, result.number)
            self._reports[class_number][part_number] += cohort.reports
        self._most = max(self._most, result.reports)
        self._round += 1

    def state(self) -> dict[str, Any]:
        """All that changes in a run, for JSON; `restore` takes it back exactly."""
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
        """The estimates of all attributes, and how each part was reported, for JSON.

        history: not needed, as all counts are kept.
        """
        entries = [*self._numeric_entries(), *self.categorical_entries()]
        part_summaries = []
        taus = []
        for class_reports in self._by_class():
            for part_reports in class_reports:
                part_summaries.append(self._part_summary(part_reports))
                taus.append(part_reports.part.design.tau or 1.0)
        result = {
            "dataset": self.options.dataset,
            "method": self.options.method,
            "clients": self._most,
            **squared_errors(entries),
            "attributes": entries,
            "parts": part_summaries,
        }
        if min(taus) < 1:
            result["clipped_at"] = min(taus)
        return result

    def _by_class(self) -> list[list[Reports]]:
        """Return what was reported so far: for each class a list of its parts, as in `plan`."""
        classes = []
        for parts, counts, reports in zip(self.plan, self.counts, self._reports, strict=True):
            class_reports = []
            for part, part_counts, part_reports in zip(parts, counts, reports, strict=True):
                class_reports.append(Reports(part, part_counts, part_reports))
            classes.append(class_reports)
        return classes

    def _part_summary(self, part_reports: Reports) -> dict[str, Any]:
        """Describe a part for JSON: its attributes, its design, and the number of its reports."""
        part = part_reports.part
        design = part.design
        return {
            "name": part.name,
            "d": len(part.columns),
            "k": design.k,
            "share": design.share,
            "tau": design.tau,
            "epsilon": design.cost / MICRO,
            **report_summary(design, self.question(part)),
            "reports": part_reports.reports,
        }

    @cached_property
    def _holders(self) -> npt.NDArray[np.int64] | None:
        """The number of clients that hold each record (n); None where the host does not know.

        Clients take the records in order. If there are more clients than records, several clients
        hold the same one.
        """
        if self.holdings is None or self.clients is None:
            return None
        order = self.holdings.order
        passes, rest = divmod(self.clients, len(order))
        holders = np.full(len(order), passes)
        holders[order[:rest]] += 1
        return holders

    def _numeric_entries(self) -> list[dict[str, Any]]:
        """Make an entry of the result for each numeric attribute that somebody reported."""
        names = self._held.table.numeric_names
        if not names:
            return []
        counts, taus = [], []
        reports = np.zeros(len(names), np.int64)
        for class_reports in self._by_class():
            numbers = class_reports[0]  # they are the first part of each class
            counts.append((numbers.part.design.card, numbers.counts))
            taus.append(numbers.part.design.tau or 1.0)
            reports += numbers.counts.sum(axis=1)
        means, intervals = self.means(counts, taus)

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
        """Estimate the means of all numeric attributes, with their intervals.

        counts: the card of each class, and its counts (numbers x symbols). taus: the safe range of
        each class. A mean is nan where nobody reported the number.
        """
        combined = estimate.combine(counts, tau=taus)
        return combined.mean, intervals_of(combined)

    def categorical_entries(self) -> list[dict[str, Any]]:
        """Make an entry of the result for each categorical attribute."""
        table = self._held.table
        entries = []
        for column, name in enumerate(table.categorical_names, len(table.numeric_names)):
            categories = table.categories[column - len(table.numeric_names)]
            estimated = estimate.combine_frequencies(self._reports_about(column))
            reports = int(estimated.reports[0])
            intervals = None
            if reports:
                intervals = intervals_of(estimated)
            entry: dict[str, Any] = {
                "name": name,
                "categories": list(categories),
                "reports": reports,
                "frequencies": _finite_or_none(estimated.mean),
                "intervals": intervals,
            }
            if self._holders is not None:
                codes = self._held.records[:, column]  # the number of each record's category
                clients = np.bincount(codes, self._holders, len(categories))
                entry["true"] = (clients / self._holders.sum()).tolist()
            entries.append(entry)
        return entries

    def _reports_about(self, column: int) -> list[tuple[Card, Counts, int | None]]:
        """Return the reports about a categorical attribute for `estimate.combine_frequencies`.

        For each class and part that has the attribute: the card, the counts (categories), and the
        number of reports if they are hashed, else None.
        """
        rows = []
        for class_reports in self._by_class():
            for part, counts, reports in class_reports:
                if column not in part.columns:
                    continue
                column_counts = counts[part.columns.index(column)]
                hashed_reports = None
                if part.hashed:
                    hashed_reports = reports
                rows.append((part.design.card, column_counts, hashed_reports))
        return rows

    @classmethod
    def summary(cls, result: Mapping[str, Any]) -> list[str]:
        """The estimates, and how many clients reported, in lines for people."""
        reports = counted(result["reports"], "report")
        clients = counted(result["clients"], "client")
        return [
            *attribute_lines(result),
            f"{reports} of {clients} in {result['seconds']:.1f} s",
            *stated(result),
            *error_lines(result),
        ]


def _finite_or_none(values: Floats) -> list[float | None]:
    """Return the values as a list for JSON, with None in place of nan."""
    finite: list[float | None] = []
    for value in values.tolist():
        finite.append(value if math.isfinite(value) else None)
    return finite


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
    """Return the counts of a cohort in a round, in the form of `Reports.counts`.

    number: of the round, on which the hashes of the devices depend.
    """
    if not part.hashed:
        return cohort.counts
    if cohort.supports is not None:  # somebody else has counted them
        return cohort.supports[None]
    if cohort.answers is None:  # nobody has answered
        return np.zeros(part.shape, np.int64)
    devices, symbols = cohort.answers.devices, cohort.answers.symbols[:, 0]
    buckets = cohort.card.symbols
    return estimate.supports(devices, symbols, number, buckets, part.categories)[None]
