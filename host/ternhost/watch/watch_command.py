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
    """Add `tern watch`."""
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
    written = {}
    for name, content in _FILES.items():
        path = getattr(args, name)
        if path:
            written[name] = path
            with storage_errors("name another file", path):
                write_file(Path(path), content().encode())
    text = "\n".join(f"{name}: {path}" for name, path in written.items())
    print_result(written, text, args.json)


def _snapshots(args: argparse.Namespace) -> Iterator[Snapshot]:
    """Snapshots of the named run, again and again.

    Another run may have begun meanwhile, or there is none yet.
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
        """Look which store is named now. Raises UsageError and StorageError if there is none."""
        shown = stores.chosen(self._run)
        if shown != self._shown:
            self.close()
            self.reader = Reader(*shown)
            self._shown = shown

    def close(self) -> None:
        if self.reader is not None:
            self.reader.close()


@contextmanager
def _showing(args: argparse.Namespace) -> Iterator[Show]:
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
    """An object whenever something has changed."""
    last: tuple[str, int, str | None] | None = None

    def show(shown: Snapshot) -> None:
        nonlocal last
        now = shown.store, shown.serial, shown.note
        if now != last:
            last = now
            print_line(json.dumps(summary_of(shown).as_json()))

    return show


def _print(shown: Snapshot) -> None:
    from ternhost.watch.terminal_view import Drawn, console

    console().print(Drawn(summary_of(shown), boards=5))


@contextmanager
def _live() -> Iterator[Show]:
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

    def show(self, shown: Snapshot) -> None:
        if shown.run is None:
            self._show_note(shown.note or f"waiting for a run in {shown.store}")
            return
        self._show_note(shown.note)
        self._begin_run(shown, shown.run)
        figures = curves.measures(shown.run, shown.history)
        for count, entry in enumerate(shown.history, 1):
            if entry["round"] > self._last_round:
                which = words.of_rounds(count, shown.run.planned)
                print_line(visible(said(entry, which, figures)))
                self._last_round = entry["round"]

    def _show_note(self, note: str | None) -> None:
        if note is not None and note != self._note:
            print_line(visible(note))
        self._note = note

    def _begin_run(self, shown: Snapshot, run: RunView) -> None:
        """If this is another run than before, begin with its last round."""
        identity = shown.store, run.name, run.began
        went_back = bool(shown.history) and shown.history[-1]["round"] < self._last_round
        if identity != self._run or went_back:
            self._run = identity
            self._last_round = shown.history[-2]["round"] if len(shown.history) > 1 else 0
