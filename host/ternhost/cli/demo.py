"""`tern demo`: `tern train` on emulated boards, with options for a first look."""

import argparse
from typing import Any

from ternhost.cli import build_parser, running
from ternhost.command import add_command, add_option

_BOARDS = 8
_REPORTS = 20_000


def add_parser(subparsers: Any) -> None:
    summary = f"train a model on {_REPORTS:,} real flights with {_BOARDS} emulated boards, and write a report"
    parser = add_command(subparsers, "demo", summary, "tern demo", run)
    add_option(parser, "--boards N", "number of emulated boards", _BOARDS)
    add_option(parser, "--reports R", "number of reports, one per client", _REPORTS)
    add_option(parser, "--epsilon E", "epsilon of a report", "2")


def run(args: argparse.Namespace) -> int:
    words = [f"--fleet=emulated:{args.boards}", f"--reports={args.reports}", f"--epsilon={args.epsilon}"]
    return running.run(build_parser(["train"]).parse_args(["train", *words, *["--json"] * args.json]))
