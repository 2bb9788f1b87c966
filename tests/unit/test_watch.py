"""`tern watch` shows a run on a terminal of any width, before the run begins, while it goes on, and
after its end.
"""

import io
import json
import os
import pty
import re
import signal
import sqlite3
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

from ternhost.cli import main as tern
from ternhost.errors import BROKEN_PIPE, OK, STORAGE, USAGE
from ternhost.store.boards import BoardRow
from ternhost.store.reader import Reader
from ternhost.store.runs import FINISHED
from ternhost.store.snapshot import OpenRound, RunView, Snapshot
from ternhost.store.store import Store
from ternhost.terminal import sleep_while_read
from ternhost.watch import curves
from ternhost.watch.summary import Summary, summary_of
from ternhost.watch.terminal_view import Drawn, plot
from ternhost.watch.watch_command import Lines

SERVE = ["serve", "--fleet", "simulated:60", "--store", "s.sqlite", "--no-report", "--quiet"]

pytestmark = pytest.mark.usefixtures("here")


def dots(line):
    return [bin(ord(character) - 0x2800).count("1") for character in line]


def test_a_rising_curve_begins_below_and_ends_above():
    above, below = plot([(0, 0.0), (10, 1.0)], width=4, height=2)
    assert [bool(count) for count in dots(above)] == [False, False, True, True]
    assert [bool(count) for count in dots(below)] == [True, True, False, False]


def test_a_flat_curve_is_a_line_of_two_dots_a_character():
    (line,) = plot([(0, 5.0), (1, 5.0), (7, 5.0)], width=6, height=1)
    assert dots(line) == [2] * 6


def test_a_single_point_is_a_dot():
    (line,) = plot([(4, 2.0)], width=3, height=1)
    assert sum(dots(line)) == 1


def test_without_points_the_picture_is_empty():
    assert plot([], width=3, height=1) == ["\u2800" * 3]


@pytest.fixture
def served():
    """The store of a run of three rounds, with boards; the name of one has escapes for the
    terminal.
    """
    assert tern([*SERVE, "--rounds", "3"]) == OK
    now = time.time()
    healthy = {"entropy": 1, "release": "0.2.0"}
    boards = [
        BoardRow(f"{i:08x}", i, 1, i % 5 > 0, now - i, {"budget": 1_500_000 + i, **healthy})
        for i in range(1, 40)
    ]
    failed = {"budget": 1_250_000, "entropy": 0}
    boards.append(BoardRow("evil\x1b[2J", 99, 1, True, now, failed, 3, "lost\r\n"))
    with Store("s.sqlite") as store:
        store.boards_seen(boards)
    return "s.sqlite"


def test_a_run_that_has_continued_between_two_snapshots_is_read_again(served):
    with Reader(served) as reader:
        assert reader.snapshot().run.rounds == 3
        assert tern([*SERVE, "--rounds", "4"]) == OK
        now = reader.snapshot()
    assert (now.run.rounds, now.run.status, summary_of(now).rounds) == (4, FINISHED, 4)


def drawn(shown, width=80, **options):
    out = io.StringIO()
    Console(file=out, width=width, height=60, force_terminal=True, **options).print(Drawn(shown))
    return out.getvalue()


def plain(shown, width=80):
    return drawn(shown, width, color_system=None, no_color=True)


def test_a_picture_fits_its_width_and_shows_the_run_its_boards_and_costs(served):
    with Reader(served) as reader:
        now = reader.snapshot()
    shown = summary_of(now)
    assert now.devices == 0
    assert curves.EPSILON in curves.axes(now.run, now.devices)
    assert shown.epsilon["spent"] == curves.spent(now) > 0
    for width in (40, 79, 160):
        text = plain(shown, width)
        assert "\x1b" not in text
        assert max(map(len, text.splitlines())) <= width
        assert len(text.splitlines()) <= 60
        words = " ".join(text.split())
        for want in (
            "finished",
            "fedsgd on simulated:60",
            "Rounds 3",
            "180 reports",
            "AUC 0.",
            "Boards 40: online 33, offline 7",
            "entropy failed on 1",
            "1.25 is left on the board with the least",
            "a report protects a device with all of its records with epsilon 2",
        ):
            assert want in words, want
        rows = [line for line in text.splitlines() if re.match(r"evil|0000", line)]
        assert rows[0].startswith("evil\\x1b"), "the board with a failed generator comes first"
        assert "offline" in rows[1]
        assert ("lost\\r\\n" in rows[0]) == (width > 70)
        assert re.search(r"round 3 of 3: complete, [\d.]+ m?s ago$", text, re.MULTILINE)


