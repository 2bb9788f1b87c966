"""Runs an experiment on all cores, and continues one that was interrupted.

An experiment is divided into cells: calls of functions with plain arguments, which do not depend on
each other. A finished cell is a line of cells.jsonl in the directory of the results, on the disk
before the next one is counted. The same experiment in the same directory continues from there. Each
cell has its own seeds, so neither the order of the cells nor the number of processor cores changes
a result.
"""

import json
import math
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import product
from operator import attrgetter
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Self

from ternhost.datasets import in_memory
from ternhost.datasets.in_memory import InMemory
from ternhost.errors import TernError, UsageError
from ternhost.files import storage_errors
from ternhost.registry import LOADED_FILES
from ternhost.terminal import duration

Row = dict[str, Any]
Tables = dict[str, list[Row]]

FILE_NAME = "cells.jsonl"
# Libraries of linear algebra read their number of threads from these variables.
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
_FEW = 4  # so few cells run in this process, since starting others would take longer


@dataclass(frozen=True)
class Cell:
    """A call of a function that makes some rows of a result, in any process.

    table: the table of the result that the rows belong to. work: a function at the top level of a
    module, so that another process finds it. arguments: what it is called with, by name: plain
    values, dataclasses of them, or functions. Their reprs, or the names of functions, are the
    identity of the cell. cost: the relative duration; the longest cells begin first.
    """

    table: str
    work: Callable[..., list[Row]]
    arguments: Mapping[str, Any]
    cost: float = 1.0

    @property
    def key(self) -> str:
        """The identity of the cell, by which a stored result is found again."""
        arguments = []
        for name, value in sorted(self.arguments.items()):
            text = getattr(value, "__qualname__", repr(value))
            arguments.append(f"{name}={text}")
        return f"{self.table}: {self.work.__name__}({', '.join(arguments)})"

    @classmethod
    def for_each_combination(
        cls,
        table: str,
        work: Callable[..., list[Row]],
        common: Mapping[str, Any],
        cost: float | Callable[..., float] = 1.0,
        **choices: Iterable[Any],
    ) -> list[Self]:
        """Return a cell for each combination of the choices, the last choice varying fastest.

        table, work: those of all cells. common: the arguments that are the same in all cells. cost:
        that of every cell, or a function that is called with a combination. choices: the possible
        values of each other argument, by the name of the argument.
        """
        cells = []
        for values in product(*choices.values()):
            choice = dict(zip(choices, values, strict=True))
            cell_cost = cost
            if callable(cell_cost):
                cell_cost = cell_cost(**choice)
            cells.append(cls(table, work, {**common, **choice}, cell_cost))
        return cells

    def run(self) -> list[Row]:
        """Call the function, and return its rows as JSON would store them.

        So a row is the same whether it was just computed or read from a file: without nan, tuples
        and numbers of NumPy.
        """
        rows = finite(self.work(**self.arguments))
        text = json.dumps(rows, default=_plain_number)
        plain: list[Row] = json.loads(text)
        return plain


def _plain_number(number: Any) -> Any:
    """Return a number of NumPy as one of Python, which JSON can store."""
    return number.item()


def finite(value: Any) -> Any:
    """Return the value, which may be nested, with None for nan and infinity, which JSON lacks."""
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return None
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [finite(item) for item in value]
    return value


class FinishedCells:
    """The rows of finished cells, in a file of `directory`, or only in memory where it is None."""

    def __init__(self, directory: Path | None, options: Mapping[str, Any]) -> None:
        """Read the finished cells of the directory, if it has any.

        options: what determines the results. Raises UsageError if the directory has cells of an
        experiment with other options, StorageError if it cannot be read or written.
        """
        self.rows: dict[str, list[Row]] = {}
        self._path: Path | None = None
        if directory is not None:
            self._path = directory / FILE_NAME
            self._open(self._path, options)

    def _open(self, path: Path, options: Mapping[str, Any]) -> None:
        """Read the finished cells of the file, or begin it with a line that holds the options."""
        content = b""
        with storage_errors(_OTHER_DIRECTORY, path):
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists():
                content = path.read_bytes()

        # A crash may have cut off the last line, which is then dropped.
        complete = content[: content.rfind(b"\n") + 1]
        if not complete:
            path.unlink(missing_ok=True)
            self._write({"asked": options})
            return
        self._read(path, complete.splitlines(), options)
        if len(complete) < len(content):
            os.truncate(path, len(complete))

    def _read(self, path: Path, lines: Sequence[bytes], options: Mapping[str, Any]) -> None:
        """Take the rows of finished cells from the complete lines of the file.

        The first line has the options. Raises UsageError if they are not the same as now, or if the
        file is something else.
        """
        try:
            options_before = dict(json.loads(lines[0])["asked"])
            for line in lines[1:]:
                cell = json.loads(line)
                self.rows[cell["cell"]] = [dict(row) for row in cell["rows"]]
        except (ValueError, KeyError, TypeError) as error:
            text = f"{path} is not a record of an experiment"
            raise UsageError(text, hint=_OTHER_PLACE) from error
        options_as_stored = json.loads(json.dumps(options))
        if options_before == options_as_stored:
            return

        differences = []
        for name in {**options, **options_before}:
            before, now = options_before.get(name), options.get(name)
            if before != now:
                differences.append(f"{name} ({before}, not {now})")
        text = f"{path} is of an experiment with another {', '.join(differences)}"
        raise UsageError(text, _OTHER_PLACE)

    def add(self, cell: Cell, rows: list[Row], seconds: float) -> None:
        """Store the rows of a cell, on the disk before this returns. Raises StorageError."""
        self.rows[cell.key] = rows
        self._write({"cell": cell.key, "seconds": round(seconds, 3), "rows": rows})

    def _write(self, line: Any) -> None:
        """Append a line of JSON to the file, and wait until it is on the disk."""
        if self._path is None:
            return
        with storage_errors(_OTHER_DIRECTORY, self._path), self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())


