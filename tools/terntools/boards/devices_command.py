"""`tern devices`: the boards on this machine's ports."""

from __future__ import annotations

import argparse
from typing import Any

from ternhost import errors
from ternhost.command import add_command, print_result
from terntools.boards import devices

_COLUMNS = ("port", "board", "firmware", "tern", "serial_number", "usb_id")


def add_parser(subparsers: Any) -> None:
    parser = add_command(
        subparsers,
        "devices",
        "list the boards found by their USB id",
        "tern devices\ntern devices --no-ask --json",
    )
    parser.add_argument(
        "--no-ask", action="store_true", help="do not open the ports (opening one resets some boards)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(func=_run)


def _run(args: argparse.Namespace) -> int:
    found = devices.survey(ask=not args.no_ask)
    rows = [_COLUMNS] + [tuple(str(getattr(one, name) or "-") for name in _COLUMNS) for one in found]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_COLUMNS))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    if not found:
        lines = ["no board found: is it plugged in, with a cable that carries data?"]
    print_result({"devices": [one.as_dict() for one in found]}, "\n".join(lines), args.json)
    return errors.OK
