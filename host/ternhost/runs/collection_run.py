"""`tern collect`: means and frequencies of what the clients of a fleet hold, by Algorithm 6 or by HierA.

Algorithm 6 (collection.py): every client reports k of its attributes, numeric ones through a card, categorical ones by
randomised response, a question for each size of domain; each kind has its share of the budget. HierA (hiera.py): every
client reports level and sign of one attribute.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tern import card as cards
from tern import wire
from tern.fixed import ONE
from ternhost.runs import asking
from ternhost.algorithms import collection, levels as hiera
from ternhost import datasets, fleet
from ternhost.aggregate import estimate
from ternhost.mechanisms.accounting import Account, Release
from ternhost.aggregate.aggregator import Counts, Question, report_bytes, request_bytes
from ternhost.runs.asking import Asking, Terms
from ternhost.aggregate.batches import packed_size
from ternhost.datasets import Fixed, Table
from ternhost.datasets.base import CONSTANT
from ternhost.errors import UsageError
from ternhost.fleet.provision import Policy, epsilon_spent
from ternhost.drivers.simulated import SimulatedFleet
from ternhost.mechanisms.base import MICRO, parse_epsilon
from ternhost.runs.directory import board_directories
from ternhost.runs.session import K_RULES, Watcher, provision_fleet
from ternhost.aggregate.store import Store

ALGORITHM6 = "algorithm6"
HIERA = "hiera"
METHODS = (ALGORITHM6, HIERA)
TABLES = {"ipums": datasets.ipums.ipums}  # with categorical attributes; of the others, the features

_COMMAND = "collect"
_CLIENTS = 1000  # by default, where boards have to be made for them
_EXPONENT = -12
_AT_ONCE = 1 << 20  # simulated clients


@dataclass(frozen=True)
class Options:
    """What was asked for. `epsilon` is that of all that a client reports; clients 0: as many as the fleet or the data
    set has, on emulated boards at most 1000.
    """

    dataset: str = "flights"
    method: str = ALGORITHM6
    mechanism: str = "three-outputs"
    epsilon: str = "2"
    levels: int | None = None
    k: int | None = None
    k_rule: str = "wide"
    budgets: str = "5,4,3,2,1"  # of HierA, in these proportions
    mu: float = 0.0
    clients: int = 0
    fleet: str = "emulated:2"
    seed: int = 1
    deadline: float | None = 120.0
    quorum: float = 1.0
    first_round: int | None = None

    def __post_init__(self) -> None:
        parse_epsilon(self.epsilon)
        fleet.parse(self.fleet)
        if self.method not in METHODS:
            raise UsageError(f"there is no method {self.method!r}", hint=f"one of: {', '.join(METHODS)}")
        if self.k_rule not in K_RULES:
            raise UsageError(f"there is no rule {self.k_rule!r} for k", hint=f"one of: {', '.join(K_RULES)}")
        if not 0 <= self.mu <= 1:
            raise UsageError(f"a share mu of {self.mu} cannot be", hint="give 0 to 1")
        if self.clients < 0 or self.seed < 0:
            raise UsageError("a number of clients and a seed are 0 or more")
        if not 0 < self.quorum <= 1 or (self.deadline is not None and not 0 < self.deadline <= 0xFFFF):
            raise UsageError("a quorum is a share above 0, a deadline 1 to 65535 s")


@dataclass(frozen=True)
class Part:
    """Attributes that one question asks for: their columns in a record, the card of each of k reported values."""

    name: str
    columns: tuple[int, ...]
    k: int
    card: cards.Card
    categories: bool = False

    @property
    def cost(self) -> int:
        """Micro-epsilon, to a client."""
        epsilon: int = self.card.epsilon
        return self.k * epsilon

    def question(self, width: int, first: int = 0) -> Question:
        """For records of so many features, the columns counted from the `first` of them."""
        chosen = [int(column - first in self.columns) for column in range(width)]
        model = wire.CATEGORIES if self.categories else wire.VALUES
        return Question(model, chosen, _EXPONENT, self.card.data, self.k)


def load(name: str) -> Table:
    """The attributes of a data set: those of its table if it has one, else its features but for the constant."""
    return _load(name)[0]


def _load(name: str) -> tuple[Table, int]:
    # And how many features are before them in the records that `tern up --dataset` makes: the constant one, or none.
    kind, _, path = name.partition(":")
    if kind in TABLES:
        return TABLES[kind](Path(path).expanduser() if path else None), 0
    dataset = datasets.load(name)
    first = int(dataset.feature_names[0] == CONSTANT)
    return Table(dataset.name, dataset.feature_names[first:], dataset.features[:, first:]), first


def plan(options: Options, table: Table) -> list[Part]:
    """The questions of a run, whose costs add up to no more than epsilon. Raises UsageError."""
    epsilon = parse_epsilon(options.epsilon)
    numeric = len(table.numeric_names)
    if options.method == HIERA:
        levels = _levels(options)
        return [Part("numeric", tuple(range(numeric)), 1, levels.card)]
    groups: dict[int, list[int]] = {}
    for j, values in enumerate(table.categories):
        groups.setdefault(len(values), []).append(numeric + j)
    d = numeric + len(table.categories)
    parts = []
    if numeric:
        made = collection.plan(
            epsilon * numeric // d,
            numeric,
            mechanism=options.mechanism,
            k_rule=options.k_rule,
            k=options.k,
            levels=options.levels,
        ).numeric
        assert made is not None
        parts.append(Part("numeric", tuple(range(numeric)), made.k, made.card))
    for size, columns in sorted(groups.items()):
        share = epsilon * len(columns) // d
        grr = collection.plan(share, 0, [size] * len(columns), k_rule=options.k_rule).categorical
        assert grr is not None
        parts.append(Part(f"of {size} categories", tuple(columns), grr.k, grr.cards[0], True))
    return parts


def _levels(options: Options) -> hiera.Levels:
    return hiera.design(parse_epsilon(options.epsilon), hiera.proportions_of(options.budgets))


def begin(
    options: Options, path: str | Path, watcher: Watcher | None = None, anew: bool = False
) -> dict[str, Any]:
    """Collect, with the store at `path`; returns the result, also written to result.json.

    anew: give up a run of the store that has not finished. Raises TernError.
    """
    return asking.begin(_COMMAND, _Run, options, path, watcher, anew)


def resume(path: str | Path, watcher: Watcher | None = None, ports: str | None = None) -> dict[str, Any]:
    """Take up the run whose store is at `path` (or in that directory).

    ports: its fleet, if the boards are at other ports by now. Raises TernError.
    """
    return asking.resume(_COMMAND, _Run, Options, path, watcher, ports)


class _Run:
    def __init__(self, options: Options, directory: Path, watcher: Watcher) -> None:
        self.options = options
        self.spec = fleet.parse(options.fleet)
        self._directory = directory
        self._watcher = watcher
        self._started = time.monotonic()
        self._table, first = _load(options.dataset)
        # Boards that were provisioned with the data set hold its constant, too; nobody asks for that.
        self._first = first if self.spec.kind == "port" else 0
        records = _records(self._table)
        self._width = self._first + records.shape[1] - 1
        if self._width > wire.MAX_DIMENSION:
            raise UsageError(
                f"{options.dataset} has {self._width} attributes; a device holds at most {wire.MAX_DIMENSION}"
            )
        self.parts = plan(options, self._table)
        self.account = Account()
        self.account.charge([Release(part.name, part.card.epsilon, part.k) for part in self.parts])
        there = self.spec.count if self.spec.kind == "simulated" else len(records)
        count = options.clients or min(there, _CLIENTS if self.spec.is_emulated else there)
        if self.spec.kind != "port" and count > there:
            raise UsageError(
                f"{count} clients are to report, and there are {there}",
                hint=f"ask for --clients {there} or fewer",
            )
        if self.spec.is_emulated and self.spec.count > count:
            raise UsageError(
                f"{self.spec.count} boards for {count} clients leave boards without one",
                hint="ask for fewer boards",
            )
        self._records = records
        # Client i has the i-th of these, counted over and over.
        self._order = np.random.default_rng(options.seed).permutation(len(records))
        self._count = count

    @property
    def _boards(self) -> list[Path]:
        return board_directories(self._directory, self.spec.count)

    @property
    def _questions(self) -> list[Question]:
        return [part.question(self._width, self._first) for part in self.parts]

    def provision(self, store: Store) -> None:
        self._watcher.note(f"provisioning {self._count} clients on {self.spec.count} emulated boards")
        policy = Policy(max(part.cost for part in self.parts), self.account.user_level)
        provision_fleet(store, self._boards, self._records[self._order[: self._count]], policy)

    def simulate(self) -> list[tuple[Counts, int]]:
        self._watcher.note(self.account.words())
        simulated = SimulatedFleet(self._records, self.options.seed)
        parts = range(0, self._count, _AT_ONCE)
        found = []
        for i, question in enumerate(self._questions):
            total, reports = np.zeros((0, 0), np.int64), 0
            for j, start in enumerate(parts):
                clients = np.arange(start, min(start + _AT_ONCE, self._count)) % len(self._order)
                number = 1 + i * len(parts) + j  # other draws for every part
                (cohort,) = simulated.collect(number, [(question, self._order[clients])]).cohorts
                total, reports = cohort.counts + total if j else cohort.counts, reports + cohort.reports
            found.append((total, reports))
        return found

    @cached_property
    def _held(self) -> npt.NDArray[np.int64]:
        """How many clients hold each record."""
        whole, rest = divmod(self._count, len(self._order))
        held = np.full(len(self._order), whole)
        held[self._order[:rest]] += 1
        return held

    def ask(self, asking: Asking) -> list[tuple[Counts, int]]:
        """The count matrix of each part, and how many reported."""
        options = self.options
        asked = self._count if self.spec.is_emulated else options.clients or None
        modules = ("collect", "lhp") if options.method == HIERA else ("collect",)
        terms = Terms(options.quorum, options.deadline, options.first_round)
        answers = asking.ask(self.spec, self._boards, modules, self._questions, asked, terms, self.account)
        return [(np.array(answer.counts, np.int64), answer.reports) for answer in answers]

    def conclude(self, found: Sequence[tuple[Counts, int]]) -> dict[str, Any]:
        known = self.spec.kind != "port"  # else the host does not know what the clients hold
        attributes: list[dict[str, Any]] = []
        for part, (counts, _) in zip(self.parts, found, strict=True):
            attributes += (
                self._categorical(part, counts, known)
                if part.categories
                else self._numeric(part, counts, known)
            )
        errors = [entry["mean"] - entry["true"] for entry in attributes if known and "mean" in entry]
        result = {
            "dataset": self.options.dataset,
            "method": self.options.method,
            "clients": max(reports for _, reports in found),
            "reports": sum(reports for _, reports in found),
            "mean_squared_error": float(np.mean(np.square(errors))) if errors else None,
            "attributes": attributes,
            "parts": [
                {
                    "name": part.name,
                    "d": len(part.columns),
                    "k": part.k,
                    "epsilon": part.cost / MICRO,
                    "card": part.card.data.hex(),
                    "card_hash": cards.card_hash(part.card.data).hex(),
                    "bytes_per_report": report_bytes(packed_size(part.card.symbols, part.k)),
                    "bytes_per_request": request_bytes(question),
                    "reports": reports,
                }
                for part, question, (_, reports) in zip(self.parts, self._questions, found, strict=True)
            ],
            "epsilon_per_client": self.account.user_level / MICRO,
            "epsilon_spent": epsilon_spent(self._boards) if self.spec.is_emulated else [],
            "accounting": self.account.summary(),
            "seconds": round(time.monotonic() - self._started, 3),
            "options": asdict(self.options),
            "directory": str(self._directory),
        }
        if self.options.method == HIERA:
            result["epsilon_stated"] = (
                _levels(self.options).epsilon_stated / MICRO
            )  # what the paper would say
        return result

    def _numeric(self, part: Part, counts: Counts, known: bool) -> list[dict[str, Any]]:
        if self.options.method == HIERA:
            levels = _levels(self.options)
            matrix = counts.reshape(len(counts), levels.count, 2)
            means = hiera.estimate(levels, matrix, self.options.mu, seed=self.options.seed)
            bounds: list[Any] = [None] * len(means)
        else:
            found = estimate.estimate(part.card, counts)
            means = found.mean
            bounds = [[float(low), float(high)] for low, high in zip(found.low, found.high, strict=True)]
        entries = []
        for j, column in enumerate(part.columns):
            entry: dict[str, Any] = {
                "name": self._table.numeric_names[column],
                "mean": _finite(means[j]),
                "interval": bounds[j] if bounds[j] is None or np.isfinite(bounds[j]).all() else None,
                "reports": int(counts[j].sum()),
            }
            if known:
                entry["true"] = float(self._records[:, column] @ self._held / self._count / ONE)
            entries.append(entry)
        return [entry for entry in entries if entry["mean"] is not None]

    def _categorical(self, part: Part, counts: Counts, known: bool) -> list[dict[str, Any]]:
        entries = []
        for j, column in enumerate(part.columns):
            k = column - len(self._table.numeric_names)
            entry: dict[str, Any] = {
                "name": self._table.categorical_names[k],
                "categories": list(self._table.categories[k]),
                "frequencies": [_finite(share) for share in estimate.frequencies(part.card, counts[j])],
                "reports": int(counts[j].sum()),
            }
            if known:
                held = np.bincount(self._records[:, column], self._held, part.card.symbols)
                entry["true"] = (held / self._count).tolist()
            entries.append(entry)
        return entries


def _finite(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None


def _records(table: Table) -> Fixed:
    """As devices hold them: the attributes, and a label that nobody asks for."""
    columns: list[npt.NDArray[np.int16]] = [table.numeric]
    if table.codes is not None:
        columns.append(table.codes)
    return np.concatenate([*columns, np.zeros((len(table.numeric), 1), np.int16)], axis=1)
