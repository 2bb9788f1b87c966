"""The commands that pages show for a board, as a new user runs them: with the installed package,
from an empty folder, on emulated boards.

A comment above a block of a page says what to do with it:

- `<!-- file: my_program.py -->`: write it to this file
- `<!-- on a board -->`: run it, with the port of a board instead of a0, and answer yes to questions
"""

import csv
import json
import os
import re
import subprocess

import pytest
from harness.installed import ROOT, Installed, emulated_board, environment

from terntools.emulators.pico import firmware_file

pytestmark = [pytest.mark.xdist_group("wheel"), pytest.mark.slow]

BLOCK = re.compile(
    r"<!-- (?:file: (?P<file>\S+)|on a board) -->\n```\w+\n(?P<code>.*?)```", re.DOTALL
)
FIRMWARE = "RPI_PICO-v1.28.0.uf2"  # the file that the README names
SECONDS = 300  # of a block
YES = b"y\n"


@pytest.fixture(scope="module")
def for_boards(wheel, tmp_path_factory):
    """The package with the extra "boards", as installed."""
    return Installed(tmp_path_factory.mktemp("installed"), wheel, "boards")


def blocks(path):
    """The marked blocks of a page: (name of the file or None, code)."""
    found = [(block["file"], block["code"]) for block in BLOCK.finditer((ROOT / path).read_text())]
    assert found
    return found


def run_steps(installed, page, port, folder):
    """Do what the marked blocks of a page say, in their order."""
    path = f"{installed.python.parent}:{os.environ['PATH']}"
    for file, code in blocks(page):
        if file:
            (folder / file).write_text(code)
            continue
        # The package is installed already, and from the wheel.
        code = re.sub(r"^pip install .*\n", "", code, flags=re.MULTILINE)
        code = re.sub(r"\ba0\b", port, code)
        ended = run_at_terminal(code, folder, environment() | {"PATH": path})
        assert ended.returncode == 0, f"{code}\n{ended.stdout}{ended.stderr}"


def run_at_terminal(code, folder, variables):
    """Run a script whose input is a terminal, at which somebody answers yes."""
    user, terminal = os.openpty()
    try:
        os.write(user, 2 * YES)
        return subprocess.run(
            ["sh", "-ec", code],
            cwd=folder,
            env=variables,
            stdin=terminal,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    finally:
        os.close(user)
        os.close(terminal)


def reports(folder):
    """How many reports the only run in this folder has counted."""
    (result,) = (folder / "runs").glob("*/result.json")
    return json.loads(result.read_text())["reports"]


@pytest.mark.parametrize("board", ["pico", "xtensa"])
def test_the_steps_for_a_program_of_ones_own_work(for_boards, board, tmp_path):
    """A program is deployed and provisioned, its records are read, and it sends a report."""
    with emulated_board(for_boards, board) as port:
        run_steps(for_boards, "docs/guides/application.md", port, tmp_path)
    with (tmp_path / "records.csv").open() as file:
        rows = list(csv.reader(file))
    assert len(rows) > 1
    assert reports(tmp_path) == 1


def test_the_steps_of_the_readme_work(for_boards, tmp_path):
    """A board gets records and sends a report; then it gets a program of one's own. No sensor is
    wired to an emulated board, so the program is the one that needs none.
    """
    (tmp_path / FIRMWARE).write_bytes(firmware_file())
    program = dict(blocks("docs/guides/application.md"))["my_program.py"]
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / "minimal.py").write_text(program)
    with emulated_board(for_boards, "pico") as port:
        run_steps(for_boards, "README.md", port, tmp_path)
    assert reports(tmp_path) == 1
