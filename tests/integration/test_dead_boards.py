"""Boards that die during a run: it goes on at the speed of the others, names the dead, and takes
them back.
"""

import os
import signal
import time

import pytest
import rig

from tern import wire
from ternhost.count.questions import Question
from ternhost.errors import DeviceError
from ternhost.learn.schedule import Terms
from ternhost.reach.ports import board
from ternhost.reach.ports.driver import BoardsDriver

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
    with fleet() as running:
        _, dead, _ = running.boards.boards
        os.kill(dead.pid, signal.SIGKILL)
        for number in (1, 2, 3):
            assert running.round(number).reports == CLIENTS_OF_TWO_BOARDS
        (warning,) = running.warnings
        assert "ended with status -9" in warning
        assert f"{dead.port} is left out" in warning

        dead.restart()
        _until_back(running, 4)

        assert running.warnings[1:] == [f"the board on {dead.port} is back"]


def test_a_board_that_hangs_is_left_out_after_its_silence_and_taken_back(fleet, monkeypatch):
    monkeypatch.setattr(board, "_REOPEN_TIMEOUT", 120.0)
    with fleet(silence=4.0) as running:
        *_, hung = running.boards.boards
        os.kill(hung.pid, signal.SIGSTOP)
        assert running.round(1).reports == CLIENTS_OF_TWO_BOARDS
        (warning,) = running.warnings
        assert f"the board on {hung.port} has been silent for 4 s" in warning
        for number in (2, 3, 4):  # its port opens, but stays silent: no round waits
            began = time.monotonic()
            assert running.round(number).reports == CLIENTS_OF_TWO_BOARDS
            assert time.monotonic() - began < 60  # half of the patience with a port

        os.kill(hung.pid, signal.SIGCONT)
        _until_back(running, 5)

        assert running.warnings[1:] == [f"the board on {hung.port} is back"]


def test_a_run_ends_when_all_boards_have_died(fleet):
    with fleet() as running:
        for board in running.boards.boards:
            os.kill(board.pid, signal.SIGKILL)
        with pytest.raises(DeviceError, match="ended with status -9"):
            running.round(1)


def _until_back(running, number):
    end = time.monotonic() + 30
    while running.round(number).reports < CLIENTS:
        assert time.monotonic() < end
        running.driver.wait(0.3)
        number += 1
