"""Runs as objects and functions: a learner on a fleet, from its beginning to its result."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from decimal import Decimal, InvalidOperation
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ternhost.api import arguments, fleets
from ternhost.api import data as records
from ternhost.api.fleets import AnyFleet
from ternhost.api.protection import Protection
from ternhost.api.results import CollectResult, InferResult, Result, TrainResult
from ternhost.errors import TernError, UsageError
from ternhost.learn.base import ALGORITHMS, Learner, algorithms_of
from ternhost.learn.schedule import Schedule, Terms
from ternhost.options import OptionGroup, flag, names_of, options_of
from ternhost.run import directory as run_directory
from ternhost.run import run as engine
from ternhost.run import serve as serving
from ternhost.run.begin import Place, plan_run
from ternhost.run.options import RunOptions
from ternhost.run.status import Status, Watcher

if TYPE_CHECKING:
    from ternhost.api.data import AnyData

T = TypeVar("T")
R = TypeVar("R", bound=Result)

_LOG = logging.getLogger("ternhost")

OnStatus = Callable[[Status], None]
"""Is called with the status of a run as each round begins, progresses and ends."""


class Run:
    """A run: a learner that asks the devices of a fleet, round after round.

    Nothing happens until it is iterated, or `finish` is called. Iterating carries out the run, and
    gives the `Status` of each round when it has ended::

        with ternhost.Run(FedSGD(epsilon=2), Simulated(20_000)) as run:
            for status in run:
                print(status.round, status.figures)
        print(run.result)

    A program with an event loop writes `async with` and `async for`: the run then works in a thread
    of its own. If the iteration is left early, the run stops after its present step. `result` then
    is that of the rounds so far, and `ternhost.resume` can continue the run. A `Run` is carried out
    once, by one thread.
    """

    def __init__(
        self,
        learner: OptionGroup | None = None,
        fleet: AnyFleet | None = None,
        *,
        data: AnyData | None = None,
        protection: Protection | None = None,
        terms: Terms | None = None,
        schedule: Schedule | None = None,
        name: str | None = None,
        directory: str | Path = run_directory.RUNS,
        store: str | Path | None = None,
        anew: bool = False,
        on_status: OnStatus | None = None,
    ) -> None:
        """Check the parts of a run. The run itself begins later.

        - learner: what is learned and how, such as `FedSGD(epsilon=2)`; None: chosen by the data
        - fleet: the devices, such as `Simulated(20_000)` or "port:a0"; None: emulated boards
        - data: the records: a name of a data set or a file, as `--data` takes it, a data frame, a
          pair of arrays (features n x f, and labels n), or `Data`, which also says whose they are;
          None: the learner's
        - protection: what is protected, and the budget of all runs
        - terms: when a round ends
        - schedule: when rounds begin, for a fleet that is served without end; None: the run ends
        - name, directory: the run gets its own directory of this name there; by default it is named
          by the time
        - store: the file with the fleet's keys and rounds, which its runs share; by default the
          fleet's own, or one in the run's directory
        - anew: abandon an unfinished run of that store
        - on_status: called with a `Status` as each round begins, progresses and ends, in the thread
          that carries out the run

        Warnings and notes go to the logger `ternhost`. Raises UsageError for parts that make no
        sense, alone or together.
        """
        parts = _Parts(learner, fleet, data, protection, terms, schedule)
        self._prepare(
            parts.options(command_of(learner)),
            place=_place(name, directory, store, anew),
            named=parts.stated,
            on_status=on_status,
        )

    _options: RunOptions | None  # of a new run; None: it is resumed
    _store: str | Path | None = None  # that the user named for a new run

    def _prepare(
        self,
        options: RunOptions,
        *,
        place: Place,
        named: Collection[str],
        on_status: OnStatus | None,
    ) -> None:
        """Prepare a new run, or a served one.

        named: the names of the options that a served run must agree with, if the fleet's store
        has one. The other arguments are checked
        already, except for `on_status`.
        """
        watcher = _watcher(on_status)
        self._options = options
        self._store = place.store

        def begin() -> engine.Run:
            """Begin the run, or, if it is served, go on with the one in the store."""
            if options.schedule is None:
                return engine.Run.begin(options, place, watcher)
            return serving.serve(
                options,
                store=place.store,
                name=place.name,
                watcher=watcher,
                anew=place.anew,
                named=named,
            )

        self._set(begin)

    @classmethod
    def resume(
        cls,
        run: str | Path,
        *,
        fleet: AnyFleet | None = None,
        data: AnyData | None = None,
        after_round: int | None = None,
        directory: str | Path = run_directory.RUNS,
        on_status: OnStatus | None = None,
    ) -> Self:
        """Return a run that continues an interrupted one. Its arguments are those of `resume`."""
        text = arguments.path(run, "run")
        parent = Path(arguments.path(directory, "directory"))
        fleet_now, _options = fleets.parsed(fleet)
        after = _AFTER_ROUND.normalised(after_round)
        watcher = _watcher(on_status)
        data_again = None
        if data is not None:
            data_again = records.as_data(data).in_memory()
            if data_again is None:
                hint = "leave data out: the run has its name"
                raise UsageError("only data in memory are handed over again", hint)

        def begin() -> engine.Run:
            """Load the run from its store."""
            if data_again is not None:
                engine.hand_over(text, parent, data_again)
            return engine.Run.resume(text, watcher, fleet_now, after, parent)

        resumed = cls.__new__(cls)
        resumed._options = None
        resumed._set(begin)
        return resumed

    def _set(self, begin: Callable[[], engine.Run]) -> None:
        """Set the state of a run that has not begun. begin: opens it, in the thread that runs it."""
        self._begin = begin
        self._engine: engine.Run | None = None
        self._rounds: Iterator[Status] | None = None  # of the engine
        self._result: Result | None = None
        self._has_ended = False
        self._stopped = False  # whether `stop` was called
        # The caller's thread that carries out the run; only this one can use the run's store.
        self._owner: threading.Thread | None = None
        # The thread that carries out the run, if it is not the caller's.
        self._thread: ThreadPoolExecutor | None = None

    def __repr__(self) -> str:
        if self._engine is None:
            return "<Run that has not begun>"
        return f"<Run {self._engine.files.name} in {self._engine.directory}>"

    @property
    def result(self) -> Result:
        """The result, also of a run that was stopped. Raises UsageError before the run has ended."""
        if self._result is None:
            raise UsageError("this run has no result yet", hint="iterate over it, or call finish()")
        return self._result

    @property
    def directory(self) -> Path | None:
        """The directory of the run's files; None before the run has begun."""
        if self._engine is None:
            return None
        return self._engine.directory

    def check(self) -> None:
        """Raise TernError where beginning the run would; nothing is written, and no device asked.

        A run that is resumed has been checked as it began.
        """
        if self._options is not None:
            plan_run(self._options, self._store)

    def stop(self) -> None:
        """Have the run stop after its present step. Safe in a signal handler and in any thread."""
        self._stopped = True
        if self._engine is not None:
            self._engine.stop()

    def finish(self) -> Result:
        """Carry out the run to its end, or what is left of it, and return its result.

        Raises TernError; InterruptedByUser after Ctrl-C.
        """
        for _status in self:
            pass
        return self.result

    # For programs without an event loop

    def __iter__(self) -> Iterator[Status]:
        """Carry out the run, and yield the status of each round that has ended. Raises TernError."""
        if _has_event_loop():  # as in a notebook; the engine may need one of its own
            self._use_thread()
        try:
            while True:
                status = self._call(self._step)
                if status is None:
                    return
                yield status
        finally:
            self.close()

    def close(self) -> None:
        """Stop the run if it goes on, and close its store. Raises TernError.

        UsageError in another thread than the one that carries out the run; call `stop` there.
        """
        is_elsewhere = self._owner not in (None, threading.current_thread())
        if self._thread is None and is_elsewhere and not self._has_ended:
            self._require_own_thread()
        self.stop()
        try:
            self._call(self._drain)
        finally:
            if self._thread is not None:
                self._thread.shutdown()
                self._thread = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except TernError as failure:
            if error is None:
                raise
            _LOG.warning(failure.message)  # what has gone wrong first is raised

    def _call(self, function: Callable[[], T]) -> T:
        """Call a function in the thread that carries out the run, and wait for what it returns."""
        if self._thread is None:
            return function()
        future = self._thread.submit(function)
        try:
            return future.result()
        except KeyboardInterrupt:  # it comes to this thread, not to the other one
            self.stop()
            future.result()
            if self._engine is None:
                raise
            raise self._engine.interrupted() from None

    # For programs with an event loop

    async def __aiter__(self) -> AsyncIterator[Status]:
        """Carry out the run in a thread, and yield the status of each round that has ended.

        If the task is cancelled, the run stops after its present step. Raises TernError.
        """
        self._use_thread()
        try:
            while True:
                status = await self._await(self._step)
                if status is None:
                    return
                yield status
        finally:
            await self.aclose()

    async def aclose(self) -> None:
        """Do what `close` does, without blocking the event loop."""
        self.stop()
        try:
            await self._await(self._drain)
        finally:
            if self._thread is not None:
                self._thread.shutdown(wait=False)
                self._thread = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def _await(self, function: Callable[[], T]) -> T:
        """Call a function in the thread of the run, and wait for what it returns.

        If the task is cancelled, this waits until the function has returned, since a step that is
        under way has asked devices for reports.
        """
        if self._thread is None:  # the run has ended, or never begun
            return function()
        future = asyncio.get_running_loop().run_in_executor(self._thread, function)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            self.stop()
            await asyncio.wait((future,))
            raise

    # In the thread that carries out the run

    def _use_thread(self) -> None:
        """Have a thread of its own carry out the run. Its store can be used by one thread only."""
        if self._thread is None and self._engine is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="tern run")

    def _step(self) -> Status | None:
        """Carry out one round, and return its status; None at the end of the run."""
        if self._has_ended:
            return None
        self._require_own_thread()
        if self._engine is None:
            self._engine = self._begin()
            self._rounds = self._engine.rounds()
            if self._stopped:
                self._engine.stop()
        assert self._rounds is not None
        try:
            status = next(self._rounds, None)
        except BaseException:
            self._end()
            raise
        if status is None:
            self._result = Result.of(self._engine.result)
            self._end()
        return status

    def _require_own_thread(self) -> None:
        """Raise UsageError if another thread than this one carries out the run."""
        current = threading.current_thread()
        if self._owner is None:
            self._owner = current
        if self._owner is not current:
            text = "another thread carries out this run"
            raise UsageError(
                text, hint="there, call finish() or iterate; stop() works in any thread"
            )

    def _drain(self) -> None:
        """Carry out what is left of a run that was stopped, which is its end."""
        if not self._has_ended:
            self._require_own_thread()
        if self._engine is None:
            self._has_ended = True
        while self._step() is not None:
            pass

    def _end(self) -> None:
        """Close the store of a run that has ended."""
        self._has_ended = True
        if self._engine is not None:
            self._engine.close()


