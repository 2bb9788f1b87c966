"""Means and frequencies of what clients hold, by Algorithm 6 of Zhao et al. 2021 (attributes.py).

Means divide by the number of reports that an attribute really had; the paper of Algorithm 6 scales
a sum by d / k.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tern import wire
from tern.card import Card
from tern.fixed import ONE
from ternhost import datasets
from ternhost.count import estimate
from ternhost.count.questions import Question
from ternhost.count.rounds import CohortCounts, Counts, RoundResult
from ternhost.datasets import Floats, Holdings, Table
from ternhost.datasets.base import CONSTANT
from ternhost.errors import UsageError
from ternhost.learn import attributes
from ternhost.learn.attributes import Part
from ternhost.learn.base import (
    Cohort,
    Devices,
    Learner,
    Population,
    report_summary,
    require_everybody,
)
from ternhost.learn.designs import (
    SEED_HELP,
    Budgeted,
    Choice,
    Mechanised,
    by_class,
    class_of,
    in_privacy,
    stated,
)
from ternhost.options import option, require
from ternhost.privacy.base import MICRO, parse_epsilon
from ternhost.text import counted

ALGORITHM6 = "algorithm6"
Interval = list[float]  # the lower and the upper end
_what = partial(option, group="what to collect")
_SHOWN = 24  # attributes, for people,
_COMMON = 5  # and categories of each


def dataset_option() -> Any:
    """The option of what clients hold."""
    names = ", ".join((*datasets.TABLES, *datasets.DATASETS))
    return _what(
        "flights", f"data set of the clients: {names}; or NAME:PATH, in a file", metavar="D"
    )


@dataclass(frozen=True)
class ClientOptions:
    """Which clients report, and about what."""

    dataset: str = dataset_option()
    clients: int = _what(
        0, "number of clients to ask", shown="all, or 1000 on emulated boards", metavar="N"
    )
    seed: int = _what(1, SEED_HELP, metavar="S")

    def __post_init__(self) -> None:
        require(self.clients >= 0, "clients", "0 (all) or more", self.clients)
        require(self.seed >= 0, "seed", "0 or more", self.seed)


@dataclass(frozen=True)
class Options(Mechanised, Budgeted, ClientOptions):
    """Options of collecting by Algorithm 6."""

    method: str = in_privacy(ALGORITHM6, "report values (algorithm6)", choices=(ALGORITHM6,))
    choices: str | None = in_privacy(
        None,
        "tau, epsilon and share of each class of clients, whose numbers are clipped to +-TAU, a power of two",
        metavar="TAU:E:SHARE,...",
        instead_of=("epsilon", "epsilons"),
    )

    def __post_init__(self) -> None:
        Budgeted.__post_init__(self)
        ClientOptions.__post_init__(self)
        require(self.method == ALGORITHM6, "method", ALGORITHM6, self.method)
        for choice in self.chosen():
            attributes.range_of(choice.tau)

    def chosen(self) -> list[Choice]:
        """The choice of each class of clients. Raises UsageError."""
        if self.choices is None:
            return [Choice(None, epsilon, share) for epsilon, share in self.classes()]
        return Choice.read(self.choices, "such as 0.25:1:0.5,1:1:0.5")


def load(name: str) -> tuple[Table, int]:
    """The attributes of a data set (its table, else its features without the constant), and the
    number of features before them in the records of `tern up --dataset`: the constant one, or none.
    """
    kind, _, path = name.partition(":")
    if name in datasets.TABLES:
        return datasets.TABLES[name](), 0
    source = datasets.SOURCES.get(kind)
    if source is not None and source.table is not None:
        return source.table(Path(path).expanduser() if path else None), 0
    dataset = datasets.load(name)
    first = int(dataset.feature_names[0] == CONSTANT)
    features = np.delete(dataset.features, dataset.public, axis=0)  # nobody holds public rows
    return Table(dataset.name, dataset.feature_names[first:], features[:, first:]), first


def table_for(
    name: str, population: Population, data: Table | None
) -> tuple[Table, npt.NDArray[np.int16], int, int]:
    """What clients hold, `data` or the data set of this name: its attributes, its records, how many
    features come before the attributes in a client's record, and how many a record has. Raises
    UsageError.
    """
    table, first = load(name) if data is None else (data, 0)
    # Boards that were provisioned with the data set hold its constant, too; nobody asks for that.
    first = 0 if population.knows_records else first
    records = table.records(table.training)
    width = first + records.shape[1] - 1
    if width > (most := wire.MAX_DIMENSION):
        raise UsageError(f"{table.name} has {width} attributes; a device holds up to {most}")
    return table, records, first, width


def plan(options: Options, table: Table) -> list[list[Part]]:
    """The parts of the clients of each class, of which a client reports one.

    One costs at most the epsilon of the class. Raises UsageError.
    """
    return [
        attributes.parts_of(options, table, parse_epsilon(each.epsilon), each.share, each.tau)
        for each in options.chosen()
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


class Collect(Learner):
    """Asks every client once, for one part of its attributes; a fleet that is served over and over."""

    name = "collect"
    command = "collect"
    Options: ClassVar[Any] = Options

    def __init__(self, options: Any, population: Population, data: Table | None = None) -> None:
        """data: what the clients hold, instead of the data set that the options name."""
        self.options = options
        require_everybody(population, "collecting")
        self._table, records, self._first, self._width = table_for(
            options.dataset, population, data
        )
        self.plan = self.planned(self._table)
        self.individual = any(part.hashed for parts in self.plan for part in parts)
        self.modules = ("collect",)
        # Whichever part a client of a class gives, it pays at most for the dearest.
        dearest = [
            max((part.design for part in parts), key=lambda design: design.cost)
            for parts in self.plan
        ]
        self.designs = [
            replace(design, epsilon=design.cost, what="attribute") for design in dearest
        ]
        self.rounds = population.schedule.rounds if population.schedule else 1
        self.times = self.rounds or 1
        self.holdings, self.clients = None, options.clients or None
        if population.knows_records:
            there = population.clients or len(records)
            hint = f"ask for --clients {there} or fewer"
            population.require_enough(self.clients, there, " to report", hint)
            if not population.schedule:
                self.clients = self.clients or min(
                    there, population.clients or population.most or there
                )
            self.holdings = Holdings(
                records, np.random.default_rng(options.seed).permutation(len(records))
            )
        self.reports = (
            None if self.clients is None or self.rounds is None else self.clients * self.rounds
        )
        self.counts = [[np.zeros(part.shape, np.int64) for part in parts] for parts in self.plan]
        self._reports = [[0] * len(parts) for parts in self.plan]
        self._most = 0  # reports of a round
        self._round = 0

    def planned(self, table: Table) -> list[list[Part]]:
        """The parts of the clients of each class: see `plan`."""
        return plan(self.options, table)

    @property
    def done(self) -> bool:
        return self.rounds is not None and self._round >= self.rounds

    def cohorts(self, devices: Sequence[int] | Devices) -> list[Cohort]:
        cohorts: list[Cohort] = []
        for i, _, members in by_class(self.designs, devices[: self.clients], self.options.seed):
            columns = np.array([len(part.columns) for part in self.plan[i]])
            shares = (columns / columns.sum()).tolist()
            # Anew in each round, and apart from what a client's class is.
            which = class_of(members, shares, self.options.seed + ((self._round + 1) << 32))
            for j, part in enumerate(self.plan[i]):
                if np.any(which == j):
                    cohorts.append((part.question(self._width, self._first), members[which == j]))
        return cohorts

    def learn(self, result: RoundResult, devices: Sequence[int] | Devices) -> None:
        places = {
            _key(part.question(self._width, self._first)): (i, j)
            for i, parts in enumerate(self.plan)
            for j, part in enumerate(parts)
        }
        for cohort in result.cohorts:
            i, j = places[_key(cohort.question)]
            self.counts[i][j] += self._counted(self.plan[i][j], cohort, result.number)
            self._reports[i][j] += cohort.reports
        self._most = max(self._most, result.reports)
        self._round += 1

    @staticmethod
    def _counted(part: Part, cohort: CohortCounts, number: int) -> Counts:
        if not part.hashed:
            return cohort.counts
        if cohort.supports is not None:  # somebody else has counted it
            return cohort.supports[None]
        if cohort.answers is None:  # nobody has answered
            return np.zeros(part.shape, np.int64)
        devices, symbols = cohort.answers.devices, cohort.answers.symbols[:, 0]
        return estimate.supports(devices, symbols, number, cohort.card.symbols, part.categories)[
            None
        ]

    def state(self) -> dict[str, Any]:
        counts = [[counts.tolist() for counts in of_class] for of_class in self.counts]
        return {
            "round": self._round,
            "reports": self._reports,
            "most": self._most,
            "counts": counts,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self._round, self._most = int(state["round"]), int(state["most"])
        self._reports = [list(of_class) for of_class in state["reports"]]
        self.counts = [
            [np.array(counts, np.int64) for counts in of_class] for of_class in state["counts"]
        ]

    @cached_property
    def _held(self) -> npt.NDArray[np.int64] | None:
        """The number of clients that hold each record; None where the host does not know."""
        if self.holdings is None or self.clients is None:
            return None
        order = self.holdings.order
        whole, rest = divmod(self.clients, len(order))
        held = np.full(len(order), whole)
        held[order[:rest]] += 1
        return held

    def result(self, history: Sequence[dict[str, Any]]) -> dict[str, Any]:
        entries = [*self._numeric(), *self.categorical_entries()]
        parts = zip(itertools.chain(*self.plan), itertools.chain(*self._reports), strict=True)
        result = {
            "dataset": self.options.dataset,
            "method": self.options.method,
            "clients": self._most,
            **squared_errors(entries),
            "attributes": entries,
            "parts": [self._part(part, reports) for part, reports in parts],
        }
        least = min(part.design.tau or 1.0 for parts in self.plan for part in parts)
        if least < 1:
            result["clipped_at"] = least
        return result

    def _part(self, part: Part, reports: int) -> dict[str, Any]:
        design = part.design
        cost = {
            "k": design.k,
            "share": design.share,
            "tau": design.tau,
            "epsilon": design.cost / MICRO,
        }
        summary = report_summary(design, part.question(self._width, self._first))
        return {"name": part.name, "d": len(part.columns), **cost, **summary, "reports": reports}

    def _about(self, column: int) -> list[tuple[Card, Counts, int | None]]:
        """The reports of an attribute by class: card, counts, and how many reports there are where
        they are hashed.
        """
        return [
            (part.design.card, counts[part.columns.index(column)], reports if part.hashed else None)
            for of_class in zip(self.plan, self.counts, self._reports, strict=True)
            for part, counts, reports in zip(*of_class, strict=True)
            if column in part.columns
        ]

    def numeric_counts(self) -> list[tuple[Card, Counts]]:
        """The card of each class for numbers, and its counts (attributes x symbols)."""
        classes = zip(self.plan, self.counts, strict=True)
        return [(parts[0].design.card, counts[0]) for parts, counts in classes]

    def means(self) -> tuple[Floats, Sequence[Interval | None]]:
        """The estimated mean of each number, nan where nobody reported it, and its interval."""
        taus = [parts[0].design.tau or 1.0 for parts in self.plan]
        combined = estimate.combine(self.numeric_counts(), tau=taus)
        return combined.mean, _bounds(combined)

    def _numeric(self) -> list[dict[str, Any]]:
        if not self._table.numeric_names:
            return []
        means, bounds = self.means()
        reports = np.sum([counts.sum(axis=1) for _, counts in self.numeric_counts()], axis=0)
        entries = []
        for j, name in enumerate(self._table.numeric_names):
            if not np.isfinite(means[j]):
                continue  # nobody reported it
            entry = {
                "name": name,
                "mean": float(means[j]),
                "interval": bounds[j],
                "reports": int(reports[j]),
            }
            if self._held is not None and self.holdings is not None:
                entry["true"] = float(
                    self.holdings.records[:, j] @ self._held / self._held.sum() / ONE
                )
            entries.append(entry)
        return entries

    def categorical_entries(self) -> list[dict[str, Any]]:
        """An entry of the result for each attribute of categories."""
        entries = []
        names = zip(self._table.categorical_names, self._table.categories, strict=True)
        for column, (name, values) in enumerate(names, len(self._table.numeric_names)):
            shares = estimate.combine_frequencies(self._about(column))
            entry: dict[str, Any] = {
                "name": name,
                "categories": list(values),
                "reports": int(shares.reports[0]),
                "frequencies": [
                    float(share) if np.isfinite(share) else None for share in shares.mean
                ],
                "intervals": _bounds(shares) if shares.reports[0] else None,
            }
            if self._held is not None and self.holdings is not None:
                held = np.bincount(self.holdings.records[:, column], self._held, len(values))
                entry["true"] = (held / self._held.sum()).tolist()
            entries.append(entry)
        return entries

    @classmethod
    def summary(cls, result: Mapping[str, Any]) -> list[str]:
        asked = f"{counted(result['reports'], 'report')} of {counted(result['clients'], 'client')}"
        asked += f" in {result['seconds']:.1f} s"
        return [*attribute_lines(result), asked, *stated(result), *error_lines(result)]


def _bounds(estimates: estimate.Estimate) -> list[Interval | None]:
    """The intervals of estimates, None where there is none."""
    return [
        [float(low), float(high)] if np.isfinite(low) and np.isfinite(high) else None
        for low, high in zip(estimates.low, estimates.high, strict=True)
    ]


def squared_errors(entries: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """The mean squared errors of the attributes of a result whose true values are known, means and
    frequencies.
    """
    known = [entry for entry in entries if "true" in entry]
    means = [(entry["mean"] - entry["true"]) ** 2 for entry in known if "mean" in entry]
    told = [
        np.subtract(entry["frequencies"], entry["true"])
        for entry in known
        if entry.get("intervals")
    ]
    shares = [np.mean(np.square(errors)) for errors in told]
    return {
        "mean_squared_error": float(np.mean(means)) if means else None,
        "frequency_squared_error": float(np.mean(shares)) if shares else None,
    }


def error_lines(result: Mapping[str, Any]) -> list[str]:
    """The squared errors of a result, for people."""
    kinds = {"mean_squared_error": "means", "frequency_squared_error": "frequencies"}
    known = [(what, result[name]) for name, what in kinds.items() if result.get(name) is not None]
    return [f"mean squared error of the {what} {error:.3g}" for what, error in known]


def attribute_lines(result: Mapping[str, Any]) -> list[str]:
    """The attributes of a result, for people."""
    entries = result["attributes"]
    numeric = any("mean" in entry for entry in entries)
    lines = ["means are scaled: -1 and 1 are the bounds of an attribute's public range"] * numeric
    if tau := result.get("clipped_at"):
        lines.append(
            f"numbers beyond a class's safe range, from {tau:g}, are clipped; intervals do not cover that"
        )
    more = len(entries) - _SHOWN
    return lines + [_line(entry) for entry in entries[:_SHOWN]] + [f"and {more} more"] * (more > 0)


def _line(entry: Mapping[str, Any]) -> str:
    if "frequencies" in entry:
        shares = zip(entry["frequencies"], range(len(entry["frequencies"])), strict=True)
        reported = sorted((one for one in shares if one[0] is not None), reverse=True)
        words = [f"{entry['categories'][i]} {share:.3f}" for share, i in reported]
        more = len(words) - _COMMON
        return f"{entry['name']}: " + ", ".join(words[:_COMMON] + [f"{more} more"] * (more > 0))
    line = f"{entry['name']}: {entry['mean']:+.3f}"
    if entry["interval"]:
        line += f"  (95 % interval {entry['interval'][0]:+.3f} to {entry['interval'][1]:+.3f})"
    return line + (f"  true mean {entry['true']:+.3f}" if "true" in entry else "")