def in_round(reports, at=100.0):
    """The summary of a run with a round of 20 devices, open since 90.0 for 60 s at most."""
    run = RunView("mine", 0.0, "running", "fedsgd", "mqtt:x")
    return Summary(at, "s", None, run, 10, OpenRound(7, "mine", 90.0, 60.0, 20, 20, reports))


def test_a_picture_has_colours():
    assert "\x1b[" in drawn(in_round(5), color_system="standard")


def test_a_picture_counts_the_reports_of_a_round_and_the_time_left():
    assert "5/20" in plain(in_round(5))
    assert "for 10 s, 50 s left" in plain(in_round(5))
    assert "for 110 s, past its deadline" in plain(in_round(5, at=200.0))


def test_the_bar_of_a_round_grows_with_its_reports():
    bars = [drawn(in_round(reports), color_system=None).count("━") for reports in (0, 10, 20)]
    assert len(set(bars)) == 3


def test_watch_once_prints_one_picture_or_one_summary(served, capsys):
    assert tern(["watch", served, "--once"]) == OK
    text = capsys.readouterr().out
    assert "finished" in text
    assert "\x1b" not in text
    assert tern(["watch", "--once", "--json"]) == OK, "the newest run"
    summary = json.loads(capsys.readouterr().out)
    assert (summary["run"]["rounds"], summary["rounds"]) == (3, 3)
    assert summary["fleet"]["states"] == {"online": 33, "offline": 7}
    assert summary["epsilon"]["left"] == 1.25
    assert len(summary["worst"]) == 20


def test_a_missing_store_is_refused_and_one_without_a_run_is_shown(capsys):
    for words in (["--once"], ["nothing"], ["nothing", "--once"], ["--interval", "0"]):
        assert tern(["watch", *words]) == USAGE
    with Store("empty.sqlite"):
        pass
    capsys.readouterr()
    assert tern(["watch", "empty.sqlite", "--once"]) == OK
    assert capsys.readouterr().out == "waiting for a run in empty.sqlite\n"


def test_files_for_grafana_and_prometheus_are_written(here, capsys):
    assert tern(["watch", "--grafana", "tern.json", "--alerts", "alerts.yml", "--json"]) == OK
    assert json.loads(capsys.readouterr().out) == {"grafana": "tern.json", "alerts": "alerts.yml"}
    assert json.loads((here / "tern.json").read_text())["title"] == "tern"
    assert (here / "alerts.yml").read_text().startswith("# Alerts for Prometheus")
    assert tern(["watch", "--grafana", "nowhere/tern.json"]) == STORAGE
    assert "nowhere/tern.json: No such file" in capsys.readouterr().err


