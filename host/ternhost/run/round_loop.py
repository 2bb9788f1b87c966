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
_MOST_DOUBLINGS = 10  # of the pause, whose length doubles with every round without a report
_MOST_REFUSED = 5  # rounds in a row that all devices of a served fleet refuse: about a minute


class RoundLoop:
    """The rounds of a run over one driver, from this start of the host to its end."""

    def __init__(self, run: Run, driver: Driver) -> None:
        """run: whose state and store are kept up to date. driver: open, asks the devices."""
        self._run = run
        self._driver = driver
        self.members: Sequence[int] | Devices = ()  # the devices when the loop began
        self._asked: Sequence[int] | Devices = ()  # the members that the last round asked
        self._next_start = 0.0  # of the next round, by the monotonic clock
        self._began = 0.0  # when the last round began, seconds since 1970
        self._published_rounds = 0  # how many rounds had ended when devices last got the model
        self._silent_rounds = 0  # rounds in a row without a report
        self._refused_rounds = 0  # rounds in a row that every device refused
        self._bound_reached = False  # the fleet keeps a bound, and asks nobody any more
        # How many rounds had ended when the store was last read, and who had reported by then.
        self._reporters: tuple[int, Devices] | None = None

    def run(self) -> None:
        """Go on until the algorithm is done, the run is stopped, or no device may be asked.

        Raises TernError.
        """
        run, driver = self._run, self._driver
        self.members = run.members(driver)
        self._asked = self.members
        if not run.fleet.simulated and run.schedule is None:
            self._note_fleet()
        open_rounds = driver.resume()  # the numbers of rounds that an earlier start has opened
        if not run.state.rounds:
            announcement.announce_costs(run, driver, self.members, again=bool(open_rounds))

        while not self._is_over:
            if open_rounds:
                number: int | None = open_rounds.pop(0)
            else:
                number = self._open_next()
            if number is None:  # it has waited; there may be a reason to end by now
                continue
            self._began = time.time()
            result = self._collect(number)
            if result is None:  # stopped
                break
            self.learn(result)
            self._after_round()
        if run.algorithm.done or run.schedule is not None:
            self._publish()

    def _note_fleet(self) -> None:
        """Say how many boards and clients the driver has found."""
        run = self._run
        found = counted(len(self._driver.devices), "client")
        if run.fleet.count:
            found = f"{counted(run.fleet.count, 'board')} with {found}"
        run.watcher.note(f"found {found}")

    @property
    def _is_over(self) -> bool:
        """Whether no further round is to be opened."""
        run = self._run
        if run.algorithm.done or run.stopped or self._bound_reached:
            return True
        return run.schedule is not None and self._refused_rounds >= _MOST_REFUSED

    # Opening a round

    def _open_next(self) -> int | None:
        """Open the next round and return its number.

        Return None after waiting instead, because it is too early or no device is to be asked,
        and if the fleet's bound allows no further round.
        """
        run, driver = self._run, self._driver
        now = time.monotonic()
        if now < self._next_start:
            driver.wait(self._next_start - now)
            return None
        if run.schedule is not None:
            self._asked = self._served_members()
            if not len(self._asked):
                driver.wait(_IDLE)
                return None

        number = driver.next_round(run.state.first_round + run.state.rounds)
        try:
            driver.open(number, self._cohorts(number))
        except RefusedError as error:  # raised by a fleet that keeps a bound
            if not run.state.rounds:
                raise
            run.state.refusal = error.message, error.hint
            self._bound_reached = True
            return None
        self._next_start = now
        if run.schedule is not None:
            self._next_start += run.schedule.interval
        return number

    def _cohorts(self, number: int) -> Cohorts:
        """Return the questions of a round, each with the devices that it is for."""
        algorithm = self._run.algorithm
        cohorts = algorithm.cohorts(self._asked)
        pools = algorithm.pools(self._asked)
        if pools is None:
            return cohorts
        # The driver draws the devices of each cohort from its pool.
        return self._driver.drawn(number, cohorts, pools)

    def _served_members(self) -> Sequence[int] | Devices:
        """Return the devices of a served fleet that are to be asked now.

        For an algorithm that asks each device once, these are the devices that have not reported
        yet. Once all have, they are sent the model.
        """
        run = self._run
        members = run.members(self._driver)
        if not run.algorithm.once:
            return members
        unasked_devices = np.setdiff1d(members, self._devices_that_reported())
        all_have_reported = len(members) > 0 and not len(unasked_devices)
        if all_have_reported and self._published_rounds != run.state.rounds:
            self._publish()
            devices = counted(len(members), "device")
            run.watcher.note(f"all {devices} have answered; waiting for others")
        return unasked_devices

    def _devices_that_reported(self) -> Devices:
        """Return the devices that have reported in this run; the store is read once a round."""
        run = self._run
        if self._reporters is None or self._reporters[0] != run.state.rounds:
            devices = costs.devices_that_reported(run.store, run.files.name)
            self._reporters = run.state.rounds, devices
        return self._reporters[1]

    # Collecting reports

    def _collect(self, number: int) -> RoundResult | None:
        """Collect the reports of a round and return its result; None if the run was stopped.

        A round that all devices refused has a result, too, unless the run is pointless then:
        that raises AllRefused.
        """

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
        """Return whether no device will ever report in this run, and none has paid for it.

        That is known after the first round, if all devices have refused for good. To a served
        fleet other devices may come.
        """
        run = self._run
        is_first = run.schedule is None and not run.state.rounds
        return is_first and refusals.nobody_will_report(result)

    def _warn_of_refusal(self, number: int, error: refusals.AllRefused) -> None:
        """Warn that all devices refused a round, once for each hint.

        The message itself has the number of devices in it, which changes from round to round. A
        run that ends without any report says it at its end instead.
        """
        state = self._run.state
        ends_without_report = state.rounds + 1 == self._run.algorithm.rounds and not state.reports
        earlier_hint: str | None = ""
        if state.refusal is not None:
            earlier_hint = state.refusal[1]
        state.refusal = error.message, error.hint
        if ends_without_report or error.hint == earlier_hint:
            return

        text = f"round {number}: {error.message}"
        if error.hint:
            text += f"; {error.hint}"
        self._run.watcher.warn(text)

    # Learning

    def learn(self, result: RoundResult) -> None:
        """Have the algorithm learn from a round, and keep what it has learned."""
        run = self._run
        run.algorithm.learn(result, self._asked)
        if result.reports:
            self._silent_rounds = 0
        else:
            self._silent_rounds += 1
        if result.refusals and not result.reports:
            self._refused_rounds += 1
        else:
            self._refused_rounds = 0

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
        """End a round in the store, and save the run's state and model with it.

        figures: of the round, for the history of the run.
        """
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
        """Return the fields of a `Status` of the open round.

        event: of `run.status`. number: of the round. asked: the devices that it asks. reports:
        those that have come so far.
        """
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
        """Send a served fleet the model when it is due, and pause if nobody has reported."""
        schedule = self._run.schedule
        if schedule is None:
            return
        if self._run.state.rounds % schedule.model_every == 0:
            self._publish()
        if self._silent_rounds:  # nothing is gained by asking again at once
            pause = schedule.patience * 2 ** min(self._silent_rounds, _MOST_DOUBLINGS)
            earliest_start = time.monotonic() + min(_LONGEST_PAUSE, pause)
            self._next_start = max(self._next_start, earliest_start)

    def _publish(self) -> None:
        """Send the devices what was learned since the last time, for their own use."""
        run = self._run
        if not run.state.reports or self._published_rounds == run.state.rounds:
            return
        model = run.algorithm.averaged
        if model is not None:
            self._published_rounds = run.state.rounds
            self._driver.publish(model)
