"""What a person sees of a run: a changing line on a terminal, lines now and then elsewhere."""

import io
import os
import time
from types import SimpleNamespace

import pytest

from ternhost.cli import progress
from ternhost.cli.progress import ProgressPrinter
from ternhost.run.status import END, PROGRESS, Status

ACCURACY = {"accuracy": 0.8765}


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")


def status(round_number, event=END, figures=ACCURACY, rounds=4):
    return Status(
        event, round_number, rounds, round_number, 100, 50, 100 * round_number, 400, 2.0, figures=figures
    )


def test_plain_lines_where_there_is_no_terminal(monkeypatch):
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: 100.0))  # all at once
    out = io.StringIO()
    printer = ProgressPrinter(out)
    printer.note("8 boards")
    printer.status(status(1, PROGRESS))
    printer.status(status(1))
    printer.status(status(2))  # too soon after the last
    printer.status(status(4))  # the end is always told
    printer.close()
    assert out.getvalue() == (
        "8 boards\n"
        "round 1/4  100/400 reports  50/s  accuracy 0.8765\n"
        "round 4/4  400/400 reports  200/s  accuracy 0.8765\n"
    )


@pytest.mark.parametrize("kind", [Terminal, io.StringIO])
def test_a_long_round_is_told_of_where_no_line_can_change(kind, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    out = kind()
    printer = ProgressPrinter(out, every=0.2)
    printer.note("8 boards")
    printer.status(status(1, PROGRESS))
    time.sleep(1.0)
    printer.close()
    assert 4 <= out.getvalue().count("round 1/4  100/400 reports") <= 8
    assert "\x1b" not in out.getvalue()
    end = out.getvalue()
    time.sleep(0.5)
    assert out.getvalue() == end, "and nothing when it is over"


def test_also_what_comes_before_the_first_round():
    out = io.StringIO()
    printer = ProgressPrinter(out, every=0.1)
    printer.note("provisioning 1000 clients")
    time.sleep(0.4)
    printer.close()
    assert set(out.getvalue().splitlines()) == {"provisioning 1000 clients"}
    assert 2 <= out.getvalue().count("\n") <= 6


def test_one_line_that_changes_on_a_terminal():
    out = Terminal()
    printer = ProgressPrinter(out)
    printer.status(status(1, PROGRESS, figures={}))
    printer.warn("a board is gone")
    printer.status(status(4))
    printer.close()
    assert out.getvalue() == (
        "\r\x1b[Kround 1/4  #####...............  100/400 reports  50/s\n"
        "tern: a board is gone\n"
        "\r\x1b[Kround 4/4  ####################  400/400 reports  200/s  accuracy 0.8765\n"
    )


def test_a_run_without_an_end_has_no_bar_and_an_error_is_called_one():
    out = Terminal()
    printer = ProgressPrinter(out)
    told = Status(END, 3, None, 7, 100, 50, 300, None, 2.0, figures={"squared_error": 0.25})
    printer.status(told)
    assert out.getvalue() == "\r\x1b[Kround 3  300 reports  150/s  mean squared error 0.2500"


def test_quiet_tells_only_warnings():
    out = io.StringIO()
    printer = ProgressPrinter(out, quiet=True, every=0.05)
    printer.note("8 boards")
    printer.status(status(4))
    printer.warn("a board is gone")
    time.sleep(0.2)
    printer.close()
    assert out.getvalue() == "tern: a board is gone\n"


def test_that_nobody_reads_it_does_not_end_a_run():
    read, write = os.pipe()
    os.close(read)
    out = os.fdopen(write, "w")
    printer = ProgressPrinter(out)
    printer.status(status(4))
    printer.warn("a board is gone")
    printer.close()
    with pytest.raises(BrokenPipeError):  # what was written waits there
        out.close()
