"""What the commands that run rounds have in common: where they run, what was asked for, and what --resume refuses."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ternhost.cli import print_result
from ternhost.cli.progress import ProgressPrinter
from ternhost.errors import OK, UsageError
from ternhost.runs.directory import STORE_NAME, new_directory
from ternhost.runs.session import Watcher

Result = dict[str, Any]


def default_of(options: Any, name: str) -> str:
    """The default of an option, for its help."""
    return f"default {getattr(options, name)}"


def add_where(parser: argparse.ArgumentParser, defaults: Any) -> None:
    """The fleet, how a round ends, the store; and how to print. `defaults`: the command's Options."""
    where = parser.add_argument_group("where")
    where.add_argument(
        "--fleet",
        metavar="FLEET",
        help="emulated:N, pico-emulated:N, rv32-emulated:N (ESP32-C3), xtensa-emulated:N (ESP32), "
        "m33-emulated:N (Pico 2), simulated:N or port:PATH[,PATH...]; " + default_of(defaults, "fleet"),
    )
    where.add_argument(
        "--deadline", type=float, metavar="SECONDS", help="of a round; " + default_of(defaults, "deadline")
    )
    where.add_argument(
        "--quorum",
        type=float,
        metavar="SHARE",
        help="of a round's reports, which ends it; " + default_of(defaults, "quorum"),
    )
    where.add_argument(
        "--first-round",
        type=int,
        metavar="N",
        help="number of the first round, for boards that know earlier ones",
    )
    where.add_argument("--store", metavar="FILE", help=f"default: runs/<time>/{STORE_NAME}")
    where.add_argument(
        "--anew",
        action="store_true",
        help="give up a run of the store that has not finished, and begin another",
    )
    where.add_argument(
        "--resume",
        metavar="RUN",
        help="go on with the run in this directory or store; with --fleet port:... if its boards are at other ports",
    )
    parser.add_argument("--quiet", action="store_true", help="no progress, only warnings")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def given(args: argparse.Namespace, defaults: Any) -> dict[str, Any]:
    """What was named on the command line of the fields of `defaults`. Raises UsageError beside --resume.

    Beside that only the fleet may be named.
    """
    found = {name: value for name in vars(defaults) if (value := getattr(args, name, None)) is not None}
    others = [*sorted(found.keys() - {"fleet"}), *["store"] * bool(args.store), *["anew"] * args.anew]
    if args.resume and others:
        raise UsageError(
            f"a run that is resumed keeps its options: --{others[0].replace('_', '-')} cannot be changed",
            hint=f"tern {args.command} --resume {args.resume}",
        )
    return found


def store_at(named: str | None) -> Path:
    """The store that was named, or one in a new directory under runs/. Raises StorageError."""
    return Path(named) if named else new_directory() / STORE_NAME


def perform(
    args: argparse.Namespace,
    defaults: Any,
    begin: Callable[[dict[str, Any], Watcher], Result],
    resume: Callable[[Watcher], Result],
    summary: Callable[[Result], str],
) -> int:
    """Run a command to its end, begun with what was named or resumed, and print the result. Raises TernError."""
    options = given(args, defaults)
    printer = ProgressPrinter(quiet=args.quiet)
    try:
        result = resume(printer.watcher()) if args.resume else begin(options, printer.watcher())
    finally:
        printer.close()
    print_result(result, summary(result), args.json)
    return OK
