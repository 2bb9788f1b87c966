"""What commands share: adding a command and its options to the parser, and printing the result."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

from ternhost.text import visible


def add_command(
    subparsers: Any,
    name: str,
    summary: str,
    example: str,
    run: Callable[[argparse.Namespace], int] | None = None,
    as_json: str = "print one JSON object",
) -> argparse.ArgumentParser:
    """Add a (sub)command whose `--help` ends with `example`, one command or more, a line each.

    With `run`, which carries it out, it has --json, whose help is `as_json`.
    """
    lines = "\n".join("  " + line.strip() for line in example.strip().splitlines())
    parser: argparse.ArgumentParser = subparsers.add_parser(
        name, help=summary, description=summary[:1].upper() + summary[1:] + ".", epilog=f"example:\n{lines}"
    )
    if run is not None:
        parser.add_argument("--json", action="store_true", help=as_json)
        parser.set_defaults(func=run)
    return parser


def add_option(
    parser: argparse._ActionsContainer, words: str, text: str, default: Any = None, **more: Any
) -> None:
    """Add an option: `words` are "--name METAVAR", "--name" for a switch, or "--name METAVAR..." for a list.

    A number as default gives the type; the help ends with the default. more: as of `add_argument`.
    """
    name, _, metavar = words.partition(" ")
    if metavar.endswith("..."):
        more = {"action": "append", "default": [], "metavar": metavar[:-3], **more}
        text += "; may be given several times"
    elif metavar or "choices" in more:
        kind = type(default) if isinstance(default, int | float) else str
        more = {"metavar": metavar or None, "default": default, "type": kind, **more}
    else:
        more["action"] = "store_true"
    if default is not None:
        text += f" (default {default:g})" if isinstance(default, float) else f" (default {default})"
    parser.add_argument(name, help=text, **more)


def print_result(result: dict[str, Any], text: str, as_json: bool) -> None:
    """Print a command's result: one JSON object, or the text for people."""
    print(json.dumps(result) if as_json else visible(text, lines=True))
