"""Any instrument's export: a CSV file with columns of time and current, and optionally of voltage
and marker.

Its header names columns and units, such as `Timestamp(ms),Current(uA),D0` or
`time_s,current_a,voltage_v,marker`.
"""

import csv
import re
from pathlib import Path

import numpy as np

from ternbench.energy import Trace
from ternhost.errors import UsageError

_SCALES = {"": 1.0, "m": 1e-3, "u": 1e-6, "µ": 1e-6, "μ": 1e-6, "n": 1e-9}
_COLUMNS = {
    "time": (re.compile(r"^(time|timestamp|t|seconds?)\b|^time", re.I), "s"),
    "current": (re.compile(r"current|ampere|^i\b|^i_", re.I), "A"),
    "voltage": (re.compile(r"volt|^v\b|^v_", re.I), "V"),
    "marker": (re.compile(r"marker|trigger|digital|gpi?o?|^d0|^in0", re.I), ""),
}
_UNIT = re.compile(r"[(\[_ ]\s*([munµμ]?)([sAV]|sec|seconds|amps?|volts?)\s*[)\]]?\s*$", re.I)


def read(path: Path, volts: float | None = None) -> Trace:
    """The whole trace in a file; volts: of the supply, where there is no column of it.

    Raises UsageError.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeError) as error:
        raise UsageError(f"cannot read {path}: {error}") from error
    delimiter = max(",;\t", key="".join(lines[:2]).count)
    rows = [row for row in csv.reader(lines, delimiter=delimiter) if row]
    if len(rows) < 3:
        raise UsageError(f"{path} holds no samples")
    columns = {name: at for name in _COLUMNS if (at := _column(rows[0], name))}
    if not {"time", "current"} <= columns.keys():
        hint = "name them in the first row, with units: time_s,current_a,voltage_v,marker"
        raise UsageError(
            f"{path}: no column of time or of current among {', '.join(rows[0])}", hint
        )
    if "voltage" not in columns and volts is None:
        raise UsageError(f"{path} has no voltage", hint="name the supply's: --volts 3.3")
    if "marker" not in columns:
        raise UsageError(
            f"{path} has no marker", hint="record the board's marker pin as a digital input"
        )
    try:
        values = {
            name: np.array([float(row[at]) for row in rows[1:]]) * unit
            for name, (at, unit) in columns.items()
        }
    except (ValueError, IndexError) as error:
        raise UsageError(f"{path}: every row must have numbers only ({error})") from error
    supply = values.get("voltage", np.full(len(rows) - 1, volts or 0.0))
    return Trace(
        values["time"] - values["time"][0], values["current"], supply, values["marker"] > 0.5
    )


def _column(names: list[str], wanted: str) -> tuple[int, float] | None:
    """The position of a column, and what its unit is in seconds, amperes or volts."""
    pattern, unit = _COLUMNS[wanted]
    for at, name in enumerate(names):
        if pattern.search(name.strip()):
            prefix = _UNIT.search(name.strip())
            return at, _SCALES[
                prefix[1].replace("M", "m").replace("U", "u")
            ] if prefix and unit else 1.0
    return None
