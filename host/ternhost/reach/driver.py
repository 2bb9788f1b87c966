"""Drivers send the requests of a round to the devices of a fleet, and return what they reported.

A driver knows nothing about learning. It asks again where reports are missing, and stores accepted
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
    """The privacy budget that a board reports for its first device.

    The host assumes that the other devices of the board have the same budget.

    devices: the ids of the board's devices. If it is not known which board has reported the
        budget, these are all devices of a site, and `count` of them are on boards with this budget.
    count: how many of `devices` have this budget.
    measure: what the ledger of the device counts, EPSILON or RHO of tern.ledger.
    left, spent: the parts of the lifetime budget, in millionths of the measure.
    first: the device whose ledger it is, or None if that is not known.
    unit: the privacy unit: how many consecutive records the budget protects together; 0 for all
        records of the device, None if it is not known.
    """

    devices: range | npt.NDArray[np.int64]
    count: int
    measure: int
    left: int
    spent: int
    first: int | None = None
    unit: int | None = None


def least(budgets: Iterable[BoardBudget]) -> Left:
    """Return how much is left of the smallest of these budgets, separately for each measure.

    The result is a pair, for epsilon and for rho; None stands for a measure that no budget has.
    """
    smallest: dict[int, int | None] = {EPSILON: None, RHO: None}
    for budget in budgets:
        smallest_so_far = smallest[budget.measure]
        if smallest_so_far is None or budget.left < smallest_so_far:
            smallest[budget.measure] = budget.left
    return smallest[EPSILON], smallest[RHO]


def is_label(question: Question) -> bool:
    """Return whether a device reports the predicted class of its record as a single symbol.

    Otherwise it reports the probabilities of all classes, or something else than a prediction.
    """
    return question.model == wire.SOFTMAX and question.k == 1


@dataclass(frozen=True)
class RoundProgress:
    """How far a round has come: `reports` of `asked` devices have reported so far."""

    round: int  # its number
    reports: int
    asked: int


OnProgress = Callable[[RoundProgress], None]
Warn = Callable[[str], None]


@dataclass(frozen=True)
class FleetStatus:
    """The state of a fleet at one moment."""

    boards: int | None = None  # how many are connected and awake; None where it is not known
    asleep: int = 0  # how many boards sleep
    strangers: int = 0  # how many boards have another version of the protocol
    connected: bool = True  # whether the host is connected to the fleet's broker
    frames: Mapping[str, int] = field(default_factory=dict)  # how many had each outcome


class RoundKeeper:
    """Opens and resumes the rounds of a driver.

    This base class only remembers in memory which devices each round asks.
    """

    def __init__(self) -> None:
        self.cohorts: dict[int, Cohorts] = {}  # by number of the round

    @property
    def statistics(self) -> Mapping[str, int]:
        """The numbers of accepted and rejected frames, by outcome."""
        return {}

    def next_number(self, planned: int) -> int:
        """Return the number for a new round: at least `planned`."""
        return planned

    def open(self, number: int, cohorts: Cohorts, terms: Terms) -> None:
        """Begin a round, and store it where the class stores rounds, before any device is asked.

        cohorts: what is asked, and the devices that are asked it. terms: when the round ends.
        """
        self.cohorts[number] = cohorts

    def resume(self) -> list[int]:
        """Resume the rounds that were open when the host ended; return their numbers, oldest first."""
        return []

    def abandon(self, number: int) -> None:
        """Let a round end soon with the reports that have come so far. Safe in any thread."""

    def keep_model(self, averaged: Averaged) -> None:
        """Store the averaged model or the limits of a run for devices that connect later."""


class Driver(ABC):
    """A context manager that reaches a fleet while it is open.

    A subclass defines `devices` and `collect`.
    """

    def __init__(
        self, terms: Terms, keeper: RoundKeeper | None = None, *, individual: bool = False
    ) -> None:
        """Prepare to reach a fleet. Entering the context connects to it.

        terms: when rounds end. keeper: stores the rounds; with None they are only kept in memory.
        individual: results contain the reports of single devices, too, not only counts.
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
        """The ids of the devices that can be asked."""

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
        """Return the number for a new round: at least `planned`."""
        return self.keeper.next_number(planned)

    def drawn(self, number: int, cohorts: Cohorts, pools: Sequence[Devices]) -> Cohorts:
        """Return the cohorts of a round with the devices that the fleet itself has selected.

        Some fleets select the devices at random themselves: for each cohort as many devices as it
        has, out of the candidates at the same position in `pools`. A fleet of this base class
        selects nothing, and the cohorts stay as they are.
        """
        return cohorts

    def open(self, number: int, cohorts: Cohorts) -> None:
        """Begin a round, and store it, before any device is asked.

        Raises UsageError for a question that is too long for a frame.
        """
        self.keeper.open(number, cohorts, self.terms)

    @abstractmethod
    def collect(self, number: int, on_progress: OnProgress) -> RoundResult | None:
        """Ask devices until the round ends, and return its result; None after `stop`.

        on_progress: is called with a `RoundProgress` again and again while reports come. Raises
        TernError if no device can be reached any more.
        """

    def abandon(self, number: int) -> None:
        """Make `collect` of this round return soon with the reports so far. Safe in any thread."""
        self.keeper.abandon(number)

    def publish(self, averaged: Averaged) -> None:
        """Store the averaged model or the limits of a run, and send them to the devices.

        Devices do not answer them.
        """
        self.keeper.keep_model(averaged)

    def wait(self, seconds: float) -> None:
        """Wait for so long, or until `stop` is called, and stay connected to the fleet."""
        self._stopped.wait(seconds)

    def stop(self) -> None:
        """Make `collect` and `wait` return soon. The open round can be resumed later.

        Safe in a signal handler.
        """
        self._stopped.set()

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stopped.is_set()
