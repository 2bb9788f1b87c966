"""Finds the energy of a report in a file in which another program has recorded an instrument."""

import argparse
from abc import abstractmethod
from pathlib import Path
from typing import Self

from ternbench import energy
from ternbench.meters.base import Finding, Meter, Task
from ternbench.meters.instrument import bars_of
from ternbench.traces import Trace
from ternhost.errors import UsageError


class Recording(Meter):
    """The file of --file. A subclass reads one format."""

    needs_board = False

    def __init__(self, path: Path, reports_per_window: int, volts: float | None) -> None:
        """Remember which file to read; `read` opens it.

        reports_per_window: how many reports the board makes while its marker pin is set. volts: of the
        supply, if the file does not tell; None if it was not given.
        """
        self.path = path
        self.reports_per_window = reports_per_window
        self.volts = volts

    @classmethod
    def from_options(cls, args: argparse.Namespace) -> Self:
        if args.file is None:
            text = f"--meter {args.meter} needs a --file to read"
            raise UsageError(text, hint=f"such as --file export.{args.meter}")
        return cls(args.file, args.reports, args.volts)

    @abstractmethod
    def read(self) -> Trace:
        """Return the whole recording in the file. Raises UsageError if the file has none."""

    def find(self, task: Task) -> Finding:
        source = f"measured, from {self.path.name}"
        trace = self.read()
        report = energy.measure(trace, self.reports_per_window, source, active_low=task.active_low)
        return Finding(report, bars_of(task.case, report))
