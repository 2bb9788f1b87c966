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
from ternhost.datasets import EVERYTHING, Floats, Holdings, Selection, Table, on_devices
from ternhost.datasets.base import CONSTANT, MULTICLASS
from ternhost.errors import UsageError
from ternhost.learn import liar_results, liars
from ternhost.learn.base import (
    Cohort,
    Learner,
    Population,
    report_summary,
    require_clients,
    require_everybody,
)
from ternhost.learn.collecting import attributes, estimate
from ternhost.learn.collecting.attribute_results import (
    attribute_lines,
    error_lines,
    intervals_of,
    squared_errors,
    unit_of,
)
from ternhost.learn.collecting.attributes import Part
from ternhost.learn.data_options import OwnerOptions
from ternhost.learn.designs import (
    BudgetOptions,
    MechanismOptions,
    ReportDesign,
    by_class,
    class_of,
    epsilons_option,
    stated_epsilon_lines,
)
from ternhost.learn.devices import Devices
from ternhost.learn.owners import to_owners
from ternhost.options import option, require
from ternhost.privacy.base import MICRO
from ternhost.text import counted

Interval = list[float]  # the lower and the upper end

_what = partial(option, group="what to collect")


@dataclass(frozen=True)
class ClientOptions(OwnerOptions):
    """Which clients report, and about what."""

    clients: int = _what(0, shown="all, or 1000 on emulated boards", metavar="N")
    seed: int = _what(1, metavar="S")

    def check(self) -> None:
        require(self.clients >= 0, "clients", "0 (all) or more", self.clients)
        require(self.seed >= 0, "seed", "0 or more", self.seed)


@dataclass(frozen=True)
class Options(MechanismOptions, BudgetOptions, ClientOptions):
    """Options of collecting by Algorithm 6."""

    takes_taus: ClassVar[bool] = True

    epsilons: str | None = epsilons_option("TAU:E:SHARE,...")

    def check(self) -> None:
        for device_class in self.classes():
            attributes.range_of(device_class.tau)


def load(
    name: str, selection: Selection = EVERYTHING, *, gives_records: bool = True
) -> tuple[Table, int]:
    """Load the attributes that clients can report of a data set.

    They are the attributes of its table if it has one, otherwise its features without the constant
    feature 1, with which models have their intercept.

    name: the name of the data set, NAME:PATH for one that is read from a file, or a table of the
        user's own. Or a schema such as my.toml, or `devices:FEATURES`: then only the devices know
        their records, and the table has no rows.
    selection: as of `datasets.load`.
    gives_records: whether tern gives the clients their records. Then they can report every column
        of a table of the user's own; boards that hold records for training report the features.
    Also returns how many features come before the attributes in the records of boards that were
    filled by `tern board up --data`: 1 for the constant, or 0. Raises UsageError.
    """
    known_to_devices = on_devices.attributes(name)
    if known_to_devices is not None:
        if gives_records:
            raise UsageError(
                f"--data {name} is for devices with records of their own, and these are given theirs",
                "name a data set, or a fleet of boards: port:... or mqtt:...",
            )
        return known_to_devices

    kind, _, path = name.partition(":")
    if name in datasets.TABLES:
        selection.require_no_columns(name)
        return datasets.TABLES[name](), 0

    # A source of data sets, such as a format of files, may have tables with categories, too.
    source = datasets.SOURCES.get(kind)
    if source is not None and source.table is not None:
        selection.require_no_columns(kind)
        file = None
        if path:
            file = Path(path).expanduser()
        return source.table(file), 0

    if datasets.is_own(name):
        own_data = datasets.own.load(name, selection)
        if gives_records or not own_data.schema.label:
            return own_data.attributes(), 0
        dataset = own_data.dataset(classes=own_data.schema.task == MULTICLASS)
    else:
        dataset = datasets.load(name, selection=selection)
    first = 0
    if dataset.feature_names[0] == CONSTANT:
        first = 1
    features = np.delete(dataset.features, dataset.public, axis=0)  # nobody holds public rows
    table = Table(
        dataset.name, dataset.feature_names[first:], features[:, first:], units=dataset.units
    )
    if dataset.owners is not None:
        owners = np.delete(dataset.owners, dataset.public)
        table = replace(table, owners=owners, owner_names=dataset.owner_names)
    return table, first


