"""For the modules of commands: add a command to the parser, and print its result."""

from __future__ import annotations

import argparse
import json
from typing import Any

from ternhost.text import visible


def add_command(subparsers: Any, name: str, summary: str, example: str) -> argparse.ArgumentParser:
    """Add a (sub)command whose `--help` ends with `example`, one command or more, a line each."""
    lines = "\n".join("  " + line.strip() for line in example.strip().splitlines())
    parser: argparse.ArgumentParser = subparsers.add_parser(
        name, help=summary, description=summary[:1].upper() + summary[1:] + ".", epilog=f"example:\n{lines}"
    )
    return parser


def print_result(result: dict[str, Any], text: str, as_json: bool) -> None:
    """Print a command's result: one JSON object, or the text for people."""
    print(json.dumps(result) if as_json else visible(text, lines=True))
