"""Any instrument's export: a CSV file with columns of time and current, and optionally of voltage and marker.

Its header names columns and units, such as `Timestamp(ms),Current(uA),D0` or `time_s,current_a,voltage_v,marker`.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np

from ternhost.errors import UsageError
from terntools.bench.energy import Trace

_SCALES = {"": 1.0, "m": 1e-3, "u": 1e-6, "µ": 1e-6, "μ": 1e-6, "n": 1e-9}
_COLUMNS = {
    "time": (re.compile(r"^(time|timestamp|t|seconds?)\b|^time", re.I), "s"),
    "current": (re.compile(r"current|ampere|^i\b|^i_", re.I), "A"),
    "voltage": (re.compile(r"volt|^v\b|^v_", re.I), "V"),
    "marker": (re.compile(r"marker|trigger|digital|gpi?o?|^d0|^in0", re.I), ""),
}
_UNIT = re.compile(r"[(\[_ ]\s*([munµμ]?)([sAV]|sec|seconds|amps?|volts?)\s*[)\]]?\s*$", re.I)


class Csv:
    """A file; its marker column is that of the windows."""

    def __init__(self, path: str | Path, volts: float | None = None) -> None:
        self._path = Path(path)
        self._volts = volts
        self.source = f"measured, from {self._path.name}"

    def record(self, seconds: float = 0.0) -> Trace:
        """See Meter; the whole file, however long. Raises UsageError."""
        try:
            lines = self._path.read_text(encoding="utf-8-sig").splitlines()
        except (OSError, UnicodeError) as error:
            raise UsageError(f"cannot read {self._path}: {error}") from error
        delimiter = max(",;\t", key="".join(lines[:2]).count)
        rows = [row for row in csv.reader(lines, delimiter=delimiter) if row]
        if len(rows) < 3:
            raise UsageError(f"{self._path} holds no samples")
        columns = {name: self._column(rows[0], name) for name in _COLUMNS}
        if columns["time"] is None or columns["current"] is None:
            raise UsageError(
                f"{self._path}: no column of time or of current among {', '.join(rows[0])}",
                hint="name them in the first row, with units: time_s,current_a,voltage_v,marker",
            )
        if columns["voltage"] is None and self._volts is None:
            raise UsageError(f"{self._path} has no voltage", hint="name the supply's: --volts 3.3")
        if columns["marker"] is None:
            raise UsageError(
                f"{self._path} has no marker", hint="record the board's marker pin as a digital input"
            )
        return self._trace(rows[1:], columns)

    def _trace(self, rows: list[list[str]], columns: dict[str, tuple[int, float] | None]) -> Trace:
        try:
            values = {
                name: np.array([float(row[at[0]]) for row in rows]) * at[1]
                for name, at in columns.items()
                if at is not None
            }
        except (ValueError, IndexError) as error:
            raise UsageError(f"{self._path}: every row must have numbers only ({error})") from error
        volts = values.get("voltage", np.full(len(rows), self._volts or 0.0))
        return Trace(values["time"] - values["time"][0], values["current"], volts, values["marker"] > 0.5)

    @staticmethod
    def _column(names: list[str], wanted: str) -> tuple[int, float] | None:
        pattern, unit = _COLUMNS[wanted]
        for at, name in enumerate(names):
            if pattern.search(name.strip()):
                prefix = _UNIT.search(name.strip())
                return at, _SCALES[prefix[1].replace("M", "m").replace("U", "u")] if prefix and unit else 1.0
        return None
