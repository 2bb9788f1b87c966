"""Drivers of real devices: their rounds are kept in a store."""

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import TypedDict, Unpack

from ternhost.count.aggregator import Aggregator
from ternhost.count.questions import Averaged
from ternhost.count.rounds import RoundResult, with_answers
from ternhost.learn.schedule import Terms
from ternhost.reach.driver import BoardBudget, Cohorts, Driver, FleetStatus, Warn
from ternhost.reach.refusals import Refusals
from ternhost.reach.sightings import Sightings
from ternhost.store import kept_model
from ternhost.store.round_numbers import last_number
from ternhost.store.store import Store


class DriverOptions(TypedDict, total=False):
    """Options of every driver with a store."""

    run: str | None  # its name
    individual: bool  # results carry the reports of single devices
    standing: bool  # the fleet is served: devices come and go
    warn: Warn


class StoredDriver(Driver):
    """A driver whose store has its rounds and the model of its run."""

    def __init__(self, store: Store, terms: Terms, **options: Unpack[DriverOptions]) -> None:
        super().__init__(terms, individual=options.get("individual", False))
        self._store = store
        self._run = options.get("run")
        self._standing = options.get("standing", False)
        self._warn: Warn = options.get("warn", lambda message: None)
        self._refusals = Refusals(self._warn)

    def next_round(self, planned: int) -> int:
        return max(planned, last_number(self._store) + 1)

    def publish(self, averaged: Averaged) -> None:
        """Keep the model in the store, for boards that come later."""
        kept_model.keep(self._store, averaged)


class ReportsDriver(StoredDriver):
    """A driver that gets the reports of single devices, and gives them to its `aggregator`."""

    def __init__(self, store: Store, terms: Terms, **options: Unpack[DriverOptions]) -> None:
        super().__init__(store, terms, **options)
        self.aggregator = Aggregator(store)
        self._sightings = Sightings(store, self._warn, lambda: self.aggregator.last_round)
        self._foreign = 0  # frames of other keys before this round
        self._budgets: list[BoardBudget] = []
        self._budgets_version = 0  # of the sightings that they are from

    @property
    def status(self) -> FleetStatus:
        return FleetStatus(frames=asdict(self.aggregator.statistics))

    @property
    def budgets(self) -> Sequence[BoardBudget]:
        if self._budgets_version != self._sightings.version:  # else as often as somebody asks
            self._budgets_version = self._sightings.version
            self._budgets = self.read_budgets()
        return self._budgets

    def read_budgets(self) -> list[BoardBudget]:
        """What the boards of this fleet say of their budgets now; nothing where a subclass does not
        know.
        """
        return []

    def resume(self) -> list[int]:
        return self.aggregator.resume(time.monotonic(), self._run)

    def open(self, number: int, cohorts: Cohorts) -> None:
        quorum = self.terms.reports(sum(len(devices) for _, devices in cohorts))
        self.aggregator.open(
            number, cohorts, time.monotonic(), quorum, self.terms.deadline, self._run
        )
        self._foreign = self.aggregator.foreign

    def abandon(self, number: int) -> None:
        self.aggregator.abandon(number)

    def check_refusals(self, result: RoundResult) -> None:
        """Warn of refusals. Raises AllRefused, RefusedError."""
        self._refusals.check(result, self.aggregator.foreign - self._foreign)

    def with_reports(self, result: RoundResult) -> RoundResult:
        """A result, with the reports of single devices if they are wanted."""
        if not self.individual:
            return result
        accepted = self._store.report_batches(result.number)
        return with_answers(result, accepted, self._store.round_devices(result.number))
