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
from harness.raw_client import wait_for
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

    def __init__(self, directory, kind):
        if kind == "pipe":
            their_in, self.out = os.pipe()
            self.source, their_out = os.pipe()
            theirs = {their_in, their_out}
        else:
            master, slave = os.openpty()
            tty.setraw(slave)
            mine, its_end = (slave, master) if kind == "pty master" else (master, slave)
            self.out = self.source = mine
            their_in = their_out = its_end
            theirs = {its_end}
        command = device_command(find_micropython(), *BOARD, directory)
        options = {"env": ENVIRONMENT, "start_new_session": True}
        self.process = subprocess.Popen(
            command, stdin=their_in, stdout=their_out, stderr=PIPE, **options
        )
        for end in theirs:
            os.close(end)
        self.receiver, self.credits = frames.Receiver(), 0

    def write(self, data):
        os.write(self.out, data)

    def send(self, frame):
        self.write(cobs(frame))

    def read(self, timeout=TIMEOUT):
        """The next frame that is not a credit, or None."""
        while True:
            while (n := self.receiver.next()) != frames.MORE:
                assert n != frames.DAMAGED
                if n:
                    return bytes(self.receiver.frame[:n])
                self.credits += 1
            if not select.select([self.source], [], [], timeout)[0]:
                return None
            data = os.read(self.source, 1000)
            assert data, self.process.stderr.read()
            self.receiver.give(data)

    def hello(self):
        """Ask for the hello; errors that are still on their way come before it."""
        self.send(encoded(frames.encode_hello_request, 5))
        while (answer := self.read()) and answer[0] == wire.ERROR:
            pass
        return host_frames.Hello(answer)

    def close(self):
        for end in {self.out, self.source}:
            os.close(end)
        self.out = self.source = -1

    def wait(self):
        status = self.process.wait(TIMEOUT)
        assert self.process.stderr.read() == b""
        self.process.stderr.close()
        return status


@pytest.fixture(params=["pipe", "pty master", "pty slave"])
def port(request, tmp_path):
    small_board.write_files(str(tmp_path), clients=3)
    port = Port(tmp_path, request.param)
    yield port
    if port.out >= 0:
        port.close()
    port.process.kill()
    port.process.wait()
    port.process.stderr.close()


def report_of(port, number, device=7):
    frame = bytes(small_board.round_frame(number, small_board.THREE, device=device))
    small_board.asked[0] = frame
    port.send(frame)
    answer = port.read()
    assert frames.address(answer) == (device, number)
    return small_board.symbols_of(answer, 4, 3, device)


def test_a_board_says_hello_reports_and_ends_with_its_port(port):
    assert port.hello().clients == 3
    for number in (1, 2):
        for device in (7, 8, 9):
            report_of(port, number, device)
    port.close()
    assert port.wait() == 0


@pytest.mark.parametrize("fuses", [0, 64])
def test_a_board_whose_old_directory_was_restored_answers_anew_unless_its_ledger_is_bound(
    tmp_path, fuses
):
    board, copy = tmp_path / "board", tmp_path / "copy"
    board.mkdir()
    small_board.write_files(str(board), fuses=fuses)

    def answers(*numbers, shift=0):
        port, replies = Port(board, "pipe"), []
        for number in numbers:
            small_board.asked[0] = bytes(
                small_board.round_frame(number, small_board.THREE, shift=shift)
            )
            port.send(small_board.asked[0])
            replies.append(port.read())
        port.close()
        assert port.wait() == 0
        return replies

    first = answers(1)
    shutil.copytree(board, copy)
    later = answers(1, 2, 3)
    assert later[:1] == first
    shutil.rmtree(board)
    shutil.copytree(copy, board)
    (answer,) = answers(2, shift=1)
    if fuses:
        assert small_board.error_of(answer) == (wire.ERR_LEDGER, wire.OLD_LEDGER)
    else:
        assert later[1][0] == answer[0] == wire.REPORT
        assert later[1] != answer, "two reports for round 2"


@pytest.mark.parametrize("port", ["pipe"], indirect=True)
def test_a_boards_directory_is_one_process_s_until_it_ends(port, tmp_path):
    """Two boards on one ledger would release two reports for a round; neither a link nor a relative
    path hides it.
    """
    assert port.hello().clients == 3
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    for command in device_command(find_micropython()), [sys.executable]:
        for path in (tmp_path, link, Path("ledger", "..")):
            words = [*command, *BOARD, path]
            options = {"env": ENVIRONMENT, "cwd": tmp_path, "timeout": TIMEOUT}
            second = subprocess.run(words, input=b"", capture_output=True, **options)
            assert second.returncode == 1
            message = f"StorageError: another process runs the board in {path}: end that one first"
            assert second.stderr.decode().splitlines()[-1].endswith(message)
    with closing(EmulatedBoard(find_micropython(), tmp_path)) as board:
        wait_for(board.failure, TIMEOUT)
        assert f"another process runs the board in {tmp_path}" in str(board.failure())
        report_of(port, 1)
        port.process.kill()
        port.process.wait()
        board.start()  # as after a power cut: what was killed leaves no lock behind
        with closing(open_link(board.port, SimpleQueue())) as host:
            assert host.hello().clients == 3
