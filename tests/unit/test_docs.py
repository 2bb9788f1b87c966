"""Links, commands and options in the documentation exist.

`make docs` makes a site of the same pages.
"""

import argparse
import pydoc
import re
import shlex
from pathlib import Path

import pytest
from harness.pages import anchors

from ternhost.cli.tree import build_parser
from ternhost.extensions import EXTENSIONS

ROOT = Path(__file__).parents[2]
FOLDERS = ("docs", "examples", "firmware", "host", "shared_specs", "tests", "tools")
PAGES = sorted(
    [*ROOT.glob("*.md"), *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.md"))]
)
# The pages name these options of other programs.
OTHERS = {"--no-deps", "--target", "--exhaustive", "--check", "--random"}


def name(path):
    return path.relative_to(ROOT).as_posix()


def blocks(text, *languages):
    """The code in fences of these languages."""
    fences = re.findall(r"^( *)```(\w*)\n(.*?)^\1```", text, re.MULTILINE | re.DOTALL)
    return [code for _, language, code in fences if language in languages]


def commands(text):
    """The `tern ...` commands of a page's shell blocks, as lists of words."""
    for line in "".join(blocks(text, "sh")).replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["tern"]:
            yield words[1:]


def options(parser):
    """All options of a parser and of the parsers below it."""
    names = set(parser._option_string_actions)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            names = names.union(*map(options, action.choices.values()))
    return names


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_links_lead_somewhere(path):
    for target, anchor in re.findall(r"\]\(([^)\s#:]*)(#[^)\s]+)?\)", path.read_text()):
        page = (path.parent / target) if target else path
        assert page.exists(), target
        assert not anchor or anchor[1:] in anchors(page), f"{target}{anchor}"


def test_everything_named_by_the_page_of_the_api_exists():
    named = re.findall(r"^::: (\S+)$", (ROOT / "docs/api.md").read_text(), re.MULTILINE)
    assert len(named) > 20
    assert [path for path in named if pydoc.locate(path) is None] == []


@pytest.fixture(scope="module")
def parser():
    return build_parser()


def missing_commands(parser):
    """The commands whose packages were taken away."""
    (subparsers,) = (each for each in parser._actions if each.dest == "command")
    return {
        name
        for name, child in subparsers.choices.items()
        if child.get_default("func") is None and not child._subparsers
    }


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_commands_can_be_parsed(path, parser):
    """Every `tern ...` command in a shell block of a page has words that the parser takes."""
    if missing_commands(parser) or EXTENSIONS.missing:
        pytest.skip("a package was taken away, with its commands and options")
    text = path.read_text()
    assert blocks(text, "") == [], "each names its language: only those in sh are tried"
    for words in commands(text):
        # Help ends the parser; options of a file (--with) are tried in test_docs_tried.
        if not {"--help", "--version", "--with"} & {*words}:
            assert parser.parse_args(words).func, words


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_options_that_are_named_exist(path, parser):
    if missing_commands(parser) or EXTENSIONS.missing:
        pytest.skip("a package was taken away, with its options")
    codes = " ".join(re.findall(r"`[^`]+`", path.read_text()))
    assert {*re.findall(r"(?<!\w)--[a-z][\w-]*", codes)} - options(parser) <= OTHERS
