"""Instruments that measure a board's supply current. Each records current, voltage and the marker over time."""

from __future__ import annotations

from typing import Protocol

from terntools.bench.energy import Trace


class Meter(Protocol):
    """An instrument, ready to record."""

    source: str  # origin of the figures, for people

    def record(self, seconds: float) -> Trace:
        """Record for `seconds`. Raises DeviceError and UsageError."""
