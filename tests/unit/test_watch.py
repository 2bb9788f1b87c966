"""`tern watch` shows a run on a terminal of any width, before the run begins, while it goes on, and
after its end.
"""

import io
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from contextlib import suppress
from fcntl import ioctl

import pytest
import warm
from rich.console import Console
from warm import TERN

import ternhost
from ternhost.cli import main as tern
from ternhost.errors import OK, USAGE
from ternhost.store.boards import BoardRow
from ternhost.store.reader import Reader
from ternhost.store.store import Store
from ternhost.watch.summary import summary_of
from ternhost.watch.terminal_view import Drawn

FLEET = ["--fleet", "simulated:60", "--data", "iris"]
SERVE = ["serve", *FLEET, "--store", "s.sqlite", "--no-report", "--quiet"]

pytestmark = pytest.mark.usefixtures("here")


@pytest.fixture
def served():
    """The store of a run of three rounds, with boards; the name of one has escapes for the
    terminal.
    """
    assert tern([*SERVE, "--rounds", "3"]) == OK
    now = time.time()
    boards = []
    for i in range(1, 40):
        hello = {"entropy": 1, "release": "0.2.0", "budget": 1_500_000 + i}
        is_online = i % 5 > 0
        boards.append(BoardRow(f"{i:08x}", i, 1, is_online, heard=now - i, hello=hello))
    failed = {"budget": 1_250_000, "entropy": 0}
    evil = BoardRow("evil\x1b[2J", 99, 1, True, heard=now, hello=failed, errors=3, error="lost\r\n")
    boards.append(evil)
    with Store("s.sqlite") as store:
        store.boards_seen(boards)
    return "s.sqlite"


def drawn(shown, width=80, **options):
    out = io.StringIO()
    Console(file=out, width=width, height=60, force_terminal=True, **options).print(Drawn(shown))
    return out.getvalue()


def plain(shown, width=80):
    return drawn(shown, width, color_system=None, no_color=True)


@pytest.mark.parametrize("width", [40, 160])
def test_a_picture_fits_its_width_and_shows_the_run_its_boards_and_costs(served, width):
    """`tern watch` draws the state of a run on a terminal. On a narrow and a wide one, no line is
    too long, names with escape sequences do no harm, and all that a reader looks for is there.
    """
    with Reader(served) as reader:
        text = plain(summary_of(reader.snapshot()), width)
    lines = text.splitlines()
    assert "\x1b" not in text
    assert max(map(len, lines)) <= width
    assert len(lines) <= 60
    words = " ".join(text.split())
    for expected in (
        "finished",
        "fedsgd on simulated:60",
        "Rounds 3",
        "180 reports",
        "Boards 40: online 33, offline 7",
        "entropy failed on 1",
        "1.25 is left on the board with the least",
        "a report protects a device with all of its records with epsilon 2",
    ):
        assert expected in words, expected


def test_the_boards_with_trouble_come_first_and_their_texts_are_escaped(served):
    with Reader(served) as reader:
        text = plain(summary_of(reader.snapshot()), width=79)
    failed, offline, *_ = re.findall(r"^(?:evil|0000).*", text, re.MULTILINE)
    assert failed.startswith("evil\\x1b"), "its generator has failed"
    assert "lost\\r\\n" in failed
    assert "offline" in offline


def test_watch_once_prints_a_summary_of_the_newest_run_for_programs(served, capsys):
    assert tern(["watch", "--once", "--json"]) == OK
    summary = json.loads(capsys.readouterr().out)
    assert (summary["run"]["rounds"], summary["rounds"]) == (3, 3)
    assert summary["fleet"]["states"] == {"online": 33, "offline": 7}
    assert summary["epsilon"]["left"] == 1.25


def test_a_program_gets_the_summary_that_watch_prints(served):
    summary = ternhost.fleet_summary(served)
    assert summary.fleet.states == {"online": 33, "offline": 7}
    assert (summary.run.rounds, summary.epsilon["left"]) == (3, 1.25)
    assert "40 boards" in repr(summary)


def test_a_missing_store_is_refused_and_one_without_a_run_is_shown(capsys):
    """Wrong arguments of `tern watch` are refused. A store that has no run yet is none of them: it
    is watched until one begins.
    """
    # No store is found, or this one does not exist.
    for words in (["--once"], ["nothing"]):
        assert tern(["watch", *words]) == USAGE

    with Store("empty.sqlite"):
        pass
    capsys.readouterr()
    assert tern(["watch", "empty.sqlite", "--once"]) == OK
    assert capsys.readouterr().out == "waiting for a run in empty.sqlite\n"


def read_until(terminal, words, text):
    """The text so far, and what is written to the terminal until it has these words."""
    while words not in text:
        ready, _, _ = select.select([terminal], [], [], 60)
        assert ready, f"no {words!r} within a minute: {text}"
        text += os.read(terminal, 1 << 16).decode(errors="replace")
    return text


def read_rest(terminal, text):
    """The text so far, and all that a program that has ended wrote to the terminal besides."""
    os.set_blocking(terminal, False)
    with suppress(BlockingIOError):  # nothing is left
        while data := os.read(terminal, 1 << 16):
            text += data.decode(errors="replace")
    return text


@pytest.mark.slow
def test_a_terminal_without_colours_is_redrawn_and_keeps_the_last_picture(served, monkeypatch):
    """`tern watch` draws on the terminal's alternate screen, and redraws while a run goes on. After
    Ctrl-C it leaves that screen and prints its last picture, so that it stays readable. NO_COLOR is
    heeded.
    """
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    for name in ("COLUMNS", "LINES"):  # would count more than the terminal
        monkeypatch.delenv(name, raising=False)

    # A terminal of 50 x 40 characters; `near` is the end that the command has.
    terminal, near = pty.openpty()
    rows, columns = 50, 40
    ioctl(near, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    command = [*TERN, "watch", "s.sqlite"]
    with warm.Popen(command, stdout=near, stdin=subprocess.DEVNULL) as watching:
        text = read_until(terminal, "180 reports", "")
        assert tern([*SERVE, "--rounds", "5"]) == OK
        text = read_until(terminal, "300 reports", text)
        watching.send_signal(signal.SIGINT)
        enter_picture, leave_picture = "\x1b[?1049h", "\x1b[?1049l"
        text = read_until(terminal, leave_picture, text)
        assert watching.wait(60) == OK
    text = read_rest(terminal, text)
    os.close(terminal)
    os.close(near)

    assert not re.search(r"\x1b\[(\d+;)*(3[0-7]|9[0-7]|38)[;m]", text), "no colour"
    assert text.index(enter_picture) < text.index(leave_picture)
    last_picture = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text[text.index(leave_picture) :])
    assert "300 reports" in last_picture
    assert max(map(len, last_picture.splitlines())) <= columns
