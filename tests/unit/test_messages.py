"""What tern says: all messages stand in one file, in one form, and name only what there is."""

import re

import messages

from ternhost.cli import everywhere
from ternhost.cli.parser import subparsers_of
from ternhost.cli.tree import build_parser
from ternhost.options import flag
from ternhost.privacy import mechanisms

# Words that follow "tern" in a sentence about tern.
PROSE = [
    "again",
    "answers",
    "binary",
    "can",
    "cannot",
    "cluster",
    "collects",
    "comes",
    "device",
    "did",
    "does",
    "finds",
    "flash",
    "for",
    "has",
    "heard",
    "in",
    "is",
    "itself",
    "keeps",
    "lacks",
    "made",
    "needs",
    "on",
    "opens",
    "or",
    "over",
    "prints",
    "reckons",
    "sends",
    "serves",
    "should",
    "shows",
    "that",
    "to",
    "was",
    "which",
    "with",
]
# Options of other programs that messages name: of pip, apt-get, nats-server and pytest.
OTHERS = {"--force-reinstall", "--no-install-recommends", "--signal", "--target", "--port"}
# What may begin a message with a capital: names, and words for the values of options.
NAMES = r"[A-Z0-9_]+\b|Debian|Home Assistant|LHP|Mosquitto|Node\.js|Wifi"
SENTENCES = r"\{compared\} also|Further ones|The same command|After all|The central|It also takes|Those of its own"
PAGES = re.compile(r"(?:docs|firmware|shared_specs)/[\w./-]*\w")
MESSAGES = messages.messages()
EACH = [(path, message) for path, found in MESSAGES.items() for message in found]


def parsers(parser):
    """A parser, and those of all its commands and verbs."""
    yield parser
    for child in subparsers_of(parser).values():
        yield from parsers(child)


PARSERS = list(parsers(build_parser()))
COMMANDS = {parser.prog for parser in PARSERS}
GROUPS = {each.prog for each in PARSERS if subparsers_of(each) and each.get_default("func") is None}
OPTIONS = {name for parser in PARSERS for name in parser._option_string_actions}
OPTIONS |= {flag(option.name) for each in mechanisms.REGISTRY.values() for option in each.options}
OPTIONS |= {everywhere.JSON, everywhere.QUIET, everywhere.WITH}


def test_the_file_of_messages_is_that_of_the_code():
    kept = messages.KEPT.read_text(encoding="utf-8")
    assert kept == messages.as_text(MESSAGES), "write it again: python tests/messages.py --keep"


def test_options_in_messages_exist():
    """An option whose name is an expression is made of one that exists, and is not looked at."""
    named = {
        (path, option)
        for path, message in EACH
        for option in re.findall(r"(?<![\w{-])--[a-z][a-z0-9-]*", message)
    }
    assert {each for each in named if each[1] not in OPTIONS | OTHERS} == set()


def exists(command, verb):
    """Whether there is a command "tern x"; one that only groups others needs one of its verbs."""
    if command in GROUPS and verb:
        return f"{command} {verb}" in COMMANDS
    return command in COMMANDS


def test_commands_in_messages_exist():
    wrong = {
        (path, words.group())
        for path, message in EACH
        for words in re.finditer(r"\b(tern ([a-z]+))(?: ([a-z]+))?", message)
        if words[2] not in PROSE and not exists(words[1], words[3])
    }
    assert wrong == set()


def test_pages_in_messages_exist():
    named = {(path, page) for path, message in EACH for page in PAGES.findall(message)}
    assert named, "some messages name pages"
    assert {each for each in named if not (messages.ROOT / each[1]).exists()} == set()


def test_commands_are_quoted_in_one_style():
    assert [each for each in EACH if "`" in each[1]] == []


def test_a_message_begins_small_and_has_no_full_stop():
    """Only whole sentences in results do."""
    form = re.compile(rf"(?![A-Z])|{NAMES}|{SENTENCES}")
    assert [message for _path, message in EACH if not form.match(message.lstrip())] == []
    ended = [message for _path, message in EACH if re.search(r"[a-z]\.(\n|$)", message)]
    assert [each for each in ended if not re.match(SENTENCES, each)] == []
