"""`tern serve`: runs rounds for a fleet on a schedule, until it is stopped."""

import argparse
import contextlib
import json
import logging
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any

from ternhost import log, long_running
from ternhost import options as fields
from ternhost.cli import running
from ternhost.cli.running import PlaceOptions
from ternhost.command import JSON_LINES, add_command, add_option, print_line, print_result
from ternhost.errors import OK, UsageError
from ternhost.learn.base import ALGORITHMS, settings_in_words
from ternhost.learn.schedule import Schedule, Terms
from ternhost.listed_commands import SERVE
from ternhost.long_running import LogOptions, ServiceNeeds
from ternhost.options import option
from ternhost.reach import fleet
from ternhost.run import observer as observing
from ternhost.run import result as results
from ternhost.run.options import classes_of_run, names_of_run
from ternhost.run.run import Run
from ternhost.run.serve import serve
from ternhost.run.status import END, PROGRESS, Status, Watcher
from ternhost.signals import begin_to_end, ending_signals
from ternhost.text import counted
from ternhost.watch.summary import describe_round
from ternhost.watch.words import of_rounds

if TYPE_CHECKING:
    from ternhost.watch.metrics import Metrics

_PROGRESS_EVERY = 1.0  # least seconds between two progress events in JSON
# Options that few served fleets need: they divide a table among devices and judges, or judge.
_ABOUT_RECORDS = {"by", "time", "held_out", "threshold"}
_PLANNED = ("reports", "group", "clients")  # options that only runs have which end by themselves
# A served run goes on with each start of `tern serve`. These options may be others each time.
_OF_EACH_START = fields.names_of(Schedule) | fields.names_of(Terms) | names_of_run()


@dataclass(frozen=True)
class _Watching:
    """Who may watch a served run from elsewhere, beside the observers of extensions."""

    metrics: int | None = option(
        None,
        "serve metrics for Prometheus on this loopback port ('tern watch' writes its alerts)",
        metavar="PORT",
        group="watching",
    )


def add_parser(subparsers: Any) -> None:
    """Add `tern serve` to the commands, with a parser for each learner."""
    example = """tern serve --fleet mqtt:my-broker --every 1h --deadline 600 --quorum 0.9
        tern serve fedavg --fleet mqtt:my-broker --rounds 10 --json"""
    parser = add_command(subparsers, SERVE.name, SERVE.summary, example, run, JSON_LINES)
    parser.set_defaults(learner=None)
    long_running.may_be_service(parser, _service_needs)
    shared = (Schedule, *classes_of_run(), PlaceOptions, _Watching, LogOptions)
    running.add_pages_of_learners(
        parser, ALGORITHMS, shared, "fedsgd", leave_out=_PLANNED, own_page=False
    )
    rare = running.names_of_rare_options() | _ABOUT_RECORDS
    running.add_run_options(
        parser, ALGORITHMS, shared, fleet=None, leave_out=_PLANNED, elsewhere=rare
    )
    running.point_to_train(parser, rare)
    for observer in observing.registered():
        add_option(parser, fields.flag(observer.name), observer.about)


def run(args: argparse.Namespace) -> int:
    """Serve a fleet until Ctrl-C or the last of --rounds, print the result, and return the exit code."""
    if not args.fleet:
        raise UsageError("--fleet must name the devices", hint="such as --fleet mqtt:my-broker")
    options = running.parsed(args, ALGORITHMS, served=True)

    # Those who get each status of the run.
    observers = _observers(args)
    talk = _Talk(args)
    watcher = talk.watcher()
    for observer in observers:
        watcher = watcher.also(observer.update)

    place = running.place_of(args)
    active_run = serve(
        options,
        store=place.store,
        name=place.name,
        watcher=watcher,
        anew=place.anew,
        named=running.named(args).keys() - _OF_EACH_START,
    )
    talk.run = active_run.files.name
    with (
        _stopped_by_signals(active_run),
        active_run,
        observing.observed(active_run, observers, watcher.warn),
    ):
        long_running.ready(args)
        result = active_run.run()

    result["event"] = "result"
    was_stopped = not active_run.algorithm.done  # the next start goes on with the run
    if was_stopped:
        lines = [*active_run.algorithm.summary(result), *results.privacy_words(result)]
        print_result(result, "\n".join(lines), args.json)
        return OK
    if args.report is not False:
        result |= results.draw(result)
    return running.print_run(args, result)


def _observers(args: argparse.Namespace) -> list[observing.Observer]:
    """Return those who show the run elsewhere: metrics, and observers that extensions bring.

    Raises UsageError if one of them cannot show it.
    """
    observers: list[observing.Observer] = []
    metrics = _metrics(args)
    if metrics is not None:
        observers.append(metrics)
    for observer_class in observing.registered():
        is_wanted = getattr(args, observer_class.name)
        if is_wanted:
            observers.append(observer_class(args.fleet))
    return observers


