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
MAX_WATTS = 20.0  # more than a board with a microcontroller draws
MIN_WATTS = 1e-6  # less than a board draws that makes reports
MIN_VOLTS, MAX_VOLTS = 0.5, 60.0  # of the supply of a board
MIN_SECONDS, MAX_SECONDS = 1e-5, 60.0  # that a board can need for a report

_ANYWAY = "check columns and units, or the meter's settings; --anyway accepts it"
_LEAST_SHARE = 1e-3  # of the energy in a window that a report costs beyond idling
_SURE = 3.0  # standard errors by which that differs from 0
_OPPOSITE = 0.01  # share of the power in windows by which an idle power may be below 0


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
    mean_milliwatts: float | None = None
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
            "mean_milliwatts": self.mean_milliwatts,
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
    anyway: bool = False,
) -> ReportEnergy:
    """Return the energy of a report from a recording: the median over the recording's windows.

    A window is a time in which the board sets its marker pin because it makes reports.

    trace: the recording. reports_per_window: how many reports the board makes in a window. source:
    how the recording was made, for people. active_low: the marker pin is low during a window, not
    high. possible_windows: the least and the largest number of windows that the board can have made,
    if known. anyway: accept powers and voltages that no board has. Raises TernError for fewer than
    MIN_WINDOWS windows, and for a recording whose figures would be wrong.
    """
    if active_low:
        trace = replace(trace, marker=~trace.marker)
    if not anyway:
        _require_usual_supply(trace)
    windows = traces.find_windows(trace)
    traces.require_samples(trace, windows)
    if len(windows) < MIN_WINDOWS:
        hint = "check that the board's marker pin is wired to the meter's digital input, and ground to ground"
        raise TernError(f"{len(windows)} windows were marked, and {MIN_WINDOWS} are needed", hint)
    idle_watts = traces.idle_watts(trace, windows)
    traces.require_pairs(trace, windows, possible_windows)
    _require_cost(windows, idle_watts)

    gross_joules, net_joules, seconds = _medians(windows, idle_watts)
    mean_watts = traces.mean_watts(trace)
    if not anyway:
        _require_usual_power(mean_watts, gross_joules / seconds)
        _require_usual_time(seconds / reports_per_window)
    return ReportEnergy(
        gross=gross_joules / reports_per_window * 1e6,
        net=net_joules / reports_per_window * 1e6,
        idle_milliwatts=idle_watts * 1000,
        volts=float(np.median(trace.volts)),
        seconds_per_report=seconds / reports_per_window,
        source=source,
        mean_milliwatts=mean_watts * 1000,
        windows=len(windows),
        reports=reports_per_window * len(windows),
    )


def _require_cost(windows: Sequence[Window], idle_watts: float) -> None:
    """Raise TernError unless the board draws more in its windows than when it is idle.

    Otherwise the column or the wire is a wrong one: the current is flat, negative, or not the
    board's. idle_watts: the power of the idle board.
    """
    gross_joules, net_joules, seconds = _medians(windows, idle_watts)
    busy_watts = gross_joules / seconds
    if gross_joules <= 0 or idle_watts < -_OPPOSITE * busy_watts:
        text = (
            f"the board seems to draw {1000 * idle_watts:.4g} mW when it is idle, and "
            f"{1000 * busy_watts:.4g} mW in its windows"
        )
        hint = "a power below 0 means that the meter's wires are swapped, or that it is another current"
        raise TernError(text, hint)

    nets = [window.joules - idle_watts * window.seconds for window in windows]
    # The scatter of the windows, by the median of their distances, and so the error of their median.
    deviation = 1.4826 * median(abs(net - net_joules) for net in nets)
    standard_error = 1.2533 * deviation / len(nets) ** 0.5
    is_flat = net_joules < max(_LEAST_SHARE * gross_joules, _SURE * standard_error)
    if is_flat:
        text = (
            f"a report seems to cost no more energy than idling: the board draws {1000 * busy_watts:.4g} mW "
            f"in its windows and {1000 * idle_watts:.4g} mW outside of them"
        )
        hint = (
            "check that the meter is in the board's supply line, which input marks the windows, and "
            "whether it is active-low"
        )
        raise TernError(text, hint)


def _require_usual_supply(trace: Trace) -> None:
    """Raise TernError for a supply voltage that no board has."""
    volts = float(np.median(trace.volts))
    if not MIN_VOLTS <= volts <= MAX_VOLTS:
        text = f"the supply is {volts:.4g} V, and boards have {MIN_VOLTS:g} to {MAX_VOLTS:g} V"
        raise TernError(text, _ANYWAY)
    is_usual = (trace.volts >= MIN_VOLTS) & (trace.volts <= MAX_VOLTS)
    others = int(np.count_nonzero(~is_usual))
    if others > traces.MAX_LOST * len(trace.volts):
        text = f"the supply is below {MIN_VOLTS:g} V or above {MAX_VOLTS:g} V in {others:,} samples"
        raise TernError(text, _ANYWAY)


def _require_usual_time(seconds: float) -> None:
    """Raise TernError for a time that no board needs for a report."""
    if not MIN_SECONDS <= seconds <= MAX_SECONDS:
        text = f"a report seems to take {seconds:.4g} s, which no board needs"
        raise TernError(text, f"check the unit of the times, and reports=N; {_ANYWAY}")


def _require_usual_power(mean_watts: float, busy_watts: float) -> None:
    """Raise TernError for a power that no board has: in the whole recording, or in its windows."""
    for watts, place in ((mean_watts, "in the recording"), (busy_watts, "in its windows")):
        if not MIN_WATTS <= watts <= MAX_WATTS:
            text = f"the board's mean power {place} is {watts:.4g} W, which no board has"
            raise TernError(text, _ANYWAY)


def _medians(windows: Sequence[Window], idle_watts: float) -> tuple[float, float, float]:
    """Return three medians over the windows: energy, energy beyond idling (joules), and seconds.

    idle_watts: the power of the idle board.
    """
    gross_joules = median(window.joules for window in windows)
    net_joules = median(window.joules - idle_watts * window.seconds for window in windows)
    seconds = median(window.seconds for window in windows)
    return gross_joules, net_joules, seconds
