"""The rounds of a run: each asks devices, has the algorithm learn, and keeps the state."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ternhost.count.rounds import RoundResult
from ternhost.errors import RefusedError
from ternhost.learn.devices import Devices
from ternhost.reach import refusals
from ternhost.reach.driver import Cohorts, Driver, RoundProgress
from ternhost.run import announcement, costs
from ternhost.run.status import END, PROGRESS, ROUND, Status
from ternhost.store.runs import EndedRound
from ternhost.text import counted

if TYPE_CHECKING:
    from ternhost.run.run import Run

_IDLE = 0.5  # seconds until a served fleet without devices is looked at again
_LONGEST_PAUSE = 30.0  # seconds after a round of a served fleet that nobody answered
_MOST_DOUBLINGS = 10  # of the pause
_MOST_REFUSED = 5  # rounds in a row that all devices of a served fleet refuse: about a minute


class RoundLoop:
    """The rounds of a run over one driver, from this start of the host to its end."""

    def __init__(self, run: Run, driver: Driver) -> None:
        self._run = run
        self._driver = driver
        self.members: Sequence[int] | Devices = ()  # when it began
        self._asked: Sequence[int] | Devices = ()  # members that the last round asked
        self._starts = 0.0  # the next round, by the monotonic clock
        self._began = 0.0  # the last round, seconds since 1970
        self._published = 0  # the number of rounds when the devices last got the model
        self._without_report = 0  # rounds in a row
        self._refused = 0  # rounds in a row that every device refused
        self._bound_reached = False  # the fleet keeps a bound, and asks nobody any more
        self._reporters: tuple[int, Devices] | None = None  # after so many rounds

    def run(self) -> None:
        """Go on until the algorithm is done, the run is stopped, or no device may be asked.

        Raises TernError.
        """
        run, driver = self._run, self._driver
        self.members = self._asked = run.members(driver)
        if not run.fleet.simulated and run.schedule is None:
            boards = f"{counted(run.fleet.count, 'board')} with " if run.fleet.count else ""
            run.watcher.note(f"found {boards}{counted(len(driver.devices), 'client')}")
        open_rounds = driver.resume()
        if not run.state.rounds:
            announcement.announce_costs(run, driver, self.members, again=bool(open_rounds))

        while not self._is_over:
            number = open_rounds.pop(0) if open_rounds else self._open_next()
            if number is None:
                continue
            self._began = time.time()
            result = self._collect(number)
            if result is None:  # stopped
                break
            self.learn(result)
            self._after_round()
        if run.algorithm.done or run.schedule is not None:
            self._publish()

    @property
    def _is_over(self) -> bool:
        run = self._run
        if run.algorithm.done or run.stopped or self._bound_reached:
            return True
        return run.schedule is not None and self._refused >= _MOST_REFUSED

    # Opening a round

    def _open_next(self) -> int | None:
        """Open the next round and return its number. None if this waited instead."""
        run, driver = self._run, self._driver
        now = time.monotonic()
        if now < self._starts:
            driver.wait(self._starts - now)
            return None
        if run.schedule is not None:
            self._asked = self._served_members()
            if not len(self._asked):
                driver.wait(_IDLE)
                return None

        number = driver.next_round(run.state.first_round + run.state.rounds)
        try:
            driver.open(number, self._cohorts(number))
        except RefusedError as error:  # of a fleet that keeps a bound
            if not run.state.rounds:
                raise
            run.state.refusal = error.message, error.hint
            self._bound_reached = True
            return None
        self._starts = now
        if run.schedule is not None:
            self._starts += run.schedule.interval
        return number

    def _cohorts(self, number: int) -> Cohorts:
        algorithm = self._run.algorithm
        cohorts = algorithm.cohorts(self._asked)
        pools = algorithm.pools(self._asked)
        if pools is None:
            return cohorts
        return self._driver.drawn(number, cohorts, pools)

    def _served_members(self) -> Sequence[int] | Devices:
        """The devices of a served fleet to ask now.

        An algorithm that asks each device once gets those that have not reported. Once there are
        none, the devices get the model.
        """
        run = self._run
        members = run.members(self._driver)
        if not run.algorithm.once:
            return members
        if self._reporters is None or self._reporters[0] != run.state.rounds:
            self._reporters = (
                run.state.rounds,
                costs.devices_that_reported(run.store, run.files.name),
            )
        waiting = np.setdiff1d(members, self._reporters[1])
        if len(members) and not len(waiting) and self._published != run.state.rounds:
            self._publish()
            devices = counted(len(members), "device")
            run.watcher.note(f"all {devices} have answered; waiting for others")
        return waiting

    # Collecting reports

    def _collect(self, number: int) -> RoundResult | None:
        """The result of a round, also of one that all devices refused. None after a stop."""

        def on_progress(progress: RoundProgress) -> None:
            event = PROGRESS if progress.reports else ROUND
            status = self._status(event, number, progress.asked, progress.reports)
            self._run.watcher.status(Status(**status))

        try:
            return self._driver.collect(number, on_progress)
        except refusals.AllRefused as error:
            if self._is_pointless(error.result):
                raise
            self._warn_of_refusal(number, error)
            return error.result

    def _is_pointless(self, result: RoundResult) -> bool:
        """Whether a first round says that no device will ever report in this run, and none has paid.

        To a fleet that is served others may come.
        """
        run = self._run
        is_first = run.schedule is None and not run.state.rounds
        return is_first and refusals.nobody_will_report(result)

    def _warn_of_refusal(self, number: int, error: refusals.AllRefused) -> None:
        """Warn once for each remedy: the number of devices in the message changes.

        A run that ends without any report says it at its end instead.
        """
        state = self._run.state
        is_last = state.rounds + 1 == self._run.algorithm.rounds and not state.reports
        earlier_hint = state.refusal[1] if state.refusal is not None else ""
        state.refusal = error.message, error.hint
        if is_last or error.hint == earlier_hint:
            return
        remedy = f"; {error.hint}" if error.hint else ""
        self._run.watcher.warn(f"round {number}: {error.message}{remedy}")

    # Learning

    def learn(self, result: RoundResult) -> None:
        """Have the algorithm learn from a round, and keep what it has learned."""
        run = self._run
        run.algorithm.learn(result, self._asked)
        if result.reports:
            self._without_report = 0
        else:
            self._without_report += 1
        if result.refusals and not result.reports:
            self._refused += 1
        else:
            self._refused = 0

        run.state.add_round(result, run.options.terms.reports(result.asked))
        run.state.seconds = run.elapsed
        run.state.algorithm = run.algorithm.state()
        run.state.planned = run.algorithm.rounds
        figures, chosen = run.algorithm.figures(), run.algorithm.chosen()
        self._store(result, {**figures, **chosen})

        status = self._status(END, result.number, result.asked, 0)
        status |= {
            "round": run.state.rounds,
            "ended": result.ended,
            "reports": result.reports,
            "refusals": len(result.refusals),
            "reasons": result.reasons,
            "figures": figures,
            "chosen": chosen,
        }
        run.watcher.status(Status(**status))

    def _store(self, result: RoundResult, figures: Mapping[str, float]) -> None:
        """End a round in the store, with the run's state and model. figures: for its history."""
        run = self._run
        entry: dict[str, Any] = {
            "round": result.number,
            "asked": result.asked,
            "ended": result.ended,
            "reports": result.reports,
            "refusals": len(result.refusals),
            **figures,
        }
        if result.refusals:
            entry["reasons"] = result.reasons
        model = run.algorithm.averaged
        ended = EndedRound(
            result.number,
            result.ended,
            entry=entry,
            weights=None if model is None else model.weights.astype("<f8").tobytes(),
            tallies=result.tallies,
            began=self._began,
            unstored=result.unstored,
        )
        run.store.end_run_round(run.files.name, run.state.as_json(), ended)

    def _status(self, event: str, number: int, asked: int, reports: int) -> dict[str, Any]:
        """The fields of a status now, with `reports` of the open round."""
        run = self._run
        return {
            "event": event,
            "number": number,
            "asked": asked,
            "reports": reports,
            "round": run.state.rounds + 1,
            "rounds": run.algorithm.rounds,
            "total_reports": run.state.reports + reports,
            "wanted_reports": run.algorithm.reports,
            "seconds": run.elapsed,
            **vars(self._driver.status),
        }

    # After a round

    def _after_round(self) -> None:
        schedule = self._run.schedule
        if schedule is None:
            return
        if self._run.state.rounds % schedule.model_every == 0:
            self._publish()
        if self._without_report:  # nothing is gained by asking at once
            pause = schedule.patience * 2 ** min(self._without_report, _MOST_DOUBLINGS)
            self._starts = max(self._starts, time.monotonic() + min(_LONGEST_PAUSE, pause))

    def _publish(self) -> None:
        """Send the devices what was learned since the last time, for their own use."""
        run = self._run
        if not run.state.reports or self._published == run.state.rounds:
            return
        model = run.algorithm.averaged
        if model is not None:
            self._published = run.state.rounds
            self._driver.publish(model)
