"""The options of `tern board`, and which of them its pages of help show."""

import argparse

import pytest

from ternhost.cli.parser import subparsers_of
from ternhost.cli.tree import build_parser

FOR_GOOD = {"--erase", "--lock", "--counter"}  # they change a board for good


@pytest.fixture(scope="module")
def boards():
    """The parsers of the commands for boards."""
    return subparsers_of(subparsers_of(build_parser(["board"]))["board"])


def options(parser, shown=False):
    """The options that a command takes, or only those that its help shows."""
    names = set()
    for action in parser._actions:
        if not shown or action.help != argparse.SUPPRESS:
            names.update(action.option_strings)
    return names - {"-h", "--help"}


def test_up_takes_the_options_of_flash_and_provision(boards):
    steps = options(boards["flash"]) | options(boards["provision"])
    assert steps - options(boards["up"]) == FOR_GOOD


def test_up_shows_only_the_necessary_options(boards):
    assert len(options(boards["up"], shown=True)) <= 10


def test_no_page_has_more_than_24_options(boards):
    assert max(len(options(parser, shown=True)) for parser in boards.values()) <= 24


def test_up_names_the_pages_of_its_other_options(boards):
    for page in ("tern board flash --help", "tern board provision --help"):
        assert page in boards["up"].epilog
