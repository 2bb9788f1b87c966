"""Drivers bring the questions of a round to devices, and return counts and refusals.

A driver knows nothing about learning; it asks again where reports are missing, and stores accepted
reports before it returns.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
import numpy.typing as npt

from tern import wire
from tern.ledger import EPSILON, RHO
from ternhost.count.questions import Averaged, Question
from ternhost.count.rounds import RoundResult
from ternhost.learn.schedule import Terms

Devices = Sequence[int] | npt.NDArray[np.int64]
Cohorts = Sequence[tuple[Question, Devices]]
Left = tuple[
    int | None, int | None
]  # budgets by measure (tern.ledger), millionths; None: none is known
NOT_TOLD: Left = None, None


@dataclass(frozen=True)
class BoardBudget:
    """What a board says of the ledger of its first device, in millionths of its measure
    (tern.ledger). The host takes the other devices of the board to be alike.

    devices: those of the board. If nobody here knows which board says it, these are all devices of a
    site, and `count` of them are on boards that say this. first: the device whose ledger it is, if
    it is known. unit: the records of a run that the board protects, 0 for the whole device; None: it
    is not known.
    """

    devices: range | npt.NDArray[np.int64]
    count: int
    measure: int
    left: int
    spent: int
    first: int | None = None
    unit: int | None = None


def least(budgets: Iterable[BoardBudget]) -> Left:
    """The smallest of these budgets, for each measure."""
    smallest: list[int | None] = [None, None]
    for each in budgets:
        known = smallest[each.measure]
        smallest[each.measure] = each.left if known is None else min(known, each.left)
    return smallest[EPSILON], smallest[RHO]


def is_label(question: Question) -> bool:
    """Whether a device reports the class of its record, and not the probabilities of all: counts
    tell who said what.
    """
    return question.model == wire.SOFTMAX and question.k == 1


@dataclass(frozen=True)
class RoundProgress:
    """A round in progress: `reports` of `asked` devices so far."""

    round: int
    reports: int
    asked: int


OnProgress = Callable[[RoundProgress], None]
Warn = Callable[[str], None]


@dataclass(frozen=True)
class FleetStatus:
    """The state of a fleet."""

    boards: int | None = None  # awake ones; None where it is not known
    asleep: int = 0
    strangers: int = 0  # boards of another version
    connected: bool = True
    frames: Mapping[str, int] = field(
        default_factory=dict
    )  # accepted and rejected ones, by outcome


class Driver(ABC):
    """A context manager that reaches a fleet while it is open.

    A subclass defines `devices`, `open` and `collect`.
    """

    def __init__(self, terms: Terms, *, individual: bool = False) -> None:
        """individual: results carry the reports of single devices."""
        self.terms = terms
        self.individual = individual
        self._stopped = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        return None

    @property
    @abstractmethod
    def devices(self) -> Devices:
        """The devices that can be asked, by id."""

    @property
    def status(self) -> FleetStatus:
        """The state of the fleet now, as far as known."""
        return FleetStatus()

    @property
    def budgets(self) -> Sequence[BoardBudget]:
        """What the boards say of the budgets of their devices, as far as they are known."""
        return ()

    @property
    def budget_left(self) -> Left:
        """The smallest budget that a board reports for its first device."""
        return least(self.budgets)

    def resume(self) -> list[int]:
        """Resume the rounds that were open when the host ended; return their numbers, oldest first."""
        return []

    def next_round(self, planned: int) -> int:
        """The number of a new round: at least `planned`."""
        return planned

    def drawn(self, number: int, cohorts: Cohorts, pools: Sequence[Devices]) -> Cohorts:
        """The cohorts of a round, whose devices a fleet may draw itself: as many of each pool as
        the cohort has.
        """
        return cohorts

    @abstractmethod
    def open(self, number: int, cohorts: Cohorts) -> None:
        """Begin a round, durably, before any device gets it.

        Raises UsageError for a question too long for a frame.
        """

    @abstractmethod
    def collect(self, number: int, on_progress: OnProgress) -> RoundResult | None:
        """Ask until the round ends; None after `stop`.

        Raises TernError where no device can be reached any more.
        """

    def abandon(self, number: int) -> None:
        """Have `collect` of this round return soon, with the reports so far. Safe in any thread."""

    def publish(self, averaged: Averaged) -> None:
        """Store the model of a run, and send it to the devices, without an answer."""

    def wait(self, seconds: float) -> None:
        """Wait, or until `stop` is called, without losing the fleet."""
        self._stopped.wait(seconds)

    def stop(self) -> None:
        """Have `collect` and `wait` return soon; the round can be resumed.

        Safe in a signal handler.
        """
        self._stopped.set()

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stopped.is_set()
