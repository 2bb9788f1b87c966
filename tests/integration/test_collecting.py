"""Rounds over ptys with real MicroPython, while boards die and their lines fail."""

import os
import signal
import time

import pytest
import rig

from tern import wire
from ternhost.count.questions import Question
from ternhost.count.rounds import COMPLETE
from ternhost.errors import DeviceError
from ternhost.learn.schedule import Terms
from ternhost.reach.ports import board
from ternhost.reach.ports.driver import BoardsDriver

ALL = range(1, 41)


# Boards that die


def test_a_board_that_loses_power_again_and_again(site):
    """Whenever a board has sent ten more frames, its power fails for a moment. The round completes
    all the same, and each of its 60 devices is counted once, and has paid once.
    """
    devices, fleet = range(1, 61), site(clients=60)
    frames = cuts = 0
    with fleet.boards() as boards:
        victim, other = boards.boards

        def cut_power(data):
            """Cut it after every tenth frame from the board; each frame ends with a zero."""
            nonlocal frames, cuts
            frames += data.count(0)
            if frames >= 10 * (cuts + 1):
                victim.restart()
                cuts += 1
            return data

        with rig.Proxy(victim.port, up=cut_power) as proxy:
            result, aggregator = fleet.round([proxy.port, other.port], devices)

    assert cuts > 1
    assert result.ended == COMPLETE
    assert aggregator.statistics.accepted == 60
    rig.assert_counted_once(fleet.store, fleet.ledgers(), 1, devices)


# Lines that lose, repeat and damage frames


class EveryNth:
    """Picks every `n`th frame, but none twice: a device is asked 12 times at most."""

    def __init__(self, n):
        self._n, self._passed, self._picked = n, 0, set()

    def __call__(self, frame):
        self._passed += 1
        if self._passed % self._n or frame in self._picked:
            return False
        self._picked.add(frame)
        return True


class WholeFrames:
    """Whole COBS frames, zero included, through `change`: frame -> bytes."""

    def __init__(self, change):
        self._change, self._rest = change, b""

    def __call__(self, data):
        *frames, self._rest = (self._rest + data).split(b"\x00")
        return b"".join(self._change(frame + b"\x00") for frame in frames)


@pytest.mark.parametrize(
    ("way", "longer_than"), [("up", 1), ("down", 60)], ids=["reports", "requests"]
)
def test_repeated_frames_count_and_cost_once(site, way, longer_than):
    """A line between the host and the first of two boards, of 20 clients each, repeats frames: the
    host gets each report three times, or the board each request. The long frames are the reports or
    requests of single clients.
    """
    fleet = site()
    thrice = WholeFrames(lambda frame: 3 * frame if len(frame) > longer_than else frame)
    with fleet.boards() as boards:
        first, second = boards.ports
        with rig.Proxy(first, **{way: thrice}) as proxy:
            result, aggregator = fleet.round([proxy.port, second], ALL)

    assert result.reports == 40
    # Two of each of the 20 reports of the first board; those of the last may come after the end.
    assert aggregator.statistics.duplicate >= 2 * 19
    rig.assert_counted_once(fleet.store, fleet.ledgers(), 1, ALL)