def train(
    learner: OptionGroup | None = None,
    fleet: AnyFleet | None = None,
    *,
    data: AnyData | None = None,
    protection: Protection | None = None,
    terms: Terms | None = None,
    name: str | None = None,
    directory: str | Path = run_directory.RUNS,
    store: str | Path | None = None,
    anew: bool = False,
    on_status: OnStatus | None = None,
) -> TrainResult:
    """Train a model on a fleet under local differential privacy, as `tern train` does.

    learner: such as `FedSGD(epsilon=2, reports=20_000)`, or another that trains; None: `Direct` if
    public rows are known, for two classes or devices with several records, or for both without such
    rows; else `FedSGD`. The other arguments are those of `Run`. Raises UsageError for arguments that
    make no sense, and other kinds of TernError.
    """
    parts = _Parts(learner, fleet, data, protection, terms)
    place = _place(name, directory, store, anew)
    return _finished(_begun("train", parts, place, on_status), TrainResult)


def collect(
    learner: OptionGroup | None = None,
    fleet: AnyFleet | None = None,
    *,
    data: AnyData | None = None,
    protection: Protection | None = None,
    terms: Terms | None = None,
    name: str | None = None,
    directory: str | Path = run_directory.RUNS,
    store: str | Path | None = None,
    anew: bool = False,
    on_status: OnStatus | None = None,
) -> CollectResult:
    """Estimate means, frequencies or quantiles of what devices hold, as `tern collect` does.

    learner: such as `Values(epsilon=4)`, `Means(unit="record")`, `Quantiles(epsilon=1)`, or another
    that collects; None: chosen by the protection. The other arguments and the errors are those of `train`.
    """
    parts = _Parts(learner, fleet, data, protection, terms)
    place = _place(name, directory, store, anew)
    return _finished(_begun("collect", parts, place, on_status), CollectResult)


