"""The store that all open pages show, with its boards as a table.

It is read once for all pages, and only while a page is open.
"""

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from ternhost.errors import StorageError
from ternhost.files import real
from ternhost.privacy.units import protected
from ternhost.store.boards import BoardRow
from ternhost.store.reader import Reader
from ternhost.store.snapshot import RunView, Snapshot
from ternhost.store.store_file import in_use
from ternhost.text import brief
from ternhost.watch import connected, stores
from ternhost.watch.connected import Connected, with_connected
from ternhost.watch.curves import Point
from ternhost.watch.fleet_view import allowance, budget, delta_of, failed, generator, software

EVERY = 0.5  # seconds from one read of the store to the next
_MOST_ARRIVALS = 600  # points of the curve of arriving reports
_ASK_EVERY = 5.0  # seconds from one question to the broker to the next, while no host is running
MOST_ROWS = 500  # rows of the table of boards that are sent at once

Stamp = tuple[tuple[int, int], ...]  # the time of the last change and the size of each file
Row = dict[str, Any]


def row(board: BoardRow) -> Row:
    """Return the row of a board in the table of boards: a value for each column.

    A value that the board did not report is None. Long texts are shortened, since boards may
    report anything.
    """
    # As they are.
    cells: Row = {}
    for name in _REPORTED:
        cells[name] = board.hello.get(name)
    for name in _SEEN:
        cells[name] = getattr(board, name)

    # Converted for people.
    cells["online"] = "online" if board.online else "offline"
    cells["budget"] = budget(board)  # the epsilon that is left
    cells["allowance"] = allowance(board)
    cells["protects"] = None
    if "unit" in board.hello:
        cells["protects"] = f"{protected(board.unit)}, at delta {delta_of(board):g}"
    cells |= software(board)._asdict()
    cells["entropy"] = generator(board)
    heap_bytes = board.hello.get("heap")
    cells["heap"] = heap_bytes / 1000 if heap_bytes else None  # in kB

    for name, value in cells.items():
        if isinstance(value, str):
            cells[name] = brief(value)
    return cells


# Columns, by where their values come from.
_SEEN = ("name", "heard", "errors", "error", "first", "clients")  # seen by the host
_REPORTED = ("restarts", "exceptions", "records", "epoch", "text")  # said by the board
_SEARCHED = (
    "name",
    "online",
    "library",
    "program",
    "entropy",
    "error",
    "text",
)  # columns that are searched
_NO_BOARD = BoardRow(name="", first=0, clients=0, online=False, heard=0.0)
COLUMNS = frozenset(row(_NO_BOARD))


class _Entry(NamedTuple):
    """A board in the table."""

    board: BoardRow
    row: Row
    searched_text: str  # the texts in which a search looks, in lower case


class BoardTable:
    """The boards of the newest snapshot as rows that can be searched and sorted."""

    def __init__(self) -> None:
        """Begin without boards."""
        self._boards: tuple[BoardRow, ...] | None = None
        self._entries: dict[int, _Entry] = {}  # by the id of the first device
        self.changes = 0  # how often the boards have changed

    def take(self, boards: tuple[BoardRow, ...]) -> None:
        """Replace the boards of the table.

        Only boards that have changed get new rows: the reader of the store returns the same object
        for any other.
        """
        if boards is self._boards:
            return
        has_changed = self._boards is None or len(boards) != len(self._boards)
        entries = {}
        for board in boards:
            entry = self._entries.get(board.first)
            if entry is None or entry.board is not board:
                entry = _entry(board)
                has_changed = True
            entries[board.first] = entry
        if has_changed:
            self.changes += 1
        self._boards = boards
        self._entries = entries

    def page(
        self,
        first: int,
        last: int,
        search: str = "",
        sort: str = "",
        descending: bool = False,
    ) -> tuple[int, list[Row]]:
        """Return how many boards match a search, and some of their rows.

        first, last: the indices of the rows to return, `last` excluded. search: words that all must
        occur in the name, state, library, program, generator, error or text of a
        board. sort: the column by
        which the rows are sorted; rows without a value come last. descending: the largest value
        comes first.
        """
        words = search.lower().split()
        rows = []
        for entry in self._entries.values():
            if all(word in entry.searched_text for word in words):
                rows.append(entry.row)
        if sort in COLUMNS:
            with_value = [row for row in rows if row[sort] is not None]
            without_value = [row for row in rows if row[sort] is None]
            with_value.sort(key=itemgetter(sort), reverse=descending)
            rows = with_value + without_value
        end = min(last, first + MOST_ROWS)
        return len(rows), rows[first:end]


