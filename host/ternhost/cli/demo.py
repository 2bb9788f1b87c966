"""`tern demo`: the main job once, from nothing to a report to look at."""

from __future__ import annotations

import argparse
from typing import Any

from ternhost.cli import running
from ternhost.cli.progress import ProgressPrinter
from ternhost.command import add_command, add_option
from ternhost.run import result as results
from ternhost.run.options import RunOptions
from ternhost.run.run import Run

_BOARDS = 8
_REPORTS = 20_000
_EPSILON = "2"


def add_parser(subparsers: Any) -> None:
    parser = add_command(
        subparsers,
        "demo",
        f"train on {_REPORTS:,} real flights through {_BOARDS} emulated devices at epsilon {_EPSILON}, and show it",
        "tern demo",
        run,
    )
    add_option(parser, "--boards N", "emulated devices", _BOARDS)
    add_option(parser, "--reports R", "one of each client", _REPORTS)
    add_option(parser, "--epsilon E", "of a report", _EPSILON)


def run(args: argparse.Namespace) -> int:
    from ternhost.learn.fedsgd import Options

    printer = ProgressPrinter()
    learning = Options(reports=args.reports, epsilon=args.epsilon)
    options = RunOptions("fedsgd", learning, f"emulated:{args.boards}")
    try:
        with Run.begin(options, watcher=printer.watcher()) as going:
            result = going.run()
        printer.say("drawing the report")
        result |= results.draw(result)
    finally:
        printer.close()
    return running.print_run(args, result)