def infer(
    learner: OptionGroup | None = None,
    fleet: AnyFleet | None = None,
    *,
    data: AnyData | None = None,
    protection: Protection | None = None,
    terms: Terms | None = None,
    name: str | None = None,
    directory: str | Path = run_directory.RUNS,
    store: str | Path | None = None,
    anew: bool = False,
    on_status: OnStatus | None = None,
) -> InferResult:
    """Classify records on the devices, as `tern infer` does.

    learner: such as `Infer(epsilon=4)`. The other arguments and the errors are those of `train`.
    """
    parts = _Parts(learner, fleet, data, protection, terms)
    place = _place(name, directory, store, anew)
    return _finished(_begun("infer", parts, place, on_status), InferResult)


def serve(
    learner: OptionGroup,
    fleet: AnyFleet,
    *,
    schedule: Schedule | None = None,
    data: AnyData | None = None,
    protection: Protection | None = None,
    terms: Terms | None = None,
    name: str | None = None,
    directory: str | Path = run_directory.RUNS,
    store: str | Path | None = None,
    anew: bool = False,
    on_status: OnStatus | None = None,
) -> Result:
    """Serve a fleet round after round, as `tern serve` does, and return the result so far.

    It goes on with the run in the fleet's store, if there is one. schedule: when rounds begin, and
    how many there are; without `rounds` this returns only after Ctrl-C. Use `Run` with a schedule
    to do something after each round. The other arguments and the errors are those of `train`.
    """
    if schedule is None:
        schedule = Schedule()
    run = Run(
        learner,
        fleet,
        data=data,
        protection=protection,
        terms=terms,
        schedule=schedule,
        name=name,
        directory=directory,
        store=store,
        anew=anew,
        on_status=on_status,
    )
    return _finished(run, Result)


