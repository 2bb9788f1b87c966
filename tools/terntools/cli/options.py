"""What several commands of the tools ask of the values of their options."""

from __future__ import annotations

import argparse
import math

from ternhost.errors import UsageError


def require_positive(args: argparse.Namespace, *names: str) -> None:
    """Raise UsageError where one of these options was given and is not a finite number above 0."""
    for name in names:
        value = getattr(args, name)
        if value is not None and not 0 < value < math.inf:
            raise UsageError(f"--{name.replace('_', '-')} must be a number above 0, not {value:g}")
