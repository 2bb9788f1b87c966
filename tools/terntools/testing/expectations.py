"""What a hardware map expects of a board's figures, and the history of figures across commits.

A figure is a measured value, such as the latency of a report. docs/guides/emulators.md describes both
files.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ternhost.errors import UsageError
from ternhost.files import storage_errors
from ternhost.text import did_you_mean
from terntools.testing import board_figures, commits

if TYPE_CHECKING:
    from terntools.testing.yaml_file import Value

# Which values of a figure are better, and which bounds an expectation of it then has.
DIRECTIONS = {"lower": ["at most"], "higher": ["at least"], "equal": ["at least", "at most"]}

Record = dict[str, Any]
"""A measured value in the history: commit, date, board, figure, value, expectation, passed."""


@dataclass(frozen=True)
class Expectation:
    """The expected value of a figure, and by how much a measured value may differ from it.

    tolerance: in the unit of the figure, or a percentage of the value, such as "10%". direction: which
    values are better, a key of DIRECTIONS.
    """

    figure: str
    value: float
    tolerance: float | str = 0
    direction: str = "lower"

    @property
    def bounds(self) -> dict[str, float]:
        """The bounds of the values that pass: "at least" and "at most", or one of them.

        Raises ValueError for a value or a tolerance that is not a finite number, or is below 0.
        """
        tolerance_text = str(self.tolerance)
        if tolerance_text.endswith("%"):
            tolerance = self.value * float(tolerance_text[:-1]) / 100
        else:
            tolerance = float(tolerance_text)
        for number in (self.value, tolerance):
            if not 0 <= number < math.inf:
                raise ValueError
        both_bounds = {"at least": self.value - tolerance, "at most": self.value + tolerance}
        # A value that is better than expected passes, however much it differs.
        return {name: both_bounds[name] for name in DIRECTIONS[self.direction]}

    def allows(self, value: float) -> bool:
        """Return whether a measured value passes."""
        bounds = self.bounds
        least = bounds.get("at least", value)
        most = bounds.get("at most", value)
        return least <= value <= most

    def __str__(self) -> str:
        return " and ".join(f"{name} {bound:,.6g}" for name, bound in self.bounds.items())


_PERCENT = re.compile("[0-9]+([.][0-9]*)? ?%")
_TERMS = ("value", "tolerance", "direction")


def parse(table: Value) -> tuple[Expectation, ...]:
    """Read the expectations of a board's figures from the hardware map, or a file beside it.

    table: for each figure the expected value, or a table of the fields of Expectation. Raises
    UsageError, with the line and the column.
    """
    hint = "such as expect: {heap-bytes: 70000}"
    figures = table.table(board_figures.names(), hint)
    return tuple(_parse_one(figure, terms) for figure, terms in figures.items())


def _parse_one(figure: str, terms: Value) -> Expectation:
    """Read the expectation of one figure. Raises UsageError."""
    unit = figure.rpartition("-")[2]
    expected = f"a number of {unit} such as 4400, or a table with value, tolerance and direction"
    if not terms.is_table:
        return Expectation(figure, terms.number(expected))
    fields = terms.table(_TERMS)
    if "value" not in fields:
        raise UsageError(f"{terms.place}: {figure} has no value", f"give it a value in {unit}")
    expectation = Expectation(figure, fields["value"].number(f"a number of {unit}, at least 0"))
    if "tolerance" in fields:
        tolerance = _tolerance(fields["tolerance"], unit)
        expectation = replace(expectation, tolerance=tolerance)
    if "direction" in fields:
        expected = f"one of {', '.join(DIRECTIONS)}"
        direction = fields["direction"].text(expected)
        if direction not in DIRECTIONS:
            raise fields["direction"].wrong(expected, did_you_mean(direction, DIRECTIONS))
        expectation = replace(expectation, direction=direction)
    return expectation


def _tolerance(value: Value, unit: str) -> float | str:
    """Return a tolerance, as of Expectation. Raises UsageError."""
    expected = f"a number of {unit} or a percentage, such as 10%"
    if value.is_text:
        text = value.text(expected)
        if _PERCENT.fullmatch(text):
            return text
    return value.number(expected)


def append(
    path: Path,
    board: str,
    expected: Sequence[Expectation],
    values: Mapping[str, float],
    commit: str = commits.NONE,
) -> list[Record]:
    """Append the measured figures of a board to a history file, and return what was added.

    path: of the file, which has a JSON object in each line. board: its id. expected: what the map
    expects of the board. values: what was measured, by figure; a figure that was not measured gets
    no line. commit: at which that was. Raises StorageError.
    """
    date = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    records: list[Record] = []
    for expectation in expected:
        value = values.get(expectation.figure)
        if value is None:
            continue
        record = {
            "commit": commit,
            "date": date,
            "board": board,
            "figure": expectation.figure,
            "value": value,
            "expectation": asdict(expectation),
            "passed": expectation.allows(value),
        }
        records.append(record)
    lines = [json.dumps(record) + "\n" for record in records]
    with storage_errors("it is kept beside the hardware map", path), open(path, "a") as file:
        file.writelines(lines)
    return records


def read(path: Path) -> dict[str, list[Record]]:
    """Read a history file: the values of each figure of each board, the oldest first.

    The keys of the result are "BOARD: FIGURE". A record also has "bounds", those of its
    expectation. Raises UsageError if the file cannot be read.
    """
    series: dict[str, list[Record]] = {}
    try:
        for line in path.read_text().splitlines():
            record = json.loads(line)
            record["bounds"] = Expectation(**record["expectation"]).bounds
            name = f"{record['board']}: {record['figure']}"
            records = series.setdefault(name, [])
            records.append(record)
    except OSError as error:
        hint = "run 'tern hil' with a map that says what to expect of its boards"
        raise UsageError(f"cannot read {path}: {error.strerror}", hint) from error
    except (ValueError, TypeError, KeyError) as error:
        text = f"{path} has a line that tern hil did not write: {error}"
        raise UsageError(text, "remove it") from error
    return series


def describe(record: Record) -> str:
    """Return a text about a measured value and what was expected, for people."""
    expectation = Expectation(**record["expectation"])
    return f"{record['figure']} {record['value']:,.6g}, expected {expectation}"


def version_of(record: Mapping[str, Any]) -> str:
    """Return at which commit a value was measured, or without a commit its date."""
    if record["commit"] == commits.NONE:
        return str(record["date"])
    return str(record["commit"])


def _since(record: Record) -> str:
    """Return words for the commit or the date since which a figure has its value."""
    if record["commit"] == commits.NONE:
        return version_of(record)
    return f"commit {version_of(record)}"


def moves(series: Mapping[str, Sequence[Record]]) -> dict[str, str]:
    """Return for each figure a sentence about the commit that last moved it out of its bounds.

    series: the records of `read`, with whose keys the sentences are returned. A figure that has
    always passed has no sentence.
    """
    sentences = {}
    for name, records in series.items():
        previous: Record | None = None
        for record in records:
            passed_before = previous is None or previous["passed"]
            if passed_before and not record["passed"]:
                sentence = f"{record['board']}: {describe(record)}, since {_since(record)}"
                if previous is not None:
                    sentence += f"; it was {previous['value']:,.6g} at {version_of(previous)}"
                sentences[name] = sentence  # of several the last one
            previous = record
    return sentences
