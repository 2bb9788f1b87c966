"""Links, commands and options in the documentation exist, and the reference lacks nothing.

`make docs` makes a site of the same pages.
"""

import argparse
import inspect
import json
import pydoc
import re
import shlex
from pathlib import Path

import learning_tables
import make_site
import measure
import pytest
import reference_pages
import simulated_runs
import yaml
from harness.pages import anchors

import ternhost
from ternhost.cli import everywhere
from ternhost.cli.parser import subparsers_of
from ternhost.cli.tree import build_parser
from ternhost.datasets.schemas import schema_file
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
OTHERS = {"--dry", "--seeds", "--no-deps", "--target", "--exhaustive", "--check", "--random"}
OTHERS |= {"--set", "--table", "--write"}  # of python -m foreign
OTHERS |= {"--homes"}  # of examples/air_quality.py


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


@pytest.mark.parametrize("table", measure.TABLES)
def test_a_table_about_learning_has_the_texts_that_its_description_has(table):
    """The cells that are not measured, such as the headings, stand in docs/measured.json as well."""
    described = measure.TABLES[table]
    for cells, on_page in zip(
        (described.headings, *described.rows), MEASURED[table]["table"], strict=True
    ):
        for cell, text in zip(cells, on_page, strict=True):
            assert isinstance(cell, learning_tables.Figure) or cell == text


@pytest.mark.parametrize("table", measure.TABLES)
def test_a_table_about_learning_has_the_commands_that_its_description_has(table):
    assert MEASURED[table]["commands"] == measure.TABLES[table].commands


@pytest.mark.parametrize("table", measure.TABLES)
def test_each_figure_of_a_table_can_be_measured(table):
    """The functions that simulate the runs take the arguments that the figures name."""
    for figure in measure.TABLES[table].figures:
        arguments = dict(figure.arguments)
        inspect.signature(figure.run).bind(**arguments, seed=1)


def small_table(figure):
    return {"small": learning_tables.LearningTable(("what", "figure"), (("model", figure),))}


def trained(devices):
    return learning_tables.of_simulated("", "synthetic-logistic", devices, "4", name="accuracy")


@pytest.fixture(scope="module")
def measured_with_two_seeds():
    return measure.measure(small_table(trained(300)), seeds=2, jobs=1, progress=len)


def test_a_measured_figure_is_the_mean_of_the_seeds_and_its_standard_error(measured_with_two_seeds):
    command = "train --data synthetic-logistic --epsilon 4 --fleet simulated:300 --reports 300"
    of_seeds = [simulated_runs.of_command(command, seed)[0]["accuracy"] for seed in (1, 2)]
    mean = sum(of_seeds) / 2
    error = abs(of_seeds[0] - of_seeds[1]) / 2  # for two values: deviation / sqrt(2)
    expected = f"{mean:.3f} ({error:.3f})"
    assert measured_with_two_seeds == {"small": [["what", "figure"], ["model", expected]]}


def test_the_seed_of_a_run_changes_its_figure():
    figure = trained(300)
    first, second = (figure.run(**dict(figure.arguments), seed=seed) for seed in (1, 2))
    assert first != second


def test_a_figure_without_noise_is_measured_once_and_has_no_error():
    figure = learning_tables.optimum_of("iris", "accuracy")
    rows = measure.measure(small_table(figure), seeds=2, jobs=1, progress=len)
    assert re.fullmatch(r"[01]\.\d{3}", rows["small"][1][1])


def test_finished_runs_are_not_simulated_again(tmp_path):
    figure = learning_tables.optimum_of("iris", "accuracy")
    first = measure.measure(small_table(figure), 1, 1, tmp_path, len)
    stored = (tmp_path / "cells.jsonl").read_text()
    assert measure.measure(small_table(figure), 1, 1, tmp_path, len) == first
    assert (tmp_path / "cells.jsonl").read_text() == stored


def test_a_table_of_a_page_gets_new_rows():
    page = "before\n\n<!-- measured: small -->\n| a |\n|---|\n| 1 |\n\nafter\n"
    new_rows = {"small": [["a", "b"], ["2", ""]]}
    assert measure.with_tables(page, new_rows) == (
        "before\n\n<!-- measured: small -->\n| a | b |\n|---|---|\n| 2 | |\n\nafter\n"
    )


def test_the_file_of_measured_tables_is_written_as_measure_writes_it():
    assert json.loads(measure.file_of(MEASURED)) == MEASURED


# The table of changes names options that are gone.
@pytest.mark.parametrize("path", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=name)
def test_options_that_are_named_exist(path, parser):
    if missing_commands(parser) or EXTENSIONS.missing:
        pytest.skip("a package was taken away, with its options")
    codes = " ".join(re.findall(r"`[^`]+`", path.read_text()))
    assert {*re.findall(r"(?<!\w)--[a-z][\w-]*", codes)} - options(
        parser
    ) - OF_EVERY_COMMAND <= OTHERS
