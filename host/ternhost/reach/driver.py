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
# Budgets by measure (tern.ledger), in millionths; None: none is known.
Left = tuple[int | None, int | None]


@dataclass(frozen=True)
class BoardBudget:
    """The budget that a board reports for its first device, in millionths of the ledger's measure.

    The host takes the other devices of the board to have the same.

    devices: those of the board. If nobody here knows which board has reported it, these are all
    devices of a site, and `count` of them are on boards with this budget. left, spent: of the
    lifetime budget. first: the device whose ledger it is, if that is known. unit: the records of a
    run that the board protects, 0 for the whole device; None: it is not known.
    """

    devices: range | npt.NDArray[np.int64]
    count: int
    measure: int
    left: int
    spent: int
    first: int | None = None
    unit: int | None = None


def least(budgets: Iterable[BoardBudget]) -> Left:
    """Return the least that any of these budgets has left, by measure; None if there is none."""
    smallest: dict[int, int | None] = {EPSILON: None, RHO: None}
    for budget in budgets:
        smallest_so_far = smallest[budget.measure]
        if smallest_so_far is None or budget.left < smallest_so_far:
            smallest[budget.measure] = budget.left
    return smallest[EPSILON], smallest[RHO]


def is_label(question: Question) -> bool:
    """Return whether a device reports the class of its record, not the probabilities of all.

    Then counts disclose who said what.
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
    frames: Mapping[str, int] = field(default_factory=dict)  # accepted or rejected, by outcome


class RoundKeeper:
    """Opens and resumes the rounds of a driver. This one only remembers their cohorts."""

    def __init__(self) -> None:
        self.cohorts: dict[int, Cohorts] = {}

    @property
    def statistics(self) -> Mapping[str, int]:
        """The numbers of accepted and rejected frames, by outcome."""
        return {}

    def next_number(self, planned: int) -> int:
        """Return the number for a new round: at least `planned`."""
        return planned

    def open(self, number: int, cohorts: Cohorts, terms: Terms) -> None:
        """Begin a round, durably, before any device gets it."""
        self.cohorts[number] = cohorts

    def resume(self) -> list[int]:
        """Resume the rounds that were open when the host ended; return their numbers, oldest first."""
        return []

    def abandon(self, number: int) -> None:
        """Let a round end soon, with the reports so far. Safe in any thread."""

    def keep_model(self, averaged: Averaged) -> None:
        """Keep the model of a run for devices that come later."""


class Driver(ABC):
    """A context manager that reaches a fleet while it is open.

    A subclass defines `devices` and `collect`.
    """

    def __init__(
        self, terms: Terms, keeper: RoundKeeper | None = None, *, individual: bool = False
    ) -> None:
        """terms: when rounds end. keeper: stores the rounds; None: they are only remembered.

        individual: results carry the reports of single devices.
        """
        self.terms = terms
        self.keeper = keeper or RoundKeeper()
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
        return FleetStatus(frames=self.keeper.statistics)

    @property
    def budgets(self) -> Sequence[BoardBudget]:
        """The budgets that boards report for their devices, as far as they are known."""
        return ()

    @property
    def budget_left(self) -> Left:
        """The smallest budget that a board reports for its first device."""
        return least(self.budgets)

    def resume(self) -> list[int]:
        """Resume the rounds that were open when the host ended; return their numbers, oldest first."""
        return self.keeper.resume()

    def next_round(self, planned: int) -> int:
        """The number of a new round: at least `planned`."""
        return self.keeper.next_number(planned)

    def drawn(self, number: int, cohorts: Cohorts, pools: Sequence[Devices]) -> Cohorts:
        """Return the cohorts of a round after the fleet has drawn their devices.

        Such a fleet draws as many devices of each cohort's pool as the cohort has. Here nothing is
        drawn: the cohorts stay as they are.
        """
        return cohorts

    def open(self, number: int, cohorts: Cohorts) -> None:
        """Begin a round, durably, before any device gets it.

        Raises UsageError for a question too long for a frame.
        """
        self.keeper.open(number, cohorts, self.terms)

    @abstractmethod
    def collect(self, number: int, on_progress: OnProgress) -> RoundResult | None:
        """Ask devices until the round ends, and return its result; None after `stop`.

        on_progress: called again and again while reports come. Raises TernError if no device can
        be reached any more.
        """

    def abandon(self, number: int) -> None:
        """Have `collect` of this round return soon, with the reports so far. Safe in any thread."""
        self.keeper.abandon(number)

    def publish(self, averaged: Averaged) -> None:
        """Store the model of a run, and send it to the devices, without an answer."""
        self.keeper.keep_model(averaged)

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
