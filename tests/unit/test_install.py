"""How pages and messages say that tern is installed, and the guides that messages name.

See also integration/test_installing.py.
"""

import argparse
import ast
import re
import shlex
import tomllib
from pathlib import Path

import pytest

from ternhost.cli.parser import subparsers_of
from ternhost.cli.tree import build_parser
from ternhost.guides import guide

ROOT = Path(__file__).parents[2]
CODE = [path for folder in ("host", "tools") for path in sorted((ROOT / folder).rglob("*.py"))]
TEXTS = [path for folder in ("host", "tools") for path in sorted((ROOT / folder).rglob("*.json"))]
WRITTEN = [
    *sorted(ROOT.glob("*.md")),
    *[
        path
        for folder in ("docs", "examples", "firmware", "host", "shared_specs", "tools")
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in {".md", ".py", ".json", ".ipynb", ".sh", ".toml", ".conf"}
    ],
]
INSTALLATION = re.compile(r"pip3? install ([^`\n]*)")
OPTION_WITH_A_VALUE = {"--target", "--requirement", "-r", "--python"}


def words_of(command):
    """The words of a command, of which a text may quote only the beginning."""
    try:
        return shlex.split(command, comments=True)
    except ValueError:  # a quotation mark of the text around it
        return command.split()


def installs_tern_by_name(words):
    """Whether pip would look for tern's name at PyPI. It does not for a path."""
    packages = [re.match(r"[\w.-]*", word)[0] for word in words if "/" not in word]
    return any(re.sub(r"[-_.]+", "-", package).lower() == "tern-ldp" for package in packages)


@pytest.mark.parametrize("command", ["tern-ldp", "'tern_ldp[mqtt]'", "--upgrade tern-ldp==1.0"])
def test_a_command_that_names_tern_alone_is_recognised(command):
    assert installs_tern_by_name(words_of(command))


@pytest.mark.parametrize("command", ['-e ".[mqtt]"', '"./tern_ldp-0.1.0-py3-none-any.whl[mqtt]"'])
def test_a_command_that_names_a_file_or_a_folder_is_not(command):
    assert not installs_tern_by_name(words_of(command))


def test_no_command_installs_tern_by_its_name():
    """Nobody has registered the name at PyPI, so that anybody could offer a package under it."""
    by_name = []
    for path in WRITTEN:
        for command in INSTALLATION.findall(path.read_text()):
            if installs_tern_by_name(words_of(command)):
                by_name.append((path.relative_to(ROOT).as_posix(), command))
    assert by_name == []


def test_the_page_about_installing_lists_every_extra():
    page = (ROOT / "docs/guides/install.md").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert sorted(listed) == sorted(project["optional-dependencies"])


def named_guides(tree):
    """The guides that the code of a module names, as constants."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "guide":
            yield ast.literal_eval(node.args[0])


def test_a_guide_that_a_message_names_is_there():
    names = {name for path in CODE for name in named_guides(ast.parse(path.read_text()))}
    assert names
    assert [name for name in sorted(names) if not Path(guide(name)).is_file()] == []


def test_the_path_of_a_guide_is_short_in_a_checkout(monkeypatch):
    monkeypatch.chdir(ROOT)
    assert guide("absent.md") == "docs/guides/absent.md"


def test_a_guide_is_found_from_any_folder(here):
    assert Path(guide("absent.md")).samefile(ROOT / "docs/guides/absent.md")


def texts_of_errors():
    """The messages that the code can print, and the texts that it reads from files."""
    return [ROOT / "tests/messages.txt", *TEXTS]


def test_no_message_names_a_guide_by_a_path_that_a_wheel_does_not_have():
    assert [path for path in texts_of_errors() if "docs/guides/" in path.read_text()] == []


def helps(parser):
    """The help of a parser and of all below it."""
    yield parser.format_help()
    for below in subparsers_of(parser).values():
        yield from helps(below)


def test_no_help_names_a_guide_by_a_path_that_a_wheel_does_not_have():
    parser: argparse.ArgumentParser = build_parser()
    assert [text for text in helps(parser) if "docs/guides/" in text] == []
