"""Turns a column into a marker: for each sample whether the board's marker pin was high."""

import operator
import re
from collections.abc import Sequence

import numpy as np

from ternbench.exports.columns import Column, Titles, setting
from ternbench.exports.titles import MARKER
from ternbench.exports.units import VOLTAGE
from ternbench.traces import Floats
from ternhost.datasets.tables.reading import RawTable
from ternhost.datasets.tables.table_rows import MISSING
from ternhost.errors import UsageError
from ternhost.options import shown

# Words for levels, in lower case.
_LEVELS = {
    **dict.fromkeys(["1", "true", "t", "high", "h", "hi", "on", "yes", "set"], 1.0),
    **dict.fromkeys(["0", "false", "f", "low", "l", "lo", "off", "no", "clear"], 0.0),
}
_BITS = re.compile(r"[01xX\-]{2,}")
_NEAR = 0.25  # of the distance between the two levels of an analogue marker
_MOST = 0.95  # the share of samples that are near one of the levels


def levels_of(titles: Titles, column: Column) -> Floats:
    """Return the level of the marker in a column: 1 for high, 0 for low, nan where it is not known.

    Raises UsageError for cells that are no levels of one pin.
    """
    table = titles.table
    cells = table.texts(column.name)
    texts = {cell.lower() for cell in cells}
    if texts <= set(_LEVELS) | MISSING:
        return np.array([_LEVELS.get(cell.lower(), np.nan) for cell in cells])
    if _are_bits(texts):
        text = f"{table.name}: column {shown(column.name)} has several bits in a cell"
        hint = "export each input as a column of its own, or call the column D0-D7, by its bits"
        raise UsageError(text, hint)
    missing = {cell for cell in cells if cell.lower() in MISSING}
    return _by_threshold(table, column, table.numbers(column.name, missing))


def levels_of_input(table: RawTable, column: str, place: int, inputs: Sequence[str]) -> Floats:
    """Return the level of one input in a column of bits: 1, 0, or nan where it is not known.

    Nordic's program writes - for no sample and X for a sample in which the input changed. place: of
    the input in each cell. inputs: all inputs of the column. Raises UsageError for other cells.
    """
    cells = table.texts(column)
    levels = {}
    for cell in set(cells):
        if len(cell) != len(inputs) or not _BITS.fullmatch(cell):
            where = table.where(cells.index(cell), column)
            text = f"{where}: {shown(cell)} is no string of {len(inputs)} bits"
            hint = "a spreadsheet may have taken zeros away: export again, and do not open the file"
            raise UsageError(text, hint)
        levels[cell] = {"0": 0.0, "1": 1.0}.get(cell[place], np.nan)
    return np.array([levels[cell] for cell in cells])


def several(titles: Titles) -> UsageError:
    """Return the error of a table with several columns or inputs that may be the marker."""
    table = titles.table
    inputs = titles.inputs()
    names = [title.name for title in titles.of(MARKER) if not title.inputs]
    names += [name for name in inputs if name not in names]
    changing = []
    for name in names:
        column, place = name, slice(None)
        if name not in table.columns:
            column, bit = inputs[name]
            place = slice(bit, bit + 1)
        levels = [cell[place] for cell in table.texts(column)]
        changes = sum(map(operator.ne, levels, levels[1:]))
        if changes:
            changing.append(f"{name} ({changes:,} times)")
    text = f"{table.name} has {len(names)} inputs, one of which is the marker: {', '.join(names)}"
    hint = f"name it, such as {setting('marker', names[0])}; those that change are: {', '.join(changing) or 'none'}"
    return UsageError(text, hint)


def _are_bits(texts: set[str]) -> bool:
    """Return whether texts are strings of bits of one length, such as 0101."""
    widths = set(map(len, texts - MISSING))
    return len(widths) == 1 and all(map(_BITS.fullmatch, texts - MISSING))


def _by_threshold(table: RawTable, column: Column, values: Floats) -> Floats:
    """Return the levels of a marker that was recorded as numbers, such as a voltage.

    Raises UsageError for numbers that do not keep to two levels.
    """
    present = values[np.isfinite(values)]
    if not present.size:
        return values
    low, high = float(present.min()), float(present.max())
    distances = np.minimum(present - low, high - present)
    are_two_levels = np.mean(distances <= _NEAR * (high - low)) >= _MOST
    are_whole = np.array_equal(present, np.round(present))
    is_voltage = column.unit is not None and column.unit.quantity == VOLTAGE
    # Whole numbers with more than two values are several inputs in one number.
    are_inputs = are_whole and not is_voltage and len(np.unique(present)) > 2
    if are_inputs or not are_two_levels:
        text = f"{table.name}: the numbers in column {shown(column.name)} are not the two levels of a pin"
        hint = "name another column, marker=COLUMN, or export each digital input as a column of its own"
        raise UsageError(text, hint)
    levels = np.full(len(values), np.nan)
    is_known = np.isfinite(values)
    levels[is_known] = values[is_known] > (low + high) / 2
    return levels
