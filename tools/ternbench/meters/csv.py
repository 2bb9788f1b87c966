"""Any instrument's export: a CSV file with columns of time, current, marker, and mostly voltage.

Its header names columns and units, such as `Timestamp(ms),Current(uA),D0` or
`time_s,current_a,voltage_v,marker`.
"""

import csv
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ternbench.meters.recording import Recording
from ternbench.traces import Trace
from ternhost.errors import UsageError

_SCALES = {"": 1.0, "m": 1e-3, "u": 1e-6, "µ": 1e-6, "μ": 1e-6, "n": 1e-9}
_PATTERNS = {
    "time": re.compile(r"^(time|timestamp|t|seconds?)\b|^time", re.I),
    "current": re.compile(r"current|ampere|^i\b|^i_", re.I),
    "voltage": re.compile(r"volt|^v\b|^v_", re.I),
    "marker": re.compile(r"marker|trigger|digital|gpi?o?|^d0|^in0", re.I),
}
_UNIT = re.compile(r"[(\[_ ]\s*([munµμ]?)([sAV]|sec|seconds|amps?|volts?)\s*[)\]]?\s*$", re.I)


@dataclass(frozen=True)
class Column:
    """A column: its position, and its unit in seconds, amperes or volts."""

    position: int
    unit: float


class CsvExport(Recording):
    """An exported CSV file."""

    def read(self) -> Trace:
        return read(self.path, self.volts)


def read(path: Path, volts: float | None = None) -> Trace:
    """Read the whole trace of a file.

    volts: of the supply, if the file has no column of it. Raises UsageError for a file that lacks a
    column, or has cells that are no numbers.
    """
    header, *rows = _rows(path)
    columns = _find_columns(header)
    if not {"time", "current"} <= columns.keys():
        text = f"{path}: no column of time or of current among {', '.join(header)}"
        hint = "name them in the first row, with units: time_s,current_a,voltage_v,marker"
        raise UsageError(text, hint)
    if "voltage" not in columns and volts is None:
        raise UsageError(f"{path} has no voltage", hint="name the supply's: --volts 3.3")
    if "marker" not in columns:
        hint = "record the board's marker pin as a digital input"
        raise UsageError(f"{path} has no marker", hint)

    values = {}
    try:
        for name, column in columns.items():
            numbers = [float(row[column.position]) for row in rows]
            values[name] = np.array(numbers) * column.unit
    except (ValueError, IndexError) as error:
        raise UsageError(f"{path}: every row must have numbers only ({error})") from error
    if "voltage" not in values:
        values["voltage"] = np.full(len(rows), volts or 0.0)
    return Trace(
        seconds=values["time"] - values["time"][0],
        amperes=values["current"],
        volts=values["voltage"],
        marker=values["marker"] > 0.5,
    )


def _rows(path: Path) -> list[list[str]]:
    """Read the header of a file, and at least two rows. Raises UsageError."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeError) as error:
        raise UsageError(f"cannot read {path}: {error}") from error
    first_lines = "".join(lines[:2])
    # The delimiter is the one that is most frequent in the header and the first row.
    delimiter = max(",;\t", key=first_lines.count)
    rows = [row for row in csv.reader(lines, delimiter=delimiter) if row]
    if len(rows) < 3:
        raise UsageError(f"{path} holds no samples")
    return rows


def _find_columns(header: list[str]) -> dict[str, Column]:
    """Find the columns that a header names, by the keys of _PATTERNS: the first that fits of each."""
    columns: dict[str, Column] = {}
    for quantity, pattern in _PATTERNS.items():
        for position, title in enumerate(header):
            if pattern.search(title.strip()):
                unit = 1.0 if quantity == "marker" else _unit_in(title)
                columns[quantity] = Column(position, unit)
                break
    return columns


def _unit_in(title: str) -> float:
    """Return the unit that ends a column's title, such as 1e-3 for "Time (ms)"; 1 without one."""
    match = _UNIT.search(title.strip())
    if match is None:
        return 1.0
    prefix = match[1].replace("M", "m").replace("U", "u")
    return _SCALES[prefix]
