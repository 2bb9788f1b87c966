"""Texts of a board are shown so that no terminal obeys them and nobody takes them for a line of
tern.
"""

import json
import os
import select
import struct
import threading
import unicodedata

import pytest
import sample_store
from framing import encoded
from harness.port import Port
from serial.tools import list_ports
from serial.tools.list_ports_common import ListPortInfo
from spec.frames import cobs

from tern import frames, wire
from ternhost.errors import DeviceError
from ternhost.store import store_file
from ternhost.terminal import Progress
from ternhost.text import visible

# Clears the screen, sets the title, overwrites the line, adds a line, reverses the direction of
# writing.
HOSTILE = "pico\x1b[2J\x1b]0;owned\x07\r\nround 9: all is well\x9b31m\u202eevil\u2066\u200b\u2028; mp\x00; tern \x7f9"
HOSTILE += "; evil C"  # is no temperature
CATEGORIES_OF_CONTROLS = {"Cc", "Cf", "Zl", "Zp"}


def control_characters(text):
    """The characters that a terminal would obey instead of showing them, but for line ends and tabs."""
    return [
        each
        for each in text
        if unicodedata.category(each) in CATEGORIES_OF_CONTROLS and each not in "\n\t"
    ]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Pico; 23 \N{DEGREE SIGN}C", "Pico; 23 \N{DEGREE SIGN}C"),
        ("a\x1b[31mb", "a\\x1b[31mb"),
        ("a\r\nb\tc", "a\\r\\nb\\tc"),
        ("\u202eb\U000e0001", "\\u202eb\\U000e0001"),
    ],
    ids=["harmless", "escape sequence", "line end", "direction of writing"],
)
def test_characters_that_a_terminal_obeys_are_escaped(text, shown):
    assert visible(text) == shown


def test_errors_and_progress_are_escaped(capsys):
    """What a board sends can contain escape sequences, which a terminal would obey. Errors and
    progress show them as visible text.
    """
    error = DeviceError(f"the board says {HOSTILE}", hint=HOSTILE)
    for text in (error.message, error.hint, str(error)):
        assert control_characters(text) == []

    with Progress() as progress:
        progress.say(HOSTILE)
    assert control_characters(capsys.readouterr().err) == []


class HostileBoard(Port):
    """Answers every HELLO_REQUEST on a pty with HOSTILE, and Ctrl-B with `banner`."""

    def __init__(self, banner=b""):
        super().__init__()
        self._banner = banner
        self._end, self._ending = os.pipe()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        receiver = frames.Receiver()
        while self._end not in (ready := select.select([self.far, self._end], [], [])[0]):
            data = os.read(ready[0], 4096)
            if self._banner and b"\x02" in data:
                os.write(self.far, self._banner)
            receiver.give(data)
            while (n := receiver.next()) != frames.MORE:
                if n > 0 and receiver.frame[0] == wire.HELLO_REQUEST:
                    self._answer(struct.unpack_from("<I", receiver.frame, 1)[0])

    def _answer(self, nonce):
        state = (0, 0, 1, wire.MIXED)  # exceptions, restarts, entropy
        told = (1, 1, 1_000_000, 0, 1, 50_000, 64, *state, 0, 0, HOSTILE)
        os.write(self.far, b"\x00" + cobs(encoded(frames.encode_hello, nonce, *told)))

    def close(self):
        os.write(self._ending, b"x")
        self._thread.join()
        self.hang_up()
        for end in (self._end, self._ending):
            os.close(end)


@pytest.mark.parametrize("command", ["runs {}", "watch {} --once", "keys list {}"])
def test_the_texts_in_a_store_are_escaped(tmp_path, command, tern):
    """A store keeps names that boards sent. These names clear the screen, and add a line "round 9:
    ..." as if tern had printed it; every command that lists them shows them as text.
    """
    path = sample_store.make(tmp_path, 50) / store_file.NAME
    sample_store.fill_with_hostile_text(path)

    printed = tern(*command.format(path).split()).out

    assert control_characters(printed) == []
    assert not any(line.startswith("round 9") for line in printed.splitlines())
    if command.startswith("watch"):
        assert len(printed) < 8000, "a picture of one screen, also with long names"


@pytest.fixture
def board(request):
    hostile = HostileBoard(banner=getattr(request, "param", b""))
    yield hostile
    hostile.close()


@pytest.mark.parametrize(
    "command", ["board info {}", "board info {} --json", "board monitor {} --seconds 3"]
)
def test_the_text_of_a_board_is_escaped(board, command, tern):
    printed = tern(*command.format(board.port).split())
    assert "evil" in printed.out
    assert control_characters(printed.out + printed.err) == []
    assert not any(line.startswith("round 9") for line in printed.out.splitlines())
    if "--json" in command:
        assert control_characters(str(json.loads(printed.out))) == []


@pytest.mark.parametrize(
    "board",
    [b"", b"\r\nMicroPython v\x1b[2J1 on x; evil\x1b]0;owned\x07\xe2\x80\xae with y\r\n>>> "],
    ids=["text of its HELLO", "banner of its interpreter"],
    indirect=True,
)
def test_the_list_of_boards_is_escaped(board, tern, monkeypatch):
    info = ListPortInfo(board.port)
    info.vid, info.pid, info.serial_number = 0x2E8A, 0x0005, "1\x1b[2J"
    monkeypatch.setattr(list_ports, "comports", lambda: [info])
    printed = tern("board", "list")
    assert "evil" in printed.out or "pico" in printed.out
    assert control_characters(printed.out + printed.err) == []
