"""Recordings of power meters, the windows that a board marks in them, and checks of both.

As in MLPerf Tiny, a pin of the board marks each window; current and pin come from the same
instrument.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ternhost.errors import TernError, UsageError

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

MIN_WINDOW = 1e-6  # seconds; a shorter change of the pin is a glitch
MAX_LOST = 0.01  # share of a recording that may be lost outside of windows
LOST_HINT = (
    "connect the meter to this computer without a hub, end other programs, and measure again"
)

_GUARD = 1e-3  # seconds around a window that do not count as idle
_GAP_FACTOR = 8  # a step of more than this many median steps is a gap
_MAX_ODD = 1 / 8  # share of windows that may be odd; medians do not notice fewer
_MIN_SAMPLES = 3  # a window or pause of fewer samples is a glitch of the marker


@dataclass(frozen=True)
class Trace:
    """A recording of an instrument in the supply of a board, as arrays with an entry for each sample.

    seconds: the time, which increases. amperes, volts: of the supply. marker: whether the board's
    marker pin is set. ranges: the number of the instrument's measuring range, if it tells. clipped:
    whether the current is at the end of its range or beyond, if the instrument tells. taken: what a
    file's time, current, supply and marker were taken from, such as a column and its unit. Raises
    UsageError for arrays that do not fit each other.
    """

    seconds: Floats
    amperes: Floats
    volts: Floats
    marker: Bools
    ranges: Ints | None = None
    clipped: Bools | None = None
    taken: Mapping[str, Mapping[str, object]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise UsageError unless all arrays have one length and the numbers make sense."""
        sample_count = len(self.seconds)
        lengths = {len(self.amperes), len(self.volts), len(self.marker)}
        if sample_count == 0 or lengths != {sample_count}:
            hint = "check that the meter is connected, and the board switched on"
            raise UsageError("the trace has no samples", hint)

        is_increasing = np.all(np.diff(self.seconds) > 0)
        if not (is_increasing and np.all(np.isfinite(self.watts))):
            text = (
                "the times of a trace must increase, and its currents and voltages must be numbers"
            )
            raise UsageError(text, "record or export it again")

    @property
    def watts(self) -> Floats:
        """The power that the board draws."""
        return self.amperes * self.volts


@dataclass(frozen=True)
class Window:
    """A time in which the board's marker pin was set: its start and duration in seconds, and its energy."""

    start: float
    seconds: float
    joules: float

    @property
    def end(self) -> float:
        return self.start + self.seconds


def find_windows(trace: Trace) -> list[Window]:
    """Return the windows of a trace: the times in which the marker is set.

    The marker is known only at each sample, so that an edge is taken to be midway between the two
    samples around it. A window that the beginning or the end of the recording cuts is left out.
    """
    changes = np.flatnonzero(np.diff(trace.marker))  # the samples after which the marker changes
    edges = (trace.seconds[changes] + trace.seconds[changes + 1]) / 2
    if trace.marker[0]:  # the first edge ends a window that began before the recording
        edges = edges[1:]

    windows = []
    rising_edges = edges[::2].tolist()
    falling_edges = edges[1::2].tolist()  # one fewer if the recording ends within a window
    for start, end in zip(rising_edges, falling_edges, strict=False):
        if end - start >= MIN_WINDOW:
            windows.append(Window(start, end - start, joules_between(trace, start, end)))
    return windows


def joules_between(trace: Trace, start: float, end: float) -> float:
    """Return the energy between two times in seconds.

    A sample stands for the time around it, up to the middle between it and its neighbours. An edge
    of the marker is taken to be in such a middle, too, so that no power from outside of a window is
    counted in it.
    """
    middles = (trace.seconds[1:] + trace.seconds[:-1]) / 2
    first, last = np.searchsorted(middles, (start, end), side="right").tolist()
    borders = np.concatenate(([start], middles[first:last], [end]))
    return float(np.sum(np.diff(borders) * trace.watts[first : last + 1]))


def idle_watts(trace: Trace, windows: Sequence[Window]) -> float:
    """Return the median power outside of the windows, which is that of an idle board.

    Samples closer than _GUARD to a window do not count, since the board may be about to begin or not
    done yet. Raises TernError if no samples are left.
    """
    is_idle = ~trace.marker
    for window in windows:
        is_before = trace.seconds < window.start - _GUARD
        is_after = trace.seconds > window.end + _GUARD
        is_idle &= is_before | is_after
    if not is_idle.any():
        hint = "let the board rest between two windows"
        raise TernError("the trace has no idle time outside of its windows", hint)
    return float(np.median(trace.watts[is_idle]))


def samples_per_second(trace: Trace) -> float:
    """Return the usual rate of the samples, without the gaps between some of them."""
    steps = np.diff(trace.seconds)
    return float(1 / np.mean(steps[steps < 2 * np.median(steps)]))


