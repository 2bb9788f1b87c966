"""`tern serve`: runs rounds for a fleet on a schedule, until it is stopped."""

import argparse
import contextlib
import json
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ternhost import extras
from ternhost import options as fields
from ternhost.cli import running
from ternhost.command import add_command, add_option, print_line, print_result
from ternhost.errors import OK, UsageError
from ternhost.learn.base import ALGORITHMS, settings_in_words
from ternhost.learn.schedule import Schedule, Terms
from ternhost.privacy import mechanisms
from ternhost.run import result as results
from ternhost.run.options import classes_of_run, names_of_run
from ternhost.run.run import Run
from ternhost.run.serve import serve
from ternhost.run.status import END, PROGRESS, Status, Watcher
from ternhost.text import counted
from ternhost.watch.dashboard_command import shown_beside
from ternhost.watch.home_assistant import HomeAssistant, shown
from ternhost.watch.summary import said
from ternhost.watch.words import of_rounds

_PROGRESS_EVERY = 1.0  # least seconds between two progress events in JSON
_PLANNED = ("reports", "group", "clients")  # options of runs that end by themselves
# Options that each start may change.
_OF_EACH_START = fields.names_of(Schedule) | fields.names_of(Terms) | names_of_run()


def add_parser(subparsers: Any) -> None:
    """Add `tern serve` to the commands."""
    summary = "run rounds for a fleet on a schedule, until Ctrl-C"
    example = """tern serve --fleet mqtt:my-broker --interval 3600 --deadline 600 --quorum 0.9
        tern serve --fleet mqtt:my-broker --algorithm fedavg --rounds 10 --json"""
    lines = "print one JSON object per line: events, then the result"
    parser = add_command(subparsers, "serve", summary, example, run, lines)
    text = "algorithm to run (default: fedsgd)"
    add_option(parser, "--algorithm", text, choices=tuple(ALGORITHMS))
    fields.add_arguments(parser, Schedule, *classes_of_run(), leave_out=("fleet",))
    learning = [cls.Options for cls in ALGORITHMS.values()]
    fields.add_arguments(parser, *learning, leave_out=(*_PLANNED, *_OF_EACH_START))
    place = parser.add_argument_group("the run")
    text = "the devices, in a form that 'tern fleet kinds' lists, such as mqtt:my-broker"
    add_option(place, "--fleet KIND", text, metavar="KIND:...")
    add_option(place, "--name NAME", running.NAME)
    text = "file with keys, rounds, reports and models (default: the fleet's own)"
    add_option(place, "--store FILE", text)
    text = "begin a new model; the store keeps its keys, rounds and earlier models"
    add_option(place, "--new-model", text)
    add_option(parser, "--metrics PORT", running.METRICS, type=int)
    text = "show the fleet in Home Assistant, through a broker made by 'tern broker config --home-assistant'"
    add_option(parser, "--home-assistant", text)
    text = "also show the run in the browser, as 'tern dashboard' does (default: port 8642, or a free one)"
    add_option(parser, "--dashboard PORT", text, nargs="?", type=int, const=True)
    text = "write no pictures and no report.html after the last of --rounds"
    add_option(place, "--no-report", text)
    add_option(parser, "--quiet", "print no line for each round")
    mechanisms.add_options(parser)
    parser.set_defaults(command="serve")


def run(args: argparse.Namespace) -> int:
    """Serve a fleet until Ctrl-C or the last of --rounds, and print the result."""
    if not args.fleet:
        raise UsageError("--fleet must name the devices", hint="such as --fleet mqtt:my-broker")
    if args.dashboard is not None:
        fields.require_port(args.dashboard, "dashboard")
        extras.require("nicegui")
    options = running.parsed(args, ALGORITHMS, served=True)
    metrics = running.metrics(args)
    home = HomeAssistant(args.fleet) if args.home_assistant else None
    watcher = _watcher(args)
    for observer in (metrics, home):
        if observer is not None:
            watcher = watcher.also(observer.update)
    active_run = serve(
        options,
        store=args.store,
        name=args.name,
        watcher=watcher,
        new_model=args.new_model,
        named=running.named(args).keys() - _OF_EACH_START,
    )
    if metrics is not None:
        metrics.add_store(active_run.files.store, active_run.files.name)
    with (
        _stopped_by_signals(active_run),
        active_run,
        _shown(args, active_run.directory),
        shown(home, active_run, watcher.warn),
    ):
        result = active_run.run()

    result["event"] = "result"
    if not active_run.algorithm.done:
        lines = [*active_run.algorithm.summary(result), *results.privacy_words(result)]
        print_result(result, "\n".join(lines), args.json)
        return OK
    if not args.no_report:
        result |= results.draw(result)
    return running.print_run(args, result)


@contextlib.contextmanager
def _stopped_by_signals(run: Run) -> Iterator[None]:
    """While the context is open, let SIGINT and SIGTERM stop the run after the present step."""
    previous = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        previous[number] = signal.signal(number, lambda *_: run.stop())
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _shown(args: argparse.Namespace, run: Path) -> contextlib.AbstractContextManager[None]:
    """Return a context that shows the run in the browser if --dashboard is given."""
    if args.dashboard is None:
        return contextlib.nullcontext()
    port = None if args.dashboard is True else args.dashboard
    return shown_beside(run, port, args.json or args.quiet)


def _print_json() -> Callable[[Status], None]:
    """Return a function that prints statuses as JSON, those within a round not too often."""
    progress_at = -_PROGRESS_EVERY  # time of the last printed progress of a round

    def show(status: Status) -> None:
        """Print a status, unless one of the same round was printed just before."""
        nonlocal progress_at
        if status.event != PROGRESS:
            progress_at = -_PROGRESS_EVERY
        elif time.monotonic() - progress_at < _PROGRESS_EVERY:
            return
        else:
            progress_at = time.monotonic()
        print_line(json.dumps(asdict(status)))

    return show


def _watcher(args: argparse.Namespace) -> Watcher:
    """Return what observes the run: it prints notes, and statuses for people or as JSON."""

    def note(message: str) -> None:
        print_result({"event": "note", "message": message}, message, args.json)

    if args.quiet and not args.json:
        return Watcher()
    return Watcher(_print_json() if args.json else _print_line, note, note)


def _print_line(status: Status) -> None:
    """Print a line about a round that has ended. Other statuses print nothing."""
    if status.event != END:
        return
    fleet = ""
    if status.boards is not None:
        fleet += f"; {counted(status.boards, 'board')}"
    if status.asleep:
        fleet += f", {status.asleep} asleep"
    if status.strangers:
        fleet += f", {status.strangers} of another version (tern deploy)"
    entry = {**vars(status), **status.figures}
    round_words = said(entry, of_rounds(status.round, status.rounds), status.figures, fleet)
    print_line("; ".join([round_words, *settings_in_words(status.chosen)]))