def _entry(board: BoardRow) -> _Entry:
    """Return the entry of a board in the table."""
    cells = row(board)
    searched = [str(cells[name] or "") for name in _SEARCHED]
    return _Entry(board=board, row=cells, searched_text=" ".join(searched).lower())


def summary(boards: Sequence[BoardRow]) -> dict[str, int]:
    """Return the number of boards, and of those online, with errors, and with failed generators.

    The keys are the words that follow the numbers on the page.
    """
    noun = "board" if len(boards) == 1 else "boards"
    return {
        noun: len(boards),
        "online": sum(board.online for board in boards),
        "with errors": sum(board.errors > 0 for board in boards),
        "without entropy": sum(failed(board) for board in boards),
    }


class _Merged(NamedTuple):
    """The boards of a snapshot, as the broker has seen them."""

    serial: int  # of the snapshot of the store
    connected: Connected | None  # what the broker has said; None: nothing
    boards: tuple[BoardRow, ...]
    own_serial: int


class LiveStore:
    """The newest snapshot of a store (`now`), its boards as a table, and arriving reports."""

    def __init__(self, reader: Reader) -> None:
        """Read the store once. Raises StorageError unless it is a store of this version."""
        self._reader = reader
        self.path = reader.path
        self._reading = asyncio.Lock()  # several pages may ask at once
        self._last_read = 0.0  # time.monotonic()
        self.table = BoardTable()

        # The reports of the open round: (seconds since the first one was seen, reports so far).
        self.arrivals: deque[Point] = deque(maxlen=_MOST_ARRIVALS)
        self._round: int | None = None  # the number of that round
        self._first_arrival = 0.0  # time.monotonic()

        # Who is connected to the broker while no host writes that into the store.
        self.connected: Connected | None = None
        self._last_ask = -_ASK_EVERY  # time.monotonic()
        self._asking: asyncio.Task[None] | None = None
        self._seen: _Merged | None = None  # None as long as nothing was asked

        self._stored: Snapshot = reader.snapshot()  # the newest one of the store alone
        self.now = self._stored
        self._take_snapshot()

    async def look(self) -> Snapshot:
        """Return the store as it is now, or as it was less than `EVERY` seconds ago."""
        async with self._reading:
            is_due = time.monotonic() - self._last_read >= EVERY
            if is_due:
                try:
                    self._stored = await asyncio.to_thread(self._reader.snapshot)
                except StorageError as error:  # another file is there, before anything was read
                    self._stored = replace(self._stored, note=error.message)
                self._last_read = time.monotonic()
                await self._ask_broker_when_due()
                self._take_snapshot()
        return self.now

    async def _ask_broker_when_due(self) -> None:
        """Begin to ask the broker who is connected, if no host is running and it is time to."""
        if await asyncio.to_thread(in_use, self.path):
            self.connected = None  # a host is running, which writes into the store who is online
            self._last_ask = -_ASK_EVERY
            return
        is_asking = self._asking is not None and not self._asking.done()
        is_due = time.monotonic() - self._last_ask >= _ASK_EVERY
        if is_due and not is_asking:
            self._last_ask = time.monotonic()
            self._asking = asyncio.create_task(self._ask_broker())

    async def _ask_broker(self) -> None:
        """Ask the broker of the store who is connected; without an answer, nobody knows."""
        access = await asyncio.to_thread(connected.access_of, self._stored)
        if access is None:
            self.connected = None
            return
        with suppress(ImportError):  # without the extra `mqtt`
            self.connected = await connected.look(access)

    def _take_snapshot(self) -> None:
        """Take over the boards and the arriving reports of the newest snapshot."""
        self._merge()
        self.table.take(self.now.boards)
        open_round = self.now.open[-1] if self.now.open else None
        number = None if open_round is None else open_round.number
        if number != self._round:  # another round: its reports are counted from 0
            self.arrivals.clear()
            self._round = number
        if open_round is not None and open_round.reports > 0:
            self._add_arrivals(float(open_round.reports))

    def _merge(self) -> None:
        """Make `now` of the newest snapshot of the store, and of who is connected to the broker.

        Its serial number grows with each change of either, and its boards stay the same objects
        otherwise.
        """
        if self.connected is None and self._seen is None:
            self.now = self._stored
            return
        has_changed = self._seen is None or not (
            self._seen.serial == self._stored.serial and self._seen.connected is self.connected
        )
        if has_changed:
            boards = self._stored.boards
            if self.connected is not None:
                # A board that no run has seen yet stays in the table when it is gone.
                seen_before = self._seen.boards if self._seen is not None else ()
                boards = with_connected(boards, self.connected, seen_before)
            serial = max(self.now.serial, self._stored.serial) + 1
            self._seen = _Merged(self._stored.serial, self.connected, boards, serial)
        assert self._seen is not None
        self.now = replace(self._stored, boards=self._seen.boards, serial=self._seen.own_serial)

    def _add_arrivals(self, reports: float) -> None:
        """Add a point to the curve of arriving reports. reports: of the open round so far."""
        now = time.monotonic()
        if not self.arrivals:
            self._first_arrival = now
        last_counts = [count for _seconds, count in list(self.arrivals)[-2:]]
        if last_counts == [reports, reports]:
            # The curve is drawn in steps: of equal points only the first and the last are needed.
            self.arrivals.pop()
        self.arrivals.append((now - self._first_arrival, reports))


