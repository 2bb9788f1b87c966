"""Means and frequencies of what the clients of a fleet hold, by Algorithm 6 or by HierA.

Algorithm 6 (Zhao et al., IEEE IoT J. 8, 2021): every client reports k of its attributes, chosen at random, each at
epsilon / k: numeric ones through a card, categorical ones by generalised randomised response, a question for each size
of domain; each kind has its share of the budget. Where the paper scales a sum by d / k, the means here divide by the
number of reports that an attribute really had. HierA (levels.py): every client reports level and sign of one attribute.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tern import card as cards
from tern import wire
from tern.fixed import ONE
from ternhost import datasets, mechanisms
from ternhost.aggregate import estimate
from ternhost.aggregate.batches import packed_size
from ternhost.aggregate.questions import Question, report_bytes, request_bytes
from ternhost.aggregate.rounds import Counts, RoundResult
from ternhost.algorithms import levels
from ternhost.algorithms.base import Algorithm, Audience, Cohort, Devices, ask_everybody
from ternhost.algorithms.designs import (
    CARD_ALTERNATIVES,
    K_RULE_HELP,
    K_RULES,
    PRIVACY,
    Mechanised,
    ReportDesign,
    coordinates_by_rule,
)
from ternhost.algorithms.hiera import LevelOptions
from ternhost.datasets import Fixed, Holdings, Table
from ternhost.datasets.base import CONSTANT
from ternhost.errors import UsageError
from ternhost.mechanisms.accounting import Release
from ternhost.mechanisms.base import MICRO, parse_epsilon
from ternhost.options import flag, option, require

ALGORITHM6 = "algorithm6"
HIERA = "hiera"
METHODS = (ALGORITHM6, HIERA)
TABLES = {"ipums": datasets.ipums.ipums}  # with categorical attributes; of the others, the features

_WHAT = "what to collect"
_SHOWN = 12  # attributes, for people
# What only one of the methods knows.
KNOWN_BY = {
    HIERA: ("budgets", "mu"),
    ALGORITHM6: ("mechanism", "levels", "card", "k", "k_rule", "mechanism_options"),
}


@dataclass(frozen=True)
class Options(Mechanised, LevelOptions):
    """Options of collecting."""

    dataset: str = option(
        "flights",
        f"what the clients hold: {', '.join(datasets.DATASETS)}; or NAME:PATH for one that is a file",
        group=_WHAT,
        metavar="D",
    )
    clients: int = option(
        0, "clients that report", group=_WHAT, kind=int, metavar="N", shown="all, on boards made for it 1000"
    )
    seed: int = option(1, "deals the records", group=_WHAT, kind=int, metavar="S")
    method: str = option(ALGORITHM6, "how", group=PRIVACY, choices=METHODS)
    k_rule: str = option("wide", K_RULE_HELP, group=PRIVACY, choices=K_RULES)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.method not in METHODS:
            raise UsageError(f"there is no method {self.method!r}", hint=f"one of: {', '.join(METHODS)}")
        require(self.clients >= 0, "clients", "0 (all) or more", self.clients)
        require(self.seed >= 0, "seed", "0 or more", self.seed)


@dataclass(frozen=True)
class Part:
    """Attributes that one question asks for: their columns in a record, and the report of them of each class."""

    name: str
    columns: tuple[int, ...]
    designs: tuple[ReportDesign, ...]
    categories: bool = False

    def question(self, of_class: int, width: int, first: int = 0) -> Question:
        """For records of so many features, the columns counted from the `first` of them."""
        chosen = [int(column - first in self.columns) for column in range(width)]
        model = wire.CATEGORIES if self.categories else wire.VALUES
        design = self.designs[of_class]
        return Question(model, chosen, 0, design.card.data, design.k)


def load(name: str) -> tuple[Table, int]:
    """The attributes of a data set: those of its table if it has one, else its features but for the constant.

    Also how many features are before them in the records that `tern up --dataset` makes: the constant one, or none.
    """
    kind, _, path = name.partition(":")
    if kind in TABLES:
        return TABLES[kind](Path(path).expanduser() if path else None), 0
    dataset = datasets.load(name)
    first = int(dataset.feature_names[0] == CONSTANT)
    return Table(dataset.name, dataset.feature_names[first:], dataset.features[:, first:]), first


def records_of(table: Table) -> Fixed:
    """As devices hold them: the attributes, and a label that nobody asks for."""
    columns: list[npt.NDArray[np.int16]] = [table.numeric]
    if table.codes is not None:
        columns.append(table.codes)
    return np.concatenate([*columns, np.zeros((len(table.numeric), 1), np.int16)], axis=1)


def plan(options: Options, table: Table) -> list[Part]:
    """The questions of a run, whose costs add up to no more than epsilon for each class. Raises UsageError."""
    numeric = len(table.numeric_names)
    if options.method == HIERA:
        return [Part("numeric", tuple(range(numeric)), tuple(options.level_designs()))]
    groups: dict[int, list[int]] = {}
    for j, values in enumerate(table.categories):
        groups.setdefault(len(values), []).append(numeric + j)
    d = numeric + len(table.categories)
    if d < 1:
        raise UsageError("there is no attribute to collect")
    classes = [(parse_epsilon(epsilon), share) for epsilon, share in options.classes()]
    parts = []
    if numeric:
        designs = [_numeric(options, epsilon * numeric // d, numeric, share) for epsilon, share in classes]
        parts.append(Part("numeric", tuple(range(numeric)), tuple(designs)))
    for size, columns in sorted(groups.items()):
        designs = [
            _categorical(options, epsilon * len(columns) // d, size, len(columns), share)
            for epsilon, share in classes
        ]
        parts.append(Part(f"of {size} categories", tuple(columns), tuple(designs), True))
    return parts


def _numeric(options: Options, epsilon: int, d: int, share: float) -> ReportDesign:
    text = f"{epsilon / MICRO:.6f}"
    return options.design(text, options.k_of([(text, share)], d), share=share)


def _categorical(options: Options, epsilon: int, size: int, d: int, share: float) -> ReportDesign:
    if not 2 <= size <= cards.MAX_SYMBOLS:
        raise UsageError(f"a categorical attribute has 2 to {cards.MAX_SYMBOLS} categories, not {size}")
    k = coordinates_by_rule(options.k_rule, epsilon, d)
    card = mechanisms.design("grr", levels=size, epsilon_micro=epsilon // k).decode()
    return ReportDesign(card, k, 0.0, "grr", epsilon, share)


class Collect(Algorithm):
    """Asks every client each part once, or a fleet that is served over and over."""

    name = "collect"
    command = "collect"
    alternatives = (*CARD_ALTERNATIVES, ("epsilons", "epsilon"))
    Options = Options

    @classmethod
    def check_named(cls, named: Mapping[str, Any]) -> None:
        super().check_named(named)
        for method, names in KNOWN_BY.items():
            other = [name for name in names if name in named]
            if other and method != named.get("method", ALGORITHM6):
                raise UsageError(f"{flag(other[0])} belongs to {method}", hint=f"say --method {method}")

    def __init__(self, options: Any, audience: Audience, data: Table | None = None) -> None:
        """data: what the clients hold, in the place of the data set that the options name."""
        self.options = options
        ask_everybody(audience, "collecting")
        self._table, first = load(options.dataset) if data is None else (data, 0)
        # Boards that were provisioned with the data set hold its constant, too; nobody asks for that.
        self._first = 0 if audience.knows_records else first
        records = records_of(self._table)
        self._width = self._first + records.shape[1] - 1
        if self._width > wire.MAX_DIMENSION:
            raise UsageError(
                f"{self._table.name} has {self._width} attributes; a device holds at most {wire.MAX_DIMENSION}"
            )
        self.parts_asked = plan(options, self._table)
        self.designs = list(self.parts_asked[0].designs)
        repeats = (audience.standing.rounds or None) if audience.standing else 1
        self.times = repeats or 1
        self.rounds = None if repeats is None else repeats * len(self.parts_asked)
        self.holdings, self.clients = None, options.clients or None
        if audience.knows_records:
            there = audience.clients or len(records)
            if (self.clients or 0) > there:
                raise UsageError(
                    f"there are {there:,} clients to report, not {self.clients:,}",
                    hint=f"ask for --clients {there} or fewer",
                )
            if not audience.standing:
                self.clients = self.clients or min(there, audience.clients or audience.most or there)
            self.holdings = Holdings(records, np.random.default_rng(options.seed).permutation(len(records)))
        self.reports = None
        if self.clients is not None and self.rounds is not None:
            self.reports = self.clients * self.rounds
        self.counts: list[list[Counts]] = [  # of each part, of each class
            [np.zeros((len(part.columns), design.card.symbols), np.int64) for design in part.designs]
            for part in self.parts_asked
        ]
        self._reported = [0] * len(self.parts_asked)
        self._most = 0  # reports of a round
        self._round = 0

    @property
    def modules(self) -> tuple[str, ...]:
        return ("collect", "lhp") if self.options.method == HIERA else ("collect",)

    @property
    def done(self) -> bool:
        return self.rounds is not None and self._round >= self.rounds

    def cohorts(self, devices: Sequence[int] | Devices) -> list[Cohort]:
        part = self.parts_asked[self._round % len(self.parts_asked)]
        asked = devices[: self.clients]
        return [(part.question(i, self._width, self._first), own) for i, _, own in self.parts(asked)]

    def learn(self, result: RoundResult, devices: Sequence[int] | Devices) -> None:
        which = self._round % len(self.parts_asked)
        part = self.parts_asked[which]
        for cohort in result.cohorts:
            i = next(j for j, own in enumerate(part.designs) if own.card.data == cohort.card.data)
            self.counts[which][i] = self.counts[which][i] + cohort.counts
        self._reported[which] += result.reports
        self._most = max(self._most, result.reports)
        self._round += 1

    def state(self) -> dict[str, Any]:
        return {
            "round": self._round,
            "reported": list(self._reported),
            "most": self._most,
            "counts": [[counts.tolist() for counts in part] for part in self.counts],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self._round, self._reported = int(state["round"]), list(state["reported"])
        self._most = int(state["most"])
        self.counts = [[np.array(counts, np.int64) for counts in part] for part in state["counts"]]

    def releases(self, of_class: int) -> list[Release]:
        return [
            Release(part.name, part.designs[of_class].card.epsilon, part.designs[of_class].k, self.times)
            for part in self.parts_asked
        ]

    def times_of(self, asked: int) -> int:
        return -(-asked // len(self.parts_asked))

    def largest(self, of_class: int) -> int:
        return max(part.designs[of_class].cost for part in self.parts_asked)

    # Results

    @cached_property
    def _held(self) -> npt.NDArray[np.int64]:
        """How many clients hold each record."""
        assert self.holdings is not None
        assert self.clients is not None
        order = self.holdings.order
        whole, rest = divmod(self.clients, len(order))
        held = np.full(len(order), whole)
        held[order[:rest]] += 1
        return held

    def result(self, history: Sequence[dict[str, Any]]) -> dict[str, Any]:
        known = self.holdings is not None and self.clients is not None
        attributes: list[dict[str, Any]] = []
        for part, counts in zip(self.parts_asked, self.counts, strict=True):
            describe = self._categorical if part.categories else self._numeric
            attributes += describe(part, counts, known)
        errors = [entry["mean"] - entry["true"] for entry in attributes if known and "mean" in entry]
        result = {
            "dataset": self.options.dataset,
            "method": self.options.method,
            "clients": self._most,
            "mean_squared_error": float(np.mean(np.square(errors))) if errors else None,
            "attributes": attributes,
            "parts": [
                entry
                for part, counts in zip(self.parts_asked, self.counts, strict=True)
                for entry in self._part(part, counts)
            ],
            "epsilon_per_client": max(self.costs()) / MICRO,
        }
        if self.options.method == HIERA:  # what the paper would say
            stated = max(levels.of_card(design.card).epsilon_stated for design in self.designs)
            result["epsilon_stated"] = stated / MICRO
        return result

    def _part(self, part: Part, counts: Sequence[Counts]) -> list[dict[str, Any]]:
        return [
            {
                "name": part.name,
                "d": len(part.columns),
                "k": design.k,
                "share": design.share,
                "epsilon": design.cost / MICRO,
                "card": design.card.data.hex(),
                "card_hash": cards.card_hash(design.card.data).hex(),
                "mechanism": design.mechanism,
                "bytes_per_report": report_bytes(packed_size(design.card.symbols, design.k)),
                "bytes_per_request": request_bytes(part.question(i, self._width, self._first)),
                "reports": int(counts[i].sum()) // design.k,
            }
            for i, design in enumerate(part.designs)
        ]

    def _numeric(self, part: Part, counts: Sequence[Counts], known: bool) -> list[dict[str, Any]]:
        bounds: list[Any]
        if self.options.method == HIERA:
            found = [
                (levels.of_card(design.card), own) for design, own in zip(part.designs, counts, strict=True)
            ]
            means = levels.combine(found, self.options.mu, seed=self.options.seed)
            bounds = [None] * len(means)
        else:
            combined = estimate.combine(
                [(design.card, own) for design, own in zip(part.designs, counts, strict=True)]
            )
            means = combined.mean
            bounds = [
                [float(low), float(high)] for low, high in zip(combined.low, combined.high, strict=True)
            ]
        reports = np.sum([own.sum(axis=1) for own in counts], axis=0)
        entries = []
        for j, column in enumerate(part.columns):
            if not np.isfinite(means[j]):
                continue  # nobody reported it
            entry: dict[str, Any] = {
                "name": self._table.numeric_names[column],
                "mean": float(means[j]),
                "interval": bounds[j] if bounds[j] is None or np.isfinite(bounds[j]).all() else None,
                "reports": int(reports[j]),
            }
            if known:
                assert self.holdings is not None
                assert self.clients is not None
                held = self.holdings.records[:, column] @ self._held
                entry["true"] = float(held / self.clients / ONE)
            entries.append(entry)
        return entries

    def _categorical(self, part: Part, counts: Sequence[Counts], known: bool) -> list[dict[str, Any]]:
        entries = []
        for j, column in enumerate(part.columns):
            k = column - len(self._table.numeric_names)
            found = [(design.card, own[j]) for design, own in zip(part.designs, counts, strict=True)]
            entry: dict[str, Any] = {
                "name": self._table.categorical_names[k],
                "categories": list(self._table.categories[k]),
                "frequencies": [
                    float(share) if np.isfinite(share) else None
                    for share in estimate.combine_frequencies(found)
                ],
                "reports": int(sum(own.sum() for _, own in found)),
            }
            if known:
                assert self.holdings is not None
                assert self.clients is not None
                column_values = self.holdings.records[:, column]
                held = np.bincount(column_values, self._held, len(entry["categories"]))
                entry["true"] = (held / self.clients).tolist()
            entries.append(entry)
        return entries

    @classmethod
    def summary(cls, result: Mapping[str, Any]) -> list[str]:
        lines = [_line(entry) for entry in result["attributes"][:_SHOWN]]
        if (more := len(result["attributes"]) - _SHOWN) > 0:
            lines.append(f"and {more} more")
        lines.append(
            f"{result['reports']:,} reports of {result['clients']:,} clients in {result['seconds']:.1f} s; "
            f"epsilon {result['epsilon_per_client']:g} a client"
            + (f" (the paper would say {result['epsilon_stated']:g})" if "epsilon_stated" in result else "")
        )
        if result["mean_squared_error"] is not None:
            lines.append(f"mean squared error of the means {result['mean_squared_error']:.3g}")
        return lines

    @classmethod
    def page(cls, result: Mapping[str, Any]) -> Any:
        from ternhost.report.collecting import page

        return page(result)


def _line(entry: Mapping[str, Any]) -> str:
    if "frequencies" in entry:
        named = zip(entry["categories"], entry["frequencies"], strict=True)
        found = ", ".join(f"{name} {share:.3f}" for name, share in named if share is not None)
        return f"{entry['name']}: {found}"
    line = f"{entry['name']}: {entry['mean']:+.3f}"
    if entry["interval"]:
        line += f"  (95 % interval {entry['interval'][0]:+.3f} to {entry['interval'][1]:+.3f})"
    return line + (f"  truly {entry['true']:+.3f}" if "true" in entry else "")
