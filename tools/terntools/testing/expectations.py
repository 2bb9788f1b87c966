"""What a hardware map expects of a board's figures, and the history of figures across commits.

firmware/BOARDS.md describes both.
"""

import json
import math
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ternhost.errors import UsageError
from ternhost.files import storage_errors
from terntools.testing import board_figures

# Which is better, and the bounds that it has.
DIRECTIONS = {"lower": ["at most"], "higher": ["at least"], "equal": ["at least", "at most"]}

Record = dict[str, Any]
"""A line of the history: commit, date, board, figure, value, expectation, passed."""


@dataclass(frozen=True)
class Expectation:
    """The expected value of a figure, and what still passes.

    tolerance: in the unit of the figure, or a share such as "10%". direction: which values are
    better, a key of DIRECTIONS.
    """

    figure: str
    value: float
    tolerance: float | str = 0
    direction: str = "lower"

    @property
    def bounds(self) -> dict[str, float]:
        """The bounds of what passes: "at least" and "at most", as far as the direction has them.

        Raises ValueError for a value or a tolerance that is no finite number, or below 0.
        """
        tolerance_text = str(self.tolerance)
        if tolerance_text.endswith("%"):
            tolerance = self.value * float(tolerance_text[:-1]) / 100
        else:
            tolerance = float(tolerance_text)
        if not (0 <= self.value < math.inf and 0 <= tolerance < math.inf):
            raise ValueError
        bounds = {"at least": self.value - tolerance, "at most": self.value + tolerance}
        return {name: bounds[name] for name in DIRECTIONS[self.direction]}

    def allows(self, value: float) -> bool:
        bounds = self.bounds
        return bounds.get("at least", value) <= value <= bounds.get("at most", value)

    def __str__(self) -> str:
        return " and ".join(f"{name} {bound:,.6g}" for name, bound in self.bounds.items())


def parse(table: Any, place: str) -> tuple[Expectation, ...]:
    """Parse a table from YAML: figure -> value, or figure -> fields of an Expectation.

    place: begins messages. Raises UsageError.
    """
    if not isinstance(table, dict):
        hint = "such as expect: {heap-bytes: 70000}"
        raise UsageError(f"{place}: expect must be a table of figures", hint)
    return tuple(_parse_one(figure, terms, place) for figure, terms in table.items())


def _parse_one(figure: str, terms: Any, place: str) -> Expectation:
    """Parse the expectation of one figure. terms: its value, or fields. Raises UsageError."""
    figure_names = board_figures.names()
    if figure not in figure_names:
        hint = f"there are, with their units, {', '.join(figure_names)}"
        raise UsageError(f"{place}: there is no figure {figure!r}", hint)
    fields = terms if isinstance(terms, dict) else {"value": terms}
    try:
        expectation = Expectation(figure, **fields)
        expectation.allows(0.0)  # which needs its bounds
    except (ValueError, TypeError, KeyError) as error:
        unit = figure.rpartition("-")[2]
        text = (
            f"{place}: {figure} needs a value in {unit}, and may have a tolerance "
            f"(in the same unit or %) and a direction ({', '.join(DIRECTIONS)})"
        )
        hint = f"such as {figure}: {{value: 4400, tolerance: 10%, direction: lower}}"
        raise UsageError(text, hint) from error
    return expectation


def commit() -> str:
    """The commit of the current directory, with "-dirty" if a file of it differs."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True).stdout.strip()
    except OSError:
        answer = ""
    return answer or "no commit"


def append(
    path: Path, board: str, expected: Sequence[Expectation], values: Mapping[str, float]
) -> list[Record]:
    """Add the measured figures of a board to a history file, a JSON object a line.

    expected: the expectations of the board. values: by the names of figures. Returns the added
    records. Raises StorageError.
    """
    date = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    records: list[Record] = []
    for expectation in expected:
        value = values.get(expectation.figure)
        if value is not None:
            record = {
                "commit": commit(),
                "date": date,
                "board": board,
                "figure": expectation.figure,
                "value": value,
                "expectation": asdict(expectation),
                "passed": expectation.allows(value),
            }
            records.append(record)
    with storage_errors("name another place with --history-file", path), open(path, "a") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)
    return records


def read(path: Path) -> dict[str, list[Record]]:
    """Read a history file: its records by board and figure, the oldest first, each with its bounds.

    Raises UsageError if it cannot be read.
    """
    series: dict[str, list[Record]] = {}
    try:
        for line in path.read_text().splitlines():
            record = json.loads(line)
            record["bounds"] = Expectation(**record["expectation"]).bounds
            name = f"{record['board']}: {record['figure']}"
            series.setdefault(name, []).append(record)
    except OSError as error:
        hint = "run tern hil with a map that says what to expect of its boards"
        raise UsageError(f"cannot read {path}: {error.strerror}", hint) from error
    except (ValueError, TypeError, KeyError) as error:
        text = f"{path} has a line that tern hil did not write: {error}"
        raise UsageError(text, "remove it") from error
    return series


def describe(record: Record) -> str:
    """A record for people."""
    expectation = Expectation(**record["expectation"])
    return f"{record['figure']} {record['value']:,.6g}, expected {expectation}"


def moves(series: Mapping[str, Sequence[Record]]) -> dict[str, str]:
    """Return a sentence about the commit that last moved a figure beyond its tolerance.

    series: records by board and figure, as from `read`; so is the result.
    """
    lines = {}
    for name, records in series.items():
        previous: Record | None = None
        for record in records:
            had_passed = previous is None or previous["passed"]
            if had_passed and not record["passed"]:
                line = f"{record['board']}: {describe(record)}, since commit {record['commit']}"
                if previous is not None:
                    line += f"; it was {previous['value']:,.6g} at {previous['commit']}"
                lines[name] = line
            previous = record
    return lines
