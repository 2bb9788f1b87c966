"""A monitor decodes the frames of a board, and counts its errors and damaged frames."""

import os
import select
import time
from array import array

import pytest
from framing import encoded
from harness.port import Port

from tern import frames, wire
from ternhost.errors import DeviceError
from terntools.boards.monitor import Monitor


@pytest.fixture
def board():
    port = Port()
    yield port
    port.close()


@pytest.fixture
def watched(board):
    lines = []
    monitor = Monitor(board.port, lines.append, hello_every=3600)
    yield monitor, lines
    monitor.close()


def run(monitor, done):
    end = time.monotonic() + 60
    while not done():
        assert time.monotonic() < end
        monitor.run(time.monotonic() + 0.01)


KEY = bytes(32)
REFUSED = encoded(frames.encode_error, KEY, 7, 3, wire.ERR_BUDGET, 0)
REPORT = encoded(
    frames.encode_report, KEY, 7, 3, array("H", [1]), frames.report_packing(k=1, base=3)
)


def test_frames_errors_and_damage_are_counted(board, watched):
    """A monitor at a board's serial port writes a line for each frame that the board sends, and
    counts them: here a report, two refusals because the budget is spent, and a frame that is cut
    short.
    """
    monitor, lines = watched

    for frame in (REPORT, REFUSED, REFUSED):
        board.send(frame)
    os.write(board.far, b"\x05ab\x00")  # announces five bytes
    run(monitor, lambda: len(lines) == 4)

    assert monitor.state.frames == {"REPORT": 1, "ERROR": 2}
    assert monitor.state.errors == {wire.error_name(wire.ERR_BUDGET): 2}
    assert monitor.state.damaged == 1
    of_report, of_refusal, _, of_damaged = lines
    assert of_report == "< REPORT device 7 round 3, 18 bytes"
    assert "budget" in of_refusal
    assert of_damaged == "< damaged"
    time_of_last, _ = monitor.state.recent[-1]
    frames_per_second, *_ = monitor.state.rates(time_of_last)
    assert frames_per_second > 0


def test_a_disconnected_board_is_an_error(board, watched):
    monitor, _ = watched
    board.close()
    with pytest.raises(DeviceError, match="is gone"):
        monitor.run(time.monotonic() + 60)


def test_a_board_that_does_not_answer_is_asked_less_often(board):
    """It may have a long slot, of which each request takes it a whole one."""
    monitor = Monitor(board.port, lambda line: None, hello_every=1.0)
    monitor._ask_again()
    pauses = []
    for _ in range(20):
        monitor._ask_again()
        pauses.append(monitor._pause)
    monitor.state.frames["HELLO"] += 1
    monitor._ask_again()
    last_pause = monitor._pause
    monitor.close()

    assert pauses == sorted(pauses)
    assert pauses[0] > 1.0
    assert pauses[-1] <= 30.0
    assert last_pause == 1.0


def test_each_request_reaches_the_board_and_stops_no_program_that_is_starting(board, watched):
    """Ctrl-B, Ctrl-C and Ctrl-D would stop it."""
    monitor, _ = watched
    for _ in range(100):
        monitor.ask_hello()
        has_arrived, _, _ = select.select([board.far], [], [], 10.0)
        assert has_arrived
        request = os.read(board.far, 4096)
        assert not {2, 3, 4} & set(request)