class Watching:
    """`tern watch` as a process; `text` is its output so far."""

    def __init__(self, *words, columns=None, **environment):
        if columns is None:
            self._far, near = os.pipe()
        else:
            self._far, near = pty.openpty()
            ioctl(near, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        with pytest.MonkeyPatch.context() as patch:
            for name in ("COLUMNS", "LINES"):
                patch.delenv(name, raising=False)
            for name, value in {"TERM": "xterm", **environment}.items():
                patch.setenv(name, value)
            words = [*TERN, "watch", "--interval", "0.1", *words]
            self.process = warm.Popen(words, stdout=near, stdin=subprocess.DEVNULL)
        os.close(near)
        os.set_blocking(self._far, False)
        self._data = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.stop_reading()

    def stop_reading(self):
        if self._far is not None:
            os.close(self._far)
            self._far = None

    @property
    def text(self):
        with suppress(OSError):  # no output yet, or the far end is closed
            while data := os.read(self._far, 1 << 16):
                self._data += data
        return self._data.decode(errors="replace")  # the last character may be incomplete

    def wait_for(self, pattern, count=1):
        end = time.monotonic() + 60
        while len(re.findall(pattern, self.text)) < count:
            assert time.monotonic() < end, self.text
            assert self.process.poll() is None, self.text
            time.sleep(0.02)

    def end(self):
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(60), self.text


@pytest.mark.slow
def test_without_a_terminal_every_round_is_a_line_although_the_host_is_killed():
    with Watching() as watching:
        watching.wait_for("waiting for a run in runs")
        words = [*TERN, *SERVE, "--interval", "0.3"]
        for first in (1, 4):
            with warm.Popen(words) as host:
                watching.wait_for(
                    rf"round {first + 2}: 60 of 60 reports, 0 refusals, complete; AUC 0\.\d+"
                )
                host.kill()
        code, text = watching.end()
    assert code == OK
    rounds = [int(number) for number in re.findall(r"^round (\d+):", text, re.MULTILINE)]
    assert rounds == list(range(1, rounds[-1] + 1))
    assert "\x1b" not in text


@pytest.mark.slow
def test_json_is_a_line_for_each_change_until_the_reader_leaves(served):
    with Watching("s.sqlite", "--json") as watching:
        watching.wait_for("\n")
        time.sleep(0.5)
        assert watching.text.count("\n") == 1
        assert tern([*SERVE, "--rounds", "4"]) == OK
        watching.wait_for('"rounds": 4')
        assert all(json.loads(line)["store"] == "s.sqlite" for line in watching.text.splitlines())
        watching.stop_reading()
        assert watching.process.wait(60) == BROKEN_PIPE


def test_a_wait_ends_when_the_reader_leaves():
    read, write = os.pipe()
    with open(write, "w") as stream:
        sleep_while_read(0.01, stream)
        os.close(read)
        with pytest.raises(BrokenPipeError):
            sleep_while_read(60, stream)


def test_rounds_of_a_new_run_with_the_same_name_have_lines_too(capsys):
    show = Lines().show

    def rounds(began, *numbers):
        entries = tuple(
            {"round": number, "asked": 5, "reports": 5, "refusals": 0, "ended": "complete"}
            for number in numbers
        )
        show(
            Snapshot(
                "s", run=RunView("mine", began, "running", "fedsgd", "mqtt:x"), history=entries
            )
        )
        return [
            int(number)
            for number in re.findall(r"^round (\d+):", capsys.readouterr().out, re.MULTILINE)
        ]

    assert rounds(1.0, 1, 2) == [2]
    assert rounds(1.0, 1, 2, 3) == [3]
    assert rounds(2.0, 1) == [1]
    assert rounds(2.0, 1, 2, 3, 4) == [2, 3, 4]
    assert rounds(3.0, 1, 2, 3, 4, 5) == [5], "another run, although it has more rounds by now"
    assert rounds(3.0, 1, 2) == [2], "an older copy was restored"


@pytest.mark.slow
def test_a_terminal_without_colours_is_redrawn_and_keeps_the_last_picture(served):
    with sqlite3.connect("s.sqlite", isolation_level=None) as locker:
        locker.execute("PRAGMA locking_mode = EXCLUSIVE")
        locker.execute("BEGIN EXCLUSIVE")
    with Watching("s.sqlite", columns=40, NO_COLOR="1") as watching:
        watching.wait_for("locked by another")
        locker.close()
        watching.wait_for("180 reports")
        assert tern([*SERVE, "--rounds", "5"]) == OK
        watching.wait_for("300 reports")
        code, text = watching.end()
    assert code == OK
    assert not re.search(r"\x1b\[(\d+;)*(3[0-7]|9[0-7]|38)[;m]", text)
    enter, leave = "\x1b[?1049h", "\x1b[?1049l"
    assert text.index(enter) < text.index(leave)
    last_picture = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text[text.index(leave) :])
    assert "300 reports" in last_picture
    assert max(map(len, last_picture.splitlines())) <= 40


@pytest.mark.slow
def test_a_dumb_terminal_gets_no_escapes(served):
    with Watching("s.sqlite", columns=60, TERM="dumb") as watching:
        watching.wait_for("round 3 of 3:")
        _, text = watching.end()
    assert "\x1b" not in text


@pytest.mark.parametrize("width", [40, 80])
def test_long_names_do_not_cut_numbers(width):
    hello = {"budget": 12_345_600, "release": "r" * 60}
    board = BoardRow("n" * 60, 1, 1, True, 50.0, hello, 123_456, "e" * 60)
    run = RunView("mine", 0.0, "running", "fedsgd", "mqtt:x")
    text = plain(Summary(100.0, "s", None, run, worst=(board,)), width)
    (row,) = [line for line in text.splitlines() if line.startswith("nn")]
    assert "50 s" in row
    assert "12.3456" in row
    assert "123,456" in row
    assert max(map(len, text.splitlines())) <= width
    last = text.splitlines()[-1]
    assert "left" in last or "unverified" in last, "the caveat is below the boards"
