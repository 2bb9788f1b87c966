"""Reads the recording of any instrument from a table that its own program exported.

The file has columns of time, current and marker, and mostly one of voltage. Its header names them
and their units, such as `Timestamp(ms),Current(uA),D0` or `time_s,current_a,voltage_v,marker`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ternbench.meters.recording import Recording
from ternbench.traces import Trace
from ternhost.datasets import reading
from ternhost.errors import UsageError

# Prefixes of units. Both Unicode characters are in use: the micro sign and the Greek letter.
_SCALES = {"": 1.0, "m": 1e-3, "u": 1e-6, "µ": 1e-6, "μ": 1e-6, "n": 1e-9}
# What the title of a column looks like, by the quantity that is in it.
_PATTERNS = {
    "time": re.compile(r"^(time|timestamp|t|seconds?)\b|^time", re.I),
    "current": re.compile(r"current|ampere|^i\b|^i_", re.I),
    "voltage": re.compile(r"volt|^v\b|^v_", re.I),
    "marker": re.compile(r"marker|trigger|digital|gpi?o?|^d0|^in0", re.I),
}
# The end of a title that names a unit, such as "(ms)", "[uA]" or "_v". Group 1 is the prefix.
_UNIT = re.compile(r"[(\[_ ]\s*([munµμ]?)([sAV]|sec|seconds|amps?|volts?)\s*[)\]]?\s*$", re.I)


@dataclass(frozen=True)
class Column:
    """A column of the file: its name, and its unit in seconds, amperes or volts, such as 1e-3."""

    name: str
    unit: float


class CsvExport(Recording):
    """A CSV file."""

    about = "a recording that the program of any instrument has exported"
    example = "export.csv"

    def read(self) -> Trace:
        return read(self.path, self.volts)


def read(path: Path, volts: float | None = None) -> Trace:
    """Read the whole recording in a file.

    volts: of the supply, for a file without a column of it. Raises UsageError for a file that lacks
    a column, or has cells that are not numbers.
    """
    table = reading.read(path)
    columns = _find_columns(table.columns)
    if "time" not in columns or "current" not in columns:
        text = f"{path}: no column of time or of current among {', '.join(table.columns)}"
        hint = "name them in the first row, with units: time_s,current_a,voltage_v,marker"
        raise UsageError(text, hint)
    if "voltage" not in columns and volts is None:
        raise UsageError(
            f"{path} has no voltage", hint="name the supply's: --meter csv:FILE,volts=3.3"
        )
    if "marker" not in columns:
        hint = "record the board's marker pin as a digital input"
        raise UsageError(f"{path} has no marker", hint)
    if len(table) < 2:
        raise UsageError(f"{path} has a single sample", hint="export a whole recording")

    values = {}
    for quantity, column in columns.items():
        values[quantity] = table.numbers(column.name) * column.unit
    if "voltage" not in values:
        values["voltage"] = np.full(len(table), volts or 0.0)
    return Trace(
        seconds=values["time"] - values["time"][0],
        amperes=values["current"],
        volts=values["voltage"],
        marker=values["marker"] > 0.5,  # a digital input is exported as 0 or 1
    )


def _find_columns(header: Sequence[str]) -> dict[str, Column]:
    """Return the columns that a header names, by quantity: "time", "current", "voltage" and "marker".

    Of several columns of a quantity the first counts. A quantity without a column is left out.
    """
    columns: dict[str, Column] = {}
    for quantity, pattern in _PATTERNS.items():
        for title in header:
            if pattern.search(title):
                unit = 1.0 if quantity == "marker" else _unit_in(title)
                columns[quantity] = Column(title, unit)
                break
    return columns


def _unit_in(title: str) -> float:
    """Return the unit that ends a column's title, such as 1e-3 for "Time (ms)".

    It is 1 for a title without a unit.
    """
    match = _UNIT.search(title)
    if match is None:
        return 1.0
    # The pattern ignores case: "MA" and "UA" are milliampere and microampere.
    prefix = match[1].replace("M", "m").replace("U", "u")
    return _SCALES[prefix]
