"""What a hardware map expects of a board's figures, and the history of its figures across commits.

firmware/BOARDS.md describes both."""

import json
import math
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from ternhost.errors import UsageError
from ternhost.files import storage_errors
from terntools.testing import board_figures

# Which is better, and the bounds that it has.
DIRECTIONS = {"lower": ["at most"], "higher": ["at least"], "equal": ["at least", "at most"]}

Figures = Mapping[str, float]  # values by name
Record = dict[
    str, Any
]  # a line of the history: commit, date, board, figure, value, expectation, passed


@dataclass(frozen=True)
class Expectation:
    """The expected value of a figure, a tolerance in the same unit or "10%", and the better
    direction.
    """

    figure: str
    value: float
    tolerance: float | str = 0
    direction: str = "lower"

    @property
    def bounds(self) -> dict[str, float]:
        """What passes: "at least" and "at most", as far as there are such bounds.

        Raises ValueError.
        """
        share = str(self.tolerance)
        tolerance = self.value * float(share[:-1]) / 100 if share.endswith("%") else float(share)
        if not (0 <= self.value < math.inf and 0 <= tolerance < math.inf):
            raise ValueError
        bounds = {"at least": self.value - tolerance, "at most": self.value + tolerance}
        return {name: bounds[name] for name in DIRECTIONS[self.direction]}

    def allows(self, value: float) -> bool:
        return self.bounds.get("at least", value) <= value <= self.bounds.get("at most", value)

    def __str__(self) -> str:
        return " and ".join(f"{name} {bound:,.6g}" for name, bound in self.bounds.items())


def parse(stated: Any, where: str) -> tuple[Expectation, ...]:
    """The expectations of a table from YAML: figure -> value, or figure -> the fields of an
    Expectation.

    where: begins messages. Raises UsageError.
    """
    if not isinstance(stated, dict):
        raise UsageError(
            f"{where}: expect must be a table of figures", "such as expect: {heap-bytes: 70000}"
        )
    expect = []
    for figure, terms in stated.items():
        if figure not in board_figures.names():
            hint = f"there are, with their units, {', '.join(board_figures.names())}"
            raise UsageError(f"{where}: there is no figure {figure!r}", hint=hint)
        try:
            expect.append(
                Expectation(figure, **(terms if isinstance(terms, dict) else {"value": terms}))
            )
            _ = expect[-1].bounds
        except (ValueError, TypeError, KeyError) as error:
            text = (
                f"{where}: {figure} needs a value in {figure.rpartition('-')[2]}, and may have a "
            )
            text += f"tolerance (in the same unit or %) and a direction ({', '.join(DIRECTIONS)})"
            hint = f"such as {figure}: {{value: 4400, tolerance: 10%, direction: lower}}"
            raise UsageError(text, hint) from error
    return tuple(expect)


def commit() -> str:
    """The commit of the current directory, and "-dirty" where a file of it differs."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True).stdout.strip() or "no commit"
    except OSError:
        return "no commit"


def append(path: Path, board: str, expect: Sequence[Expectation], values: Figures) -> list[Record]:
    """Add the measured figures of a board to a history file (a JSON object a line).

    Raises StorageError.
    """
    about = {"commit": commit(), "date": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "board": board}
    measured = [(one, values[one.figure]) for one in expect if one.figure in values]
    records = [
        dict(
            about, figure=one.figure, value=value, expectation=asdict(one), passed=one.allows(value)
        )
        for one, value in measured
    ]
    with storage_errors("name another place with --history-file", path), open(path, "a") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)
    return records


def read(path: Path) -> dict[str, list[Record]]:
    """The records of a history file by board and figure, the oldest first, each with its bounds.

    Raises UsageError.
    """
    series: dict[str, list[Record]] = {}
    try:
        for record in map(json.loads, path.read_text().splitlines()):
            record["bounds"] = Expectation(**record["expectation"]).bounds
            series.setdefault(f"{record['board']}: {record['figure']}", []).append(record)
    except OSError as error:
        hint = "run tern hil with a map that says what to expect of its boards"
        raise UsageError(f"cannot read {path}: {error.strerror}", hint=hint) from error
    except (ValueError, TypeError, KeyError) as error:
        raise UsageError(
            f"{path} has a line that tern hil did not write: {error}", "remove it"
        ) from error
    return series


def describe(record: Record) -> str:
    return f"{record['figure']} {record['value']:,.6g}, expected {Expectation(**record['expectation'])}"


def moves(series: Mapping[str, Sequence[Record]]) -> dict[str, str]:
    """By board and figure: which commit last moved it beyond its tolerance."""
    lines = {}
    for name, records in series.items():
        for before, record in pairwise(({"passed": True}, *records)):
            if before["passed"] and not record["passed"]:
                was = (
                    f"; it was {before['value']:,.6g} at {before['commit']}"
                    if "value" in before
                    else ""
                )
                lines[name] = (
                    f"{record['board']}: {describe(record)}, since commit {record['commit']}{was}"
                )
    return lines
