"""`tern hil`: the tests on every board of a hardware map, side by side."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ternhost.command import add_command, print_result
from terntools.bench.sessions import Session
from terntools.terminal import require_positive, telling
from terntools.testing import hil


def add_parser(subparsers: Any) -> None:
    parser = add_command(
        subparsers,
        "hil",
        "run the tests for boards on every board of a hardware map, side by side (exit code 0: all passed, "
        "1: a test failed, 2: a board is not there or timed out)",
        "tern hil --hardware-map boards.yaml\ntern hil --hardware-map boards.yaml --board pico-1 --json",
    )
    parser.add_argument(
        "--hardware-map",
        required=True,
        metavar="FILE",
        help="the boards, as a hardware map of Zephyr's twister",
    )
    parser.add_argument(
        "--board", action="append", default=[], metavar="ID", help="run on this board only; may be repeated"
    )
    parser.add_argument(
        "--tests", action="append", type=Path, metavar="PATH", help="default: those that come with tern"
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=hil.TIMEOUT,
        help="seconds that a board may take (default: %(default)s)",
    )
    parser.add_argument("--sessions", default="sessions", metavar="DIR", help="where to write the report")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(func=_run)


def _run(args: argparse.Namespace) -> int:
    require_positive(args, "timeout")
    tests = tuple(args.tests or hil.TESTS)
    hil.boards_of(args.hardware_map, args.board)  # what is wrong is said before a session begins
    hil.require_tests(tests)
    session = Session(args.sessions)

    with telling(session.say) as say:
        results = hil.run(args.hardware_map, session.directory, tests, args.timeout, args.board, say)
    found = {
        "directory": str(session.directory),
        "boards": [
            {"id": one.board.id, "result": one.word.lower(), "lost": one.lost, **one.counts, **one.properties}
            for one in results
        ],
    }
    lines = [f"{one.board.id}: {one.word}" for one in results]
    print_result(found, "\n".join((*lines, f"report: {session.directory / 'report.html'}")), args.json)
    return hil.worst(results)
