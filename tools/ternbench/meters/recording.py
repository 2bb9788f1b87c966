"""Finds the energy of a report in a file in which another program has recorded an instrument."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from ternbench import energy, traces
from ternbench.meters.base import ACTIVE_LOW, VOLTS, Finding, Meter, Task
from ternbench.meters.instrument import bars_of
from ternbench.traces import Trace
from ternhost.options import Option


def _count(text: str) -> int:
    """Read a whole number above 0. Raises ValueError for any other text."""
    number = int(text)
    if number < 1:
        raise ValueError
    return number


_REPORTS = Option("reports", "number of reports in a window", _count, "N", default=1)


class Recording(Meter):
    """A file with a recording. A subclass reads one format."""

    needs_board = False
    about = "a recording in a file"
    place = "FILE"
    example = "recording.csv"
    settings: ClassVar[Sequence[Option]] = (VOLTS, _REPORTS, ACTIVE_LOW)

    def __init__(self, path: Path, reports_per_window: int, volts: float | None) -> None:
        """Remember which file to read; `read` opens it.

        reports_per_window: how many reports the board makes while its marker pin is set. volts: of the
        supply, if the file does not tell; None if it was not given.
        """
        self.path = path
        self.reports_per_window = reports_per_window
        self.volts = volts

    @classmethod
    def opened(cls, place: str, settings: Mapping[str, Any]) -> Self:
        return cls(Path(place), settings.get("reports", 1), settings.get("volts"))

    @abstractmethod
    def read(self) -> Trace:
        """Return the whole recording in the file. Raises UsageError if the file has none."""

    def find(self, task: Task) -> Finding:
        source = f"measured, from {self.path.name}"
        trace = self.read()
        report = energy.measure(
            trace,
            self.reports_per_window,
            source,
            active_low=task.active_low,
            anyway=task.anyway,
        )
        recording = {
            "samples": len(trace.seconds),
            "samples_per_second": traces.samples_per_second(trace),
            "seconds": float(trace.seconds[-1] - trace.seconds[0]),
            "marked_by": "low" if task.active_low else "high",
            "taken": {name: dict(taken) for name, taken in trace.taken.items()},
        }
        return Finding(report, bars_of(task.case, report), more={"recording": recording})
