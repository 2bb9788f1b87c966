"""Instruments that measure what a board draws. Each gives a trace: current, voltage and the marker pin over time."""

from __future__ import annotations

from typing import Protocol

from terntools.bench.energy import Trace


class Meter(Protocol):
    """An instrument, ready to record."""

    source: str  # what the figures are from, for people

    def record(self, seconds: float) -> Trace:
        """What the next `seconds` bring. Raises DeviceError and UsageError."""
