"""Runs the marked blocks of the documentation, in the order of each page.

A comment above a block says what to do with it:

- `<!-- tried -->`: run it; `<!-- tried: 4 -->`: it must end with this exit code
- `<!-- file: mine.py -->`: write it to this file for the next blocks
- `<!-- edit: my.toml -->`: change this file as the block says: it is a diff
- `<!-- started: boards -->`: start it, as in a terminal of its own, and wait until it prints this
"""

import json
import re
import sys
from pathlib import Path

import pytest
from harness.terminals import Terminals, run

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(
    r"<!-- (tried|file|edit|started)(?:: ([-\w. ]+))? -->\n```(\w+)\n(.*?)```", re.DOTALL
)
MARKDOWN = sorted((*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")))
PAGES = [path for path in MARKDOWN if BLOCK.search(path.read_text())]
LEAST_ACCURACY = {"own-data-tutorial": {"air": 0.85}}  # of the runs of a page, by their names


def edited(text, diff):
    """A text after the change that a diff of some of its lines says. Each part occurs once."""
    for part in re.split(r"^@@.*\n", diff, flags=re.MULTILINE):
        lines = part.splitlines(keepends=True)
        before = "".join(line[1:] for line in lines if not line.startswith("+"))
        after = "".join(line[1:] for line in lines if not line.startswith("-"))
        assert text.count(before) == 1, f"{before!r} is not once in:\n{text}"
        text = text.replace(before, after)
    return text


@pytest.fixture
def terminals(tmp_path):
    """The terminals in which a page starts programs that stay."""
    opened = Terminals(tmp_path)
    yield opened
    opened.end()


def test_there_are_pages_to_try():
    assert {path.stem for path in PAGES} >= {"tutorial", "runs", "extend"}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_the_blocks_end_with_their_exit_codes(page, tmp_path, terminals):
    """All blocks of a page run in one folder, one after the other, so that what readers copy works."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for kind, argument, language, code in BLOCK.findall(page.read_text()):
        if kind == "file":
            (tmp_path / argument).write_text(code)
        elif kind == "edit":
            file = tmp_path / argument
            file.write_text(edited(file.read_text(), code))
        elif kind == "started":
            terminals.start(code, expected=argument)
        else:
            for size in ("2000 ", "20000 ", "300000 "):  # of fleets: smaller ones take less time
                code = code.replace(size, "500 ")
            program = ["sh", "-ec", code] if language == "sh" else [sys.executable, "-c", code]
            ended, said = run(program, tmp_path, 300)
            assert ended == (int(argument) if argument.isdecimal() else 0), code + said
    for name, least in LEAST_ACCURACY.get(page.stem, {}).items():
        result = json.loads((tmp_path / "runs" / name / "result.json").read_text())
        assert result["accuracy"] > least
