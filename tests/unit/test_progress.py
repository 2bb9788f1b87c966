"""What a person sees of a run: a changing line on a terminal, plain lines elsewhere."""

import io
from types import SimpleNamespace

from ternhost.cli import progress
from ternhost.cli.progress import ProgressPrinter
from ternhost.runs.session import Status


class Terminal(io.StringIO):
    def isatty(self):
        return True


def status(round_number, ended=True, accuracy=0.8765):
    return Status(round_number, 4, 50, 100, 100 * round_number, 400, accuracy, 2.0, ended)


def test_plain_lines_where_there_is_no_terminal(monkeypatch):
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: 100.0))  # all at once
    out = io.StringIO()
    printer = ProgressPrinter(out)
    printer.note("8 boards")
    printer.status(status(1, ended=False))
    printer.status(status(1))
    printer.status(status(2))  # too soon after the last
    printer.status(status(4))  # the end is always told
    printer.close()
    assert out.getvalue() == (
        "8 boards\n"
        "round 1/4  100/400 reports  50/s  accuracy 0.8765\n"
        "round 4/4  400/400 reports  200/s  accuracy 0.8765\n"
    )


def test_one_line_that_changes_on_a_terminal():
    out = Terminal()
    printer = ProgressPrinter(out)
    printer.status(status(1, ended=False, accuracy=None))
    printer.warn("a board is gone")
    printer.status(status(4))
    printer.close()
    assert out.getvalue() == (
        "\r\x1b[Kround 1/4  #####...............  100/400 reports  50/s\n"
        "tern: a board is gone\n"
        "\r\x1b[Kround 4/4  ####################  400/400 reports  200/s  accuracy 0.8765\n"
    )


def test_quiet_tells_only_warnings():
    out = io.StringIO()
    printer = ProgressPrinter(out, quiet=True)
    printer.note("8 boards")
    printer.status(status(4))
    printer.warn("a board is gone")
    assert out.getvalue() == "tern: a board is gone\n"
