"""What an algorithm is: what it asks of devices round by round, and what it learns from the counts that come back.

An algorithm is pure: no clock, no input or output. Its state fits in a small JSON object, so that a run can stop at any
line and go on. Devices fall into classes, each with a card of its own: those are the cohorts of a round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tern import frames
from ternhost.count.questions import Averaged, Question, report_bytes, request_bytes
from ternhost.count.rounds import RoundResult
from ternhost.datasets import Holdings, Indices
from ternhost.errors import UsageError
from ternhost.learn.designs import ReportDesign, class_of
from ternhost.options import exclude
from ternhost.privacy.accounting import Account, Policy, Release
from ternhost.privacy.base import MICRO
from ternhost.registry import Registry

Floats = npt.NDArray[np.float64]
Devices = npt.NDArray[np.int64]

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


def ranges_of(devices: Sequence[int] | Devices) -> list[list[int]]:
    """The devices as ranges, each its first and its last."""
    ranges: list[list[int]] = []
    for device in devices:
        if ranges and ranges[-1][1] == device - 1:
            ranges[-1][1] = int(device)
        else:
            ranges.append([int(device), int(device)])
    return ranges


def ask_everybody(audience: Audience, what: str) -> None:
    """Raise UsageError where only a share of a served fleet is to be asked, of what asks all of it."""
    if audience.standing is not None and audience.standing.share < 1:
        raise UsageError(
            f"{what} asks every device in each round: --share must be 1, not {audience.standing.share}",
            hint="leave --share out",
        )


class Turns:
    """Who takes part in each round: everybody once, in random order, before anybody again."""

    def __init__(self, clients: int, group: int, seed: int) -> None:
        self.clients = clients
        self._group = max(1, min(group, clients))
        self._seed = seed
        self._begin()

    def _begin(self) -> None:
        self._rng = np.random.default_rng(self._seed)
        self._queue: Indices = np.empty(0, np.int64)
        self._next = 0
        self._dealt: Indices = self._queue

    def asked(self, number: int) -> Indices:
        """The clients (from 0) of the `number`-th round (from 0). Quick where rounds are asked for in order."""
        if self._group == self.clients:
            return np.arange(self.clients)
        if number < self._next - 1:
            self._begin()
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
    individual: bool = False
    fleet: ClassVar[str] = "emulated:2"  # where it runs if nobody says
    how_many: ClassVar[str] = "clients"  # the option that says how many devices take part
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

    def chosen(self) -> dict[str, float]:
        """What it chose by itself for the round that it has learned from last, by name."""
        return {}

    @property
    def weights(self) -> Floats | None:
        """The model so far, of what learns one."""
        return None

    @property
    def averaged(self) -> Averaged | None:
        """What it has learned, of what learns a model that devices can use."""
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
        what = "coordinate" if design.tau is None else f"weight (tau {design.tau:g})"
        return [Release(what, design.card.epsilon, design.k, self.times)]

    def costs(self) -> list[int]:
        """What the run costs a device of each class, micro-epsilon."""
        return [
            sum(release.user_level for release in self.releases(of_class))
            for of_class in range(len(self.designs))
        ]

    def most_asked(self, rounds: int) -> int:
        """How often one device of a fleet that stays as it is was asked at most, after so many rounds."""
        return rounds

    def times_of(self, asked: int) -> int:
        """How often a device that was asked so often has told each thing."""
        return asked

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

    def references(self) -> dict[str, Any]:
        """What its figures are compared with while a run goes on, for JSON: known before the first round."""
        classes = [
            {"mechanism": design.mechanism, **design.summary(self.times), "epsilon_run": cost / MICRO}
            for design, cost in zip(self.designs, self.costs(), strict=True)
        ]
        return {"clients": self.clients, "rounds": self.rounds, "reports": self.reports, "classes": classes}

    def result(self, history: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """What the run has found, for JSON, beside what every run says.

        history: an entry a round, to which more may be added.
        """
        raise NotImplementedError

    @classmethod
    def summary(cls, result: Mapping[str, Any]) -> list[str]:
        """The result for people: a few lines."""
        raise NotImplementedError


def frame_sizes(design: ReportDesign, question: Question) -> dict[str, int]:
    """Bytes of a report and of a request, for a result."""
    return {
        "bytes_per_report": report_bytes(frames.packed_size(design.card.symbols, design.k)),
        "bytes_per_request": request_bytes(question),
    }


ALGORITHMS: Registry[type[Algorithm]] = Registry(
    "algorithm",
    "tern.algorithms",
    {
        "fedsgd": "ternhost.learn.fedsgd:FedSGD",
        "fedavg": "ternhost.learn.fedavg:FedAvg",
        "hiera": "ternhost.learn.hiera:HierA",
        "collect": "ternhost.learn.collect:Collect",
        "infer": "ternhost.learn.infer:Infer",
    },
)


def counted(n: int, what: str) -> str:
    """So many of something, for people: "1 report", "20 reports"."""
    return f"{n:,} {what}" + ("" if n == 1 else "s")