class ClientData(NamedTuple):
    """What clients hold, and where the attributes are in a record of theirs."""

    table: Table
    records: npt.NDArray[np.int16]  # n x (width + 1), the unused label last
    first: int  # features that come before the attributes
    width: int  # features of a record


def client_data_for(
    options: OwnerOptions, population: Population, data: Table | None
) -> ClientData:
    """Return what clients hold, and where the attributes to collect are in their records.

    A record has features and a label. The result says how many features it has (width), and how
    many of them come before the attributes (first).

    options: they name the data set that clients hold.
    population: the clients.
    data: a table that they hold instead; None: the data set.
    Raises UsageError if there is no such data set, or if its records do not fit on a device.
    """
    if data is None:
        table, first = load(options.data, options.selection, gives_records=population.knows_records)
    else:
        table, first = data, 0
    # Boards that were filled with the data set by themselves hold its constant, too; nobody asks
    # for that. Records that tern hands out do not have it.
    if population.knows_records:
        first = 0
    records = table.records(table.training)
    width = first + records.shape[1] - 1  # without the label
    if width > wire.MAX_DIMENSION:
        raise UsageError(
            f"{table.name} has {width} attributes; a device holds up to {wire.MAX_DIMENSION}"
        )
    return ClientData(table=table, records=records, first=first, width=width)


def plan(options: Options, table: Table) -> list[list[Part]]:
    """Divide the attributes of a table into parts, for each class of clients.

    A client reports a single part, and spends at most the epsilon of its class on it. Raises
    UsageError.
    """
    parts_by_class = []
    for device_class in options.classes():
        parts_by_class.append(attributes.parts_of(options, table, device_class))
    return parts_by_class


class Reports(NamedTuple):
    """What was reported of one part so far."""

    part: Part
    counts: Counts  # attributes x symbols, or, if they are hashed, attributes x categories
    reports: int