_OTHER_DIRECTORY = "name another directory with --output"
_OTHER_PLACE = f"{_OTHER_DIRECTORY}, or continue with the same options"


def cores() -> int:
    """Return the number of processor cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # only Linux has it
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run_cells(
    cells: Sequence[Cell],
    stored: FinishedCells,
    progress: Callable[[str], None],
    workers: int | None,
) -> Tables:
    """Run the cells that are not finished, and return the rows of all cells by table.

    stored: the cells that are finished; each result is added to them. progress: called with a line
    of text after each cell. workers: the number of processes; 1 for this one alone, None for one
    for each processor core. The rows of a table are in the order of the cells. Raises what a cell
    raises, StorageError if rows cannot be stored, and TernError if a process was ended from
    outside.
    """
    unfinished = [cell for cell in cells if cell.key not in stored.rows]
    finished = len(cells) - len(unfinished)
    progress(f"{finished} of {len(cells)} parts")
    if workers is None:
        workers = 1
        if len(unfinished) > _FEW:
            workers = cores()
    if min(workers, len(unfinished)) <= 1:
        results = _here(unfinished)
    else:
        results = _in_processes(unfinished, workers)

    began = time.monotonic()
    total_cost = sum(cell.cost for cell in unfinished)
    finished_cost = 0.0
    with closing(results):  # ends the other processes if this loop fails
        for cell, rows, seconds in results:
            stored.add(cell, rows, seconds)
            finished += 1
            finished_cost += cell.cost
            # As much time for each unit of cost as so far.
            unfinished_cost = max(0.0, total_cost - finished_cost)
            seconds_left = (time.monotonic() - began) * unfinished_cost / finished_cost
            progress(f"{finished} of {len(cells)} parts, about {duration(seconds_left)} left")

    rows_by_table: Tables = {}
    for cell in cells:
        table = rows_by_table.setdefault(cell.table, [])
        table.extend(stored.rows[cell.key])
    return rows_by_table


_Results = Generator[tuple[Cell, list[Row], float], None, None]


def _timed(cell: Cell) -> tuple[list[Row], float]:
    """Run a cell; return its rows, and the seconds that it took."""
    began = time.monotonic()
    return cell.run(), time.monotonic() - began


def _here(cells: Sequence[Cell]) -> _Results:
    """Run cells one after the other in this process, and yield each result."""
    for cell in cells:
        yield cell, *_timed(cell)


def _in_processes(cells: Sequence[Cell], workers: int) -> _Results:
    """Run cells in other processes, and yield each result as soon as it is there.

    workers: the number of processes. They end when this generator ends. They are spawned, since a
    fork of a process with threads may hang. Raises TernError if a process was killed.
    """
    other_children = set(multiprocessing.active_children())
    spawn = multiprocessing.get_context("spawn")
    known = (dict(LOADED_FILES), in_memory.all_named())
    pool = ProcessPoolExecutor(
        min(workers, len(cells)), spawn, initializer=_begin_worker, initargs=known
    )
    # Finished futures are put into a queue: Ctrl-C within concurrent.futures.wait would leave locks
    # behind, and the pool could not end.
    ended: SimpleQueue[Future[tuple[list[Row], float]]] = SimpleQueue()
    running = {}  # the cell of each future
    longest_first = sorted(cells, key=attrgetter("cost"), reverse=True)
    try:
        with _one_thread_each():
            for cell in longest_first:
                future = pool.submit(_timed, cell)
                running[future] = cell
                future.add_done_callback(ended.put)
        while running:
            future = ended.get()
            yield running.pop(future), *future.result()
        pool.shutdown()
    except BrokenProcessPool as error:
        hint = "if memory was short, use fewer --workers; the same command with the same --output continues"
        raise TernError("a process of the experiment was killed", hint) from error
    finally:
        workers_left = set(multiprocessing.active_children()) - other_children
        for process in workers_left:
            process.terminate()
        pool.shutdown(cancel_futures=True)  # a join here and one in the pool's thread would race


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Give the processes that start in this context one thread each for linear algebra.

    Libraries read the number from the environment when they are loaded, which is before the pool's
    initializer runs. The environment is restored afterwards.
    """
    before = {name: os.environ[name] for name in _THREADS if name in os.environ}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        yield
    finally:
        for name in _THREADS:
            del os.environ[name]
        os.environ.update(before)


def _begin_worker(
    loaded_files: Mapping[str, Callable[[str], None]], tables: Mapping[str, InMemory]
) -> None:
    """Prepare a process that runs cells: it follows its parent, and has the parent's extensions.

    loaded_files: the parent's `LOADED_FILES`. tables: those that a program has handed to it.
    """
    _follow_parent()
    for name, table in tables.items():
        in_memory.keep_as(name, table)
    for path, load in loaded_files.items():
        load(path)


def _follow_parent() -> None:
    """Leave Ctrl-C to the parent process, and end when it has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end_with_parent() -> None:
        """Wait for the parent's end, in a thread, and then end at once."""
        parent.join()
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
