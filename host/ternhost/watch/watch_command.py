"""`tern watch`: a run and its fleet in the terminal, while it goes on."""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from ternhost.command import add_command, add_option, print_line, print_result
from ternhost.errors import OK, StorageError, UsageError
from ternhost.extensions import EXTENSIONS, Export
from ternhost.files import storage_errors, write_file
from ternhost.listed_commands import WATCH
from ternhost.options import flag
from ternhost.run.directory import RUNS
from ternhost.signals import heeding_interrupts
from ternhost.store.reader import Reader
from ternhost.store.snapshot import RunView, Snapshot
from ternhost.terminal import can_redraw, sleep_while_read
from ternhost.text import visible
from ternhost.watch import curves, stores, words
from ternhost.watch.summary import describe_round, summary_of

_EVERY = 1.0  # seconds from one look at the store to the next

Show = Callable[[Snapshot], None]


def add_parser(subparsers: Any) -> None:
    """Add `tern watch` to the commands."""
    example = """tern watch my-broker/store.sqlite
        tern watch --once --json"""
    exports = _exports()
    if exports:
        files = [f"{flag(export.name)} {export.example}" for export in exports]
        example += f"\ntern watch {' '.join(files)}"
    lines = "print one JSON object per line whenever something changes"
    parser = add_command(subparsers, WATCH.name, WATCH.summary, example, run, lines)
    text = "name or directory of a run, or a store (default: the newest run)"
    parser.add_argument("run", nargs="?", metavar="RUN|STORE", help=text)
    add_option(parser, "--once", "show it once, and exit")
    for export in exports:
        add_option(parser, f"{flag(export.name)} FILE", export.about)


def run(args: argparse.Namespace) -> int:
    """Write the files for other programs that the options name, or else show a run until Ctrl-C."""
    if any(getattr(args, export.name) for export in _exports()):
        _write_files(args)
        return OK
    with heeding_interrupts(), _showing(args) as show:
        try:
            for snapshot in _snapshots(args):
                show(snapshot)
        except KeyboardInterrupt:
            pass
    return OK


def _exports() -> list[Export]:
    """Return the files for other programs that extensions can write."""
    return [export for extension in EXTENSIONS.available() for export in extension.exports]


def _write_files(args: argparse.Namespace) -> None:
    """Write files for other programs to the paths that the options name."""
    written_files = {}
    lines = []
    for export in _exports():
        path = getattr(args, export.name)
        if not path:
            continue
        with storage_errors("name another file", path):
            write_file(Path(path), export.text().encode())
        written_files[export.name] = path
        lines.append(f"{export.name}: {path}")
    print_result(written_files, "\n".join(lines), args.json)


def _snapshots(args: argparse.Namespace) -> Iterator[Snapshot]:
    """Yield snapshots of the named run, again and again, or only one for --once.

    Another run may begin in between, and at first there may be none: then the snapshots are empty.
    Raises UsageError or StorageError if --once finds no run, or if the user named one that does not
    exist.
    """
    with closing(_NewestReader(args.run)) as newest:
        while True:
            try:
                newest.find()
            except (UsageError, StorageError):
                nothing_shown_yet = newest.reader is None
                is_wrong_name = args.run is not None and not Path(args.run).exists()
                if args.once or (nothing_shown_yet and is_wrong_name):
                    raise
            if newest.reader is not None:
                yield newest.reader.snapshot()
            else:
                yield Snapshot(store=args.run or str(RUNS))
            if args.once:
                return
            # Wait for the next update, or until the reader of a pipe is gone.
            sleep_while_read(_EVERY, sys.stdout)


class _NewestReader:
    """A reader of the store that an argument names.

    The argument may name another store later: without one, the newest run is meant, and another run
    may begin.
    """

    def __init__(self, run: str | None) -> None:
        """Read nothing yet. run: the argument of the command line, or None."""
        self._run = run
        self._read_store: stores.StoreAndRun | None = None  # what `reader` reads
        self.reader: Reader | None = None  # of the last store that was there

    def find(self) -> None:
        """Find the store that the argument names now, and read that one from now on.

        Raises UsageError or StorageError if there is none.
        """
        named_store = stores.find(self._run)
        if named_store != self._read_store:
            self.close()
            path, run_name = named_store
            self.reader = Reader(path, run_name)
            self._read_store = named_store

    def close(self) -> None:
        """Close the store that is read, if there is one."""
        if self.reader is not None:
            self.reader.close()


