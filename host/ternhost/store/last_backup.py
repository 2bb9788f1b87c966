"""When a store was saved last, in a file beside it, so that observers can warn of an old backup."""

import json
from contextlib import suppress
from pathlib import Path

from ternhost.files import real, write_file

NAME = "last-backup.json"


def note(store: Path, saved: float) -> None:
    """Note that a store was saved at this time, in seconds since 1970. Raises OSError."""
    content = json.dumps({"saved": saved}).encode() + b"\n"
    write_file(real(store).with_name(NAME), content)


def last(store: Path) -> float | None:
    """Return when a store was saved last, in seconds since 1970; None if it never was."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        return float(json.loads(real(store).with_name(NAME).read_text())["saved"])
    return None