class _Read(NamedTuple):
    """What was last read of a run in a store."""

    reader: Reader
    snapshot: Snapshot
    stamp: Stamp  # of the store at that time


class Others:
    """The runs of a store and of the stores beside it, to compare."""

    def __init__(self, store: Path) -> None:
        """Read nothing yet. store: the path of the store that the page shows."""
        self._store = store
        # By the path of a store and the name of a run; None: the current run.
        self._read: dict[tuple[Path, str | None], _Read] = {}

    def runs(self) -> dict[str, tuple[Path, RunView]]:
        """Return the runs of all stores by name, each with the path of its store, the newest first.

        If two runs have the same name, the newer one is returned. This may take a while.
        """
        all_runs: list[tuple[Path, RunView]] = []
        for path in stores.with_neighbours(self._store):
            for run in self.history(path, None).runs:
                all_runs.append((path, run))

        def age(path_and_run: tuple[Path, RunView]) -> float:
            """Return a number that is larger for older runs."""
            _path, run = path_and_run
            return -run.began

        by_name: dict[str, tuple[Path, RunView]] = {}
        for path, run in sorted(all_runs, key=age):
            if run.name not in by_name:
                by_name[run.name] = path, run
        return by_name

    def history(self, path: Path, run: str | None) -> Snapshot:
        """Return a snapshot of a run in a store, from memory if the store has not changed.

        run: the name of the run; None for the current one. A store of another version gives an
        empty snapshot with a note.
        """
        stamp = _stamp(path)
        last_read = self._read.get((path, run))
        if last_read is None:
            reader = Reader(path, run)
        elif last_read.stamp == stamp:
            return last_read.snapshot
        else:
            reader = last_read.reader
        try:
            snapshot = reader.snapshot()
        except StorageError as error:  # of another version
            snapshot = Snapshot(str(path), note=error.message)
        finally:
            reader.close()  # the file only: the reader remembers what it has read
        self._read[path, run] = _Read(reader, snapshot, stamp)
        return snapshot


def _stamp(store: Path) -> Stamp:
    """Return when a store's file and log were last changed, and their sizes, to notice every change."""
    stamps = []
    store = real(store)
    log = store.with_name(f"{store.name}-wal")
    for path in (store, log):
        with suppress(OSError):  # it is not there
            status = path.stat()
            stamps.append((status.st_mtime_ns, status.st_size))
    return tuple(stamps)
