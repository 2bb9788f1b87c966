"""A learner asks devices a question in each round and learns from the counts of their answers.

It is pure (no clock, no input or output), and its state is a small JSON object, so that a run can
stop at any line and go on. Devices fall into classes, each with a card of its own: the cohorts of a
round.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tern import card as cards
from tern import frames
from ternhost.count.questions import Averaged, Question, report_bytes, request_bytes
from ternhost.count.rounds import RoundResult
from ternhost.datasets import Holdings, Indices
from ternhost.errors import UsageError
from ternhost.learn.designs import ReportDesign
from ternhost.learn.schedule import Schedule
from ternhost.options import require
from ternhost.registry import Registry

Devices = npt.NDArray[np.int64]
MOST_SIMULATED = 1_000_000_000  # clients

# Devices and clients


def take(devices: Sequence[int] | Devices, clients: Indices) -> Devices:
    """The devices of these clients (from 0). A range is not written out."""
    if isinstance(devices, range):
        return devices.start + clients
    taken: Devices = np.asarray(devices, np.int64)[clients]
    return taken


@dataclass(frozen=True)
class Population:
    """The clients that a learner can ask."""

    clients: int | None = None  # None: as many as the learner needs
    most: int | None = None  # how many a learner makes where nobody names a number
    schedule: Schedule | None = None  # of a fleet that is served
    devices: int = 0  # at the beginning
    knows_records: bool = True  # the host knows what clients hold
    boards: int = 0  # that are made for the run

    def require_enough(self, wanted: int | None, there: int, what: str, hint: str) -> None:
        """Raise UsageError where a learner wants more than the clients that are `there`."""
        if wanted is not None and wanted > there:
            raise UsageError(f"there are {there:,} clients{what}, not {wanted:,}", hint=hint)


def clients_of(devices: Sequence[int] | Devices, some: Devices) -> Indices:
    """The clients (from 0) that some of the devices are: the inverse of `take`."""
    if isinstance(devices, range):
        return some - devices.start
    order = np.argsort(devices)
    clients: Indices = order[np.searchsorted(np.asarray(devices), some, sorter=order)]
    return clients


def ranges_of(devices: Sequence[int] | Devices) -> list[tuple[int, int]]:
    """The devices as ranges: the first and the last of each."""
    ranges: list[tuple[int, int]] = []
    for device in map(int, devices):
        if ranges and ranges[-1][1] == device - 1:
            ranges[-1] = ranges[-1][0], device
        else:
            ranges.append((device, device))
    return ranges


def require_everybody(population: Population, what: str) -> None:
    """Raise UsageError where an algorithm that asks all devices of a served fleet is given a share
    of them.
    """
    schedule = population.schedule
    if schedule is not None:
        require(
            schedule.share == 1,
            "share",
            f"1, as {what} asks every device in each round",
            schedule.share,
        )


class Turns:
    """The clients of each round: everybody takes part once, in random order, before anybody does
    again.
    """

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
        """The clients (from 0) of the `number`-th round (from 0).

        Quick where rounds are asked for in order.
        """
        if self._group == self.clients:
            return np.arange(self.clients)
        if number < self._next - 1:
            self._begin()
        while self._next <= number:
            if len(self._queue) < self._group:
                rest = np.setdiff1d(np.arange(self.clients), self._queue)
                again = np.concatenate(
                    [self._rng.permutation(rest), self._rng.permutation(self._queue)]
                )
                self._queue = np.concatenate([self._queue, again])
            self._dealt, self._queue = self._queue[: self._group], self._queue[self._group :]
            self._next += 1
        return self._dealt


def most_turns(clients: int, group: int, rounds: int) -> int:
    """The largest number of rounds of a client, in `rounds` rounds of `group` clients each."""
    return -(-rounds * group // clients)


# A question, and the devices that it is for.
Cohort = tuple[Question, Sequence[int] | Devices]


class Learner:
    """A subclass declares its `name`, the `command` that runs it, and `Options`, a dataclass of
    `option` fields with a `seed`. Its `__init__` sets the attributes below; the run makes costs,
    policies and boards from `designs`.
    """

    name: ClassVar[str]
    command: ClassVar[str] = "train"
    Options: ClassVar[Any]

    options: Any
    designs: list[ReportDesign]  # of each class of devices
    rounds: int | None  # planned; None: no end
    clients: int | None  # in the whole run; None: all that there are
    reports: int | None  # planned, of all rounds
    times: int = 1  # that a client takes part at most
    holdings: Holdings | None = None  # None: the host does not know what devices hold
    modules: tuple[
        str, ...
    ] = ()  # that boards need beside their client (terntools.boards.mpy.ON_DEMAND)
    individual: bool = False  # it needs each device's report by itself
    once: bool = False  # it asks no device again that has answered
    rounds_option: ClassVar[str] = "rounds"  # sets how often a client reports
    draws_groups: ClassVar[bool] = False  # a fleet may draw the devices of a round: see `pools`
    unit: int = 0  # records of a run that its reports protect; 0: the client
    delta: float = 1e-6  # of a total in rho

    def __init__(self, options: Any, population: Population) -> None:
        """Raises UsageError for options that do not fit together, or that the population does not
        fit.
        """
        raise NotImplementedError

    @property
    def done(self) -> bool:
        raise NotImplementedError

    def cohorts(self, devices: Sequence[int] | Devices) -> list[Cohort]:
        """The next round's questions, each with its devices.

        Client i is the i-th of `devices`, those of the run.
        """
        raise NotImplementedError

    def learn(self, result: RoundResult, devices: Sequence[int] | Devices) -> None:
        """Take the answers of that round; there may be none. devices: as for `cohorts`."""
        raise NotImplementedError

    def state(self) -> dict[str, Any]:
        """All that changes in a run, for JSON; `restore` takes it back exactly."""
        raise NotImplementedError

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take back a `state()`. Raises UsageError for the state of another learner."""
        raise NotImplementedError

    def result(self, history: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """The learner's part of a run's result, for JSON. history: an entry a round, to which more
        may be added.
        """
        raise NotImplementedError

    @classmethod
    def summary(cls, result: Mapping[str, Any]) -> list[str]:
        """The result for people: a few lines."""
        raise NotImplementedError

    # Optional

    def pools(self, devices: Sequence[int] | Devices) -> list[Devices] | None:
        """The devices among which those of each of `cohorts` were chosen, for a fleet that draws
        them itself.

        None: everybody is asked, or the learner must choose. Devices of a pool are asked equally
        often in a run.
        """
        return None

    def figures(self) -> dict[str, float]:
        """Figures to show after every round, by name, the most important first."""
        return {}

    def chosen(self) -> dict[str, float]:
        """Settings that it chose for the last round, by name."""
        return {}

    @property
    def averaged(self) -> Averaged | None:
        """The model so far, if devices can use it."""
        return None

    def references(self) -> dict[str, Any]:
        """Figures to compare its own with, for JSON, known before the first round."""
        return {}


def report_summary(design: ReportDesign, question: Question) -> dict[str, Any]:
    """The card of a report, and the bytes of the report and its request, for a result."""
    data = design.card.data
    return {
        "card": data.hex(),
        "card_hash": cards.card_hash(data).hex(),
        "mechanism": design.mechanism,
        "bytes_per_report": report_bytes(frames.packed_size(design.card.symbols, question.k)),
        "bytes_per_request": request_bytes(question),
    }


ALGORITHMS: Registry[type[Learner]] = Registry(
    "algorithm",
    "tern.algorithms",
    {
        "fedsgd": "ternhost.learn.fedsgd:FedSGD",
        "fedavg": "ternhost.learn.fedavg:FedAvg",
        "fedsum": "ternhost.learn.fedsum:FedSum",
        "direct": "ternhost.learn.direct:Direct",
        "hiera": "ternhost.learn.hiera:HierA",
        "collect": "ternhost.learn.collect:Collect",
        "means": "ternhost.learn.means:Means",
        "infer": "ternhost.learn.infer:Infer",
    },
)


def algorithms_of(command: str) -> dict[str, type[Learner]]:
    """The algorithms that a command runs."""
    return {name: cls for name, cls in ALGORITHMS.items() if cls.command == command}


def settings(chosen: Mapping[str, float]) -> list[str]:
    """The settings of `Learner.chosen`, for people: "clipped to 0.5", "learning rate 0.58"."""
    words = {"tau": "clipped to {:g}", "rate": "learning rate {:.2g}"}
    return [words.get(name, f"{name} {{:g}}").format(value) for name, value in chosen.items()]
