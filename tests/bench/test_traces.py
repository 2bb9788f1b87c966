"""Energy from a recording: windows are found, idling is subtracted, and wrong recordings refused."""

import numpy as np
import pytest
from bench.known import known, require_known, require_refused

from ternbench import energy

RATE = 10_000
KNOWN = known(RATE)


def test_a_window_has_its_known_energy():
    assert require_known(KNOWN.trace()).windows == 6


def test_the_energy_of_a_report_is_its_share_of_a_window():
    one = energy.measure(KNOWN.trace(), 1, "x")
    four = energy.measure(KNOWN.trace(), 4, "x")
    assert four.net == pytest.approx(one.net / 4)
    assert four.reports == 24


def test_a_marker_can_be_active_low():
    require_known(KNOWN.trace(marker=~KNOWN.marker), active_low=True)


def test_a_window_that_the_recording_cuts_is_left_out():
    first_window = RATE * 0.035
    rest = [column[int(first_window) :] for column in KNOWN]
    assert require_known(type(KNOWN)(*rest).trace()).windows == 5


@pytest.mark.parametrize(
    "marker",
    [
        pytest.param(np.zeros_like(KNOWN.marker), id="never"),
        pytest.param(np.ones_like(KNOWN.marker), id="always"),
        pytest.param(KNOWN.marker & (KNOWN.seconds < 0.05), id="once"),
    ],
)
def test_too_few_windows_are_refused(marker):
    require_refused(KNOWN.trace(marker=marker), "windows were marked")


def test_a_recording_without_idle_time_is_refused():
    coarse = known(1000)
    marker = np.arange(len(coarse.marker)) % 10 != 0  # pauses of a sample, within a window's guard
    require_refused(coarse.trace(marker=marker), "no idle time")


@pytest.mark.parametrize("made", [(7, 9), (2, 5)])
def test_more_or_fewer_windows_than_the_board_made_are_refused(made):
    message = f"6 windows, and the board made {made[0]} to {made[1]}"
    require_refused(KNOWN.trace(), message, possible_windows=made)
