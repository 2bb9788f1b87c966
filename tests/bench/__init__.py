"""Benchmarks of the host, and how much memory a process of theirs holds."""

from __future__ import annotations

import resource
from pathlib import Path


def resident(process: int | str = "self") -> int:
    """Bytes of memory that a process holds now. Raises OSError."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * resource.getpagesize()
