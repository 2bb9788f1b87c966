"""Runs the marked blocks of the documentation, in the order of each page.

`<!-- tried -->` before a block: run it; `<!-- tried: 4 -->`: it must end with this exit code; `<!-- file: mine.py -->`:
write it to this file for the next blocks.
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


def test_there_are_pages_to_try():
    assert {path.stem for path in PAGES} >= {"tutorial", "runs", "CONTRIBUTING"}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_the_blocks_end_with_their_exit_codes(page, tmp_path):
    for kind, argument, language, code in BLOCK.findall(page.read_text()):
        if kind == "file":
            (tmp_path / argument).write_text(code)
            continue
        code = code.replace("--reports 2000 ", "--reports 200 ")  # emulated boards take long
        program = ["sh", "-ec", code] if language == "sh" else [sys.executable, "-c", code]
        ended = subprocess.run(
            program,
            cwd=tmp_path,
            env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        expected = int(argument) if argument.isdecimal() else 0
        assert ended.returncode == expected, code + ended.stdout + ended.stderr
