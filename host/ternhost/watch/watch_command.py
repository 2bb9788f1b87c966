"""`tern watch`: a run and its fleet in the terminal, while it goes on."""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

from ternhost.command import add_command, add_option, print_line, print_result
from ternhost.errors import OK, StorageError, UsageError
from ternhost.extensions import EXTENSIONS
from ternhost.files import storage_errors, write_file
from ternhost.run.directory import RUNS
from ternhost.store.reader import Reader
from ternhost.store.snapshot import RunView, Snapshot
from ternhost.terminal import can_redraw, heeding_interrupts, sleep_while_read
from ternhost.text import visible
from ternhost.watch import curves, stores, words
from ternhost.watch.summary import said, summary_of

Show = Callable[[Snapshot], None]


def add_parser(subparsers: Any) -> None:
    """Add `tern watch` to the commands."""
    summary = "show a run and its fleet in the terminal, until Ctrl-C"
    example = """tern watch my-broker/store.sqlite
        tern watch --once --json
        tern watch --grafana tern.json --alerts tern-alerts.yml"""
    lines = "print one JSON object per line whenever something changes"
    parser = add_command(subparsers, "watch", summary, example, run, lines)
    text = "name or directory of a run, or a store (default: the newest run)"
    parser.add_argument("run", nargs="?", metavar="RUN|STORE", help=text)
    add_option(parser, "--once", "show it once, and exit")
    add_option(parser, "--interval SECONDS", "seconds between two updates", 1.0)
    add_option(
        parser, "--grafana FILE", "write a Grafana dashboard for 'tern serve --metrics', and exit"
    )
    add_option(parser, "--alerts FILE", "write Prometheus alert rules for these metrics, and exit")


def run(args: argparse.Namespace) -> int:
    """Write the files that are asked for, or show a run until Ctrl-C."""
    if args.grafana or args.alerts:
        _write_files(args)
        return OK
    if not 0.1 <= args.interval <= 3600:
        raise UsageError(f"--interval must be 0.1 to 3600 seconds, not {args.interval:g}")
    with heeding_interrupts(), _showing(args) as show:
        try:
            for shown in _snapshots(args):
                show(shown)
        except KeyboardInterrupt:
            pass
    return OK


def grafana_dashboard() -> str:
    """The dashboard for Grafana, as JSON, with the panels of extensions."""
    dashboard = json.loads((files("ternhost.watch") / "grafana.json").read_text())
    for extension in EXTENSIONS.available():
        dashboard["panels"] += extension.grafana_panels()
    dashboard["panels"].sort(key=lambda panel: panel["id"])
    return json.dumps(dashboard, indent=1, ensure_ascii=False) + "\n"


def alert_rules() -> str:
    """The alerts for Prometheus, as YAML, with the rules of extensions."""
    rules = (files("ternhost.watch") / "alerts.yml").read_text()
    for extension in EXTENSIONS.available():
        rules += extension.alert_rules()
    return rules


_FILES = {"grafana": grafana_dashboard, "alerts": alert_rules}  # by option, what its file gets


def _write_files(args: argparse.Namespace) -> None:
    """Write the Grafana dashboard and the Prometheus alerts to the files that are named."""
    written_files = {}
    for name, content_of in _FILES.items():
        path = getattr(args, name)
        if path:
            written_files[name] = path
            with storage_errors("name another file", path):
                write_file(Path(path), content_of().encode())
    text = "\n".join(f"{name}: {path}" for name, path in written_files.items())
    print_result(written_files, text, args.json)


def _snapshots(args: argparse.Namespace) -> Iterator[Snapshot]:
    """Yield snapshots of the named run, again and again, or only one for --once.

    Another run may begin in between, and at first there may be none. Raises UsageError or
    StorageError where none can be shown.
    """
    with closing(_NewestReader(args.run)) as newest:
        while True:
            try:
                newest.find()
            except (UsageError, StorageError):
                is_wrong_name = args.run is not None and not Path(args.run).exists()
                if args.once or (newest.reader is None and is_wrong_name):
                    raise
            if newest.reader is not None:
                yield newest.reader.snapshot()
            else:
                yield Snapshot(args.run or str(RUNS))
            if args.once:
                return
            sleep_while_read(args.interval, sys.stdout)


class _NewestReader:
    """A reader of the store that an argument names, which may name another one later."""

    def __init__(self, run: str | None) -> None:
        self._run = run
        self._shown: stores.Shown | None = None
        self.reader: Reader | None = None  # of the last store that was there

    def find(self) -> None:
        """Find the store that is named now, and read that one from now on.

        Raises UsageError and StorageError if there is none.
        """
        named_store = stores.chosen(self._run)
        if named_store != self._shown:
            self.close()
            self.reader = Reader(*named_store)
            self._shown = named_store

    def close(self) -> None:
        if self.reader is not None:
            self.reader.close()


@contextmanager
def _showing(args: argparse.Namespace) -> Iterator[Show]:
    """Yield a function that shows a snapshot, in the form that the options and the terminal want."""
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
    """Return a function that prints a snapshot as a JSON object if something has changed."""
    last_state: tuple[str, int, str | None] | None = None

    def show(snapshot: Snapshot) -> None:
        nonlocal last_state
        state = snapshot.store, snapshot.serial, snapshot.note
        if state != last_state:
            last_state = state
            print_line(json.dumps(summary_of(snapshot).as_json()))

    return show


def _print(shown: Snapshot) -> None:
    from ternhost.watch.terminal_view import Drawn, console

    console().print(Drawn(summary_of(shown), boards=5))


@contextmanager
def _live() -> Iterator[Show]:
    """Yield a function that redraws the whole terminal; the last picture stays on it at the end."""
    from rich.live import Live

    from ternhost.watch.terminal_view import Drawn, console

    last: Snapshot | None = None
    with Live(console=console(), screen=True, auto_refresh=False, vertical_overflow="crop") as live:

        def show(shown: Snapshot) -> None:
            nonlocal last
            last = shown
            live.update(Drawn(summary_of(shown)), refresh=True)

        yield show
    if last is not None:  # the last picture stays
        _print(last)


class Lines:
    """Prints a line for the last round, for each round that ends from now on, and for each new note."""

    def __init__(self) -> None:
        self._note: str | None = None
        self._run: tuple[str, str, float] | None = None  # store, run, and start of the run
        self._last_round = 0  # of which there is a line

    def show(self, snapshot: Snapshot) -> None:
        """Print the note if it is new, and a line for each round that has ended meanwhile."""
        if snapshot.run is None:
            self._show_note(snapshot.note or f"waiting for a run in {snapshot.store}")
            return
        self._show_note(snapshot.note)
        self._begin_run(snapshot, snapshot.run)
        figures = curves.measures(snapshot.run, snapshot.history)
        for number, entry in enumerate(snapshot.history, 1):
            if entry["round"] > self._last_round:
                label = words.of_rounds(number, snapshot.run.planned)
                print_line(visible(said(entry, label, figures)))
                self._last_round = entry["round"]

    def _show_note(self, note: str | None) -> None:
        if note is not None and note != self._note:
            print_line(visible(note))
        self._note = note

    def _begin_run(self, snapshot: Snapshot, run: RunView) -> None:
        """If this is another run than at the last call, begin with its last round."""
        identity = snapshot.store, run.name, run.began
        went_back = bool(snapshot.history) and snapshot.history[-1]["round"] < self._last_round
        if identity != self._run or went_back:
            self._run = identity
            self._last_round = 0
            if len(snapshot.history) > 1:
                self._last_round = snapshot.history[-2]["round"]
