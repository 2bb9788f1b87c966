"""What an algorithm is: what it asks of devices round by round, and what it learns from the counts that come back.

An algorithm is pure: no clock, no input or output. Its state fits in a small JSON object, so that a run can stop at any
line and go on. Devices fall into classes, each with a card of its own: those are the cohorts of a round.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tern import card as cards
from tern.fixed import MAX_EPSILON
from ternhost import mechanisms
from ternhost.aggregate.aggregator import Question, RoundResult, report_bytes, request_bytes
from ternhost.datasets import Holdings, Indices
from ternhost.errors import UsageError
from ternhost.mechanisms import certify
from ternhost.mechanisms.accounting import Account, Policy, Release
from ternhost.mechanisms.base import MICRO, parse_epsilon, single_valued
from ternhost.options import exclude, option
from ternhost.registry import Registry

Floats = npt.NDArray[np.float64]
Devices = npt.NDArray[np.int64]

# How many of d coordinates a device reports, each at epsilon / k. "wide" loses least at the worst value, and is the
# default for collecting means; gradients are mostly near 0, where fewer coordinates are better, so that
# training defaults to "paper" (`tern experiment coordinates` measures both).
K_RULES = ("wide", "paper")
K_RULE_HELP = (
    "how K follows from epsilon: paper, floor(epsilon / 2.5), is better for gradients, which are mostly near 0; "
    "wide, floor(epsilon / 2.5 + 0.6), is better where many values are near 1 or -1"
)

PRIVACY = "privacy"


def coordinates_by_rule(rule: str, epsilon: int, d: int) -> int:
    """k for an epsilon in micro-epsilon: floor(epsilon / 2.5 + 0.6), or the paper's floor(epsilon / 2.5), in 1..d."""
    if rule not in K_RULES:
        raise UsageError(f"there is no rule {rule!r} for k", hint=f"one of: {', '.join(K_RULES)}")
    return max(1, min(d, (epsilon + (1_500_000 if rule == "wide" else 0)) // 2_500_000))


# Options


@dataclass(frozen=True)
class Budgeted:
    """Options of everything that devices report: the epsilon of a report, of all devices or of classes of them."""

    epsilon: str = option("2", "epsilon of all that a device reports at a time", group=PRIVACY, metavar="E")
    epsilons: str | None = option(
        None,
        "epsilon of each class of devices, with its share of them: personalised budgets",
        group=PRIVACY,
        metavar="E:SHARE,...",
    )

    def classes(self) -> list[tuple[str, float]]:
        """(epsilon, share of the devices) of each class. Raises UsageError."""
        return [(self.epsilon, 1.0)] if self.epsilons is None else shares(self.epsilons)

    def __post_init__(self) -> None:
        for epsilon, _ in self.classes():
            parse_epsilon(epsilon)


@dataclass(frozen=True)
class Mechanised:
    """Options of reports whose values each go through a card. `card` (hex) replaces the mechanism's."""

    mechanism: str = option(
        "three-outputs",
        "how values are perturbed: " + ", ".join(mechanisms.NAMES),
        group=PRIVACY,
        metavar="NAME",
    )
    levels: int | None = option(
        None, "how many outputs, where the mechanism has a choice", group=PRIVACY, kind=int, metavar="N"
    )
    card: str | None = option(
        None, "a card of 'tern card design' instead of a mechanism", group=PRIVACY, metavar="FILE"
    )
    k: int | None = option(
        None, "coordinates that a report gives, each at epsilon / K", group=PRIVACY, kind=int, metavar="K"
    )
    k_rule: str = option("paper", K_RULE_HELP, group=PRIVACY, choices=K_RULES)
    mechanism_options: Mapping[str, Any] | None = None  # of the mechanism alone

    def k_of(self, classes: Sequence[tuple[str, float]], d: int) -> int:
        """k of d for these classes: as named, or by the rule for the least epsilon. Raises UsageError."""
        least = min(parse_epsilon(epsilon) for epsilon, _ in classes)
        k = self.k if self.k is not None else coordinates_by_rule(self.k_rule, least, d)
        if not 1 <= k <= d:
            raise UsageError(f"--k must be 1 to {d}, the number of coordinates, not {k}")
        return k

    def design(
        self,
        epsilon: str,
        k: int,
        *,
        of_gradients: bool = False,
        share: float = 1.0,
        tau: float | None = None,
    ) -> ReportDesign:
        """The report of k values that costs at most `epsilon`, of a class of devices. Raises UsageError."""
        micro = parse_epsilon(epsilon)
        if self.card is not None:
            card, name = _given_card(self.card, k, micro), "card"
        else:
            card = mechanisms.design(
                self.mechanism,
                levels=self.levels,
                epsilon_micro=micro // k,
                use=mechanisms.GRADIENTS if of_gradients else None,
                **(self.mechanism_options or {}),
            ).decode()
            name = self.mechanism
        try:
            variance = float(certify.moments(card).variance(Fraction(0)))
        except certify.Biased as error:
            raise UsageError(f"this card cannot be averaged: {error}", hint="see 'tern card show'") from error
        return ReportDesign(card, k, variance, name, micro, share, tau)


def _given_card(text: str, k: int, epsilon: int) -> cards.Card:
    try:
        card: cards.Card = cards.decode(bytes.fromhex(text))
    except ValueError as error:
        raise UsageError(f"this is no card: {error}", hint="make one with 'tern card design'") from error
    single_valued(card, "this card")
    if k * card.epsilon > epsilon:
        raise UsageError(
            f"{k} coordinates of this card cost an epsilon of {k * card.epsilon / MICRO:g}, "
            f"more than the {epsilon / MICRO:g} of a whole report",
            hint="ask for that with --epsilon, or use a card of a smaller one",
        )
    return card


def shares(text: str) -> list[tuple[str, float]]:
    """`WHAT:SHARE,...` of the devices: (WHAT, SHARE) each, the shares made to add up to 1. Raises UsageError."""
    found = []
    for part in text.split(","):
        what, colon, share = part.strip().rpartition(":")
        try:
            found.append((what, float(share)))
        except ValueError:
            colon = ""
        if not colon or not what or not found[-1][1] > 0:
            raise UsageError(f"{part.strip()!r} is no class of devices", hint="such as 1:0.5,2:0.3,4:0.2")
    total = sum(share for _, share in found)
    if abs(total - 1) > 1e-6:
        raise UsageError(f"the shares of the devices must add up to 1, not {total:g}")
    return [(what, share / total) for what, share in found]


# Classes of devices


@dataclass(frozen=True)
class ReportDesign:
    """What a report of a class of devices is: k symbols of `card`, which may cost `epsilon` (micro); the variance
    of a value at 0; the class's share of the devices, and its safe range `tau` (None but for local training).
    """

    card: cards.Card
    k: int
    variance: float
    mechanism: str
    epsilon: int
    share: float = 1.0
    tau: float | None = None

    @property
    def cost(self) -> int:
        """What a report really costs, micro-epsilon."""
        epsilon: int = self.card.epsilon
        return self.k * epsilon

    def summary(self, times: int) -> dict[str, Any]:
        """For JSON: the class, and what `times` reports cost each of its devices."""
        return {
            "epsilon": self.epsilon / MICRO,
            "tau": self.tau,
            "share": self.share,
            "k": self.k,
            "card": self.card.data.hex(),
            "card_hash": cards.card_hash(self.card.data).hex(),
            "levels": self.card.symbols,
            "epsilon_per_report": self.cost / MICRO,
            "epsilon_per_client": self.cost * times / MICRO,
        }


def class_of(devices: npt.ArrayLike, parts: Sequence[float], seed: int) -> Indices:
    """The class of each device, in these shares: by its id and the seed alone, so that it is the same in every round
    and every run, whoever else joins. (The finaliser of SplitMix64, as a hash.)"""
    ids = np.asarray(devices, np.uint64)
    if len(parts) == 1:
        return np.zeros(len(ids), np.int64)
    with np.errstate(over="ignore"):
        mixed = ids + np.uint64(0x9E3779B97F4A7C15) * np.uint64(seed + 1)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
        mixed ^= mixed >> np.uint64(31)
    uniform = (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53
    found = np.searchsorted(np.cumsum(parts)[:-1], uniform, side="right")
    return found.astype(np.int64)


# Who is asked


def take(devices: Sequence[int] | Devices, clients: Indices) -> Devices:
    """The devices that these clients (from 0) are: of a range, without writing it out."""
    if isinstance(devices, range):
        return devices.start + clients
    found: Devices = np.asarray(devices, np.int64)[clients]
    return found


@dataclass(frozen=True)
class Standing:
    """A fleet that is served: its devices are asked round after round, a share of them at a time.

    rounds: how many until the run is done, None for no end. horizon: for how many a learning rate is chosen.
    """

    rounds: int | None = None
    horizon: int = 100
    share: float = 1.0

    def __post_init__(self) -> None:
        if (self.rounds is not None and self.rounds < 1) or self.horizon < 1 or not 0 < self.share <= 1:
            raise UsageError(
                "a served fleet needs a round or more, and a share of the devices above 0 and at most 1"
            )


@dataclass(frozen=True)
class Audience:
    """Whom an algorithm can ask: `clients`, as many as there are (None: as many as it needs), of which at most `most`
    are worth making by default. `standing`: the fleet is served. `devices`: how many there are when it begins.
    """

    clients: int | None = None
    most: int | None = None
    standing: Standing | None = None
    devices: int = 0
    knows_records: bool = True  # the host knows what they hold


def clients_of(devices: Sequence[int] | Devices, found: Devices) -> Indices:
    """Which clients (from 0) these devices are: the other way round."""
    if isinstance(devices, range):
        return found - devices.start
    order = np.argsort(devices)
    clients: Indices = order[np.searchsorted(np.asarray(devices), found, sorter=order)]
    return clients


class Turns:
    """Who takes part in each round: everybody once, in random order, before anybody again."""

    def __init__(self, clients: int, group: int, seed: int) -> None:
        self.clients = clients
        self._group = max(1, min(group, clients))
        self._rng = np.random.default_rng(seed)
        self._queue: Indices = np.empty(0, np.int64)
        self._next = 0
        self._dealt: Indices = self._queue
        self._seed = seed

    def asked(self, number: int) -> Indices:
        """The clients (from 0) of the `number`-th round (from 0). Quick where rounds are asked for in order."""
        if number < self._next - 1:
            self.__init__(self.clients, self._group, self._seed)  # type: ignore[misc]
        while self._next <= number:
            self._deal()
        return self._dealt

    def _deal(self) -> None:
        if len(self._queue) < self._group:
            rest = np.setdiff1d(np.arange(self.clients), self._queue)
            again = np.concatenate([self._rng.permutation(rest), self._rng.permutation(self._queue)])
            self._queue = np.concatenate([self._queue, again])
        self._dealt, self._queue = self._queue[: self._group], self._queue[self._group :]
        self._next += 1


def most_turns(clients: int, group: int, rounds: int) -> int:
    """How often a client takes part at most, in `rounds` rounds of `group` clients each."""
    return -(-rounds * group // clients)


# Algorithms

# A question, and the devices that it is for.
Cohort = tuple[Question, Sequence[int] | Devices]


class Algorithm:
    """The base of every algorithm.

    A subclass declares its `name`, the `command` that runs it, its `Options` (a dataclass of `option` fields), whether
    it needs each device's report by itself (`individual`), and the optional modules of the device library.
    """

    name: ClassVar[str]
    command: ClassVar[str]
    Options: ClassVar[Any]
    individual: ClassVar[bool] = False
    fleet: ClassVar[str] = "emulated:2"  # where it runs if nobody says
    alternatives: ClassVar[tuple[tuple[str, ...], ...]] = ()  # options that say the same

    options: Any
    designs: list[ReportDesign]
    rounds: int | None  # planned; None: no end
    holdings: Holdings | None  # None: the host does not know what devices hold
    clients: int | None  # that it asks altogether; None: all that there are
    reports: int | None  # planned, of all rounds
    times: int = 1  # that a client takes part at most

    @classmethod
    def check_named(cls, named: Mapping[str, Any]) -> None:
        """Raise UsageError where options were named that do not go together."""
        for names in cls.alternatives:
            exclude(named, *names)

    def __init__(self, options: Any, audience: Audience) -> None:
        """Raises UsageError for options that do not fit together, or that the audience does not fit."""
        raise NotImplementedError

    @property
    def modules(self) -> tuple[str, ...]:
        """Modules that boards need beside their client (terntools.boards.mpy.ON_DEMAND)."""
        return ()

    @property
    def done(self) -> bool:
        raise NotImplementedError

    def cohorts(self, devices: Sequence[int] | Devices) -> list[Cohort]:
        """The questions of the next round, and the devices that each is for.

        devices: of the run; client i is the i-th of them.
        """
        raise NotImplementedError

    def learn(self, result: RoundResult, devices: Sequence[int] | Devices) -> None:
        """Take the answers of that round, of which there may be none. devices: as of `cohorts`."""
        raise NotImplementedError

    def state(self) -> dict[str, Any]:
        """All that changes in a run, for JSON; `restore` takes it back exactly."""
        raise NotImplementedError

    def restore(self, state: Mapping[str, Any]) -> None:
        """Become what gave `state()`. Raises UsageError for the state of something else."""
        raise NotImplementedError

    def figures(self) -> dict[str, float]:
        """What is worth telling after every round, by name, the most important first."""
        return {}

    @property
    def weights(self) -> Floats | None:
        """The model so far, of what learns one."""
        return None

    def policies(self, devices: Devices, budget: int | None) -> list[Policy]:
        """What each device allows: its class's epsilon in one report, and `budget` (None: what the run costs)."""
        own = [
            Policy(self.largest(i), budget or max(self.largest(i), cost))
            for i, cost in enumerate(self.costs())
        ]
        return [own[i] for i in class_of(devices, [design.share for design in self.designs], self.seed)]

    def accounts(self, budget: int | None) -> list[Account]:
        """What the run costs a device of each class. Raises RefusedError beyond the budget: before it starts."""
        found = []
        for of_class in range(len(self.designs)):
            account = Account(budget)
            account.charge(self.releases(of_class))
            found.append(account)
        return found

    def releases(self, of_class: int) -> list[Release]:
        """What a device of a class tells in the run."""
        design = self.designs[of_class]
        what = "coordinates" if design.tau is None else f"weights (tau {design.tau:g})"
        return [Release(what, design.card.epsilon, design.k, self.times)]

    def costs(self) -> list[int]:
        """What the run costs a device of each class, micro-epsilon."""
        return [
            sum(release.user_level for release in self.releases(of_class))
            for of_class in range(len(self.designs))
        ]

    def largest(self, of_class: int) -> int:
        """The most that one report of a device of a class may cost, micro-epsilon."""
        return max(self.designs[of_class].epsilon, self.designs[of_class].cost)

    def parts(
        self, asked: Sequence[int] | Devices
    ) -> list[tuple[int, ReportDesign, Sequence[int] | Devices]]:
        """(class, its design, its devices) of the classes that have some among those asked."""
        if len(self.designs) == 1:
            return [(0, self.designs[0], asked)]
        asked = np.asarray(asked, np.int64)
        classes = class_of(asked, [design.share for design in self.designs], self.seed)
        found = [(i, design, asked[classes == i]) for i, design in enumerate(self.designs)]
        return [part for part in found if len(part[2])]

    @property
    def seed(self) -> int:
        seed: int = self.options.seed
        return seed

    def result(self, history: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """What the run has found, for JSON, beside what every run says.

        history: an entry a round, to which more may be added.
        """
        raise NotImplementedError

    @classmethod
    def summary(cls, result: Mapping[str, Any]) -> list[str]:
        """The result for people: a few lines."""
        raise NotImplementedError

    @classmethod
    def page(cls, result: Mapping[str, Any]) -> Any:
        """What the report of a run shows of this algorithm beside what it shows of all: a `report.page.Page`."""
        raise NotImplementedError


def frame_sizes(design: ReportDesign, question: Question) -> dict[str, int]:
    """Bytes of a report and of a request, for a result."""
    from tern import frames

    return {
        "bytes_per_report": report_bytes(frames.packed_size(design.card.symbols, design.k)),
        "bytes_per_request": request_bytes(question),
    }


def check_epsilon(epsilon: int) -> None:
    """Raise UsageError for more than a report can cost."""
    if epsilon > MAX_EPSILON:
        raise UsageError(
            f"a report must cost at most epsilon {MAX_EPSILON // MICRO}, not {epsilon / MICRO:g}"
        )


# Makes an algorithm of its options.
Make = Callable[[Any, Audience], Algorithm]

ALGORITHMS: Registry[type[Algorithm]] = Registry(
    "algorithm",
    "tern.algorithms",
    {
        "fedsgd": "ternhost.algorithms.fedsgd:FedSGD",
        "fedavg": "ternhost.algorithms.fedavg:FedAvg",
        "hiera": "ternhost.algorithms.hiera:HierA",
        "collect": "ternhost.algorithms.collect:Collect",
        "infer": "ternhost.algorithms.infer:Infer",
    },
)
