"""What several commands of the tools ask of the values of their options."""

from __future__ import annotations

import argparse
import math
import sys

from ternhost.errors import UsageError


def require_positive(args: argparse.Namespace, *names: str) -> None:
    """Raise UsageError where one of these options was given and is not a finite number above 0."""
    for name in names:
        value = getattr(args, name)
        if value is not None and not 0 < value < math.inf:
            raise UsageError(f"--{name.replace('_', '-')} must be a number above 0, not {value:g}")


def confirm() -> None:
    """Ask whether to go on, at the terminal. Raises UsageError where nobody says yes."""
    if not sys.stdin.isatty():
        raise UsageError(
            "standard input is not a terminal, so that nobody can agree",
            hint="add --yes to carry out the plan above",
        )
    print("go on? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UsageError("nothing was changed", hint="answer y, or add --yes")
