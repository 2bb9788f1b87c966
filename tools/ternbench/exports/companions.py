"""Reads a quantity from a second file of the same recording.

Otii's program exports each channel to a file of its own, with the times of its samples.
"""

from pathlib import Path

import numpy as np

from ternbench.exports import makers, markers, times
from ternbench.exports.columns import Titles, require_rows
from ternbench.exports.titles import MARKER
from ternbench.exports.units import TIME
from ternbench.traces import Floats
from ternhost.datasets.tables import reading
from ternhost.errors import UsageError


def find(recording: Path, name: str) -> Path | None:
    """Return the file that a setting names, also beside the recording; None if there is none."""
    for path in (Path(name), recording.parent / name):
        if path.is_file():
            return path
    return None


def values_at(seconds: Floats, path: Path, quantity: str) -> tuple[Floats, str]:
    """Return a quantity of a second file at the times of the recording, and the column it is in.

    A marker keeps its level from each sample of the second file to the next one; other quantities
    are interpolated. seconds: the times of the recording, from the same beginning as those of the
    second file. Raises UsageError if the file leaves open what it holds, or is of another time.
    """
    table = reading.read(path)
    require_rows(table)
    titles = Titles(table, makers.recognise(table, path).titles)
    time = titles.automatic(TIME)
    column = titles.automatic(quantity)
    if time is None or column is None:
        raise titles.missing(TIME if time is None else quantity)
    own = times.of_column(titles, time)
    own_seconds = own.start + own.seconds
    if own_seconds[0] >= seconds[-1] or own_seconds[-1] <= seconds[0]:
        text = f"{table.name} is of another time than the recording"
        raise UsageError(text, hint="export both files from one recording")

    if quantity == MARKER:
        levels = markers.levels_of(titles, column)
        positions = np.searchsorted(own_seconds, seconds, side="right") - 1
        return levels[np.maximum(positions, 0)], column.name
    unit = titles.require_unit(quantity, column)
    values = titles.numbers(column.name) * unit.factor
    return np.interp(seconds, own_seconds, values), column.name
