"""The rounds of real devices, whose requests and reports are kept in a store (a database file)."""

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
    """The keyword arguments of every driver with a store; all may be omitted."""

    run: str | None  # the name of the run to which the rounds belong
    individual: bool  # results contain the reports of single devices, too
    standing: bool  # the fleet is served: devices come and go
    warn: Warn  # is called with each warning


class StoredRounds(RoundKeeper):
    """Keeps rounds in a store. Its `aggregator` checks and counts the reports of devices."""

    def __init__(self, store: Store, **options: Unpack[DriverOptions]) -> None:
        """Keep the rounds of a run in a store.

        store: the database with the keys of the devices, which gets rounds and reports. options:
        those of `DriverOptions`; all may be left out.
        """
        super().__init__()
        self.aggregator = Aggregator(store)
        self.standing = options.get("standing", False)
        self.warn: Warn = options.get("warn", lambda message: None)
        self._store = store
        self._run = options.get("run")
        self._refusals = Refusals(self.warn)
        # How many frames had been sealed with unknown keys when the open round began.
        self._foreign_before = 0

    @property
    def statistics(self) -> Mapping[str, int]:
        return asdict(self.aggregator.statistics)

    def next_number(self, planned: int) -> int:
        return max(planned, last_number(self._store) + 1)

    def open(self, number: int, cohorts: Cohorts, terms: Terms) -> None:
        asked = sum(len(devices) for _question, devices in cohorts)
        quorum = terms.reports(asked)  # the number of reports that ends the round
        ending = Ending(quorum, terms.deadline)
        self.aggregator.open(number, cohorts, time.monotonic(), ending, self._run)
        self._foreign_before = self.aggregator.foreign

    def resume(self) -> list[int]:
        return self.aggregator.resume(time.monotonic(), self._run)

    def abandon(self, number: int) -> None:
        self.aggregator.abandon(number)

    def keep_model(self, averaged: Averaged) -> None:
        kept_model.keep(self._store, averaged)

    def finish(
        self, result: RoundResult, *, individual: bool, forgeries_matter: bool = True
    ) -> RoundResult:
        """Warn of the devices that refused to report in a round that has ended; return its result.

        result: the result of the round as the aggregator has counted it.
        individual: add the reports of single devices to the result.
        forgeries_matter: whether a round that only got frames with unknown keys is an error. For a
            broker to which other boards may send, it is not.
        Raises AllRefused if every answer was a refusal, and RefusedError if forgeries matter and
        nothing but frames with unknown keys came.
        """
        forged = 0
        if forgeries_matter:
            forged = self.aggregator.foreign - self._foreign_before
        self._refusals.check(result, forged)
        if not individual:
            return result
        accepted = self._store.report_batches(result.number)
        return with_answers(result, accepted, self._store.round_devices(result.number))
