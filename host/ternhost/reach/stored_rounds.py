"""The rounds of real devices: a store keeps them, and reports are checked and counted."""

import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import TypedDict, Unpack

from ternhost.count.aggregator import Aggregator
from ternhost.count.questions import Averaged
from ternhost.count.rounds import Ending, RoundResult, with_answers
from ternhost.learn.schedule import Terms
from ternhost.reach.driver import Cohorts, RoundKeeper, Warn
from ternhost.reach.refusals import Refusals
from ternhost.store import kept_model
from ternhost.store.round_numbers import last_number
from ternhost.store.store import Store


class DriverOptions(TypedDict, total=False):
    """Options of every driver with a store."""

    run: str | None  # its name
    individual: bool  # results carry the reports of single devices
    standing: bool  # the fleet is served: devices come and go
    warn: Warn


class StoredRounds(RoundKeeper):
    """Keeps rounds in a store; its `aggregator` gets the reports of their devices."""

    def __init__(self, store: Store, **options: Unpack[DriverOptions]) -> None:
        """store: with the devices' keys; gets rounds and reports. options: see DriverOptions."""
        super().__init__()
        self.aggregator = Aggregator(store)
        self.standing = options.get("standing", False)
        self.warn: Warn = options.get("warn", lambda message: None)
        self._store = store
        self._run = options.get("run")
        self._refusals = Refusals(self.warn)
        self._foreign = 0  # frames with other keys, until this round began

    @property
    def statistics(self) -> Mapping[str, int]:
        return asdict(self.aggregator.statistics)

    def next_number(self, planned: int) -> int:
        return max(planned, last_number(self._store) + 1)

    def open(self, number: int, cohorts: Cohorts, terms: Terms) -> None:
        quorum = terms.reports(sum(len(devices) for _, devices in cohorts))
        ending = Ending(quorum, terms.deadline)
        self.aggregator.open(number, cohorts, time.monotonic(), ending, self._run)
        self._foreign = self.aggregator.foreign

    def resume(self) -> list[int]:
        return self.aggregator.resume(time.monotonic(), self._run)

    def abandon(self, number: int) -> None:
        self.aggregator.abandon(number)

    def keep_model(self, averaged: Averaged) -> None:
        kept_model.keep(self._store, averaged)

    def finish(
        self, result: RoundResult, *, individual: bool, forgeries_matter: bool = True
    ) -> RoundResult:
        """Warn of the refusals in a round that has ended, and return its result.

        individual: add the reports of single devices. Raises AllRefused if there were only
        refusals; and RefusedError if all frames had other keys, unless forgeries do not matter:
        then other boards may have sent them.
        """
        forged = 0
        if forgeries_matter:
            forged = self.aggregator.foreign - self._foreign
        self._refusals.check(result, forged)
        if not individual:
            return result
        accepted = self._store.report_batches(result.number)
        return with_answers(result, accepted, self._store.round_devices(result.number))
