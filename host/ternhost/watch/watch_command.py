"""`tern watch`: a run and its fleet in the terminal, while it goes on."""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

from ternhost.command import add_command, add_option, print_line, print_result
from ternhost.errors import OK, StorageError, UsageError
from ternhost.extensions import EXTENSIONS
from ternhost.files import storage_errors, write_file
from ternhost.run.directory import RUNS
from ternhost.store.reader import Reader
from ternhost.store.snapshot import Snapshot
from ternhost.terminal import can_redraw, heeding_interrupts, sleep_while_read
from ternhost.text import visible
from ternhost.watch import curves, stores, words
from ternhost.watch.summary import said, summary_of

Show = Callable[[Snapshot], None]


def add_parser(subparsers: Any) -> None:
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
    if written := {name: path for name in _FILES if (path := getattr(args, name))}:
        for name, path in written.items():
            with storage_errors("name another file", path):
                write_file(Path(path), _FILES[name]().encode())
        print_result(
            written, "\n".join(f"{name}: {path}" for name, path in written.items()), args.json
        )
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


def _snapshots(args: argparse.Namespace) -> Iterator[Snapshot]:
    """Snapshots of the named run, again and again: another run may have begun, or there is none
    yet.
    """
    reader: Reader | None = None
    meant: stores.Shown | None = None
    try:
        while True:
            try:
                now = stores.chosen(args.run)
            except (UsageError, StorageError):
                if args.once or (
                    reader is None and args.run is not None and not Path(args.run).exists()
                ):
                    raise
                if reader is None:
                    yield Snapshot(args.run or str(RUNS))
            else:
                if now != meant:
                    if reader is not None:
                        reader.close()
                    reader, meant = Reader(*now), now
            if reader is not None:
                yield reader.snapshot()
            if args.once:
                return
            sleep_while_read(args.interval, sys.stdout)
    finally:
        if reader is not None:
            reader.close()


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
        yield _by_line()


def _as_json() -> Show:
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


def _by_line() -> Show:
    """A line for the last round, for each round that ends from now on, and for each new note."""
    noted: str | None = None
    # The store, run, start of the run, and round of the last line.
    before: tuple[tuple[str, str, float] | None, int] = None, 0

    def say(line: str | None) -> None:
        nonlocal noted
        if line is not None and line != noted:
            print_line(visible(line))
        noted = line

    def show(shown: Snapshot) -> None:
        nonlocal before
        if shown.run is None:
            say(shown.note or f"waiting for a run in {shown.store}")
            return
        say(shown.note)
        figures = curves.measures(shown.run, shown.history)
        run = shown.store, shown.run.name, shown.run.began
        if run != before[0] or (shown.history and shown.history[-1]["round"] < before[1]):
            before = run, shown.history[-2]["round"] if len(shown.history) > 1 else 0
        for count, entry in enumerate(shown.history, 1):
            if entry["round"] > before[1]:
                print_line(visible(said(entry, words.of_rounds(count, shown.run.planned), figures)))
                before = run, entry["round"]

    return show
