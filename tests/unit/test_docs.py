"""Links, commands and options in the documentation exist, and the reference lacks nothing.

`make docs` makes a site of the same pages.
"""

import argparse
import json
import pydoc
import re
import shlex
from pathlib import Path

import make_site
import pytest
import reference_pages
import yaml
from harness.pages import anchors

import ternhost
from ternhost.cli import everywhere
from ternhost.cli.parser import subparsers_of
from ternhost.cli.tree import build_parser
from ternhost.datasets import schema_file
from ternhost.extensions import EXTENSIONS

ROOT = Path(__file__).parents[2]
FOLDERS = ("docs", "examples", "firmware", "host", "shared_specs", "tests", "tools")
PAGES = sorted(
    [*ROOT.glob("*.md"), *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.md"))]
)
# Pages for those who work on tern, beside what they are about.
NOT_ON_THE_SITE = {"tests", "host", "tools"}
# One entry of the Python reference describes all errors.
ERRORS = vars(ternhost.errors)
MEASURED = json.loads((ROOT / "docs/measured.json").read_text())
OF_EVERY_COMMAND = {everywhere.JSON, everywhere.QUIET, everywhere.WITH}
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


def options(parser, shown=False):
    """All options of a parser and of the parsers below it; those that its help shows, if `shown`."""
    names = set()
    for action in parser._actions:
        if not shown or action.help != argparse.SUPPRESS:
            names.update(action.option_strings)
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                names |= options(command, shown)
    return names


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_links_lead_somewhere(path):
    for target, anchor in re.findall(r"\]\(([^)\s#:]*)(#[^)\s]+)?\)", path.read_text()):
        page = (path.parent / target) if target else path
        assert page.exists(), target
        assert not anchor or anchor[1:] in anchors(page), f"{target}{anchor}"


@pytest.fixture(scope="module")
def python_names():
    """The Python objects that the reference describes."""
    page = (ROOT / "docs/reference/python.md").read_text()
    return [pydoc.locate(path) or path for path in re.findall(r"^::: (\S+)$", page, re.MULTILINE)]


def test_what_the_python_reference_names_exists(python_names):
    assert [name for name in python_names if isinstance(name, str)] == []


def test_the_python_reference_has_every_public_name(python_names):
    learners = reference_pages.learners_in_python().values()
    described = {*map(id, python_names), *map(id, learners), *map(id, ERRORS.values())}
    public = {name: getattr(ternhost, name) for name in ternhost.__all__}
    assert [name for name, thing in public.items() if id(thing) not in described] == []


def test_the_menu_has_every_page():
    menu = make_site.pages_in(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    kept = {name(path) for path in PAGES if path.parts[len(ROOT.parts)] not in NOT_ON_THE_SITE}
    assert kept - {*menu} == set()


def test_the_reference_has_a_page_for_every_command(parser):
    pages = {Path(page).stem for page in reference_pages.pages() if "/commands/" in page}
    assert pages == {*subparsers_of(parser)}


def test_the_page_of_a_command_has_every_option_of_it(parser):
    for command in subparsers_of(parser).values():
        page = reference_pages.command_page(command)
        left_out = {name for name in options(command, shown=True) if name not in page}
        assert left_out <= {"-h", "--help"}, command.prog


@pytest.mark.parametrize("heading", reference_pages.REGISTRIES)
def test_the_page_of_names_describes_the_entries_under_each_heading(heading):
    page = reference_pages.names_page()
    section = page.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    described = re.findall(r"^\| `\S+` \| (.*) \|$", section, re.MULTILINE)
    assert len(described) > 1
    assert all(described)


def test_the_page_of_schemas_has_every_key():
    page = reference_pages.schema_page()
    keys = {*schema_file.EXAMPLES, "low", "high", "unit", "categories", "computed"}
    assert keys == {*re.findall(r"^\| `(\w+)", page, re.MULTILINE)}


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
            assert parser.parse_args(everywhere.taken_from(words).words).func, words


def measured_tables():
    """The tables of the pages whose cells were measured: their names and their rows of cells."""
    for path in PAGES:
        marked = re.findall(r"^<!-- measured: (\S+) -->\n((?:\|.*\n)+)", path.read_text(), re.M)
        for table, text in marked:
            head, _, *rows = text.splitlines()
            yield table, [[cell.strip() for cell in row[1:-1].split("|")] for row in (head, *rows)]


def test_measured_tables_are_those_of_the_file():
    """docs/measured.json has the numbers that were measured, and the commands that measure them."""
    on_pages = {}
    for table, rows in measured_tables():
        on_pages[table] = rows
    assert on_pages == {table: entry["table"] for table, entry in MEASURED.items()}


@pytest.mark.parametrize("table", MEASURED)
def test_commands_that_measured_a_table_can_be_parsed(table, parser):
    if missing_commands(parser) or EXTENSIONS.missing:
        pytest.skip("a package was taken away, with its commands and options")
    for command in MEASURED[table]["commands"]:
        assert parser.parse_args(command.split()).func, command


# The table of changes names options that are gone.
@pytest.mark.parametrize("path", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=name)
def test_options_that_are_named_exist(path, parser):
    if missing_commands(parser) or EXTENSIONS.missing:
        pytest.skip("a package was taken away, with its options")
    codes = " ".join(re.findall(r"`[^`]+`", path.read_text()))
    assert {*re.findall(r"(?<!\w)--[a-z][\w-]*", codes)} - options(
        parser
    ) - OF_EVERY_COMMAND <= OTHERS
