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


def _require_resumable(stored: StoredRun, files: RunFiles) -> None:
    """Raise UsageError for a run that can neither go on nor show a result."""
    if stored.unfinished:
        return
    if stored.status != FINISHED:
        reason = "was abandoned"
    elif not (files.directory / run_directory.RESULT_NAME).exists():
        reason = "has finished, and nobody reported in it"
    else:
        return  # it has finished, and has a result
    raise UsageError(f"the run {files.name} {reason}", hint="begin another: tern train --help")


class Run(Closing):
    """One run.

    Make it with `begin` or `resume`, then `run()`; a context manager that closes its store.
    """

    def __init__(
        self, store: Store, files: RunFiles, watcher: Watcher, algorithm: Learner | None = None
    ) -> None:
        """Load a run from its open store.

        watcher: gets its status and messages. algorithm: the learner of a run that begins now;
        None: the run is resumed, and its learner is made from the stored options. Raises TernError.
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
        """Begin a run in a directory of its own.

        place: where to keep it (default: in `RUNS`, named by the time). Raises TernError.
        """
        watcher = watcher or Watcher()
        opening = fleet.parse(options.fleet).opening
        if opening:
            watcher.note(opening)
        store, files, learner = begin.create_run(options, place or Place())
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
                _require_resumable(stored, files)
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
        """The directories of the emulated boards that tern makes for this run."""
        return board_directories(self.directory, self.fleet.count)

    def _prepare(self) -> None:
        """Make the emulated boards of a new run, and mark the run as running.

        If that was interrupted, all are made again: no board has spoken yet.
        """
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
        """The number of clients that take part in the run; None: all that there are."""
        if self.fleet.provisions:
            return begin.made_clients(self.fleet, self.algorithm)
        return self.algorithm.clients

    def _dealt(self, devices: Sequence[int] | Devices) -> Devices:
        """Shuffle the devices by the run's seed: client i is device i of the result.

        So the clients of each group are spread over all boards.
        """
        rng = np.random.default_rng([self.algorithm.options.seed, 3])
        return rng.permutation(np.asarray(devices, np.int64))

    def members(self, driver: Driver) -> Sequence[int] | Devices:
        """Return the device of each client of the run.

        These are the devices that were there when the run began; of a served or simulated fleet,
        all that there are now.
        """
        if self.schedule is not None or self.fleet.simulated:
            if self.fleet.provisions:
                return self._dealt(driver.devices)
            return driver.devices

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
        """Return the error for a fleet with fewer devices than the run has clients.

        Its hint names the option that says how many clients there are, if one has that value.
        """
        hint = "ask fewer devices"
        for name, value in vars(self.options.learning).items():
            if value == clients:
                hint = f"ask for {flag(name)} {devices}"
        text = f"the fleet has {devices} devices, and the run needs {clients}"
        return UsageError(text, hint=hint)

    def _plan_for(self, devices: int) -> None:
        """Plan the run again for the number of devices that the driver has found.

        It was planned for all devices in the store, which may hold keys of more boards.
        """
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
        """Open the driver that asks the fleet's devices; `stop` stops it, too."""
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
        """Return the error after Ctrl-C, which says what is safe, and how to go on."""
        if self._status == FINISHED:
            result_path = self.directory / run_directory.RESULT_NAME
            text = f"interrupted; the run has finished: see {result_path}"
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
        """End the run, write its result to its directory, and return it.

        members: the devices when this start of the host began. Raises RefusedError or DeviceError
        if no device reported.
        """
        if self.stopped and not self.algorithm.done:
            return self._result(members)  # the run goes on later
        state = self.state
        result: dict[str, Any] = {}
        if state.reports or not state.rounds:
            result = self._result(members)
            run_directory.write_json(self.directory / run_directory.RESULT_NAME, result)

        self._status = FINISHED
        self.store.save_run(self.files.name, status=FINISHED)
        if self.fleet.provisions and self.schedule is None:  # a served fleet may go on
            run_directory.pack_boards(self.directory, self.watcher.warn)

        is_complete = bool(result) and self.algorithm.done
        if state.refusal is not None and not is_complete:
            message, hint = state.refusal
            raise RefusedError(message, hint)
        if not result:
            text = f"no device reported in {counted(state.rounds, 'round')}"
            advice = "check the boards ('tern device ping BOARD'), or give them longer"
            raise DeviceError(text, hint=f"{advice} with --deadline")
        return result

    def _result(self, members: Sequence[int] | Devices) -> dict[str, Any]:
        """Return the result of the run so far, for JSON."""
        if self.schedule is not None:  # devices have come and gone: its cost is known only now
            self._account_for(members)
        boards = self._boards if self.fleet.provisions else []
        return results.result_of(self, boards)

    def _account_for(self, members: Sequence[int] | Devices) -> None:
        """Compute the accounts and guarantees of a served run from the rounds that it has had."""
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
