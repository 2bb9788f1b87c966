"""A run from beginning to end: one algorithm on one fleet.

Its store holds all that it needs to go on after a crash at any line; emulated boards lie in its
directory.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np

from ternhost.datasets import in_memory
from ternhost.datasets.in_memory import InMemory
from ternhost.datasets.schemas import findings
from ternhost.datasets.schemas.findings import Finding
from ternhost.errors import DeviceError, InterruptedByUser, RefusedError, TernError, UsageError
from ternhost.files import Closing
from ternhost.learn.base import Learner
from ternhost.learn.devices import Devices, ranges_of
from ternhost.learn.schedule import Schedule
from ternhost.options import flag
from ternhost.provision.boards import board_directories
from ternhost.reach import fleet, refusals
from ternhost.reach.driver import Driver
from ternhost.reach.fleet import Fleet, RunContext, SimulatedClients
from ternhost.run import announcement, begin, costs, guarantees, plugins, tables
from ternhost.run import directory as run_directory
from ternhost.run import result as results
from ternhost.run.begin import Place
from ternhost.run.directory import RunFiles
from ternhost.run.options import RunOptions
from ternhost.run.round_loop import RoundLoop
from ternhost.run.state import RunState
from ternhost.run.status import Status, Watcher
from ternhost.store.round_numbers import skip
from ternhost.store.runs import FINISHED, PREPARING, RUNNING, StoredRun
from ternhost.store.store import Store
from ternhost.text import counted


def _require_resumable(stored: StoredRun, files: RunFiles) -> None:
    """Raise UsageError for a run that can neither continue nor show a result.

    That is a run that was abandoned, and one that has finished without a result.
    """
    if stored.unfinished:
        return
    has_result = (files.directory / run_directory.RESULT_NAME).exists()
    if stored.status == FINISHED and has_result:
        return

    reason = "was abandoned"
    if stored.status == FINISHED:
        reason = "has finished, and nobody reported in it"
    raise UsageError(f"the run {files.name} {reason}", hint="begin another: tern train --help")


def hand_over(text: str, parent: Path, data: InMemory) -> None:
    """Hand the data of a run over again, which the process that began it had in memory.

    text, parent: the run, as of `Run.resume`. Raises UsageError if its data were not in memory.
    """
    files = run_directory.find(text, parent)
    with Store(files.store, create=False, beside=True) as store:
        stored = store.run(files.name)
    if stored is None:
        return  # `Run.resume` says so
    name = str(stored.asked["learning"].get("data", ""))
    if not in_memory.is_name(name):
        text = f"the data of the run {files.name} are {name}, which is not in memory"
        raise UsageError(text, "leave data out")
    in_memory.keep_as(name, data)


class Run(Closing):
    """One run: an algorithm that asks the devices of a fleet, round after round.

    Make it with `begin` (a new run) or `resume` (a stored one), then call `run()`. It is a context
    manager that closes the run's store.
    """

    def __init__(
        self, store: Store, files: RunFiles, watcher: Watcher, algorithm: Learner | None = None
    ) -> None:
        """Load a run from its open store.

        watcher: receives the run's status and messages for people. algorithm: the learner of a new
        run, which was made when its options were checked; None: the run is resumed, and its learner
        is made here from the stored options. Raises TernError, for instance if the store does not
        have the run.
        """
        stored = store.run(files.name)
        if stored is None:
            raise UsageError(
                f"{files.store} holds no run {files.name}", hint="'tern runs' lists the runs"
            )
        # Raises UsageError if a plugin that the run needs is not installed. `asked` are its settings.
        plugins.require_all(files.name, stored.asked)

        self.store = store
        self.files = files
        self.watcher = watcher
        self.options = RunOptions.stored(stored.asked)
        self.fleet: Fleet = fleet.parse(self.options.fleet)
        found = stored.asked.get("data_findings", ())
        self.data_findings = [Finding(**finding) for finding in found]

        # The algorithm, and what it has learned so far.
        self._is_new = algorithm is not None
        if algorithm is None:
            algorithm = self._resumed_learner(devices=stored.asked["devices"])
        self.algorithm: Learner = algorithm
        self.accounts = costs.accounts(algorithm, self.options.budget_micro)
        self.state = RunState.from_json(stored.state)
        if self.state.algorithm is not None:
            self.algorithm.restore(self.state.algorithm)

        # How far the run is.
        self._status = stored.status
        self._driver: Driver | None = None  # set while the fleet's devices are being asked
        self.stopped = False  # whether `stop` was called
        self._known_result: dict[str, Any] | None = None  # set at the end
        # The time by the monotonic clock at which the run would have started, had it never paused.
        self._started = 0.0

    def _resumed_learner(self, devices: int | None) -> Learner:
        """Make the learner of a stored run from its options.

        devices: how many devices the fleet had when the run began; None: it is counted now.
        """
        if self.fleet.opening:
            self.watcher.note(self.fleet.opening)
        clients = begin.population(self.fleet, self.schedule, self.store, devices)
        return begin.make_learner(self.options, clients)

    @property
    def directory(self) -> Path:
        """The directory with the run's files, such as its result and report."""
        return self.files.directory

    @property
    def schedule(self) -> Schedule | None:
        """When rounds begin, for a run that serves a fleet without end; None for one that ends."""
        return self.options.schedule

    @property
    def elapsed(self) -> float:
        """The seconds that the run has taken so far, over all starts of the host."""
        return time.monotonic() - self._started

    def close(self) -> None:
        """Close the store."""
        self.store.close()

    # Beginning

    @classmethod
    def begin(
        cls, options: RunOptions, place: Place | None = None, watcher: Watcher | None = None
    ) -> Self:
        """Create a new run with its own directory, and return it; `run` then starts it.

        place: where the run's files are kept; None: in a directory of `RUNS` that is named by the
        time. watcher: receives status and messages; None: nobody does. Raises TernError.
        """
        if place is None:
            place = Place()
        if watcher is None:
            watcher = Watcher()
        kind = fleet.parse(options.fleet)
        if kind.opening:  # a sentence about what takes long as this kind of fleet is opened
            watcher.note(kind.opening)
        store, files, learner = begin.create_run(options, place)
        run = cls(store, files, watcher, learner)
        findings.warn_of(run.data_findings, run.options.learning.data, watcher.warn)
        return run

    @classmethod
    def resume(
        cls,
        text: str,
        watcher: Watcher | None = None,
        fleet_now: str | None = None,
        after: int | None = None,
        parent: Path = run_directory.RUNS,
    ) -> Self:
        """Load a run that was interrupted, so that `run` continues it.

        text: names the run by its name in `parent`, its directory, or its store. fleet_now: the
        `KIND:...` of the fleet, if the boards have moved, for instance to another port; None: the
        stored one. after: the number of a round after which the run continues, for a store that was
        restored from a copy and does not know the last rounds; None: it knows them all. parent: the
        directory of all runs. Raises TernError.
        """
        if watcher is None:
            watcher = Watcher()
        files = run_directory.find(text, parent)
        store = Store(files.store, create=False)
        try:
            stored = store.run(files.name)
            if stored is not None:
                _require_resumable(stored, files)
            skip(store, after)  # so that the next round has a larger number than `after`
            if stored is not None and fleet_now is None:
                fleet_now = fleet.parse(stored.asked["fleet"]).moved_with(files.store)
            if stored is not None and fleet_now is not None:
                new_fleet = begin.moved_fleet(stored.asked["fleet"], fleet_now)
                store.save_run(files.name, asked={**stored.asked, "fleet": new_fleet})
            return cls(store, files, watcher)  # raises UsageError if `stored` is None
        except BaseException:
            store.close()
            raise

    @property
    def _boards(self) -> list[Path]:
        """The directories of the emulated boards that tern makes for this run."""
        return board_directories(self.directory, self.fleet.count)

    def _prepare(self) -> None:
        """Make the emulated boards of a new run, and mark the run as running.

        If the host was stopped while it made them, the run is still marked as new, and all boards
        are made again: no device has answered yet.
        """
        if self._status != PREPARING:
            return
        if self.fleet.provisions:
            clients = self._clients
            assert clients is not None
            boards = counted(self.fleet.count, "emulated board")
            self.watcher.note(f"provisioning {counted(clients, 'client')} on {boards}")
            device_ids = np.arange(1, clients + 1)
            begin.make_boards(
                self.store,
                boards=self._boards,
                algorithm=self.algorithm,
                dealt=self._dealt(device_ids),
                budget=self.options.budget_micro,
            )
        self._status = RUNNING
        self.store.save_run(self.files.name, status=RUNNING)

    @property
    def _clients(self) -> int | None:
        """The number of clients that take part in the run; None: all devices of the fleet."""
        if self.fleet.provisions:
            return begin.made_clients(self.fleet, self.algorithm)
        return self.algorithm.clients

    def _dealt(self, devices: Sequence[int] | Devices) -> Devices:
        """Shuffle device ids: the first one of the result becomes client 0 of the run, and so on.

        The seed of the run decides the order. Neighbouring ids are on the same board, and a group
        that is asked in a round has neighbouring clients. Shuffled, each group is spread over all
        boards.
        """
        run_seed = self.algorithm.options.seed
        # The constant 3 makes these random numbers differ from those of the seed's other uses.
        rng = np.random.default_rng([run_seed, 3])
        return rng.permutation(np.asarray(devices, np.int64))

    def members(self, driver: Driver) -> Sequence[int] | Devices:
        """Return the ids of the devices that take part in the run, in the order of its clients.

        A run that ends by itself keeps the devices that were there when it began. A run that serves
        a fleet, or asks simulated clients, has all devices that are there now. Raises UsageError if
        there are fewer devices than the run needs.
        """
        if self.schedule is not None or self.fleet.simulated:
            if self.fleet.provisions:
                return self._dealt(driver.devices)
            return driver.devices

        if not self.state.devices:  # the run's first start
            self.state.devices = ranges_of(driver.devices)
            self._plan_for(len(driver.devices))
        spans = [np.arange(first, last + 1) for first, last in self.state.devices]
        dealt = self._dealt(np.concatenate(spans))
        clients = self._clients
        if clients is not None and len(dealt) < clients:
            raise self._too_few_devices(len(dealt), clients)
        return dealt[:clients]

    def _too_few_devices(self, devices: int, clients: int) -> UsageError:
        """Return the error for a fleet that has fewer devices than the run needs clients.

        If an option of the algorithm has the number of clients as its value, the hint names this
        option.
        """
        hint = "ask fewer devices"
        for name, value in vars(self.options.learning).items():
            if value == clients:
                hint = f"use {flag(name)} {devices}"
        text = f"the fleet has {devices} devices, and the run needs {clients}"
        return UsageError(text, hint=hint)

    def _plan_for(self, devices: int) -> None:
        """Make the learner again for the number of devices that were found, and save that number.

        It was first made for all devices with a key in the store, and some of their boards may not
        be connected.
        """
        stored = self.store.run(self.files.name)
        assert stored is not None
        settings = dict(stored.asked)
        if devices != settings["devices"] and not self.fleet.provisions:
            clients = begin.population(self.fleet, schedule=None, store=self.store, devices=devices)
            self.algorithm = begin.make_learner(self.options, clients)
            self.accounts = costs.accounts(self.algorithm, self.options.budget_micro)
            settings["devices"] = devices
            settings["references"] = costs.references(self.algorithm, devices)
        self.store.save_run(self.files.name, asked=settings, state=self.state.as_json())

    # Running

    def stop(self) -> None:
        """Have the run stop after its present step; `resume` can continue the round in progress.

        Safe in a signal handler.
        """
        self.stopped = True
        if self._driver is not None:
            self._driver.stop()

    def run(self) -> dict[str, Any]:
        """Ask rounds until the algorithm is done or `stop` is called, and return the result.

        The result is also written to result.json, unless the run was stopped. If the run has
        finished before, its stored result is returned. If devices refuse a new run before any
        report, the run is removed from its store. Raises TernError; InterruptedByUser after Ctrl-C.
        """
        for _status in self.rounds():
            pass
        return self.result

    def rounds(self) -> Iterator[Status]:
        """Do what `run` does, and yield the status of each round that has ended.

        `result` has the result afterwards. If the iterator is closed before its end, the run is
        left as it is, and `resume` can continue it.
        """
        if self._status == FINISHED:
            self.watcher.note(f"the run {self.files.name} has finished")
            self._known_result = results.load(self.directory, self.directory.parent)
            return
        # As if the run had started earlier by the time that it took before it was interrupted.
        self._started = time.monotonic() - self.state.seconds
        try:
            self.files.make()
            self._prepare()
            with self._open_driver() as driver:
                loop = RoundLoop(self, driver)
                yield from loop.rounds()
            self._known_result = self._conclude(loop.members)
        except KeyboardInterrupt:
            raise self.interrupted() from None
        except (DeviceError, RefusedError, UsageError) as error:
            if self._never_began(error):
                begin.remove_failed_run(self.store, self.files, error)
            raise

    @property
    def result(self) -> dict[str, Any]:
        """The result, once `run` has returned, or `rounds` has ended."""
        assert self._known_result is not None
        return self._known_result

    def _never_began(self, error: TernError) -> bool:
        """Return whether the run failed with this error before it achieved anything.

        A new run has achieved nothing until a round has ended. The same is true of a run that was
        interrupted in its first round and is resumed, but then it only counts as failed if all
        devices refuse: other errors may pass.
        """
        all_refused = isinstance(error, refusals.AllRefused)
        no_round_ended = self.state.rounds == 0
        return no_round_ended and (self._is_new or all_refused)

    @contextmanager
    def _open_driver(self) -> Iterator[Driver]:
        """Open the driver, which carries questions to the fleet's devices, and close it at the end.

        While it is open, the method `stop` of the run stops it, too.
        """
        learner = self.algorithm
        schedule = self.schedule
        patience = Schedule().patience  # the default
        if schedule is not None:
            patience = schedule.patience
        context = RunContext(
            store=self.store,
            directory=self.directory,
            run=self.files.name,
            terms=self.options.terms,  # when a round ends
            warn=self.watcher.warn,
            clients=SimulatedClients(learner.holdings, self._clients, learner.options.seed),
            modules=learner.modules,  # optional modules of the device library that boards need
            individual=learner.individual,  # whether single reports are needed, or only counts
            standing=schedule is not None,  # whether the run has no end
            options=self.options,
            patience=patience,  # seconds without an answer until a device is asked again
        )
        driver = self.fleet.driver(context)
        self._driver = driver
        if self.stopped:  # before there was a driver that `stop` could have stopped
            driver.stop()
        with driver:
            yield driver
        self._driver = None

    def interrupted(self) -> InterruptedByUser:
        """Return the error to raise after Ctrl-C: it says what is stored, and how to continue."""
        if self._status == FINISHED:
            result_path = self.directory / run_directory.RESULT_NAME
            text = f"interrupted; the run has finished: see {result_path}"
            hint = f"'tern runs --draw {self.directory}' makes its report"
            return InterruptedByUser(text, hint=hint)

        reports = self.state.reports  # of the rounds that have ended
        for open_round in self.store.open_rounds():
            reports += self.store.report_count(open_round.number)
        where = f"in round {self.state.rounds + 1}"
        if self.algorithm.done:
            where = "after the last round, before there was a result"
        elif self.algorithm.rounds:
            where += f" of {self.algorithm.rounds}"
        hint = f"go on with: tern resume {self.files.name}"
        if self.schedule is not None:
            hint = "go on with the same 'tern serve'"
        text = (
            f"interrupted {where}; what was reported so far is safe: {counted(reports, 'report')}"
        )
        return InterruptedByUser(text, hint=hint)

    # The end

    def _conclude(self, members: Sequence[int] | Devices) -> dict[str, Any]:
        """Return the result of the run; unless the run was stopped, end it and write result.json.

        members: the devices of the run, as they were at this start of the host. Raises RefusedError
        or DeviceError if no device reported.
        """
        if self.stopped and not self.algorithm.done:
            return self._result(members)  # the run can be resumed later
        state = self.state
        nobody_reported = state.rounds > 0 and state.reports == 0
        result: dict[str, Any] = {}
        if not nobody_reported:
            result = self._result(members)
            afterwards = "then go on with 'tern resume'"
            run_directory.write_json(
                self.directory / run_directory.RESULT_NAME, result, afterwards=afterwards
            )
            tables.write(result, self.directory, afterwards)

        self._status = FINISHED
        self.store.save_run(self.files.name, status=FINISHED)
        is_served = self.schedule is not None  # then a later start may need its boards again
        if self.fleet.provisions and not is_served:
            self.watcher.note("packing the files of the emulated boards")
            run_directory.pack_boards(self.directory, self.watcher.warn)

        is_complete = not nobody_reported and self.algorithm.done
        if state.refusal is not None and not is_complete:
            message, hint = state.refusal
            raise RefusedError(message, hint)
        if nobody_reported:
            text = f"no device reported in {counted(state.rounds, 'round')}"
            advice = "check the boards ('tern board info BOARD'), or give them longer"
            raise DeviceError(text, hint=f"{advice} with --deadline")
        return result

    def _result(self, members: Sequence[int] | Devices) -> dict[str, Any]:
        """Return the result of the run so far, as a dict for JSON.

        members: the ids of the run's devices.
        """
        if self.schedule is not None:
            # Devices have come and gone, so the privacy cost of the run is known only now.
            self._account_for(members)
        boards = []
        if self.fleet.provisions:
            boards = self._boards
        return results.result_of(self, boards)

    def _account_for(self, members: Sequence[int] | Devices) -> None:
        """Compute the privacy accounts and guarantees of a run that serves a fleet without end.

        They are about the rounds that it has had so far. members: the ids of the run's devices.
        """
        assert self.schedule is not None
        # The guarantees must hold for every device. So they are computed for as many reports as the
        # device has made that was asked most often.
        self.algorithm.times = costs.rounds_of_most_asked_device(
            self.store,
            run=self.files.name,
            rounds=self.state.rounds,
            group=self.schedule.group(len(members)),
            devices=len(members),
        )
        classes = guarantees.of_classes(
            self.algorithm,
            disclosures=announcement.disclosures_before(self, members),
            members=members,
            delta=float(self.options.delta),
            fixed=False,  # nobody fixed the number of rounds in advance
        )
        self.state.guarantees = [each.as_json() for each in classes]
        # The budget limits no round that has passed: without a limit nothing is refused here.
        self.accounts = costs.accounts(self.algorithm, budget=None)
        for account in self.accounts:
            account.budget = costs.ledger_budget(self.algorithm, self.options.budget_micro)
