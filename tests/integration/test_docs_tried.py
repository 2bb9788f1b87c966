"""Runs the marked blocks of the documentation, in the order of each page.

`<!-- tried -->` before a block: run it; `<!-- tried: 4 -->`: it must end with this exit code; `<!--
file: mine.py -->`: write it to this file for the next blocks.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"<!-- (tried|file)(?:: ([\w.]+))? -->\n```(\w+)\n(.*?)```", re.DOTALL)
MARKDOWN = sorted((*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")))
PAGES = [path for path in MARKDOWN if BLOCK.search(path.read_text())]


def run(program, folder, seconds, **options):
    """Run a program of a page; return its exit code and the end of its outputs."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    ended = subprocess.run(
        program,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=seconds,
        **options,
    )
    return ended.returncode, ended.stdout[-3000:] + ended.stderr[-3000:]


def test_there_are_pages_to_try():
    assert {path.stem for path in PAGES} >= {"tutorial", "runs", "extend"}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_the_blocks_end_with_their_exit_codes(page, tmp_path):
    """A comment above a block of code in the documentation says what to do with it: write it to a
    file, or run it, and with which exit code it ends. All blocks of a page run in one folder, one
    after the other, so that what readers copy works.
    """
    for kind, argument, language, code in BLOCK.findall(page.read_text()):
        if kind == "file":
            (tmp_path / argument).write_text(code)
            continue
        for size in ("2000 ", "20000 ", "300000 "):  # of fleets: smaller ones take less time
            code = code.replace(size, "500 ")
        program = ["sh", "-ec", code] if language == "sh" else [sys.executable, "-c", code]
        ended, said = run(program, tmp_path, 300)
        assert ended == (int(argument) if argument.isdecimal() else 0), code + said
