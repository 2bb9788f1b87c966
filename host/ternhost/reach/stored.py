"""What the drivers of real devices share: their rounds and reports are kept in a store, by an aggregator."""

from __future__ import annotations

import time
from dataclasses import asdict

from tern import wire
from ternhost.count.aggregator import Accepted, Aggregator
from ternhost.count.questions import Averaged
from ternhost.count.rounds import RoundResult, with_answers
from ternhost.reach.driver import Cohorts, FleetStatus, Refusals, Terms, Warn
from ternhost.reach.sightings import Sightings
from ternhost.store import kept_model
from ternhost.store.round_numbers import last_number
from ternhost.store.store import Store


class StoredDriver:
    """The part of a driver that is the same whatever way the devices are reached."""

    def __init__(
        self,
        store: Store,
        terms: Terms,
        *,
        run: str | None = None,
        individual: bool = False,
        warn: Warn = lambda message: None,
    ) -> None:
        """run: that asks. individual: results carry the reports of single devices."""
        self.aggregator = Aggregator(store)
        self._store = store
        self.terms = terms
        self._run = run
        self.individual = individual
        self._warn = warn
        self._refusals = Refusals(warn)
        self._sightings = Sightings(store, warn)
        self._forged = 0  # frames, before this round
        self._abandoned = 0  # the number of a round that nobody wants any more
        self._denied = 0  # in this round, by boards that say that a question has the tag of another key

    @property
    def status(self) -> FleetStatus:
        return FleetStatus(frames=asdict(self.aggregator.statistics))

    @property
    def budget_left(self) -> int | None:
        return None

    def resume(self) -> list[int]:
        return self.aggregator.resume(time.monotonic(), self._run)

    def next_round(self, planned: int) -> int:
        return max(planned, last_number(self._store) + 1)

    def open(self, number: int, cohorts: Cohorts) -> None:
        quorum = self.terms.reports(sum(len(devices) for _, devices in cohorts))
        self.aggregator.open(number, cohorts, time.monotonic(), quorum, self.terms.deadline, self._run)

    def publish(self, averaged: Averaged) -> None:
        """Keep it, for boards that come later."""
        kept_model.keep(self._store, averaged)

    def abandon(self, number: int) -> None:
        """Have `collect` of this round return soon, with what there is. Safe in any thread."""
        self._abandoned = number

    def _end_abandoned(self, number: int) -> None:
        if self._abandoned == number:
            self.aggregator.give_up(number, self.aggregator.unanswered(number))

    def _begin_round(self) -> None:
        self._forged = self.aggregator.statistics.forged
        self._denied = 0

    def _take_in(self, batch: list[bytes]) -> Accepted:
        """Give frames to the aggregator."""
        accepted = self.aggregator.accept(batch, time.monotonic())
        self._denied += sum(refusal.code == wire.ERR_TAG for refusal in accepted.unread)
        self._sightings.answered(accepted.reports, self.aggregator.costs)
        return accepted

    def _check_refusals(self, result: RoundResult) -> None:
        """Warn of refusals. Raises AllRefused, RefusedError."""
        self._refusals.check(result, self.aggregator.statistics.forged - self._forged + self._denied)

    def _tell_of_later_rounds(self, result: RoundResult) -> None:
        """Warn of devices that tell of later rounds, where no other refusal matters."""
        self._refusals.tell_of_later_rounds(result)

    def _whole(self, result: RoundResult) -> RoundResult:
        """A result, with the reports of single devices where they are wanted."""
        if not self.individual:
            return result
        accepted = self._store.report_batches(result.number)
        return with_answers(result, accepted, self._store.round_devices(result.number))
