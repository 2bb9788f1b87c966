"""The rounds of a run: each asks devices, lets the algorithm learn, and saves the state."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ternhost.count.rounds import RoundResult
from ternhost.errors import RefusedError
from ternhost.learn.devices import Devices
from ternhost.learn.distributions.distribution_entries import thinned
from ternhost.reach import refusals
from ternhost.reach.driver import Cohorts, Driver, RoundProgress
from ternhost.run import announcement, costs
from ternhost.run.status import END, PROGRESS, ROUND, Status
from ternhost.store import labels
from ternhost.store.restored import last_restore
from ternhost.store.runs import EndedRound
from ternhost.text import counted

if TYPE_CHECKING:
    from ternhost.run.run import Run

# Of a run that serves a fleet:
_IDLE = 0.5  # seconds to wait if there is no device to ask
_LONGEST_PAUSE = 30.0  # seconds to wait after a round without a report
_MOST_DOUBLINGS = 10  # of this pause; enough to reach the longest, and no overflow
_MOST_REFUSED = 5  # the run ends after so many refused rounds in a row, which take about a minute


class RoundLoop:
    """The rounds of a run over one driver, from this start of the host to its end."""

    def __init__(self, run: Run, driver: Driver) -> None:
        """Prepare the rounds of a run; `run` then asks them.

        run: its state and store are updated after each round. driver: carries the questions to the
        devices; it must be open.
        """
        self._run = run
        self._driver = driver
        self.members: Sequence[int] | Devices = ()  # the ids of the devices when the loop began
        self._asked: Sequence[int] | Devices = ()  # the devices from which the last round was asked

        # When rounds begin.
        self._next_start = 0.0  # the earliest time of the next round, by the monotonic clock
        self._began = 0.0  # when the last round began, in seconds since 1970

        # Whether the store lacks rounds that boards know, and the first devices of the boards whose
        # word on what they have spent was counted.
        self._is_restored = last_restore(run.store) is not None and not run.fleet.provisions
        self._counted_boards: set[int | None] = set()

        # Rounds without a report, in a row.
        self._silent_rounds = 0  # whatever the reason
        self._refused_rounds = 0  # because devices refused

        self._bound_reached = False  # whether the fleet allows no further round
        self._published_rounds = 0  # how many rounds had ended when devices last got the model
        # How many rounds had ended when the store was last read, and who had reported by then.
        self._reporters: tuple[int, Devices] | None = None

    def rounds(self) -> Iterator[Status]:
        """Ask rounds until the algorithm is done, the run is stopped, or no device may be asked.

        Yields the status of each round when it has ended and its results are in the store. Raises
        TernError.
        """
        run, driver = self._run, self._driver
        self.members = run.members(driver)
        self._asked = self.members
        if not run.fleet.simulated and run.schedule is None:
            self._note_fleet()
        open_rounds = driver.resume()  # the numbers of the rounds that an earlier start left open
        if not run.state.rounds:
            self._require_labels()
            was_announced = bool(open_rounds)
            announcement.announce_costs(run, driver, self.members, again=was_announced)
            self._counted_boards |= self._boards_that_tell
        self._count_restored()

        while not self._is_over:
            if open_rounds:
                number: int | None = open_rounds.pop(0)
            else:
                number = self._open_next()
            if number is None:
                continue  # no round was opened, but time has passed: see again if the run is over
            self._began = time.time()
            self._count_restored()
            result = self._collect(number)
            if result is None:  # the run was stopped
                break
            status = self.learn(result)
            self._after_round()
            yield status
        self._count_restored()  # boards that were heard during the last round
        if run.algorithm.done or run.schedule is not None:
            self._publish()

    def _count_restored(self) -> None:
        """Count what boards say that they have spent, if the store was restored from a copy.

        A restored store lacks rounds, and only boards know what these cost. It is counted when the
        run goes on, and whenever a further board is heard.
        """
        if not self._is_restored:
            return
        boards = self._boards_that_tell
        if boards <= self._counted_boards:
            return
        is_first_count = not self._counted_boards
        self._counted_boards |= boards
        announcement.count_restored(self._run, self._driver, self._asked, warns=is_first_count)

    @property
    def _boards_that_tell(self) -> set[int | None]:
        """The first devices of the boards that say what they have spent; None: of a site's."""
        return {budget.first for budget in self._driver.budgets}

    def _note_fleet(self) -> None:
        """Tell the user how many boards and clients there are."""
        run = self._run
        found = counted(len(self._driver.devices), "client")
        if run.fleet.count:
            found = f"{counted(run.fleet.count, 'board')} with {found}"
        run.watcher.note(f"found {found}")

    @property
    def _is_over(self) -> bool:
        """Whether no further round is to begin."""
        run = self._run
        if run.algorithm.done or run.stopped or self._bound_reached:
            return True
        # A run that serves a fleet ends if devices refuse again and again.
        return run.schedule is not None and self._refused_rounds >= _MOST_REFUSED

    # Opening a round

    def _open_next(self) -> int | None:
        """Open the next round if one may begin now, and return its number.

        Otherwise wait for a while and return None: it is too early, or there is no device to ask.
        Return None, too, if the fleet limits what its devices may disclose (a privacy bound), and
        the limit allows no further round.
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

        planned_number = run.state.first_round + run.state.rounds
        number = driver.next_round(planned_number)
        try:
            driver.open(number, self._cohorts(number))
        except RefusedError as error:  # the fleet's bound allows no further round
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
        """Return the questions of a round, each with the devices that get it (a cohort).

        number: the number of the round.
        """
        algorithm = self._run.algorithm
        cohorts = algorithm.cohorts(self._asked)
        pools = algorithm.pools(self._asked)
        if pools is None:
            return cohorts
        # Each cohort is a random part of a larger pool of devices. Some drivers draw that part
        # themselves; others return the cohorts as they are.
        return self._driver.drawn(number, cohorts, pools)

    def _require_labels(self) -> None:
        """Raise UsageError if devices have labels of a kind that the algorithm cannot learn from."""
        run = self._run
        if run.algorithm.label_classes is None or run.fleet.simulated:
            return
        labels.require(run.store, self.members, run.algorithm.label_classes)

    def _served_members(self) -> Sequence[int] | Devices:
        """Return the ids of the devices to ask now, in a run that serves a fleet without end.

        Some algorithms ask each device once. Then these are the devices that have not reported yet,
        and once there are none, the model is sent to all devices.
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
        """Return the ids of the devices that have reported in this run.

        They are read from the store at most once after each round, since that takes long.
        """
        run = self._run
        if self._reporters is not None:
            rounds_when_read, devices = self._reporters
            if rounds_when_read == run.state.rounds:
                return devices
        devices = costs.devices_that_reported(run.store, run.files.name)
        self._reporters = run.state.rounds, devices
        return devices

    # Collecting reports

    def _collect(self, number: int) -> RoundResult | None:
        """Collect the reports of an open round and return its result; None if the run was stopped.

        number: of the round. If all devices refused, the result has no reports. But if they will
        refuse in every other round as well, this raises AllRefused.
        """

        def on_progress(progress: RoundProgress) -> None:
            """Tell the run's watcher how many reports there are."""
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
        """Return whether no device will ever report in this run, and none has paid for a report.

        That is so if, in the first round, all devices refuse for a reason that will not change. It
        is never so for a run that serves a fleet: other devices may join it.

        result: of a round that all devices refused.
        """
        run = self._run
        is_first_round = run.schedule is None and not run.state.rounds
        return is_first_round and refusals.nobody_will_report(result)

    def _warn_of_refusal(self, number: int, error: refusals.AllRefused) -> None:
        """Warn that all devices refused a round, unless the last warning had the same hint.

        Messages contain the number of devices, which changes from round to round, so hints are
        compared instead. There is no warning after the last round of a run without any report: then
        the run ends with this error.

        number: of the round.
        """
        state = self._run.state
        is_last_round = state.rounds + 1 == self._run.algorithm.rounds
        ends_without_report = is_last_round and not state.reports
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

    def learn(self, result: RoundResult) -> Status:
        """Let the algorithm learn from a round, save the run's state, and tell the watcher.

        result: the reports of the round that has just ended, and who refused. Returns what the
        watcher was told.
        """
        run = self._run
        run.algorithm.learn(result, self._asked)
        self._count_rounds_without_report(result)

        wanted_reports = run.options.terms.reports(result.asked)  # how many end a round at once
        run.state.add_round(result, wanted_reports)
        run.state.seconds = run.elapsed
        run.state.algorithm = run.algorithm.state()
        run.state.estimates = [thinned(entry) for entry in run.algorithm.entries()]
        run.state.planned = run.algorithm.rounds
        figures = run.algorithm.figures()  # such as the accuracy of the model
        chosen = run.algorithm.chosen()  # settings of this round, such as its learning rate
        self._store(result, {**figures, **chosen})

        # reports=0: the state, to which the status adds them, has this round's reports already.
        values = self._status(END, result.number, result.asked, reports=0)
        values |= {
            "round": run.state.rounds,
            "ended": result.ended,
            "reports": result.reports,
            "refusals": len(result.refusals),
            "reasons": result.reasons,
            "figures": figures,
            "chosen": chosen,
        }
        status = Status(**values)
        run.watcher.status(status)
        return status

    def _count_rounds_without_report(self, result: RoundResult) -> None:
        """Count how many rounds in a row had no report, and how many were refused by devices."""
        if result.reports:
            self._silent_rounds = 0
            self._refused_rounds = 0
            return
        self._silent_rounds += 1
        if result.refusals:
            self._refused_rounds += 1
        else:
            self._refused_rounds = 0

    def _store(self, result: RoundResult, figures: Mapping[str, float]) -> None:
        """Write the end of a round into the store, with the run's state and model, as one change.

        So an interruption leaves either all of it in the store or nothing. figures: the algorithm's
        numbers about this round, such as an accuracy, for the history of the run.
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
        moved_by_liars = run.algorithm.moved_by_liars()
        if moved_by_liars is not None:
            entry["liars"] = moved_by_liars
        weights = None
        model = run.algorithm.averaged
        if model is not None:
            weights = model.weights.astype("<f8").tobytes()  # little-endian float64
        ended = EndedRound(
            result.number,
            result.ended,
            entry=entry,
            weights=weights,
            tallies=result.tallies,
            began=self._began,
            unstored=result.unstored,
        )
        run.store.end_run_round(run.files.name, run.state.as_json(), ended)

    def _status(self, event: str, number: int, asked: int, reports: int) -> dict[str, Any]:
        """Return the fields of a `Status`, which tells observers how far the run is.

        event: ROUND, PROGRESS or END (`run.status`). number: of the round. asked: how many devices
        it asks. reports: how many have reported so far.
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
        """Send the devices of a served fleet the model when it is due, and pause if none reported.

        The pause doubles with each further round without a report, up to `_LONGEST_PAUSE`: nothing
        is gained by asking again at once.
        """
        schedule = self._run.schedule
        if schedule is None:
            return
        if self._run.state.rounds % schedule.model_every == 0:
            self._publish()
        if self._silent_rounds:
            doublings = min(self._silent_rounds, _MOST_DOUBLINGS)
            pause = min(_LONGEST_PAUSE, schedule.patience * 2**doublings)
            earliest_start = time.monotonic() + pause
            self._next_start = max(self._next_start, earliest_start)

    def _publish(self) -> None:
        """Send the devices the learned model for their own use, if they do not have it yet."""
        run = self._run
        if not run.state.reports or self._published_rounds == run.state.rounds:
            return
        model = run.algorithm.published
        if model is not None:
            self._published_rounds = run.state.rounds
            self._driver.publish(model)
