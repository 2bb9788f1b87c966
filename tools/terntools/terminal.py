"""Common to commands of the tools: how a command and its options are added, a progress bar, checks of options."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from typing import Any

from ternhost.command import add_command
from ternhost.options import require
from ternhost.terminal import Progress
from ternhost.text import visible

_WIDTH = 30


class Bar(Progress):
    """A bar on standard error; where that is no terminal, a line now and then."""

    def update(self, done: int, total: int) -> None:
        """Show that `done` of `total` is done."""
        percent = 100 * done // max(total, 1)
        bar = "#" * (_WIDTH * percent // 100)
        self.step(f"[{bar:<{_WIDTH}}] {percent:3} %")

    def __exit__(self, *_: object) -> None:
        self.close(keep=True)


def command(
    subparsers: Any, name: str, summary: str, example: str, run: Callable[[argparse.Namespace], int]
) -> argparse.ArgumentParser:
    """Add a command that `run` carries out, with --json. See `add_command`."""
    parser = add_command(subparsers, name, summary, example)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(func=run)
    return parser


def option(
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


def warn(message: str) -> None:
    """Print a message of several lines on standard error at once."""
    print(f"tern: {visible(message, lines=True)}", file=sys.stderr, flush=True)


def require_positive(args: argparse.Namespace, *names: str) -> None:
    """Raise UsageError where one of these options was given and is not a finite number above 0."""
    for name in names:
        value = getattr(args, name)
        if value is not None:
            require(0 < value < math.inf, name, "a number above 0", f"{value:g}")
