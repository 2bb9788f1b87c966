"""The blocks of the documentation that say they were tried, in the order of their page.

`<!-- tried -->` stands before such a block; `<!-- tried: 4 -->` where it ends with that exit code, and
`<!-- file: mine.py -->` where it is the content of a file for the next ones.
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
def test_the_blocks_do_what_is_said(page, tmp_path):
    for kind, expected, language, code in BLOCK.findall(page.read_text()):
        if kind == "file":
            (tmp_path / expected).write_text(code)
            continue
        code = code.replace(
            "--reports 2000 ", "--reports 200 "
        )  # on emulated boards; the number is not the point
        program = ["sh", "-ec", code] if language == "sh" else [sys.executable, "-c", code]
        done = subprocess.run(
            program,
            cwd=tmp_path,
            env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == (int(expected) if expected.isdecimal() else 0), (
            code + done.stdout + done.stderr
        )
