"""A run from beginning to end: one algorithm on one fleet.

Its store holds all that it needs to go on after a crash at any line; emulated boards lie in its
directory.
"""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from ternhost.count.rounds import RoundResult
from ternhost.errors import DeviceError, InterruptedByUser, RefusedError, UsageError
from ternhost.files import Closing
from ternhost.learn.base import ALGORITHMS, Devices, Learner, ranges_of
from ternhost.learn.schedule import Schedule
from ternhost.options import flag
from ternhost.provision.boards import board_directories
from ternhost.reach import fleet, refusals
from ternhost.reach.driver import Cohorts, Driver, RoundProgress
from ternhost.reach.fleet import Fleet, RunContext
from ternhost.run import announcement, begin, costs, guarantees, plugins
from ternhost.run import directory as run_directory
from ternhost.run import result as results
from ternhost.run.directory import RunFiles
from ternhost.run.options import RunOptions
from ternhost.run.status import END, PROGRESS, ROUND, Status, Watcher
from ternhost.store.round_numbers import skip
from ternhost.store.runs import FINISHED, PREPARING, RUNNING
from ternhost.store.store import Store
from ternhost.text import counted

_MOST_PAUSE = 30.0  # seconds after a round of a served fleet that nobody answered
_MOST_REFUSED = 5  # rounds in a row that all devices of a served fleet refuse: about a minute
_DOUBLINGS = 10
_IDLE = 0.5
_OF_A_DRIVER = ("holdings", "modules", "individual")  # attributes of a learner that a driver needs


