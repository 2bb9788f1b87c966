"""Benchmarks of the host."""

from __future__ import annotations

import resource
from pathlib import Path


def resident(process: int | str = "self") -> int:
    """The resident memory of a process, in bytes. Raises OSError."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * resource.getpagesize()
