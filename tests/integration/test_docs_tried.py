"""The blocks of the documentation that say they were tried, in the order of their page.

`<!-- tried -->` stands before such a block; `<!-- tried: 4 -->` where it ends with that exit code.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TERN = f'#!/bin/sh\nexec {sys.executable} -c "import sys; from ternhost.cli import main; sys.exit(main())" "$@"\n'
BLOCK = re.compile(r"<!-- tried(?:: (\w+))? -->\n```(\w+)\n(.*?)```", re.DOTALL)
PAGES = [path for path in sorted((ROOT / "docs").rglob("*.md")) if BLOCK.search(path.read_text())]


def test_there_are_pages_to_try():
    assert {path.stem for path in PAGES} >= {"tutorial", "runs"}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_the_blocks_do_what_is_said(page, tmp_path):
    command = tmp_path / "bin" / "tern"
    command.parent.mkdir()
    command.write_text(TERN)
    command.chmod(0o755)
    for expected, language, code in BLOCK.findall(page.read_text()):
        code = code.replace(
            "--reports 2000 ", "--reports 200 "
        )  # on emulated boards; the number is not the point
        program = ["sh", "-ec", code] if language == "sh" else [sys.executable, "-c", code]
        done = subprocess.run(
            program,
            cwd=tmp_path,
            env={**os.environ, "PATH": f"{command.parent}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == (int(expected) if expected.isdecimal() else 0), (
            code + done.stdout + done.stderr
        )
