"""Instruments that record the supply of a board while it works."""

import time
from abc import abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import ClassVar

import numpy as np

from ternbench import energy, latency, subjects, traces
from ternbench.cases import Case
from ternbench.energy import ReportEnergy
from ternbench.meters.base import ACTIVE_LOW, MARKER, Finding, Meter, Task
from ternbench.traces import Trace
from ternhost.errors import UsageError
from ternhost.options import Option

_SESSIONS = 5  # recordings, of which the one with the median energy counts
_SECONDS = 12.0  # that the board works in a recording
_REST = 1.0  # seconds before and after that, in which the board is idle
_BURST = 200  # reports that a board makes when it is told to once


class Instrument(Meter):
    """An instrument in the board's supply, with an input for the board's marker pin."""

    source: str  # such as "measured with a Joulescope"
    settings: ClassVar[Sequence[Option]] = (MARKER, ACTIVE_LOW)

    @abstractmethod
    def record(self, seconds: float) -> Trace:
        """Record the supply for so many seconds. Raises DeviceError if that fails."""

    def find(self, task: Task) -> Finding:
        """Measure reports in several recordings, and return the result of the median recording.

        Raises UsageError if no pin marks the windows, TernError if the figures would be wrong.
        """
        with subjects.subject(task.fleet, task.marker) as device:
            bench = latency.Bench(device)
            bench.prepare(task.case)
            if not device.call("has_marker()"):
                hint = "wire one to the meter and name it: --meter NAME,marker=4"
                raise UsageError("no pin of this board marks the windows", hint)

            reports = []
            for number in range(1, _SESSIONS + 1):
                task.say(f"{self.source}: window {number} of {_SESSIONS}, {_SECONDS:g} s")
                reports.append(self._measure_reports(bench, task))
            reports.sort(key=lambda report: report.net)
            report = reports[_SESSIONS // 2]  # the median

            if task.asleep:
                task.say(f"{self.source}: the board asleep, {_SECONDS:g} s")
                assert isinstance(device, subjects.BoardSubject)
                report = replace(report, asleep_microamperes=self._measure_sleep(device))
            chip = device.chip

        return Finding(report, bars_of(task.case, report), chip)

    def _measure_reports(self, bench: latency.Bench, task: Task) -> ReportEnergy:
        """Record while the board makes reports, and return the energy of one.

        The board sets its marker pin during each report, so that each has a window of its own in the
        recording. The meter records in a thread, while this one lets the board make bursts of
        reports.
        """
        with ThreadPoolExecutor(1) as pool:
            recording = pool.submit(self.record, _SECONDS + 2 * _REST)
            time.sleep(_REST)
            worked_seconds = 0.0
            bursts = 0
            while worked_seconds < _SECONDS and not recording.done():
                worked_seconds += bench.burst(task.case, _BURST)
                bursts += 1

        # The recording may have begun late, and ended within a burst: at least half of the reports
        # of all bursts but the last must be in it.
        most_reports = bursts * _BURST
        least_reports = (most_reports - _BURST) // 2
        return energy.measure(
            recording.result(),
            reports_per_window=1,
            source=self.source,
            active_low=task.active_low,
            possible_windows=(least_reports, most_reports),
            anyway=task.anyway,
        )

    def _measure_sleep(self, board: subjects.BoardSubject) -> float:
        """Return the mean current of the board in deep sleep, in microamperes."""
        board.sleep(_SECONDS + 2 * _REST)
        trace = self.record(_SECONDS)
        traces.require_samples(trace, windows=[])  # raises TernError for a bad recording
        return 1e6 * float(np.mean(trace.amperes))


def bars_of(case: Case, report: ReportEnergy) -> dict[str, dict[str, float]]:
    """Return the bar of a report for the picture: its own energy, and that of an idle board."""
    idle_microjoules = report.gross - report.net
    return {case.label: {"the report's": report.net, "idle": idle_microjoules}}
