"""The output of commands is readable where an encoding has few characters, and in 40 columns."""

import contextlib
import io
import os
import re
import subprocess
import sys

import pytest

from ternhost.cli import main
from ternhost.errors import USAGE
from ternhost.terminal import Progress
from ternhost.text import PLAIN, wrapped

COLUMNS = 40
RUN = "train direct --fleet simulated:200 --reports 200 --data flights --name first"
COMMANDS = [
    "--help",
    "train --help",
    "train fedsgd --help",
    "runs",
    "watch runs/first --once",
    "privacy runs/first",
    "card show three-outputs:2",
    "card show laplace:2",
    "card list",
    "fleet kinds",
    "config",
]
WRONG = "card show L\N{LATIN CAPITAL LETTER U WITH DIAERESIS}2\N{EN DASH}3"
STYLE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")  # colours and the like
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


class Stream(io.TextIOWrapper):
    """A standard stream with an encoding, which may be a terminal."""

    def __init__(self, encoding, is_terminal=False):
        super().__init__(io.BytesIO(), encoding=encoding)
        self._is_terminal = is_terminal

    def isatty(self):
        return self._is_terminal

    def text(self):
        """What was written, decoded."""
        self.flush()
        return STYLE.sub("", self.buffer.getvalue().decode(self.encoding))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """The present directory is one with the run "first"."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("readable"))
        patch.setenv("TERM", "xterm")
        main([*RUN.split(), "--quiet"])
        yield patch


@pytest.fixture
def printed(place, monkeypatch):
    """What a command prints: `printed(words, encoding)`, or to a terminal with so many columns."""

    def run(words, encoding="utf-8", columns=None):
        if columns is not None:
            monkeypatch.setenv("COLUMNS", str(columns))
        streams = Stream(encoding, columns is not None), Stream(encoding, columns is not None)
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", streams[0])
            patch.setattr(sys, "stderr", streams[1])
            with contextlib.suppress(SystemExit):  # of --help
                main(words.split())
        return streams[0].text() + streams[1].text()

    return run


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
@pytest.mark.parametrize("words", COMMANDS)
def test_output_has_no_replaced_characters(words, encoding, printed):
    text = printed(words, encoding)
    assert text.count("?") == printed(words).count("?")
    assert not re.search(r"\\u|\\x", text)


@pytest.mark.parametrize("words", [*COMMANDS, "train --epsilom 2", WRONG])
def test_a_narrow_terminal_shows_all_numbers_whole(words, printed):
    narrow = printed(words, columns=COLUMNS)
    if "--once" not in words:  # it shows for how long the run has ended
        wide = printed(words, columns=400)
        assert set(NUMBER.findall(narrow)) == set(NUMBER.findall(wide))
    is_error = narrow.startswith("tern: ")
    lines = narrow.splitlines()
    # A hint stays one line, so that its command can be copied; so do commands.
    for line in lines[:-1] if is_error else lines:
        words_of_line = line.split()
        assert len(line) <= COLUMNS or len(words_of_line) == 1 or words_of_line[0] == "tern", line


def test_an_error_names_what_the_user_wrote_in_every_encoding(printed):
    assert r"L\xdc2-3" in printed(WRONG, "ascii")
    assert WRONG.split()[-1] in printed(WRONG, "cp1252")


def test_a_command_under_lang_c_prints_what_it_prints_elsewhere(place):
    settings = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONIOENCODING"}
    command = [sys.executable, "-m", "ternhost", "card", "show", "L2\N{EN DASH}3"]
    ended = subprocess.run(
        command, capture_output=True, env={**environment, **settings}, check=False
    )
    assert ended.returncode == USAGE
    assert ended.stderr.startswith(b"tern: L2")
    ended.stderr.decode()  # it is not mangled


def test_a_missing_character_becomes_its_twin_or_an_escape():
    text = "2\N{EN DASH}3 \N{MICRO SIGN}A\N{HORIZONTAL ELLIPSIS} \N{GREEK SMALL LETTER ALPHA}"
    assert text.encode("ascii", PLAIN) == rb"2-3 uA... \u03b1"


def test_a_name_that_is_no_utf8_keeps_its_bytes():
    assert "r\udcfcn".encode("ascii", PLAIN) == b"r\xfcn"


def test_the_list_of_runs_is_a_table_that_fits_80_columns(printed):
    headings, run, _footnote = printed("runs", columns=80).splitlines()
    assert max(len(headings), len(run)) <= 80
    for heading, cell in {"run": "first", "status": "finished", "learner": "direct"}.items():
        assert run[headings.index(heading) :].startswith(cell)


def test_long_words_stay_whole_and_tables_keep_their_columns():
    text = "name       1.25   a-path-of-a-file-that-is-long-and-whole   2,000"
    assert (
        wrapped(text, 20) == "name       1.25\n  a-path-of-a-file-that-is-long-and-whole\n  2,000"
    )
    assert wrapped(text, 80) == text


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self):
        return True


def test_a_step_of_several_lines_is_erased_as_a_whole(monkeypatch):
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    with Progress("name", stream=stream) as progress:
        progress.step("x" * 2 * COLUMNS)
        progress.step("short")
    up_two_lines = "\r\x1b[2A\x1b[J"
    assert f"{up_two_lines}name: short" in stream.getvalue()
