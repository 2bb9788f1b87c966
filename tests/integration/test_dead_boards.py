"""Boards that die in the middle of a run: it goes on at the others' speed, says which died, and takes them back."""

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
LONG = 600.0  # seconds that no test lasts: what waits for it fails


class Fleet:
    """A driver on emulated boards, what it warned of, and its rounds."""

    def __init__(self, directory, micropython, **terms):
        self.warnings = []
        site = rig.make_site(directory, micropython, CLIENTS, BOARDS, budget=100 * rig.COST)
        self.store = site.store
        self.boards = site.boards()
        self.driver = BoardsDriver(
            self.store,
            self.boards,
            Terms(**{"deadline": LONG, "silence": LONG} | terms),
            warn=self.warnings.append,
        )

    def __enter__(self):
        self.driver.__enter__()
        return self

    def __exit__(self, *error):
        self.driver.__exit__(*error)
        self.store.close()

    def round(self, number, while_it_goes=lambda progress: None):
        self.driver.open(number, [(QUESTION, self.driver.devices)])
        result = self.driver.collect(number, while_it_goes)
        self.store.end_round(number, result.ended)
        return result


@pytest.fixture
def fleet(tmp_path, micropython):
    return lambda **terms: Fleet(tmp_path, micropython, **terms)


def test_a_board_that_dies_is_told_of_at_once_left_out_and_taken_back(fleet):
    with fleet() as going:
        dead = going.boards.boards[1]
        os.kill(dead.pid, signal.SIGKILL)
        assert going.round(1).reports == 2 * CLIENTS // BOARDS
        (told,) = going.warnings
        assert "ended with status -9" in told
        assert f"{dead.port} is left out" in told
        for number in (2, 3):  # they wait for nobody and say nothing more
            assert going.round(number).reports == 2 * CLIENTS // BOARDS
        assert len(going.warnings) == 1
        of_it = next(board for board in going.store.boards() if board.name == dead.port)
        assert (of_it.online, of_it.errors, of_it.error) == (False, 1, told.split(": ", 1)[1].split(";")[0])
        dead.restart()
        _until_back(going, 4)
        assert going.warnings[1] == f"the board on {dead.port} is back"


def test_a_board_that_hangs_is_left_out_after_its_silence_and_taken_back(fleet, monkeypatch):
    monkeypatch.setattr(board, "_REOPEN_TIMEOUT", 120.0)
    with fleet(silence=4.0) as going:
        hung = going.boards.boards[2]
        os.kill(hung.pid, signal.SIGSTOP)
        assert going.round(1).reports == 2 * CLIENTS // BOARDS
        assert f"the board on {hung.port} has been silent for 4 s" in going.warnings[0]
        for number in (2, 3, 4):  # its port opens, and does not answer: that keeps nobody waiting
            began = time.monotonic()
            assert going.round(number).reports == 2 * CLIENTS // BOARDS
            assert time.monotonic() - began < 60
        os.kill(hung.pid, signal.SIGCONT)
        _until_back(going, 5)
        assert going.warnings[1:] == [f"the board on {hung.port} is back"]


def test_a_board_without_power_for_a_moment_is_waited_for(fleet):
    with fleet() as going:
        first = going.boards.boards[0]
        cut = []

        def power(progress):
            if not cut and progress.reports:
                cut.append(time.monotonic())
                first.restart()

        assert going.round(1, power).reports == CLIENTS
        assert cut


def test_when_all_have_died_nobody_is_asked_any_more(fleet):
    with fleet() as going:
        for board in going.boards.boards:
            os.kill(board.pid, signal.SIGKILL)
        with pytest.raises(DeviceError, match="ended with status -9"):
            going.round(1)


def _until_back(going, number):
    end = time.monotonic() + 30
    while going.round(number).reports < CLIENTS:
        assert time.monotonic() < end
        going.driver.wait(0.3)
        number += 1
