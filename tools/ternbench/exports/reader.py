"""Makes a recording of a table: of its columns of time, current or power, supply and marker."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ternbench.exports import columns, companions, makers, markers, times
from ternbench.exports.columns import Column, Titles
from ternbench.exports.makers import Export
from ternbench.exports.times import ContradictedRateError, Times
from ternbench.exports.titles import MARKER
from ternbench.exports.units import CURRENT, POWER, TIME, VOLTAGE
from ternbench.traces import MAX_LOST, Floats, Trace
from ternhost.datasets.tables import reading
from ternhost.datasets.tables.reading import RawTable
from ternhost.errors import UsageError
from ternhost.options import shown

_MOST_DIFFERENT = 1.25  # the ratio of power and of current by voltage: above, a unit is wrong
_DIFFERENT_VOLTS = 0.1  # share by which a file's voltage may differ from what the user names


@dataclass(frozen=True)
class Choices:
    """What the user says about a file, by the settings of --meter csv; None for nothing.

    time, current, voltage, power, marker: columns, as `Titles.named` takes them. rate: samples a
    second. decimal: "point" or "comma". volts: of the supply.
    """

    time: str | None = None
    current: str | None = None
    voltage: str | None = None
    power: str | None = None
    marker: str | None = None
    rate: float | None = None
    decimal: str | None = None
    volts: float | None = None


def read(path: Path, choices: Choices | None = None) -> Trace:
    """Read the whole recording in a file.

    Raises UsageError for a file that lacks a column, has cells that are not numbers, or leaves open
    what a column or a number means.
    """
    table = reading.read(path)
    columns.require_rows(table)
    export = makers.recognise(table, path)
    return _Reader(table, path, export, choices or Choices()).trace()


class _Reader:
    """Makes a trace of a table.

    taken: for each quantity, what it was taken from.
    """

    def __init__(self, table: RawTable, path: Path, export: Export, choices: Choices) -> None:
        self._titles = Titles(table, export.titles, choices.decimal, _claimed(choices))
        self._table = self._titles.table
        self._path = path
        self._export = export
        self._choices = choices
        self.taken: dict[str, dict[str, object]] = {}
        columns.require_rows(self._table)

    def trace(self) -> Trace:
        """Return the recording. Raises UsageError."""
        found = self._times()
        seconds = found.seconds
        clock = found.start + seconds
        amperes, volts = self._supply(clock)
        levels = self._levels(clock)
        is_complete = np.isfinite(amperes) & np.isfinite(volts) & np.isfinite(levels)
        self._require_complete(is_complete)
        return Trace(
            seconds=seconds[is_complete],
            amperes=amperes[is_complete],
            volts=volts[is_complete],
            marker=levels[is_complete] > 0.5,
            taken=self.taken,
        )

    def _column(self, quantity: str) -> Column | None:
        """Return the column of a quantity: the one that the user names, or the only one."""
        value = getattr(self._choices, quantity)
        if value is not None:
            return self._titles.named(quantity, value)
        return self._titles.automatic(quantity)

    def _times(self) -> Times:
        """Return the times of the samples, by their column or by the rate that the user names."""
        rate = self._choices.rate
        if rate is None:
            column = self._column(TIME)
            if column is None:
                raise self._no_times()
            if self._export.has_wrong_times and self._choices.time is None:
                text = f"{self._table.name} has no times of its samples, although a title says so"
                raise UsageError(text, hint="name the number of samples a second: rate=5000")
            found = times.of_column(self._titles, column)
        else:
            if self._choices.time is not None:
                raise UsageError("rate= and time= contradict each other", hint="leave one out")
            found = times.of_rate(len(self._table), rate)
            self._require_rate(rate)
        self.taken[TIME] = found.taken
        return found

    def _no_times(self) -> UsageError:
        """Return the error of a table without a column of times."""
        error = self._titles.missing(TIME)
        hint = f"{error.hint}; or name the number of samples a second: rate=HZ"
        return UsageError(error.message, hint)

    def _require_rate(self, rate: float) -> None:
        """Raise UsageError if the file has times that contradict the rate that the user names."""
        if self._export.has_wrong_times:
            return
        try:
            column = self._titles.automatic(TIME)
            if column is not None:
                times.require_same_rate(self._titles, column, rate)
        except ContradictedRateError:
            raise
        except UsageError:
            return  # the times cannot be read, which is why the user names a rate

    def _from_companion(self, quantity: str, clock: Floats) -> Floats | None:
        """Return the values of a quantity that the user takes from a second file; None for no file.

        clock: the times of the samples on the clock of the file, in seconds.
        """
        value = getattr(self._choices, quantity)
        if value is None or self._titles.has(value):
            return None
        path = companions.find(self._path, value)
        if path is None:
            return None
        values, name = companions.values_at(clock, path, quantity)
        self._note(quantity, column=name, file=path.name)
        return values

    def _levels(self, clock: Floats) -> Floats:
        """Return the level of the marker in each sample: 1, 0, or nan where it is missing.

        clock: as of `_from_companion`.
        """
        levels = self._from_companion(MARKER, clock)
        if levels is not None:
            return levels
        inputs = self._titles.inputs()
        value = self._choices.marker
        if value is None:
            candidates = self._titles.of(MARKER)
            if not candidates:
                raise self._titles.missing(MARKER)
            if len(candidates) > 1 or candidates[0].inputs:
                raise markers.several(self._titles)
            value = candidates[0].name
        if value in inputs and value not in self._table.columns:
            name, place = inputs[value]
            self._note(MARKER, column=name, input=value)
            all_inputs = [other for other, (column, _) in inputs.items() if column == name]
            return markers.levels_of_input(self._table, name, place, all_inputs)
        column = self._titles.named(MARKER, value)
        self._note(MARKER, column=column.name)
        return markers.levels_of(self._titles, column)

    def _supply(self, clock: Floats) -> tuple[Floats, Floats]:
        """Return the amperes and the volts of the samples; nan where they are missing.

        A file of powers has the amperes that belong to its powers and volts. clock: as of
        `_from_companion`.
        """
        current = None
        power = None
        if self._choices.power is None:
            current = self._column(CURRENT)
        if self._choices.power is not None or current is None:
            power = self._column(POWER)
        if current is None and power is None:
            raise self._titles.missing(CURRENT)

        if current is None:
            assert power is not None
            watts = self._taken_values(POWER, power)
            volts = self._volts(clock)
            _require_volts(self._table, volts)
            return watts / volts, volts
        amperes = self._taken_values(CURRENT, current)
        volts = self._volts(clock)
        self._require_agreement(amperes * volts)
        return amperes, volts

    def _volts(self, clock: Floats) -> Floats:
        """Return the volts of the samples: those of a column, or the ones that the user names."""
        stated = self._choices.volts
        if stated is None:
            volts = self._from_companion(VOLTAGE, clock)
            if volts is not None:
                return volts
            column = self._column(VOLTAGE)
            if column is None:
                error = self._titles.missing(VOLTAGE)
                raise UsageError(error.message, "name the supply's: --meter csv:FILE,volts=3.3")
            return self._taken_values(VOLTAGE, column)

        if self._choices.voltage is not None:
            raise UsageError("volts= and voltage= contradict each other", hint="leave one out")
        candidates = self._titles.of(VOLTAGE)
        if len(candidates) == 1 and candidates[0].unit is not None:
            column = Column(candidates[0].name, candidates[0].unit)
            own = float(np.nanmedian(self._values(VOLTAGE, column)))
            if abs(own - stated) > _DIFFERENT_VOLTS * stated:
                text = f"column {shown(column.name)} of {self._table.name} has {own:.3g} V, and not volts={stated:g}"
                raise UsageError(
                    text, hint="leave out volts=, or rename the column if it is no supply"
                )
        self._note(VOLTAGE, setting=columns.setting("volts", f"{stated:g}"))
        return np.full(len(self._table), stated)

    def _taken_values(self, quantity: str, column: Column) -> Floats:
        """Return the values of a column as `_values` does, and note that they were taken."""
        values = self._values(quantity, column)
        unit = self._titles.require_unit(quantity, column)
        self._note(quantity, column=column.name, unit=unit.symbol)
        return values

    def _values(self, quantity: str, column: Column) -> Floats:
        """Return the numbers of a column in SI units; nan for missing ones. Raises UsageError."""
        unit = self._titles.require_unit(quantity, column)
        return self._titles.numbers(column.name) * unit.factor

    def _note(self, quantity: str, **source: object) -> None:
        """Note what a quantity was taken from, such as a column and its unit."""
        name = "supply" if quantity == VOLTAGE else quantity
        self.taken[name] = source

    def _require_agreement(self, watts: Floats) -> None:
        """Raise UsageError if the file has a column of powers that are not current by voltage."""
        candidates = self._titles.of(POWER)
        if len(candidates) != 1 or candidates[0].unit is None:
            return
        column = Column(candidates[0].name, candidates[0].unit)
        power = float(np.nanmean(self._values(POWER, column)))
        product = float(np.nanmean(watts))
        if power <= 0 or product <= 0:
            return  # `energy.measure` refuses such currents
        if max(power / product, product / power) > _MOST_DIFFERENT:
            text = (
                f"{self._table.name}: column {shown(column.name)} has a mean power of "
                f"{1000 * power:.4g} mW, but current by voltage is {1000 * product:.4g} mW"
            )
            raise UsageError(text, hint="check the units, and which columns are the supply's")

    def _require_complete(self, is_complete: Any) -> None:
        """Raise UsageError if more samples lack a number than a recording may lose."""
        missing = np.flatnonzero(~is_complete)
        if len(missing) > MAX_LOST * len(is_complete):
            line = self._table.lines[int(missing[0])]
            text = (
                f"{self._table.name}: {len(missing):,} of {len(is_complete):,} samples lack a number, "
                f"the first in {self._table.place} {line}"
            )
            raise UsageError(text, hint="export all columns with a number in each sample")


def _claimed(choices: Choices) -> dict[str, str]:
    """Return the columns that the user names, by what they are named for."""
    named = {quantity: getattr(choices, quantity) for quantity in (TIME, CURRENT, POWER, MARKER)}
    return {quantity: value for quantity, value in named.items() if value is not None}


def _require_volts(table: RawTable, volts: Floats) -> None:
    """Raise UsageError for volts by which a power cannot be divided."""
    if np.any(volts == 0):
        raise UsageError(f"{table.name} has a supply of 0 V", hint="name the supply's: volts=3.3")
