"""`tern demo`: the main job once, from nothing to a report to look at."""

from __future__ import annotations

import argparse
from typing import Any

from ternhost.cli import add_command, print_result
from ternhost.cli.progress import ProgressPrinter
from ternhost.cli.train import begin, summary
from ternhost.errors import OK
from ternhost.report import page as report

_BOARDS = 8
_REPORTS = 20_000
_EPSILON = "2"


def add_parser(subparsers: Any) -> None:
    parser = add_command(
        subparsers,
        "demo",
        f"train on {_REPORTS:,} real flights through {_BOARDS} emulated devices at epsilon {_EPSILON}, and show it",
        "tern demo",
    )
    parser.add_argument("--boards", type=int, default=_BOARDS, metavar="N", help=f"default {_BOARDS}")
    parser.add_argument("--reports", type=int, default=_REPORTS, metavar="R", help=f"default {_REPORTS}")
    parser.add_argument("--epsilon", default=_EPSILON, metavar="E", help=f"default {_EPSILON}")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(func=run)


def run(args: argparse.Namespace) -> int:
    printer = ProgressPrinter()
    options = {
        "fleet": f"emulated:{args.boards}",
        "reports": args.reports,
        "epsilon": args.epsilon,
    }
    try:
        with begin(options, None, printer.watcher()) as session:
            result = session.run()
            directory = session.directory
    finally:
        printer.close()
    printer.note("drawing the report")
    page = report.write(result, directory)
    pictures = sorted(str(path) for path in directory.glob("*.png"))
    text = "\n".join(
        (
            summary(result),
            "",
            *pictures,
            f"look at {page}",
        )
    )
    print_result({**result, "report": str(page), "pictures": pictures}, text, args.json)
    return OK
