"""The page on pytest projects shows the files of the example project as they are."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = ROOT / "examples/board_tests"
BLOCK = re.compile(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", re.DOTALL)
SHOWN = dict(BLOCK.findall((ROOT / "docs/guides/own-pytest.md").read_text()))
FILES = sorted(path.name for path in PROJECT.iterdir() if path.suffix in (".py", ".toml", ".yaml"))


def test_the_page_shows_every_file_of_the_project():
    assert sorted(SHOWN) == FILES


@pytest.mark.parametrize("name", FILES)
def test_the_page_shows_a_file_as_it_is_in_the_project(name):
    assert SHOWN[name] == (PROJECT / name).read_text()
