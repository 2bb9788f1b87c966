"""Energy of a report: measured between markers, less the energy of an idle board.

As in MLPerf Tiny, a pin of the board marks each window; current and pin come from the same
instrument.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from ternhost.errors import TernError, UsageError
from ternhost.options import require

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

MIN_MARK = 1e-6  # seconds: a shorter change of the pin is a glitch
MIN_WINDOWS = 5
_GUARD = 1e-3  # seconds around a window that are not idle
_GAP = 8  # times the median interval between samples: longer ones are gaps
LOST = 0.01  # share of a recording that may be lost outside of windows
_ODD = 1 / 8  # share of windows that may be odd: medians do not notice fewer
_SHORT = 3  # samples: a shorter window or pause is a glitch of the marker
LOST_HINT = (
    "connect the meter to this computer without a hub, end other programs, and measure again"
)


@dataclass(frozen=True)
class Trace:
    """A recording of an instrument: seconds (increasing), amperes, volts and the marker pin, by
    sample.

    ranges: numbers of the instrument's ranges; clipped: samples at the end of its range; where it
    shows them.
    """

    seconds: Floats
    amperes: Floats
    volts: Floats
    marker: Bools
    ranges: Ints | None = None
    clipped: Bools | None = None

    def __post_init__(self) -> None:
        n = len(self.seconds)
        if not n or not len(self.amperes) == len(self.volts) == len(self.marker) == n:
            raise UsageError(
                "the trace has no samples", "is the meter connected, and the board switched on?"
            )
        if not (np.all(np.diff(self.seconds) > 0) and np.all(np.isfinite(self.watts))):
            text = (
                "the times of a trace must increase, and its currents and voltages must be numbers"
            )
            raise UsageError(text, "record or export it anew")

    @property
    def watts(self) -> Floats:
        return self.amperes * self.volts


@dataclass(frozen=True)
class Window:
    """One marked window: when, how long, and its energy in joules."""

    start: float
    seconds: float
    joules: float


def integrate(trace: Trace, start: float, end: float) -> float:
    """Joules between two times: the trapezoidal rule, with values between samples interpolated."""
    inside = (trace.seconds > start) & (trace.seconds < end)
    times = np.concatenate(([start], trace.seconds[inside], [end]))
    watts = np.interp(times, trace.seconds, trace.watts)
    return float(np.trapezoid(watts, times))


def windows(trace: Trace) -> list[Window]:
    """The windows in which the marker is set, whole ones only.

    An edge is taken midway between two samples.
    """
    changes = np.flatnonzero(np.diff(trace.marker))
    edges = ((trace.seconds[changes] + trace.seconds[changes + 1]) / 2)[int(trace.marker[0]) :]
    return [
        Window(start, end - start, integrate(trace, start, end))
        for start, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=False)
        if end - start >= MIN_MARK
    ]


def require_samples(trace: Trace, marked: Sequence[Window]) -> None:
    """Raise TernError where samples are lost, or not right: at the end of the meter's range, or as
    it changes that.
    """
    starts = np.array([window.start for window in marked])
    lengths = np.array([window.seconds for window in marked])

    def touched(samples: Ints) -> int:
        """The number of windows with a part between one of these samples and the next."""
        begun = np.searchsorted(
            starts, trace.seconds[np.minimum(samples + 1, len(trace.seconds) - 1)]
        )
        ended = np.searchsorted(starts + lengths, trace.seconds[samples])
        return len(np.unique(begun[begun > ended]))

    steps = np.diff(trace.seconds)
    gaps = np.flatnonzero(steps > _GAP * np.median(steps))
    lost = steps[gaps].sum()
    if (cut := touched(gaps)) or lost > LOST * steps.sum():
        text = (
            f"the meter lost samples: {len(gaps)} gaps, {1000 * lost:.3g} ms in all, in {cut} of "
        )
        text += f"{len(marked)} windows"
        raise TernError(text, LOST_HINT)
    if trace.clipped is not None and (full := touched(np.flatnonzero(trace.clipped))):
        hint = "use a smaller --shunt, a wider --range, or a meter for larger currents"
        raise TernError(
            f"the current exceeds the meter's range in {full} of {len(marked)} windows", hint
        )
    changes = touched(np.flatnonzero(np.diff(trace.ranges))) if trace.ranges is not None else 0
    if changes > _ODD * len(marked):
        text = f"the meter changed its range in {changes} of {len(marked)} windows, which spoils samples"
        hint = "fix it, with a Joulescope's --range; or use an INA226 or INA228, which has only one"
        raise TernError(text, hint)


def require_pairs(
    trace: Trace, marked: Sequence[Window], made: tuple[int, int] | None = None
) -> None:
    """Raise TernError where marker edges do not pair. made: least and most windows, where they are
    known.
    """
    lengths = np.array([window.seconds for window in marked])
    odd = np.count_nonzero(abs(np.log2(lengths / np.median(lengths))) > 1)
    odd += np.count_nonzero(np.diff(np.flatnonzero(np.diff(trace.marker))) < _SHORT)
    if odd > _ODD * len(marked) or (made and not made[0] <= len(marked) <= made[1]):
        expected = f", and the board made {made[0]} to {made[1]}" if made else ""
        text = f"the marker's edges do not pair: {len(marked)} windows{expected}, {odd} of them or of the "
        text += "pauses too short or too long"
        hint = "use a short marker wire, connect ground to ground, and record at 10 or more samples a report"
        raise TernError(text, hint)


def idle_watts(trace: Trace, marked: Sequence[Window]) -> float:
    """The median power outside of the windows, and a little away from them.

    Raises TernError where there is none.
    """
    away = ~trace.marker
    for window in marked:
        before, after = window.start - _GUARD, window.start + window.seconds + _GUARD
        away &= (trace.seconds < before) | (trace.seconds > after)
    if not away.any():
        hint = "let the board rest between two windows"
        raise TernError("the trace has no idle time outside of its windows", hint)
    return float(np.median(trace.watts[away]))


@dataclass(frozen=True)
class ReportEnergy:
    """Energy of a report, in microjoules: all of it, and less what an idle board would have drawn
    in that time.
    """

    gross: float
    net: float
    idle_milliwatts: float
    volts: float
    seconds_per_report: float
    source: str
    windows: int = 0
    reports: int = 0
    asleep_microamperes: float | None = None  # of the board in deep sleep

    def as_dict(self, bits: int) -> dict[str, Any]:
        """The output of `tern bench energy --json`; bits: the information in a report."""
        counts = {"windows": self.windows, "reports": self.reports} if self.windows else {}
        return {
            "microjoules_per_report": self.net,
            "microjoules_per_report_with_idle": self.gross,
            "microjoules_per_bit": self.net / bits,
            "bits_per_report": bits,
            "idle_milliwatts": self.idle_milliwatts,
            "asleep_microamperes": self.asleep_microamperes,
            "volts": self.volts,
            "milliseconds_per_report": 1000 * self.seconds_per_report,
            "source": self.source,
            **counts,
        }


def measure(
    trace: Trace,
    reports_per_window: int,
    source: str,
    active_low: bool = False,
    made: tuple[int, int] | None = None,
) -> ReportEnergy:
    """The energy of a report from a trace: the median over the windows; made: see require_pairs.

    Raises TernError for fewer than five windows, and for a recording whose figures would be wrong.
    """
    if active_low:
        trace = replace(trace, marker=~trace.marker)
    marked = windows(trace)
    require_samples(trace, marked)
    if len(marked) < MIN_WINDOWS:
        hint = "is the board's marker pin wired to the meter's digital input, and ground to ground?"
        raise TernError(f"{len(marked)} windows were marked, and {MIN_WINDOWS} are needed", hint)
    idle = idle_watts(trace, marked)
    require_pairs(trace, marked, made)
    gross = median(window.joules for window in marked) / reports_per_window
    seconds = median(window.seconds for window in marked) / reports_per_window
    net = median(window.joules - idle * window.seconds for window in marked) / reports_per_window
    return ReportEnergy(
        gross * 1e6,
        net * 1e6,
        idle * 1000,
        float(np.median(trace.volts)),
        seconds,
        source,
        len(marked),
        reports_per_window * len(marked),
    )


def battery_days(
    milliampere_hours: float,
    volts: float,
    microjoules_per_report: float,
    sleep_milliwatts: float,
    every: float,
    active_seconds: float = 0.0,
) -> float:
    """Days that a battery lasts with a report every `every` seconds and sleep between, without
    self-discharge.
    """
    longer = f"more than the {active_seconds:.3f} s that a report takes"
    require(every > active_seconds >= 0, "every", longer, f"{every:g}")
    joules = milliampere_hours * 3.6 * volts
    per_cycle = microjoules_per_report * 1e-6 + sleep_milliwatts * 1e-3 * (every - active_seconds)
    return joules / (per_cycle / every) / 86400