def _metrics(args: argparse.Namespace) -> "Metrics | None":
    """Start the server of metrics for Prometheus that --metrics asks for.

    Returns None without that option. Raises UsageError if its port is not available.
    """
    port = args.metrics
    if port is None:
        return None
    from ternhost.watch.metrics import Metrics  # needs an optional package

    fields.require_port(port, "metrics")
    try:
        return Metrics(port)
    except OSError as error:
        text = f"port {port} is not available: {error}"
        raise UsageError(text, hint="give another --metrics") from error


@contextlib.contextmanager
def _stopped_by_signals(run: Run) -> Iterator[None]:
    """While the context is open, let signals that end a command stop the run after its step."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        """Stop the run. The parameters are those of every signal handler."""
        run.stop()
        begin_to_end()  # also for signals that come when this context is closed

    previous_handlers = {}
    for number in ending_signals():
        previous_handlers[number] = signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)


def _print_json() -> Callable[[Status], None]:
    """Return a function that prints statuses as JSON, those within a round not too often."""
    progress_at = -_PROGRESS_EVERY  # time.monotonic() of the last printed progress of a round

    def show(status: Status) -> None:
        """Print a status, unless the progress of the same round was printed just before."""
        nonlocal progress_at
        if status.event == PROGRESS:
            now = time.monotonic()
            if now - progress_at < _PROGRESS_EVERY:
                return
            progress_at = now
        else:
            progress_at = -_PROGRESS_EVERY  # a round begins or ends: its first progress is printed
        print_line(json.dumps(asdict(status)))

    return show


class _Talk:
    """What `tern serve` says while it runs: a log and, with --json, events on standard output."""

    def __init__(self, args: argparse.Namespace) -> None:
        """Say nothing yet. args: of the command."""
        self.run: str | None = None  # the name of the run, once it is known
        self._round: int | None = None  # that goes on, or the last one
        self._args = args
        self._as_json = args.json
        self._print_status = _print_json()

    def watcher(self) -> Watcher:
        """Return the functions that a run calls with its statuses, warnings and notes."""
        return Watcher(status=self._show, warn=self._warn, note=self._note)

    def _show(self, status: Status) -> None:
        """Say how far the run is: the log gets a line for each round that has ended."""
        self._round = status.round
        if self._as_json:
            self._print_status(status)
        if status.event != END:
            return
        log.say(
            logging.INFO,
            _in_words(status),
            event=END,
            run=self.run,
            round=status.round,
            number=status.number,
            asked=status.asked,
            reports=status.reports,
            refusals=status.refusals,
            ended=status.ended,
            boards=status.boards,
            figures=dict(status.figures),
            chosen=dict(status.chosen),
        )

    def _warn(self, message: str) -> None:
        """Say a warning of the run."""
        self._say(logging.WARNING, message)

    def _note(self, message: str) -> None:
        """Say another message of the run."""
        self._say(logging.INFO, message)

    def _say(self, level: int, message: str) -> None:
        """Log a message and, with --json, print it as an event."""
        long_running.started(self._args)
        log.say(level, message, event="note", run=self.run, round=self._round)
        if self._as_json:
            print_line(json.dumps({"event": "note", "message": message}))


def _in_words(status: Status) -> str:
    """Return a line about a round that has ended."""
    fleet_words = ""
    if status.boards is not None:
        fleet_words += f"; {counted(status.boards, 'board')}"
    if status.asleep:
        fleet_words += f", {status.asleep} asleep"
    if status.strangers:
        fleet_words += f", {status.strangers} of another version (tern board deploy)"

    # The fields of a status have the names that the history of a run uses.
    entry = {**vars(status), **status.figures}
    label = of_rounds(status.round, status.rounds)
    round_words = describe_round(entry, label, status.figures, fleet_words)
    return "; ".join([round_words, *settings_in_words(status.chosen)])


def _service_needs(args: argparse.Namespace) -> ServiceNeeds:
    """Return what this `tern serve` needs as a service.

    Raises UsageError for options with which each restart would begin another run.
    """
    if not args.fleet:
        raise UsageError("--fleet must name the devices", hint="such as --fleet mqtt:my-broker")
    if args.anew:
        text = "with --anew, the service would begin another run whenever it starts"
        raise UsageError(text, hint="run 'tern serve --anew' once by hand, and leave it out here")
    kind = fleet.parse(args.fleet)
    tern_makes_devices = kind.provisions or kind.simulated
    if tern_makes_devices and not args.store:
        text = f"without --store, a service of {args.fleet} would begin another run at each start"
        raise UsageError(text, hint="name a file that stays, such as --store fleet.sqlite")
    return ServiceNeeds(ports=kind.word == "port", uses_broker=kind.broker_directory)