@contextmanager
def _showing(args: argparse.Namespace) -> Iterator[Show]:
    """Yield the function that shows each snapshot.

    It prints JSON for --json, a summary for --once, redraws a terminal, and prints lines otherwise.
    """
    if args.json:
        yield _as_json()
    elif args.once:
        yield _print
    elif can_redraw(sys.stdout):
        with _live() as show:
            yield show
    else:
        yield Lines().show


def _as_json() -> Show:
    """Return a function that prints a snapshot as a JSON object, if something has changed."""
    last_state: tuple[str, int, str | None] | None = None

    def show(snapshot: Snapshot) -> None:
        """Print a snapshot in one line, unless it says the same as the last one."""
        nonlocal last_state
        state = (snapshot.store, snapshot.serial, snapshot.note)
        if state != last_state:
            last_state = state
            summary = summary_of(snapshot).as_json()
            print_line(json.dumps(summary))

    return show


def _print(snapshot: Snapshot) -> None:
    """Print a summary of a snapshot with the five boards that need attention first."""
    from ternhost.watch.terminal_view import Drawn, console

    console().print(Drawn(summary_of(snapshot), boards=5))


@contextmanager
def _live() -> Iterator[Show]:
    """Yield a function that redraws the whole terminal with a snapshot.

    At the end the terminal is as it was before, and the last snapshot is printed below.
    """
    from rich.live import Live

    from ternhost.watch.terminal_view import Drawn, console

    last_snapshot: Snapshot | None = None
    with Live(console=console(), screen=True, auto_refresh=False, vertical_overflow="crop") as live:

        def show(snapshot: Snapshot) -> None:
            """Draw a snapshot in place of the last one."""
            nonlocal last_snapshot
            last_snapshot = snapshot
            live.update(Drawn(summary_of(snapshot)), refresh=True)

        yield show
    if last_snapshot is not None:
        _print(last_snapshot)


class Lines:
    """Prints a line for the last round, for each round that ends from now on, and for each new note.

    It is for an output that cannot be redrawn, such as a file.
    """

    def __init__(self) -> None:
        """Begin without a run."""
        self._note: str | None = None  # the last one, None if all was well
        # The run of the last call: its store, its name, and when it began.
        self._run: tuple[str, str, float] | None = None
        self._last_round = 0  # the number of the last round that was printed

    def show(self, snapshot: Snapshot) -> None:
        """Print the note if it is new, and a line for each round that has ended meanwhile."""
        if snapshot.run is None:
            self._show_note(snapshot.note or f"waiting for a run in {snapshot.store}")
            return
        self._show_note(snapshot.note)
        self._note_run(snapshot, snapshot.run)
        figures = curves.measures(snapshot.run, snapshot.history)
        # Rounds have a number in their store, by which they are compared, and one in their run,
        # which people want to see.
        for number_in_run, entry in enumerate(snapshot.history, 1):
            if entry["round"] > self._last_round:
                label = words.of_rounds(number_in_run, snapshot.run.planned)
                line = describe_round(entry, label, figures)
                print_line(visible(line))
                self._last_round = entry["round"]

    def _show_note(self, note: str | None) -> None:
        """Print a note, unless it was the last one, too."""
        if note is not None and note != self._note:
            print_line(visible(note))
        self._note = note

    def _note_run(self, snapshot: Snapshot, run: RunView) -> None:
        """If this is another run than at the last call, begin with its last ended round.

        A store whose rounds have gone back, such as one restored from a copy, counts as another
        run.
        """
        identity = (snapshot.store, run.name, run.began)
        history = snapshot.history
        has_gone_back = len(history) > 0 and history[-1]["round"] < self._last_round
        if identity == self._run and not has_gone_back:
            return
        self._run = identity
        # All rounds before the last one count as printed.
        self._last_round = 0
        if len(history) > 1:
            self._last_round = history[-2]["round"]