def mean_watts(trace: Trace) -> float:
    """Return the mean power of a whole recording of two samples or more."""
    start, end = float(trace.seconds[0]), float(trace.seconds[-1])
    return joules_between(trace, start, end) / (end - start)


def require_samples(trace: Trace, windows: Sequence[Window]) -> None:
    """Raise TernError if the meter's samples are not good enough to find energies in the windows.

    That is so if it lost samples, if the current was beyond its range, or if it changed its range in
    too many windows.
    """
    _require_no_gaps(trace, windows)
    if trace.clipped is not None:
        clipped_samples = np.flatnonzero(trace.clipped)
        clipped_windows = _count_touched(trace, windows, clipped_samples)
        if clipped_windows:
            text = f"the current exceeds the meter's range in {clipped_windows} of {len(windows)} windows"
            hint = "use a smaller shunt, a wider range, or a meter for larger currents"
            raise TernError(text, hint)

    if trace.ranges is not None:
        # The samples after which the meter was in another range.
        changing_samples = np.flatnonzero(np.diff(trace.ranges))
        changed_windows = _count_touched(trace, windows, changing_samples)
        if changed_windows > _MAX_ODD * len(windows):
            text = f"the meter changed its range in {changed_windows} of {len(windows)} windows, "
            hint = (
                "fix it, with --meter joulescope,range=RANGE; or use an INA226 or INA228, "
                "which has only one"
            )
            raise TernError(f"{text}which spoils samples", hint)


def _require_no_gaps(trace: Trace, windows: Sequence[Window]) -> None:
    """Raise TernError if the meter lost a sample in a window, or many outside of the windows.

    A gap is a step between two samples of more than _GAP_FACTOR times the usual step.
    """
    steps = np.diff(trace.seconds)
    # Positions of the samples that are followed by a gap.
    gaps = np.flatnonzero(steps > _GAP_FACTOR * np.median(steps))
    lost_seconds = steps[gaps].sum()
    cut_windows = _count_touched(trace, windows, gaps)
    if cut_windows or lost_seconds > MAX_LOST * steps.sum():
        text = (
            f"the meter lost samples: {len(gaps)} gaps, {1000 * lost_seconds:.3g} ms in all, "
            f"in {cut_windows} of {len(windows)} windows"
        )
        raise TernError(text, LOST_HINT)


def _count_touched(trace: Trace, windows: Sequence[Window], samples: Ints) -> int:
    """Return how many windows contain one of these samples, or a part of the time until the next one.

    A window is a time in which the board made reports. Windows are sorted and do not overlap.
    samples: positions in the trace.
    """
    starts = np.array([window.start for window in windows])
    ends = np.array([window.end for window in windows])
    next_samples = np.minimum(samples + 1, len(trace.seconds) - 1)

    # By sample: how many windows begin before the next sample, and end before this one. If more
    # have begun than ended, the sample lies in a window: that with the number `windows_begun`.
    windows_begun = np.searchsorted(starts, trace.seconds[next_samples])
    windows_ended = np.searchsorted(ends, trace.seconds[samples])
    return len(np.unique(windows_begun[windows_begun > windows_ended]))


def require_pairs(
    trace: Trace, windows: Sequence[Window], possible_windows: tuple[int, int] | None = None
) -> None:
    """Raise TernError if the marker has lost or extra edges, so that the windows are not the reports.

    An edge that was lost merges two windows, and a glitch of the marker splits one. Either shows in
    a window that is much longer or shorter than the others, in a pause of very few samples, or in
    the number of windows. A few of them are tolerated.

    possible_windows: the least and the largest number of windows that the board can have made, if
    known.
    """
    durations = np.array([window.seconds for window in windows])
    octaves = abs(np.log2(durations / np.median(durations)))
    is_odd = octaves > 1  # less than half or more than twice the median duration
    edges = np.flatnonzero(np.diff(trace.marker))  # the samples after which the marker changes
    samples_between_edges = np.diff(edges)
    is_glitch = samples_between_edges < _MIN_SAMPLES
    odd_count = np.count_nonzero(is_odd) + np.count_nonzero(is_glitch)

    possible_words = ""
    is_number_possible = True
    if possible_windows is not None:
        least, most = possible_windows
        possible_words = f", and the board made {least} to {most}"
        is_number_possible = least <= len(windows) <= most
    if odd_count > _MAX_ODD * len(windows) or not is_number_possible:
        text = (
            f"the marker's edges do not pair: {len(windows)} windows{possible_words}, "
            f"{odd_count} of them or of the pauses too short or too long"
        )
        hint = (
            "use a short marker wire, connect ground to ground, "
            "and record at 10 or more samples a report"
        )
        raise TernError(text, hint)
