"""The energy of a report: measured in marked windows, less the energy of an idle board."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np

from ternbench import traces
from ternbench.traces import Trace, Window
from ternhost.errors import TernError

MIN_WINDOWS = 5


@dataclass(frozen=True)
class ReportEnergy:
    """The energy of one report, in microjoules, and what was found with it.

    gross: all energy that the board drew while it made the report. net: gross less what an idle board
    would have drawn in that time. volts: of the supply. source: how the energy was found, for people.
    windows and reports: how many were measured; 0 for a model. asleep_microamperes: current of the
    board in deep sleep; None if unknown.
    """

    gross: float
    net: float
    idle_milliwatts: float
    volts: float
    seconds_per_report: float
    source: str
    windows: int = 0
    reports: int = 0
    asleep_microamperes: float | None = None

    def as_dict(self, bits: int) -> dict[str, Any]:
        """Return the figures as the output of `tern bench energy --json` has them.

        bits: how many bits of information a report has, for the energy of a bit.
        """
        figures: dict[str, Any] = {
            "microjoules_per_report": self.net,
            "microjoules_per_report_with_idle": self.gross,
            "microjoules_per_bit": self.net / bits,
            "bits_per_report": bits,
            "idle_milliwatts": self.idle_milliwatts,
            "asleep_microamperes": self.asleep_microamperes,
            "volts": self.volts,
            "milliseconds_per_report": 1000 * self.seconds_per_report,
            "source": self.source,
        }
        if self.windows:
            figures["windows"] = self.windows
            figures["reports"] = self.reports
        return figures


def measure(
    trace: Trace,
    reports_per_window: int,
    source: str,
    active_low: bool = False,
    possible_windows: tuple[int, int] | None = None,
) -> ReportEnergy:
    """Return the energy of a report from a recording: the median over the recording's windows.

    A window is a time in which the board sets its marker pin because it makes reports.

    trace: the recording. reports_per_window: how many reports the board makes in a window. source:
    how the recording was made, for people. active_low: the marker pin is low during a window, not
    high. possible_windows: the least and the largest number of windows that the board can have made,
    if known. Raises TernError for fewer than MIN_WINDOWS windows, and for a recording whose figures
    would be wrong.
    """
    if active_low:
        trace = replace(trace, marker=~trace.marker)
    windows = traces.find_windows(trace)
    traces.require_samples(trace, windows)
    if len(windows) < MIN_WINDOWS:
        hint = "check that the board's marker pin is wired to the meter's digital input, and ground to ground"
        raise TernError(f"{len(windows)} windows were marked, and {MIN_WINDOWS} are needed", hint)
    idle_watts = traces.idle_watts(trace, windows)
    traces.require_pairs(trace, windows, possible_windows)

    gross_joules, net_joules, seconds = _medians(windows, idle_watts)
    return ReportEnergy(
        gross=gross_joules / reports_per_window * 1e6,
        net=net_joules / reports_per_window * 1e6,
        idle_milliwatts=idle_watts * 1000,
        volts=float(np.median(trace.volts)),
        seconds_per_report=seconds / reports_per_window,
        source=source,
        windows=len(windows),
        reports=reports_per_window * len(windows),
    )


def _medians(windows: Sequence[Window], idle_watts: float) -> tuple[float, float, float]:
    """Return three medians over the windows: energy, energy beyond idling (joules), and seconds.

    idle_watts: the power of the idle board.
    """
    gross_joules = median(window.joules for window in windows)
    net_joules = median(window.joules - idle_watts * window.seconds for window in windows)
    seconds = median(window.seconds for window in windows)
    return gross_joules, net_joules, seconds