def resume(
    run: str | Path,
    *,
    fleet: AnyFleet | None = None,
    data: AnyData | None = None,
    after_round: int | None = None,
    directory: str | Path = run_directory.RUNS,
    on_status: OnStatus | None = None,
) -> Result:
    """Resume an interrupted run, and carry it out to its end, as `tern resume` does.

    run: its name in `directory`, its own directory, or its store. fleet: the new place of its
    boards, if they have moved. data: the records once more, if the run had them in the memory of
    another process. after_round: continue after this round number, if the store was
    restored from a backup and boards have already seen later rounds. Raises TernError.
    """
    resumed = Run.resume(
        run,
        fleet=fleet,
        data=data,
        after_round=after_round,
        directory=directory,
        on_status=on_status,
    )
    return _finished(resumed, Result)


def list_runs(place: str | Path = run_directory.RUNS) -> list[dict[str, Any]]:
    """List the runs in a directory or in a store (a file), oldest first, as `tern runs` does.

    `pandas.DataFrame` turns the list into a table. Raises UsageError if `place` does not exist.
    """
    path = run_directory.existing_place(arguments.path(place, "place"))
    return run_directory.list_runs(path)


def name_of(learner: OptionGroup | None) -> str | None:
    """Return the name by which a learner is registered; None if there is no learner.

    learner: its options, as an object. Raises UsageError if they are those of no learner.
    """
    if learner is None:
        return None
    for kind in type(learner).__mro__:
        for name, algorithm in ALGORITHMS.items():
            if algorithm.Options is kind:
                return name
    text = f"{type(learner).__name__} is not a learner"
    raise UsageError(text, hint="such as ternhost.FedSGD(epsilon=2), or one that is registered")


def command_of(learner: OptionGroup | None) -> str:
    """Return the command that runs a learner: train, collect or infer. None: train."""
    name = name_of(learner)
    if name is None:
        return "train"
    return ALGORITHMS[name].command


@dataclass(frozen=True)
class _Parts:
    """What a run is made of. The fields are arguments of `Run`, which describes them."""

    learner: OptionGroup | None
    fleet: AnyFleet | None
    data: AnyData | None
    protection: Protection | None
    terms: Terms | None
    schedule: Schedule | None = None

    @cached_property
    def named(self) -> dict[str, Any]:
        """The options that these parts set, by name. Raises UsageError for a part that is wrong."""
        _require(self.terms, Terms, "terms")
        _require(self.schedule, Schedule, "schedule")
        fleet_name, fleet_options = fleets.parsed(self.fleet)
        named = dict(fleet_options)
        if fleet_name is not None:
            named["fleet"] = fleet_name
        for part in (self.learner, self.terms, self.schedule):
            if part is not None:
                named |= _changed(part)
        _add(named, _protection_options(self.protection))
        _add(named, records.options_of(self.data))
        return named

    @property
    def stated(self) -> Collection[str]:
        """The names of all options that these parts state, also those with their default values.

        A learner states all of its options: a served run that spends another epsilon is not its.
        """
        names = set(self.named)
        if self.learner is not None:
            names |= {"algorithm", *names_of(type(self.learner))}
        return names

    def options(self, command: str) -> RunOptions:
        """Return the options of the run, which are checked. Raises UsageError.

        command: the one that runs the learner: train, collect or infer.
        """
        learner = name_of(self.learner)
        is_served = self.schedule is not None
        algorithms: Mapping[str, type[Learner]] = algorithms_of(command)
        if is_served:
            algorithms = ALGORITHMS
        return RunOptions.parse(learner, self.named, algorithms, served=is_served)