def test_lost_and_truncated_frames_lose_and_double_no_report(site):
    """A bad line between the host and the first of two boards drops every fourth frame, and cuts
    every fifth long one in half, in both directions. The host asks again, and in the end each
    device is counted once, and has paid once.
    """
    fleet, is_lost, is_truncated = site(), EveryNth(4), EveryNth(5)

    def change(frame):
        is_credit = len(frame) == 1  # it tells the host that the board has read so far
        if not is_credit and is_lost(frame):
            return b""
        if len(frame) > 20 and is_truncated(frame):
            return frame[: len(frame) // 2] + b"\x00"
        return frame

    with fleet.boards() as boards:
        first, second = boards.ports
        with rig.Proxy(first, WholeFrames(change), WholeFrames(change)) as proxy:
            result, aggregator = fleet.round([proxy.port, second], ALL)

    assert result.ended == COMPLETE
    statistics = aggregator.statistics
    assert statistics.unread + statistics.damaged + statistics.forged > 0, "frames were damaged"
    rig.assert_counted_once(fleet.store, fleet.ledgers(), 1, ALL)


# Boards that die during a run: it goes on with the others, names the dead, and takes them back


QUESTION = Question(wire.LOGISTIC, [100] * rig.D, -14, rig.CARD, 1)
BOARDS, CLIENTS = 3, 30
CLIENTS_OF_TWO_BOARDS = 20
LONG = 600.0  # seconds; a test that waits for them fails


class Fleet:
    """A driver for emulated boards, with its warnings and its rounds."""

    def __init__(self, directory, micropython, **terms):
        self.warnings = []
        site = rig.make_site(directory, micropython, CLIENTS, BOARDS, budget=100 * rig.COST)
        self.store, self.boards = site.store, site.boards()
        terms = Terms(**{"deadline": LONG, "silence": LONG} | terms)
        self.driver = BoardsDriver(self.store, self.boards, terms, warn=self.warnings.append)

    def __enter__(self):
        self.driver.__enter__()
        return self

    def __exit__(self, *error):
        self.driver.__exit__(*error)
        self.store.close()

    def round(self, number):
        self.driver.open(number, [(QUESTION, self.driver.devices)])
        result = self.driver.collect(number)
        self.store.end_round(number, result.ended)
        return result


@pytest.fixture
def fleet(tmp_path, micropython):
    return lambda **terms: Fleet(tmp_path, micropython, **terms)


def test_a_board_that_dies_is_left_out_at_once_with_a_warning_and_taken_back(fleet):
    """One of three boards of ten clients each is killed. Rounds go on with the two others, the user
    is warned once, and the board takes part again after its restart.
    """
    with fleet() as running:
        _, dead, _ = running.boards.boards
        os.kill(dead.pid, signal.SIGKILL)
        for number in (1, 2, 3):
            assert running.round(number).reports == CLIENTS_OF_TWO_BOARDS
        (warning,) = running.warnings
        assert "ended with status -9" in warning
        assert f"{dead.port} is left out" in warning

        dead.restart()
        run_rounds_until_all_report(running, 4)

        assert running.warnings[1:] == [f"the board on {dead.port} is back"]


def test_a_board_that_hangs_is_left_out_after_its_silence_and_taken_back(fleet, monkeypatch):
    """One of three boards stops answering while its port stays open. After 4 s the host goes on
    without it, with a warning; later rounds do not wait for it either; and it takes part again once
    it answers.
    """
    seconds_for_a_port = 120.0  # in which the host waits for a hello, in the background
    monkeypatch.setattr(board, "_REOPEN_PATIENCE", seconds_for_a_port)
    with fleet(silence=4.0) as running:
        *_, hung = running.boards.boards
        os.kill(hung.pid, signal.SIGSTOP)
        assert running.round(1).reports == CLIENTS_OF_TWO_BOARDS
        (warning,) = running.warnings
        assert f"the board on {hung.port} has been silent for 4 s" in warning
        for number in (2, 3, 4):  # its port opens, but stays silent: no round waits
            began = time.monotonic()
            assert running.round(number).reports == CLIENTS_OF_TWO_BOARDS
            assert time.monotonic() - began < seconds_for_a_port / 2

        os.kill(hung.pid, signal.SIGCONT)
        run_rounds_until_all_report(running, 5)

        assert running.warnings[1:] == [f"the board on {hung.port} is back"]


def test_a_run_ends_when_all_boards_have_died(fleet):
    with fleet() as running:
        for board in running.boards.boards:
            os.kill(board.pid, signal.SIGKILL)
        with pytest.raises(DeviceError, match="ended with status -9"):
            running.round(1)


def run_rounds_until_all_report(running, number):
    end = time.monotonic() + 30
    while running.round(number).reports < CLIENTS:
        assert time.monotonic() < end
        running.driver.wait(0.3)
        number += 1
