"""The emulated board's serial link: damage, flow control and hang-up, over pipes and both ends of a
pty.
"""

import os
import select
import shutil
import subprocess
import sys
import tty
from contextlib import closing
from pathlib import Path
from queue import SimpleQueue
from subprocess import PIPE

import pytest
import small_board
from framing import encoded
from spec.frames import cobs

from tern import frames, host_frames, wire
from ternhost.reach.links import open_link
from terntools.emulators.micropython import device_command, find_micropython
from terntools.emulators.unix_fleet import EmulatedBoard

FIRMWARE = Path(frames.__file__).parents[1]
BOARD = ("-m", "tern.boards.emulated")
ENVIRONMENT = {**os.environ, "MICROPYPATH": str(FIRMWARE), "PYTHONPATH": str(FIRMWARE)}
TIMEOUT = 60.0


class Port:
    """The host's end of a board's process."""

    def __init__(self, directory, kind="pipe"):
        if kind == "pipe":
            their_in, self.out = os.pipe()
            self.source, their_out = os.pipe()
        else:
            master, slave = os.openpty()
            tty.setraw(slave)
            if kind == "pty master":
                self.out = self.source = slave
                their_in = their_out = master
            else:
                self.out = self.source = master
                their_in = their_out = slave
        command = device_command(find_micropython(), *BOARD, directory)
        streams = {"stdin": their_in, "stdout": their_out, "stderr": PIPE}
        self.process = subprocess.Popen(command, env=ENVIRONMENT, start_new_session=True, **streams)
        for end in {their_in, their_out}:
            os.close(end)
        self.receiver = frames.Receiver()

    def ask(self, frame):
        """Send a frame; return the next one that is not a credit."""
        os.write(self.out, cobs(frame))
        while True:
            while (n := self.receiver.next()) != frames.MORE:
                assert n != frames.DAMAGED
                if n:
                    return bytes(self.receiver.frame[:n])
            assert select.select([self.source], [], [], TIMEOUT)[0]
            self.receiver.give(os.read(self.source, 1000))

    def hello(self):
        return host_frames.Hello(self.ask(encoded(frames.encode_hello_request, 5)))

    def hang_up(self):
        """Close the host's end; return the exit code of the board."""
        for end in {self.out, self.source}:
            os.close(end)
        _, errors = self.process.communicate(timeout=TIMEOUT)
        assert errors == b""
        return self.process.returncode


@pytest.fixture(params=["pipe", "pty master", "pty slave"])
def port(request, tmp_path):
    small_board.write_files(str(tmp_path), clients=3)
    port = Port(tmp_path, request.param)
    yield port
    port.process.kill()
    port.process.communicate()


def report_of(port, number, device=7):
    frame = bytes(small_board.round_frame(number, small_board.THREE, device=device))
    small_board.asked[0] = frame
    answer = port.ask(frame)
    assert frames.address(answer) == (device, number)
    return small_board.symbols_of(answer, 4, 3, device)


def test_a_board_says_hello_reports_and_ends_with_its_port(port):
    assert port.hello().clients == 3
    for device in (7, 8, 9):
        report_of(port, 1, device)
    assert port.hang_up() == 0


def answers(board, *numbers, shift=0):
    """What a board answers to the questions of these rounds, while it runs once."""
    port, replies = Port(board), []
    for number in numbers:
        question = small_board.round_frame(number, small_board.THREE, shift=shift)
        small_board.asked[0] = bytes(question)
        replies.append(port.ask(small_board.asked[0]))
    assert port.hang_up() == 0
    return replies


def test_a_board_whose_old_directory_was_restored_answers_anew(tmp_path):
    first_answer, second_answer = answers_before_and_after_a_restore(tmp_path, fuses=0)
    assert first_answer[0] == second_answer[0] == wire.REPORT
    assert first_answer != second_answer, "two reports for one round"


def test_a_bound_ledger_that_was_restored_is_refused(tmp_path):
    _, second_answer = answers_before_and_after_a_restore(tmp_path, fuses=64)
    assert small_board.error_of(second_answer) == (wire.ERR_LEDGER, wire.OLD_LEDGER)


def answers_before_and_after_a_restore(folder, fuses):
    """The answers of a board to two questions for round 2.

    Between them its directory is restored from a copy that was made before the first.
    """
    board, copy = folder / "board", folder / "copy"
    board.mkdir()
    small_board.write_files(str(board), fuses=fuses)
    answers(board, 1)
    shutil.copytree(board, copy)
    (first_answer,) = answers(board, 2)
    shutil.rmtree(board)
    shutil.copytree(copy, board)
    (second_answer,) = answers(board, 2, shift=1)
    return first_answer, second_answer


@pytest.mark.parametrize("port", ["pipe"], indirect=True)
def test_a_boards_directory_is_one_process_s_until_it_ends(port, tmp_path):
    """Two boards on one ledger would release two reports for a round.

    Neither a link nor a relative path hides it.
    """
    assert port.hello().clients == 3
    link, relative_path = tmp_path / "link", Path("ledger", "..")
    link.symlink_to(tmp_path)
    options = {"env": ENVIRONMENT, "cwd": tmp_path, "timeout": TIMEOUT}

    for interpreter in (device_command(find_micropython()), [sys.executable]):
        for path in (tmp_path, link, relative_path):
            words = [*interpreter, *BOARD, path]
            second = subprocess.run(words, input=b"", capture_output=True, **options)
            assert second.returncode == 1
            assert f"another process runs the board in {path}" in second.stderr.decode()


@pytest.mark.parametrize("port", ["pipe"], indirect=True)
def test_a_board_that_was_killed_leaves_no_lock_behind(port, tmp_path):
    port.hello()
    port.process.kill()
    port.process.wait()
    with (
        closing(EmulatedBoard(find_micropython(), tmp_path)) as board,
        closing(open_link(board.port, SimpleQueue())) as host,
    ):
        assert host.hello().clients == 3