def _begun(function: str, parts: _Parts, place: Place, on_status: OnStatus | None) -> Run:
    """Return the run that a function of this module carries out.

    function: its name, which is that of a command. Raises UsageError if it does not run the
    learner.
    """
    learner = parts.learner
    command = command_of(learner)
    if learner is not None and command != function:
        text = f"ternhost.{function} does not run {type(learner).__name__}"
        raise UsageError(text, hint=f"call ternhost.{command}")
    run = Run.__new__(Run)
    options = parts.options(function)
    run._prepare(options, place=place, named=parts.stated, on_status=on_status)
    return run


def _changed(part: Any) -> dict[str, Any]:
    """Return those options of a part of a run that differ from their defaults, by name."""
    values = {}
    for each in fields(part):
        value = getattr(part, each.name)
        if value != each.default:
            values[each.name] = value
    return values


def _protection_options(protection: Protection | None) -> Mapping[str, Any]:
    """Return the options that a protection sets, by name. Raises UsageError for another object."""
    if protection is None:
        return {}
    _require(protection, Protection, "protection")
    return protection.options()


def _add(named: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Add options to those of the learner. Raises UsageError if one is there with another value."""
    for name, value in more.items():
        if name in named and not _is_same(named[name], value):
            text = f"{flag(name)} is {named[name]} in the learner, and {value} beside it"
            raise UsageError(text, hint="give it once")
        named[name] = value


def _is_same(one: Any, other: Any) -> bool:
    """Return whether two values are equal, as texts or, such as "1e-05" and 0.00001, as numbers."""
    if str(one) == str(other):
        return True
    try:
        return Decimal(str(one)) == Decimal(str(other))
    except InvalidOperation:  # one is no number
        return False


def _place(name: str | None, directory: str | Path, store: str | Path | None, anew: bool) -> Place:
    """Return where the files of a run are kept. Raises UsageError for values of another type."""
    if name is not None and not isinstance(name, str):
        raise UsageError(f"name must be a text, not {type(name).__name__}")
    run_directory.check_name(name)
    if not isinstance(anew, bool):
        raise UsageError(f"anew must be True or False, not {type(anew).__name__}")
    if store is not None:
        store = arguments.path(store, "store")
    return Place(
        name=name, parent=Path(arguments.path(directory, "directory")), store=store, anew=anew
    )


def _require(value: Any, kind: type[Any], what: str) -> None:
    """Raise UsageError unless a value is None or of a class.

    what: the parameter that it is for.
    """
    if value is not None and not isinstance(value, kind):
        raise UsageError(f"{what} must be a {kind.__name__}, not {type(value).__name__}")


def _finished(run: Run, kind: type[R]) -> R:
    """Carry out a run to its end; return its result, and warn if reports are missing."""
    result = run.finish()
    if result.missing_words:
        _LOG.warning(result.missing_words)
    if not isinstance(result, kind):
        text = f"{result.learner} has left a {type(result).__name__}, not a {kind.__name__}"
        raise UsageError(text, hint="run it with ternhost.Run")
    return result


def _watcher(on_status: OnStatus | None) -> Watcher:
    """Return a watcher of a run that calls `on_status`, and logs warnings and notes.

    Raises UsageError for something that cannot be called.
    """
    if on_status is None:
        on_status = Watcher().status  # which does nothing
    function: Any = on_status  # what a program without type checks may have handed over
    if not callable(function):
        raise UsageError(f"on_status must be a function, not {type(function).__name__}")
    return Watcher(on_status, _LOG.warning, _LOG.info)


def _has_event_loop() -> bool:
    """Return whether an event loop runs in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


# The option of a run, which `resume` takes as well.
_AFTER_ROUND = next(option for option in options_of(RunOptions) if option.name == "after_round")