class Values(Learner):
    """Asks every client once, for one part of its attributes; a served fleet over and over."""

    name = "values"
    about = "values of devices, each with noise"
    example = "--clients 1000"
    command = "collect"
    collects = "means and frequencies"
    Options: ClassVar[Any] = Options

    def __init__(self, options: Any, population: Population, data: Table | None = None) -> None:
        """Plan which parts of their attributes the clients of each class report, and the rounds.

        A class is a group of clients with the same epsilon. A part is a set of attributes that one
        question covers: numbers, or categorical attributes of the same kind.

        options: the `Options` of this module, or those of a subclass.
        population: the clients that can be asked.
        data: what the clients hold, instead of the data set that the options name.
        Raises UsageError if the options do not suit the data or the population.
        """
        self.options = options
        require_everybody(population, "collecting")
        self._data = client_data_for(options, population, data)
        self.modules = ("collect",)  # of the device library, that boards need
        self._most = 0  # the largest number of reports in a round
        self._round = 0  # how many rounds have ended
        self._plan_rounds(population)
        self.begin_with(self.make_plan(self._data.table))

    def begin_with(self, plan: list[list[Part]]) -> None:
        """Set what the clients of each class report, as of `make_plan`, without any report yet."""
        self.plan = plan
        # A client may be asked for any part of its class: so its budget must suffice for each.
        self.designs = [_dearest_design(parts) for parts in plan]

        # Hashed categories need each report by itself, since each device has a hash of its own.
        self.individual = False
        for parts in plan:
            if any(part.hashed for part in parts):
                self.individual = True

        # What was reported so far, of each class and each of its parts, as in `plan`.
        self.counts: list[list[Counts]] = []
        self._reports: list[list[int]] = []
        for parts in plan:
            self.counts.append([np.zeros(part.shape, np.int64) for part in parts])
            self._reports.append([0] * len(parts))

    def make_plan(self, table: Table) -> list[list[Part]]:
        """Divide the attributes of a table into parts, for each class of clients: see `plan`."""
        return plan(self.options, table)

    def _plan_rounds(self, population: Population) -> None:
        """Set how many rounds, clients and reports there will be, and what each client holds.

        A run has a single round. A fleet with a schedule is served round after round, perhaps
        without an end; then the number of rounds is None.

        population: the clients, and whether the host knows their records (it does if it gave them).
        Raises UsageError if the user asks for more clients than there are.
        """
        schedule = population.schedule
        self.rounds = 1
        if schedule:
            self.rounds = schedule.rounds
        self.times = self.rounds or 1  # that a client reports; without an end, a round counts
        self.clients = self.options.clients or None  # None: all, or as many as follow from below
        if population.knows_records:
            self.holdings = self._hand_out(population.clients)
            available = population.clients or self.holdings.clients
            hint = f"use --clients {available} or fewer"
            require_clients(self.clients, available, " to report", hint)
            if not schedule and not self.clients:
                # As many as the fleet has or the data name, else as it can make, else one for each
                # record.
                wanted = population.clients or population.most or available
                if self.holdings.names:
                    wanted = self.holdings.clients
                self.clients = min(available, wanted)

        self.reports = None
        if self.clients is not None and self.rounds is not None:
            self.reports = self.clients * self.rounds

    def _hand_out(self, clients: int | None) -> Holdings:
        """Give the records to their owners, or else one to each client, in random order.

        clients: how many the fleet has; None: as many as are needed. Raises UsageError if there are
        more than owners.
        """
        table = self._data.table
        if table.owners is not None:
            owned = to_owners(table, table.training, clients)
            self.notes += owned.notes
            return owned.holdings
        records = self._data.records
        order = np.random.default_rng(self.options.seed).permutation(len(records))
        return Holdings(records, order)

    @property
    def done(self) -> bool:
        return self.rounds is not None and self._round >= self.rounds

    @property
    def fewest_asked(self) -> int | None:
        """About how many clients the smallest part is asked of in a round; None: nobody knows.

        The classes of clients count as one.
        """
        of_round = super().fewest_asked
        if of_round is None:
            return None
        smallest_shares = [min(_shares_of(parts)) for parts in self.plan]
        return int(of_round * min(smallest_shares))

    def question(self, part: Part) -> Question:
        """The question for a part of the attributes."""
        return part.question(self._data.width, self._data.first)

    def cohorts(self, devices: Sequence[int] | Devices) -> list[Cohort]:
        """Return the questions of the next round, each with the devices that it is for.

        The devices of each class are divided at random among the parts of the attributes, in
        proportion to the number of attributes in each part.

        devices: all devices of the run.
        """
        cohorts: list[Cohort] = []
        # Parts are drawn anew in each round. The seed of the classes is far below 2**32, so that this
        # one, which has the round in its upper bits, differs from it: both draws are independent.
        seed_of_parts = self.options.seed + ((self._round + 1) << 32)
        asked = devices[: self.clients]
        for members in by_class(self.designs, asked, self.options.seed):
            parts = self.plan[members.number]
            part_of_device = class_of(members.devices, _shares_of(parts), seed_of_parts)
            for number, part in enumerate(parts):
                part_devices = members.devices[part_of_device == number]
                if len(part_devices):
                    cohorts.append((self.question(part), part_devices))
        return cohorts

    def learn(self, result: RoundResult, devices: Sequence[int] | Devices) -> None:
        """Add the counts of a round to those of the classes and parts that reported.

        devices: not needed, as the counts of the result are complete.
        """
        # What was asked is found by the key of a question: the number of the class of clients, and
        # the number of the part of the attributes within the class.
        part_of_question = {}
        for class_number, parts in enumerate(self.plan):
            for part_number, part in enumerate(parts):
                part_of_question[_key(self.question(part))] = class_number, part_number

        for cohort in result.cohorts:
            class_number, part_number = part_of_question[_key(cohort.question)]
            part = self.plan[class_number][part_number]
            self.counts[class_number][part_number] += _counts_of(part, cohort, result.number)
            self._reports[class_number][part_number] += cohort.reports
        self._most = max(self._most, result.reports)  # as many clients have reported at least
        self._round += 1

    def state(self) -> dict[str, Any]:
        """Return all that changes during a run, as an object for JSON; `restore` reads it back."""
        return {
            "round": self._round,
            "reports": self._reports,
            "most": self._most,
            "counts": [[counts.tolist() for counts in parts] for parts in self.counts],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a stored `state()`."""
        self._round = int(state["round"])
        self._most = int(state["most"])
        self._reports = [list(parts) for parts in state["reports"]]
        self.counts = []
        for parts in state["counts"]:
            self.counts.append([np.array(counts, np.int64) for counts in parts])

    # The result

    def result(self, history: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return the estimates of all attributes, and how each part was reported, for JSON.

        history: not needed, as the counts of all rounds were added up.
        """
        entries = self.entries()
        part_summaries = []
        taus = []
        for class_reports in self._by_class():
            for part_reports in class_reports:
                part_summaries.append(self._part_summary(part_reports))
                taus.append(part_reports.part.design.tau or 1.0)  # None: nothing is clipped
        result = {
            "data": self.options.data,
            "clients": self._most,
            **squared_errors(entries),
            "attributes": entries,
            "liars": liar_results.of_attributes(self.moved_attributes(entries)),
            "parts": part_summaries,
        }
        narrowest = min(taus)
        if narrowest < 1:  # some clients clip their numbers to +-tau
            result["clipped_at"] = narrowest
        return result

    def entries(self) -> list[dict[str, Any]]:
        """Return the entries of all attributes, from the reports so far."""
        return [*self._numeric_entries(), *self.categorical_entries()]

    def _by_class(self) -> list[list[Reports]]:
        """Return what was reported so far: for each class of clients, a list with its parts."""
        classes = []
        for parts, counts, reports in zip(self.plan, self.counts, self._reports, strict=True):
            class_reports = []
            for part, part_counts, part_reports in zip(parts, counts, reports, strict=True):
                class_reports.append(Reports(part, counts=part_counts, reports=part_reports))
            classes.append(class_reports)
        return classes

    def _part_summary(self, part_reports: Reports) -> dict[str, Any]:
        """Describe a part of the attributes for JSON: how it was reported, and how often."""
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
    def _holders(self) -> Floats | None:
        """How many clients each record stands for (n); None where the host does not know.

        All clients count the same, so that each of several records of a client stands for a part of
        it. Clients beyond the last one with records hold again what the first ones do.
        """
        if self.holdings is None or self.clients is None:
            return None
        holdings = self.holdings
        clients = np.arange(min(self.clients, holdings.clients))
        counts = holdings.counts(clients)
        turns = np.bincount(np.arange(self.clients) % holdings.clients, minlength=len(clients))
        holders = np.zeros(len(holdings.records))
        holders[holdings.all_positions(clients)] = np.repeat(turns / counts, counts)
        return holders

    def _numeric_entries(self) -> list[dict[str, Any]]:
        """Return the mean of each numeric attribute that somebody reported, for JSON.

        Each has an interval. If the host knows what clients hold, the result also has the true mean
        among them.
        """
        names = self._data.table.numeric_names
        if not names:
            return []

        counts, taus = self._reports_about_numbers()
        reports = sum(of_class.sum(axis=1) for _, of_class in counts)
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
                **unit_of(name, self._data.table),
            }
            if self._holders is not None:
                values = self._data.records[:, column]  # in fixed point: 1 is ONE
                true_sum = values @ self._holders
                entry["true"] = float(true_sum / self._holders.sum() / ONE)
            entries.append(entry)
        return entries

    def _reports_about_numbers(self) -> tuple[list[tuple[Card, Counts]], list[float]]:
        """Return what each class of clients reported about numbers, and to which tau it clipped them.

        The reports are a card and how often each of its symbols was reported for each number
        (numbers x symbols).
        """
        counts, taus = [], []
        for class_reports in self._by_class():
            numbers = class_reports[0]  # all numbers are one part, the first of each class
            counts.append((numbers.part.design.card, numbers.counts))
            taus.append(numbers.part.design.tau or 1.0)  # None: to [-1, 1]
        return counts, taus

    def means(
        self, counts: Sequence[tuple[Card, Counts]], taus: Sequence[float]
    ) -> tuple[Floats, Sequence[Interval | None]]:
        """Estimate the means of all numeric attributes, with their intervals.

        counts: for each class of clients, the card (the table that perturbs values) and how often
            each of its symbols was reported for each number (numbers x symbols).
        taus: clients of each class clip their numbers to +-tau.
        A mean is nan, and has no interval, where nobody reported the number.
        """
        combined = estimate.combine(counts, tau=taus)
        return combined.mean, intervals_of(combined)

    def kinds_of_numbers(
        self, counts: Sequence[tuple[Card, Counts]], taus: Sequence[float]
    ) -> list[liars.Kind] | None:
        """Return the kinds of reports of which `means` are weighted means; None if they are no such.

        Arguments as of `means`.
        """
        kinds = []
        for (card, of_card), tau in zip(counts, taus, strict=True):
            kinds.append(liars.kind_of_means(card, of_card.sum(axis=1), tau))
        return kinds

    def moved_attributes(self, entries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return how far lying devices can have moved the estimates of attributes, for JSON.

        entries: the results of all attributes. The form is that of `liar_results.of_attribute`.
        """
        numeric_names = self._data.table.numeric_names
        moved = []
        kinds = None
        if numeric_names:
            kinds = self.kinds_of_numbers(*self._reports_about_numbers())
        for entry in entries:
            if "frequencies" in entry:
                column = len(numeric_names) + self._data.table.categorical_names.index(
                    entry["name"]
                )
                shares = np.array(entry["frequencies"], np.float64)  # nan for None
                bound = liars.frequencies(self.reports_about(column), shares)
                moved.append(liar_results.of_attribute(entry["name"], entry["reports"], bound.most))
            elif kinds:
                column = numeric_names.index(entry["name"])
                of_number = [
                    kind._replace(reports=kind.reports[column : column + 1]) for kind in kinds
                ]
                bound = liars.after(of_number, [entry["mean"]])
                moved.append(liar_results.of_attribute(entry["name"], entry["reports"], bound.most))
        return moved

    def categorical_entries(self) -> list[dict[str, Any]]:
        """Return the result of each categorical attribute: the frequencies of its categories.

        If the host knows what clients hold, the result also has the true frequencies among them.
        """
        table = self._data.table
        first_column = len(table.numeric_names)  # numbers come first
        entries = []
        for i, name in enumerate(table.categorical_names):
            column = first_column + i
            categories = table.categories[i]
            estimated = estimate.combine_frequencies(self.reports_about(column))
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
                codes = self._data.records[:, column]  # the number of each record's category
                clients = np.bincount(codes, weights=self._holders, minlength=len(categories))
                entry["true"] = (clients / self._holders.sum()).tolist()
            entries.append(entry)
        return entries

    def reports_about(self, column: int) -> list[estimate.CategoryReports]:
        """Return the reports about a categorical attribute, in the form of `combine_frequencies`.

        There is an entry for each class of clients and each part of the attributes that has this
        one.

        column: the number of the attribute, in the order of the table.
        """
        rows = []
        for part, counts, reports in self.answers_about(column):
            hashed_reports = None
            if part.hashed:
                hashed_reports = reports
            rows.append(estimate.CategoryReports(part.design.card, counts, hashed_reports))
        return rows

    def answers_about(self, column: int) -> list[Reports]:
        """Return what was reported of an attribute, for each part of each class that has it.

        The counts are those of the attribute alone (symbols, or categories if they are hashed), and
        the reports those that are about it.

        column: the number of the attribute, in the order of the table.
        """
        answers = []
        for class_reports in self._by_class():
            for part, counts, reports in class_reports:
                if column not in part.columns:
                    continue
                column_counts = counts[part.columns.index(column)]
                column_reports = reports
                if not part.hashed:  # a report has some attributes of the part, one symbol of each
                    column_reports = int(column_counts.sum())
                answers.append(Reports(part, counts=column_counts, reports=column_reports))
        return answers

    @classmethod
    def summary(cls, result: Mapping[str, Any]) -> list[str]:
        """Return the estimates, and how many clients reported, in lines for people."""
        reports = counted(result["reports"], "report")
        clients = counted(result["clients"], "client")
        return [
            *attribute_lines(result),
            *liar_results.collecting_lines(result),
            f"{reports} of {clients} in {result['seconds']:.1f} s",
            *stated_epsilon_lines(result),
            *error_lines(result),
        ]


def _dearest_design(parts: Sequence[Part]) -> ReportDesign:
    """Return the design of the most expensive report among the parts of a class of clients.

    It stands for all of them where costs and policies are set: whichever part a client reports, it
    spends at most that much.
    """
    designs = [part.design for part in parts]
    dearest = max(designs, key=lambda design: design.cost)
    return replace(dearest, epsilon=dearest.cost, what="attribute")


def _shares_of(parts: Sequence[Part]) -> list[float]:
    """Return the share of a class of clients that each part is asked of: that of its attributes."""
    attribute_counts = np.array([len(part.columns) for part in parts])
    shares: list[float] = (attribute_counts / attribute_counts.sum()).tolist()
    return shares


def _finite_or_none(values: Floats) -> list[float | None]:
    """Return the values as a list for JSON, with None in place of nan."""
    finite: list[float | None] = []
    for value in values.tolist():
        finite.append(value if math.isfinite(value) else None)
    return finite


def _key(question: Question) -> tuple[Any, ...]:
    """Return a key for a dictionary by which the part that a question asks for can be found.

    A part is a set of attributes that one question covers. Two questions for the same part have the
    same key, and questions for different parts have different ones.
    """
    return (
        question.model,  # numbers or categories
        question.exponent,  # whether categories are bins of numbers, and how many
        question.range,  # how numbers are clipped, or whether categories are hashed
        tuple(question.parameters),  # a flag for each feature: whether it is asked for
        bytes(question.card),  # the table that perturbs what is reported
        question.k,  # how many attributes a client reports
    )


def _counts_of(part: Part, cohort: CohortCounts, number: int) -> Counts:
    """Return what the reports of a round say about the attributes that one question covered.

    For plain reports these are counts of symbols (attributes x symbols). If categories are hashed,
    a device reports a bucket of its own hash, which supports all categories in it; then the result
    is how many reports support each category of the only attribute (1 x categories).

    part: the attributes, and how they are reported.
    cohort: the devices that reported the part, and their answers.
    number: the number of the round, on which the hash of each device depends.
    """
    if not part.hashed:
        return cohort.counts
    if cohort.supports is not None:  # counted already where the reports came in
        return cohort.supports[None]
    if cohort.answers is None:  # nobody has answered
        return np.zeros(part.shape, np.int64)
    support = estimate.supports(
        cohort.answers.devices,
        symbols=cohort.answers.symbols[:, 0],
        number=number,
        buckets=cohort.card.symbols,
        categories=part.categories,
    )
    return support[None]  # as a row
