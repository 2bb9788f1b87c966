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

from ternhost.errors import DeviceError, InterruptedByUser, RefusedError, UsageError
from ternhost.files import Closing
from ternhost.learn.base import ALGORITHMS, Learner
from ternhost.learn.devices import Devices, ranges_of
from ternhost.learn.schedule import Schedule
from ternhost.options import flag
from ternhost.provision.boards import board_directories
from ternhost.reach import fleet, refusals
from ternhost.reach.driver import Driver
from ternhost.reach.fleet import Fleet, RunContext, SimulatedClients
from ternhost.run import announcement, begin, costs, guarantees, plugins
from ternhost.run import directory as run_directory
from ternhost.run import result as results
from ternhost.run.begin import Place
from ternhost.run.directory import RunFiles
from ternhost.run.options import RunOptions
from ternhost.run.round_loop import RoundLoop
from ternhost.run.state import RunState
from ternhost.run.status import Watcher
from ternhost.store.round_numbers import skip
from ternhost.store.runs import FINISHED, PREPARING, RUNNING, StoredRun
from ternhost.store.store import Store
from ternhost.text import counted


def _require_to_go_on(stored: StoredRun, files: RunFiles) -> None:
    """Raise UsageError if there is nothing to go on with, and no result to show."""
    if stored.unfinished:
        return
    if stored.status != FINISHED:
        how = "was abandoned"
    elif not (files.directory / run_directory.RESULT_NAME).exists():
        how = "has finished, and nobody reported in it"
    else:
        return
    raise UsageError(f"the run {files.name} {how}", hint="begin another: tern train --help")


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
        self.state = RunState.from_json(stored.state)
        if self.state.algorithm is not None:
            self.algorithm.restore(self.state.algorithm)
        self.watcher = watcher
        self._driver: Driver | None = None
        self.stopped = False
        self._started = 0.0  # less the seconds that it has taken before

    @property
    def directory(self) -> Path:
        """Its directory."""
        return self.files.directory

    @property
    def schedule(self) -> Schedule | None:
        """Of a served fleet; None for a run that ends by itself."""
        return self.options.schedule

    @property
    def elapsed(self) -> float:
        """The seconds that it has taken so far."""
        return time.monotonic() - self._started

    def close(self) -> None:
        """Close the store."""
        self.store.close()

    # Beginning

    @classmethod
    def begin(
        cls, options: RunOptions, place: Place | None = None, watcher: Watcher | None = None
    ) -> Self:
        """Begin a run in a directory of its own. Raises TernError."""
        watcher = watcher or Watcher()
        opening = fleet.parse(options.fleet).opening
        if opening:
            watcher.note(opening)
        store, files, learner = begin.written(options, place or Place())
        return cls(store, files, watcher, learner)

    @classmethod
    def resume(
        cls,
        text: str,
        watcher: Watcher | None = None,
        fleet_now: str | None = None,
        after: int | None = None,
        parent: Path = run_directory.RUNS,
    ) -> Self:
        """Take up the run that `text` names: its name in `parent`, directory, or store.

        fleet_now: its fleet, if the boards are elsewhere by now. after: as `after_round` of
        RunOptions. Raises TernError.
        """
        files = run_directory.find(text, parent)
        store = Store(files.store, create=False)
        try:
            stored = store.run(files.name)
            if stored is not None:
                _require_to_go_on(stored, files)
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
        """Make the boards, again where that was interrupted: no board has spoken yet."""
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
        if self.fleet.provisions:
            return begin.made_clients(self.fleet, self.algorithm)
        return self.algorithm.clients

    def _dealt(self, devices: Sequence[int] | Devices) -> Devices:
        """The devices in the order of the clients: dealt, so that boards share each group."""
        rng = np.random.default_rng([self.algorithm.options.seed, 3])
        return rng.permutation(np.asarray(devices, np.int64))

    def members(self, driver: Driver) -> Sequence[int] | Devices:
        """The device that each client of the run is.

        Those that were there when it began, or all that are served.
        """
        if self.schedule is not None or self.fleet.simulated:
            return self._dealt(driver.devices) if self.fleet.provisions else driver.devices
        if not self.state.devices:
            self.state.devices = ranges_of(driver.devices)
            self._plan_for(len(driver.devices))
        spans = [np.arange(first, last + 1) for first, last in self.state.devices]
        dealt = self._dealt(np.concatenate(spans))
        clients = self._clients
        if clients is not None and len(dealt) < clients:
            raise self._too_few_devices(len(dealt), clients)
        return dealt[:clients]

    def _too_few_devices(self, devices: int, clients: int) -> UsageError:
        hint = "ask fewer devices"
        for name, value in vars(self.options.learning).items():
            if value == clients:
                hint = f"ask for {flag(name)} {devices}"
        text = f"the fleet has {devices} devices, and the run needs {clients}"
        return UsageError(text, hint=hint)

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
        self.store.save_run(self.files.name, asked=asked, state=self.state.as_json())

    # Running

    def stop(self) -> None:
        """Stop after the present step; the round under way can be taken up again.

        Safe in a signal handler.
        """
        self.stopped = True
        if self._driver is not None:
            self._driver.stop()

    def run(self) -> dict[str, Any]:
        """Go on until the algorithm is done or `stop` is called, and return the result.

        Unless the run was stopped, result.json gets the result, too. A run that has finished
        returns its stored result. A run that is refused before any report is taken back. Raises
        TernError; after Ctrl-C, InterruptedByUser.
        """
        if self._status == FINISHED:
            self.watcher.note(f"the run {self.files.name} has finished")
            return results.load(self.directory, self.directory.parent)
        self._started = time.monotonic() - self.state.seconds
        try:
            self.files.make()
            self._prepare()
            with self._driving() as driver:
                loop = RoundLoop(self, driver)
                loop.run()
            return self._conclude(loop.members)
        except KeyboardInterrupt:
            raise self._interrupted() from None
        except (DeviceError, RefusedError, UsageError) as error:
            # A run that was interrupted in its first round may be refused, too.
            is_refused = isinstance(error, refusals.AllRefused)
            if (self._begins or is_refused) and not self.state.rounds:
                begin.take_back(self.store, self.files, error)
            raise

    @contextmanager
    def _driving(self) -> Iterator[Driver]:
        """The driver, open; `stop` stops it, too."""
        learner = self.algorithm
        schedule = self.schedule or Schedule()
        context = RunContext(
            store=self.store,
            directory=self.directory,
            run=self.files.name,
            terms=self.options.terms,
            warn=self.watcher.warn,
            clients=SimulatedClients(learner.holdings, self._clients, learner.options.seed),
            modules=learner.modules,
            individual=learner.individual,
            standing=self.schedule is not None,
            options=self.options,
            patience=schedule.patience,
        )
        driver = self._driver = self.fleet.driver(context)
        if self.stopped:
            driver.stop()
        with driver:
            yield driver
        self._driver = None

    def _interrupted(self) -> InterruptedByUser:
        """The error after Ctrl-C, which says what is safe, and how to go on."""
        if self._status == FINISHED:
            result = self.directory / run_directory.RESULT_NAME
            text = f"interrupted; the run has finished: see {result}"
            hint = f"'tern runs --draw {self.directory}' makes its report"
            return InterruptedByUser(text, hint=hint)

        reports = self.state.reports
        for open_round in self.store.open_rounds():
            reports += self.store.report_count(open_round.number)
        where = f"in round {self.state.rounds + 1}"
        if self.algorithm.done:
            where = "after the last round, before there was a result"
        elif self.algorithm.rounds:
            where += f" of {self.algorithm.rounds}"
        hint = f"go on with: tern {self.algorithm.command} --resume {self.files.name}"
        if self.schedule is not None:
            hint = "go on with the same tern serve"
        text = f"interrupted {where}; the {reports:,} reports so far are safe"
        return InterruptedByUser(text, hint=hint)

    # The end

    def _conclude(self, members: Sequence[int] | Devices) -> dict[str, Any]:
        """End the run and return its result. members: the devices when this start began."""
        if self.stopped and not self.algorithm.done:
            return self._result(members)
        state = self.state
        result = self._result(members) if state.reports or not state.rounds else {}
        if result:
            run_directory.write_json(self.directory / run_directory.RESULT_NAME, result)
        self._status = FINISHED
        self.store.save_run(self.files.name, status=FINISHED)
        if self.fleet.provisions and self.schedule is None:  # a served fleet may go on
            run_directory.pack_boards(self.directory, self.watcher.warn)
        if state.refusal is not None and not (result and self.algorithm.done):
            raise RefusedError(*state.refusal)
        if not result:
            text = f"no device reported in {counted(state.rounds, 'round')}"
            hint = (
                "check the boards ('tern device ping BOARD'), or give them longer with --deadline"
            )
            raise DeviceError(text, hint=hint)
        return result

    def _result(self, members: Sequence[int] | Devices) -> dict[str, Any]:
        if self.schedule is not None:  # devices have come and gone: its cost is known only now
            self._account_for(members)
        return results.whole(self, self._boards if self.fleet.provisions else [])

    def _account_for(self, members: Sequence[int] | Devices) -> None:
        """Set what a served run has cost the devices that it asked."""
        assert self.schedule is not None
        self.algorithm.times = costs.rounds_of_most_asked_device(
            self.store,
            self.files.name,
            self.state.rounds,
            self.schedule.group(len(members)),
            len(members),
        )
        classes = guarantees.of_classes(
            self.algorithm,
            announcement.disclosures_before(self, members),
            members,
            float(self.options.delta),
            fixed=False,
        )
        self.state.guarantees = [each.as_json() for each in classes]
        self.accounts = costs.accounts(self.algorithm, None)
        for account in self.accounts:
            account.budget = costs.ledger_budget(self.algorithm, self.options.budget_micro)
