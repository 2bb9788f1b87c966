"""`tern experiment`: do again what the papers report."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from ternhost import experiments
from ternhost.cli import add_command, print_result
from ternhost.errors import OK
from ternhost.experiments import Options
from ternhost.runs.directory import new_directory


def add_parser(subparsers: Any) -> None:
    parser = add_command(
        subparsers,
        "experiment",
        "do again what the papers report, as CSV, JSON and PNG",
        "tern experiment variance\ntern experiment erm --dataset flights --quick --output erm-flights",
    )
    parser.add_argument("name", metavar="NAME", choices=experiments.NAMES, help=", ".join(experiments.NAMES))
    parser.add_argument(
        "--dataset", metavar="D", help="instead of the experiment's own choice; see 'tern train'"
    )
    parser.add_argument("--runs", type=int, metavar="R", help="how often to repeat (folds, for erm)")
    parser.add_argument("--quick", action="store_true", help="a small version, to look at")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="default 1")
    parser.add_argument("--output", metavar="DIR", help="default: runs/<time>")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(func=run)


def run(args: argparse.Namespace) -> int:
    shows = sys.stderr.isatty()

    def progress(message: str) -> None:
        if shows:
            print(f"\r\x1b[K{args.name}: {message}", end="", file=sys.stderr, flush=True)

    options = Options(args.dataset, args.runs, args.quick, args.seed, progress)
    try:
        outcome = experiments.run(args.name, options)
    finally:
        if shows:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    directory = Path(args.output) if args.output else new_directory()
    paths = [str(path) for path in experiments.write(outcome, directory)]
    result = {"experiment": args.name, "files": paths, "lines": list(outcome.lines)}
    print_result(result, "\n".join([*outcome.lines, "", *paths]), args.json)
    return OK
