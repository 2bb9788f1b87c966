"""Drivers of real devices: their rounds are kept in a store."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TypedDict, Unpack

from tern import wire
from ternhost.count.aggregator import Accepted, Aggregator
from ternhost.count.questions import Averaged
from ternhost.count.rounds import RoundResult, with_answers
from ternhost.learn.schedule import Terms
from ternhost.reach.driver import Cohorts, Driver, FleetStatus, Warn
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
    """A driver that gets the reports of single devices, and gives them to an aggregator."""

    def __init__(self, store: Store, terms: Terms, **options: Unpack[DriverOptions]) -> None:
        super().__init__(store, terms, **options)
        self.aggregator = Aggregator(store)
        self._sightings = Sightings(store, self._warn)
        self._forged = 0  # frames before this round
        self._abandoned = 0  # the number of an abandoned round
        self._denied = 0  # questions of this round that boards rejected for the tag of another key

    @property
    def status(self) -> FleetStatus:
        return FleetStatus(frames=asdict(self.aggregator.statistics))

    def resume(self) -> list[int]:
        return self.aggregator.resume(time.monotonic(), self._run)

    def open(self, number: int, cohorts: Cohorts) -> None:
        quorum = self.terms.reports(sum(len(devices) for _, devices in cohorts))
        self.aggregator.open(number, cohorts, time.monotonic(), quorum, self.terms.deadline, self._run)

    def abandon(self, number: int) -> None:
        self._abandoned = number

    def begin_round(self) -> None:
        self._forged = self.aggregator.statistics.forged
        self._denied = 0

    def take_in(self, batch: list[bytes]) -> Accepted:
        accepted = self.aggregator.accept(batch, time.monotonic())
        self._denied += sum(refusal.code == wire.ERR_TAG for refusal in accepted.unread)
        self._sightings.answered(accepted.reports, self.aggregator.costs)
        return accepted

    def ended(self, number: int, now: float) -> RoundResult | None:
        """The result of this round, once it has ended."""
        if self._abandoned == number:
            self.aggregator.give_up(number, self.aggregator.unanswered(number))
        return next((result for result in self.aggregator.tick(now) if result.number == number), None)

    def check_refusals(self, result: RoundResult) -> None:
        """Warn of refusals. Raises AllRefused, RefusedError."""
        self._refusals.check(result, self.aggregator.statistics.forged - self._forged + self._denied)

    def with_reports(self, result: RoundResult) -> RoundResult:
        """A result, with the reports of single devices if they are wanted."""
        if not self.individual:
            return result
        accepted = self._store.report_batches(result.number)
        return with_answers(result, accepted, self._store.round_devices(result.number))