class Run(Closing):
    """One run.

    Make it with `begin` or `resume`, then `run()`; a context manager that closes its store.
    """

    def __init__(
        self, store: Store, files: RunFiles, watcher: Watcher, algorithm: Learner | None = None
    ) -> None:
        """For a run in the store. algorithm: the learner, if the run begins with it now.

        Raises TernError.
        """
        stored = store.run(files.name)
        if stored is None:
            raise UsageError(
                f"{files.store} holds no run {files.name}", hint="'tern runs' lists them"
            )
        plugins.require_all(files.name, stored.asked)
        self.store = store
        self.files = files
        self.options = options = RunOptions.stored(stored.asked)
        self.schedule = options.schedule
        self.fleet: Fleet = fleet.parse(options.fleet)
        self._begins = algorithm is not None
        if algorithm is None:
            if self.fleet.opening:
                watcher.note(self.fleet.opening)
            clients = begin.population(self.fleet, self.schedule, store, stored.asked["devices"])
            algorithm = ALGORITHMS.named(options.algorithm)(options.learning, clients)
        self.algorithm: Learner = algorithm
        self.accounts = costs.accounts(algorithm, options.budget_micro)
        self._status = stored.status
        self.state: dict[str, Any] = dict(stored.state)
        if self.state["algorithm"] is not None:
            self.algorithm.restore(self.state["algorithm"])
        self.watcher = watcher
        self._driver: Driver | None = None
        self._stopped = False
        self._published = self._empty = (
            0  # rounds, when models last went out; rounds without a report
        )
        self._asked: Sequence[int] | Devices = ()  # the members of its last start
        self._heard: tuple[int, Devices] | None = (
            None  # rounds, and the devices that have reported in them
        )
        self._refused = 0  # rounds in a row that every device refused
        self._round_began = 0.0  # seconds since 1970

    @property
    def directory(self) -> Path:
        return self.files.directory

    def close(self) -> None:
        """Close the store."""
        self.store.close()

    # Beginning

    @classmethod
    def begin(
        cls,
        options: RunOptions,
        *,
        store: str | Path | None = None,
        name: str | None = None,
        watcher: Watcher | None = None,
        anew: bool = False,
        parent: Path = run_directory.RUNS,
    ) -> Self:
        """Begin a run in a directory of its own, in `parent`. store: default the fleet's own, or
        one in the run's directory. anew: give up a run of that store that has not finished. Raises
        TernError.
        """
        watcher = watcher or Watcher()
        if opening := fleet.parse(options.fleet).opening:
            watcher.note(opening)
        opened, files, learner = begin.written(options, store, name, anew, parent)
        return cls(opened, files, watcher, learner)

    @classmethod
    def resume(
        cls,
        text: str,
        watcher: Watcher | None = None,
        fleet_now: str | None = None,
        after: int | None = None,
        parent: Path = run_directory.RUNS,
    ) -> Self:
        """Take up the run that `text` names: its name in `parent`, directory, or store. fleet_now:
        its fleet, if the boards are elsewhere by now. after: as `after_round` of RunOptions. Raises
        TernError.
        """
        files = run_directory.find(text, parent)
        store = Store(files.store, create=False)
        try:
            stored = store.run(files.name)
            if stored is not None and not stored.unfinished:
                finished = stored.status == FINISHED
                if not finished or not (files.directory / run_directory.RESULT_NAME).exists():
                    how = "has finished, and nobody reported in it" if finished else "was abandoned"
                    raise UsageError(
                        f"the run {files.name} {how}", hint="begin another: tern train --help"
                    )
            skip(store, after)
            if stored is not None and fleet_now is not None:
                moved = {"fleet": begin.moved(stored.asked["fleet"], fleet_now)}
                store.save_run(files.name, asked={**stored.asked, **moved})
            return cls(store, files, watcher or Watcher())
        except BaseException:
            store.close()
            raise

    @property
    def _boards(self) -> list[Path]:
        return board_directories(self.directory, self.fleet.count)

    def _prepare(self) -> None:
        # Makes the boards, again where that was interrupted: no board has spoken yet.
        if self._status != PREPARING:
            return
        if self.fleet.provisions:
            clients = self._clients
            assert clients is not None
            boards = counted(self.fleet.count, "emulated board")
            self.watcher.note(f"provisioning {counted(clients, 'client')} on {boards}")
            dealt = self._dealt(np.arange(1, clients + 1))
            begin.make_boards(
                self.store, self._boards, self.algorithm, dealt, self.options.budget_micro
            )
        self._status = RUNNING
        self.store.save_run(self.files.name, status=RUNNING)

    @property
    def _clients(self) -> int | None:
        """The number of clients in the run; None: all that there are."""
        if self.algorithm.clients is not None or not self.fleet.provisions:
            return self.algorithm.clients
        return begin.made_clients(self.fleet, self.algorithm)

    def _dealt(self, devices: Sequence[int] | Devices) -> Devices:
        """The devices in the order of the clients: dealt, so that a group is spread over the
        boards.
        """
        rng = np.random.default_rng([self.algorithm.options.seed, 3])
        return rng.permutation(np.asarray(devices, np.int64))

    def _members(self, driver: Driver) -> Sequence[int] | Devices:
        """The device that each client of the run is: those that were there when it began, or all
        that are served.
        """
        if self.schedule is not None or self.fleet.simulated:
            return self._dealt(driver.devices) if self.fleet.provisions else driver.devices
        if not self.state["devices"]:
            self.state["devices"] = ranges_of(driver.devices)
            self._plan_for(len(driver.devices))
        spans = [np.arange(first, last + 1) for first, last in self.state["devices"]]
        dealt = self._dealt(np.concatenate(spans))
        clients = self._clients
        if clients is not None and len(dealt) < clients:
            names = [
                flag(name)
                for name, value in vars(self.options.learning).items()
                if value == clients
            ]
            text = f"the fleet has {len(dealt)} devices, and the run needs {clients}"
            raise UsageError(
                text, hint=f"ask for {names[-1]} {len(dealt)}" if names else "ask fewer devices"
            )
        return dealt[:clients]

    def _plan_for(self, devices: int) -> None:
        """Plan the run for the devices that are there: a store may hold keys of more boards."""
        stored = self.store.run(self.files.name)
        assert stored is not None
        asked = dict(stored.asked)
        if devices != asked["devices"] and not self.fleet.provisions:
            population = begin.population(self.fleet, None, self.store, devices)
            self.algorithm = ALGORITHMS.named(self.options.algorithm)(
                self.options.learning, population
            )
            self.accounts = costs.accounts(self.algorithm, self.options.budget_micro)
            asked |= {"devices": devices, "references": costs.references(self.algorithm, devices)}
        self.store.save_run(self.files.name, asked=asked, state=self.state)

    # Running

    def stop(self) -> None:
        """Stop after the present step; the round under way can be taken up again.

        Safe in a signal handler.
        """
        self._stopped = True
        if self._driver is not None:
            self._driver.stop()

    def run(self) -> dict[str, Any]:
        """Go on until the algorithm is done or `stop` is called, and return the result, which
        result.json gets too unless the run was stopped; the stored result of a run that has
        finished. A run that is refused before any report is taken back. Raises TernError; after
        Ctrl-C, InterruptedByUser.
        """
        if self._status == FINISHED:
            self.watcher.note(f"the run {self.files.name} has finished")
            return results.load(self.directory, self.directory.parent)
        self._started = time.monotonic() - self.state["seconds"]
        try:
            self.files.make()
            self._prepare()
            with self._driving() as driver:
                self._rounds(driver)
            return self._conclude()
        except KeyboardInterrupt:
            raise self._interrupted() from None
        except (DeviceError, RefusedError, UsageError) as error:
            refused = isinstance(
                error, refusals.AllRefused
            )  # also by a run that was interrupted in its first round
            if (self._begins or refused) and not self.state["rounds"]:
                begin.take_back(self.store, self.files, error)
            raise

    @contextmanager
    def _driving(self) -> Iterator[Driver]:
        learner: dict[str, Any] = {name: getattr(self.algorithm, name) for name in _OF_A_DRIVER}
        context = RunContext(
            store=self.store,
            directory=self.directory,
            run=self.files.name,
            terms=self.options.terms,
            warn=self.watcher.warn,
            clients=self._clients,
            seed=self.algorithm.options.seed,
            standing=self.schedule is not None,
            patience=(self.schedule or Schedule()).patience,
            bound=self.options.bound,
            **learner,
        )
        driver = self._driver = self.fleet.driver(context)
        if self._stopped:
            driver.stop()
        with driver:
            yield driver
        self._driver = None

    def _rounds(self, driver: Driver) -> None:
        members = self._members(driver)
        self._asked = members
        if not self.fleet.simulated and self.schedule is None:
            where = f"{counted(self.fleet.count, 'board')} with " if self.fleet.count else ""
            self.watcher.note(f"found {where}{counted(len(driver.devices), 'client')}")
        under_way = driver.resume()
        if not self.state["rounds"]:
            announcement.announce_costs(self, driver, members, again=bool(under_way))
        starts = 0.0
        most_refused = math.inf if self.schedule is None else _MOST_REFUSED
        while not (self.algorithm.done or self._stopped or self._refused >= most_refused):
            now = time.monotonic()
            if under_way:
                number = under_way.pop(0)
            elif now < starts:
                driver.wait(starts - now)
                continue
            else:
                if self.schedule is not None:
                    members = self._members(driver)
                    if self.algorithm.once:
                        members = self._unheard(driver, members)
                    if not len(members):
                        driver.wait(_IDLE)
                        continue
                number = driver.next_round(self.state["first_round"] + self.state["rounds"])
                try:
                    driver.open(number, self._cohorts(driver, number, members))
                except RefusedError as error:  # the bound of what gateways may tell
                    if not self.state["rounds"]:
                        raise
                    self.state["refusal"] = [error.message, error.hint]
                    break
                starts = now + (self.schedule.interval if self.schedule else 0.0)
            self._round_began = time.time()
            if (result := self._collect(driver, number)) is None:
                break
            self._learn(result, members)
            if self.schedule is not None and self.state["rounds"] % self.schedule.model_every == 0:
                self._publish(driver)
            if self.schedule is not None and self._empty:  # nothing is gained by asking at once
                pause = min(_MOST_PAUSE, self.schedule.patience * 2 ** min(self._empty, _DOUBLINGS))
                starts = max(starts, time.monotonic() + pause)
        if self.algorithm.done or self.schedule is not None:
            self._publish(driver)

    def _cohorts(self, driver: Driver, number: int, members: Sequence[int] | Devices) -> Cohorts:
        cohorts = self.algorithm.cohorts(members)
        pools = self.algorithm.pools(members)
        return cohorts if pools is None else driver.drawn(number, cohorts, pools)

    def _unheard(self, driver: Driver, members: Sequence[int] | Devices) -> Devices:
        """The members that have not reported in this run; once there are none, the devices get the
        model.
        """
        if self._heard is None or self._heard[0] != self.state["rounds"]:
            self._heard = self.state["rounds"], costs.heard(self.store, self.files.name)
        unheard = np.setdiff1d(members, self._heard[1])
        if len(members) and not len(unheard) and self._published != self.state["rounds"]:
            self._publish(driver)
            self.watcher.note(
                f"all {counted(len(members), 'device')} have answered; waiting for others"
            )
        return unheard

    def _publish(self, driver: Driver) -> None:
        """Send the devices what was learned since the last time, for their own use."""
        anew = self.state["reports"] and self._published != self.state["rounds"]
        if anew and (averaged := self.algorithm.averaged):
            self._published = self.state["rounds"]
            driver.publish(averaged)

    def _collect(self, driver: Driver, number: int) -> RoundResult | None:
        def on_progress(progress: RoundProgress) -> None:
            event = PROGRESS if progress.reports else ROUND
            self.watcher.status(self._now(event, number, progress.asked, progress.reports))

        try:
            return driver.collect(number, on_progress)
        except refusals.AllRefused as error:
            if self._is_pointless(error.result):
                raise
            _, warned = self.state["refusal"] or (None, "")
            # A run that ends without any report says it at its end.
            last = self.state["rounds"] + 1 == self.algorithm.rounds and not self.state["reports"]
            if (
                not last and error.hint != warned
            ):  # once for each remedy: the number of devices changes
                remedy = f"; {error.hint}" if error.hint else ""
                self.watcher.warn(f"round {number}: {error.message}{remedy}")
            self.state["refusal"] = [error.message, error.hint]
            return error.result

    def _is_pointless(self, result: RoundResult) -> bool:
        """Whether a first round says that no device will ever report in this run, and that none has
        paid.

        To a fleet that is served others may come.
        """
        first = self.schedule is None and not self.state["rounds"]
        return first and refusals.nobody_will_report(result)

    def _learn(self, result: RoundResult, members: Sequence[int] | Devices) -> None:
        self.algorithm.learn(result, members)
        self._empty = 0 if result.reports else self._empty + 1
        self._refused = self._refused + 1 if result.refusals and self._empty else 0
        state, refusals = self.state, len(result.refusals)
        wanted = self.options.terms.reports(result.asked)
        state["rounds"] += 1
        state["reports"] += result.reports
        state["asked"] += result.asked
        state["refusals"] += refusals
        state["missing"] += max(0, wanted - result.reports)
        state["seconds"] = time.monotonic() - self._started
        state["algorithm"], state["planned"] = self.algorithm.state(), self.algorithm.rounds
        figures, chosen = self.algorithm.figures(), self.algorithm.chosen()
        end: dict[str, Any] = {
            "ended": result.ended,
            "reports": result.reports,
            "refusals": refusals,
        }
        entry = {"round": result.number, "asked": result.asked, **end, **figures, **chosen}
        if result.refusals:
            entry["reasons"] = result.reasons
        model = self.algorithm.averaged
        weights = None if model is None else model.weights.astype("<f8").tobytes()
        parts = state, entry, weights, result.tallies, self._round_began, result.unstored
        self.store.end_run_round(self.files.name, result.number, result.ended, *parts)
        status = self._now(END, result.number, result.asked, 0)
        end |= {"figures": figures, "chosen": chosen, "reasons": result.reasons}
        self.watcher.status(replace(status, round=state["rounds"], **end))

    def _now(self, event: str, number: int, asked: int, reports: int) -> Status:
        assert self._driver is not None
        round_facts = {"event": event, "number": number, "asked": asked, "reports": reports}
        return Status(
            round=self.state["rounds"] + 1,
            rounds=self.algorithm.rounds,
            total_reports=self.state["reports"] + reports,
            wanted_reports=self.algorithm.reports,
            seconds=time.monotonic() - self._started,
            **{**round_facts, **vars(self._driver.status)},
        )

    def _interrupted(self) -> InterruptedByUser:
        if self._status == FINISHED:
            text = f"interrupted; the run has finished: see {self.directory / run_directory.RESULT_NAME}"
            return InterruptedByUser(
                text, hint=f"'tern runs --draw {self.directory}' makes its report"
            )
        under_way = sum(self.store.report_count(each.number) for each in self.store.open_rounds())
        rounds = self.algorithm.rounds
        where = f"in round {self.state['rounds'] + 1}" + (f" of {rounds}" if rounds else "")
        if self.algorithm.done:
            where = "after the last round, before there was a result"
        text = f"interrupted {where}; the {self.state['reports'] + under_way:,} reports so far are safe"
        again = f"go on with: tern {self.algorithm.command} --resume {self.files.name}"
        return InterruptedByUser(
            text, hint="go on with the same tern serve" if self.schedule else again
        )

    # The end

    def _conclude(self) -> dict[str, Any]:
        if self._stopped and not self.algorithm.done:
            return self._result()
        state = self.state
        result = self._result() if state["reports"] or not state["rounds"] else {}
        if result:
            run_directory.write_json(self.directory / run_directory.RESULT_NAME, result)
        self._status = FINISHED
        self.store.save_run(self.files.name, status=FINISHED)
        if self.fleet.provisions and self.schedule is None:  # a served fleet may go on
            run_directory.pack_boards(self.directory, self.watcher.warn)
        if state["refusal"] is not None and not (result and self.algorithm.done):
            raise RefusedError(*state["refusal"])
        if not result:
            hint = (
                "check the boards ('tern device ping BOARD'), or give them longer with --deadline"
            )
            raise DeviceError(
                f"no device reported in {counted(state['rounds'], 'round')}", hint=hint
            )
        return result

    def _result(self) -> dict[str, Any]:
        if self.schedule is not None:  # devices have come and gone: its cost is known only now
            rounds, devices = self.state["rounds"], len(self._asked)
            group = self.schedule.group(devices)
            self.algorithm.times = costs.most_asked(
                self.store, self.files.name, rounds, group, devices
            )
            disclosures, delta = (
                announcement.disclosures_before(self, self._asked),
                float(self.options.delta),
            )
            classes = guarantees.of_classes(
                self.algorithm, disclosures, self._asked, delta, fixed=False
            )
            self.state["guarantees"] = [each.as_json() for each in classes]
            self.accounts = costs.accounts(self.algorithm, None)
            for account in self.accounts:
                account.budget = costs.ledger_budget(self.algorithm, self.options.budget_micro)
        return results.whole(self, self._boards if self.fleet.provisions else [])
