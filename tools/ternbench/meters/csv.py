"""Reads the recording of any instrument from a table that its own program exported.

The file has columns of time, current and marker, and mostly one of voltage. Its titles name them
and their units, such as `Timestamp(ms),Current(uA),D0` or `time_s,current_a,voltage_v,marker`. The
package `ternbench.exports` understands them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar, Self

from ternbench.exports import reader
from ternbench.exports.columns import DECIMAL_MARKS
from ternbench.exports.reader import Choices
from ternbench.meters.base import positive
from ternbench.meters.recording import Recording
from ternbench.traces import Trace
from ternhost.options import Option

_COLUMNS = (
    Option("time", 'column of the times, such as "t in ms"', metavar="COLUMN"),
    Option("current", 'column of the currents, such as "Main in mA"', metavar="COLUMN"),
    Option("voltage", "column or file of the supply voltages", metavar="COLUMN"),
    Option("power", "column of the powers, for a file without currents", metavar="COLUMN"),
    Option("marker", "column, input or file of the marker, such as D0", metavar="COLUMN"),
)
_RATE = Option(
    "rate", "number of samples in a second, for a file without usable times", positive, "HZ"
)
_DECIMAL = Option(
    "decimal", "decimal mark: point or comma", metavar="MARK", choices=tuple(DECIMAL_MARKS)
)


class CsvExport(Recording):
    """A CSV file."""

    about = "a table that the program of any instrument has exported"
    example = "export.csv"
    settings: ClassVar[Sequence[Option]] = (*Recording.settings, *_COLUMNS, _RATE, _DECIMAL)

    def __init__(self, path: Path, reports_per_window: int, choices: Choices) -> None:
        """Remember which file to read, and what the user says about it."""
        super().__init__(path, reports_per_window, choices.volts)
        self.choices = choices

    @classmethod
    def opened(cls, place: str, settings: Mapping[str, Any]) -> Self:
        names = [field.name for field in fields(Choices)]
        given = {name: value for name, value in settings.items() if name in names}
        return cls(Path(place), settings.get("reports", 1), Choices(**given))

    def read(self) -> Trace:
        return reader.read(self.path, self.choices)
