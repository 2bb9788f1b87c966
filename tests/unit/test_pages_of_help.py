"""The help of all commands together: few options, and each name means one thing."""

import argparse
import re

import pytest

from ternhost.cli.tree import build_parser

MOST_ON_A_PAGE = 24
# What may follow the meaning of an option: a default, its values, or how one command uses it.
DETAILS = re.compile(r"\s*(\(default|: |; |, ).*", re.DOTALL)


def pages(parser, words=("tern",)):
    """The words and the shown options of each page of help."""
    yield (
        " ".join(words),
        [
            action
            for action in parser._actions
            if action.option_strings and action.help != argparse.SUPPRESS
        ],
    )
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, child in action.choices.items():
                yield from pages(child, (*words, name))


PAGES = dict(pages(build_parser()))


@pytest.mark.parametrize("words", PAGES)
def test_a_page_of_help_has_few_options(words):
    assert len(PAGES[words]) <= MOST_ON_A_PAGE


def test_a_name_means_one_thing_on_all_pages():
    """The help of an option begins with what it means, and only goes on in another way."""
    meanings = {}
    for words, options in PAGES.items():
        for option in options:
            meaning = DETAILS.sub("", option.help)
            meanings.setdefault(option.option_strings[-1], {}).setdefault(meaning, words)
    assert {name: texts for name, texts in meanings.items() if len(texts) > 1} == {}
