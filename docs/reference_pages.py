"""Writes the pages of the reference that follow from the code: commands, and what has a name.

They are a part of the site and are not kept in the repository.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import is_dataclass
from typing import Any

import ternhost
from ternhost import errors
from ternhost.cli import everywhere, tree
from ternhost.cli.parser import subparsers_of
from ternhost.datasets.schemas import schema_file
from ternhost.datasets.sources import Source
from ternhost.learn.base import ALGORITHMS
from ternhost.options import flag, options_of
from ternhost.privacy.mechanism import Mechanism
from ternhost.registry import Registry

FOLDER = "docs/reference"
NOTE = "*This page is made from the code of tern by `make docs`.*"
# The registries of what a user chooses by name, in the order of the page: their headings, and where
# they are.
REGISTRIES = {
    "Learners": "ternhost.learn.base:ALGORITHMS",
    "Mechanisms": "ternhost.privacy.mechanisms:REGISTRY",
    "Data sets": "ternhost.datasets:SOURCES",
    "Fleets": "ternhost.reach.fleet:KINDS",
    "Optimisers": "ternhost.learn.models.optimisers:OPTIMISERS",
    "Brokers": "ternhost.reach.broker.kinds:KINDS",
}


def pages() -> dict[str, str]:
    """The generated pages: their Markdown, by their paths in the repository."""
    parser = tree.build_parser()
    made = {
        f"{FOLDER}/commands.md": commands_page(parser),
        f"{FOLDER}/names.md": names_page(),
        f"{FOLDER}/learners.md": learners_page(),
        f"{FOLDER}/schema.md": schema_page(),
    }
    for name, command in subparsers_of(parser).items():
        made[f"{FOLDER}/commands/{name}.md"] = command_page(command)
    return made


# Commands.


def summaries(parser: argparse.ArgumentParser) -> dict[str, str]:
    """The line that a parser's help has for each of its commands, by name."""
    lines = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for choice in action._choices_actions:
                lines[choice.dest] = choice.help or ""
    return lines


def commands_page(parser: argparse.ArgumentParser) -> str:
    """The page that lists all commands, the options of all of them, and the exit codes."""
    lines = summaries(parser)
    rows_of_heading: dict[str, list[str]] = {heading: [] for heading in tree.HEADINGS}
    for name, command in subparsers_of(parser).items():
        rows = rows_of_heading.setdefault(tree.heading_of(name), [])
        rows.append(f"| [`tern {name}`](commands/{name}.md) | {cell(lines.get(name, ''))} |")
        below = summaries(command)
        for verb in subparsers_of(command):
            link = f"commands/{name}.md#{anchor(f'tern {name} {verb}')}"
            rows.append(f"| [`tern {name} {verb}`]({link}) | {cell(below.get(verb, ''))} |")

    parts = ["# Commands", NOTE]
    for heading, rows in rows_of_heading.items():
        if rows:
            parts += [f"## {heading}", table("command", "what it does", rows)]
    options = [f"| `{name}` | {cell(text)} |" for name, text in everywhere.HELP.items()]
    parts += ["## What every command takes", table("option", "meaning", options)]
    codes = [f"| {code} | {cell(text)} |" for code, text in errors.EXIT_CODES.items()]
    parts += ["## Exit codes", table("code", "meaning", codes)]
    return "\n\n".join(parts) + "\n"


def command_page(parser: argparse.ArgumentParser) -> str:
    """The page of a command, with a section for each command below it."""
    return "\n\n".join([f"# {parser.prog}", NOTE, *sections(parser)]) + "\n"


def sections(parser: argparse.ArgumentParser) -> Iterator[str]:
    """What a command does, its usage, options and examples; then the same of the commands below."""
    if parser.description:
        yield escaped(parser.description)
    if parser.get_default("func") is not None:
        yield fence(usage(parser))
    yield from option_tables(parser)
    if parser.epilog:
        yield fence(inspect.cleandoc(parser.epilog))
    for command in subparsers_of(parser).values():
        yield f"## {command.prog}"
        yield from sections(command)


def usage(parser: argparse.ArgumentParser) -> str:
    """A command line with the command, its options in one word, and its arguments."""
    if parser.usage:
        return parser.usage
    formatter = parser.formatter_class(prog=parser.prog)
    words = [parser.prog, "[OPTION ...]"]
    for action in parser._get_positional_actions():
        words.append(formatter._format_args(action, action.dest))
    return " ".join(words)


def option_tables(parser: argparse.ArgumentParser) -> Iterator[str]:
    """A table for each group of options that the help of a parser shows."""
    formatter = parser.formatter_class(prog=parser.prog)
    for group in parser._action_groups:
        rows = []
        for action in group._group_actions:
            is_help = isinstance(action, argparse._HelpAction)
            is_command = isinstance(action, argparse._SubParsersAction)
            if action.help == argparse.SUPPRESS or is_help or is_command:
                continue
            text = formatter._expand_help(action) if action.help else ""
            rows.append(f"| {spelling(action, formatter)} | {cell(text)} |")
        if rows:
            yield table(escaped(group.title or "options"), "meaning", rows)


def spelling(action: argparse.Action, formatter: argparse.HelpFormatter) -> str:
    """How an option or an argument is written on a command line, as code."""
    words = formatter._format_action_invocation(action)
    return f"`{words}`".replace("|", r"\|")


# Learners in Python.


def learners_in_python() -> dict[str, type[Any]]:
    """The public classes of ternhost whose fields are options, by name."""
    found = {}
    for name in ternhost.__all__:
        thing = getattr(ternhost, name)
        if isinstance(thing, type) and is_dataclass(thing) and options_of(thing):
            found[name] = thing
    return found


def learners_page() -> str:
    """The page that lists the parameters of the learners, and of what goes with them."""
    summaries = {learner.Options: learner.about for learner in ALGORITHMS.values()}
    parts = [
        "# Learners in Python",
        NOTE,
        "The parameters of these classes are given by name, as in `FedSGD(epsilon=2)`. On a command"
        " line they are options of the same names.",
    ]
    for name, cls in learners_in_python().items():
        summary = summaries.get(cls) or first_sentence(inspect.getdoc(cls) or "")
        rows = []
        for option in options_of(cls):
            text = option.help_text().replace("%%", "%")  # argparse wants each % twice
            rows.append(f"| `{option.name}` | {cell(text)} |")
        table_of_class = table("parameter", "meaning", rows)
        sentence = f"{summary[:1].upper()}{summary[1:].rstrip('.')}."
        parts += [f"## {name}", escaped(sentence), table_of_class]
    return "\n\n".join(parts) + "\n"


# The file of a schema.


def schema_page() -> str:
    """The page that lists the keys of a schema, and of each column in it."""
    keys = [
        f"| `{key} = {schema_file.EXAMPLES[key]}` | {cell(meaning)} |"
        for key, meaning in schema_file.MEANINGS.items()
    ]
    keys_of_column = [
        f"| `{key}` | {cell(meaning)} |" for key, meaning in schema_file.MEANINGS_OF_COLUMN.items()
    ]
    parts = [
        "# Schema",
        NOTE,
        "A schema is a file in TOML that says what the columns of a table mean, such as my.toml for"
        " my.csv. [My own data](../guides/data.md) shows how to write one.",
        "## Keys of the file",
        table("for example", "meaning", keys),
        "## Keys of a column",
        "The column `temperature` has the table `[columns.temperature]` with these keys. It has"
        " `low` and `high`, or `categories`.",
        table("key", "meaning", keys_of_column),
    ]
    return "\n\n".join(parts) + "\n"


# What has a name.


def names_page() -> str:
    """The page that lists what can be named: learners, mechanisms, data sets, fleets and others."""
    parts = ["# Names", NOTE]
    for heading, place in REGISTRIES.items():
        module, _, attribute = place.partition(":")
        registry: Registry[Any] = getattr(importlib.import_module(module), attribute)
        rows = [f"| `{name}` | {about(entry)} |" for name, entry in registry.items()]
        parts += [f"## {heading}", table("name", "what it is", rows)]
    return "\n\n".join(parts) + "\n"


def about(entry: Any) -> str:
    """What the page says about an entry of a registry, for a cell of a table.

    It is the entry's own line, or else the first sentence of its documentation.
    """
    text = cell(getattr(entry, "about", "") or first_sentence(inspect.getdoc(entry) or ""))
    if isinstance(entry, Source) and entry.has_file:
        return f"{text}; in a file of yours, `NAME:PATH`"
    if isinstance(entry, Mechanism) and entry.options:
        names = ", ".join(f"`{flag(option.name)}`" for option in entry.options)
        return f"{text}; options of its design: {names}"
    return text


def first_sentence(text: str) -> str:
    """The first sentence of a documentation string, on one line."""
    paragraph = " ".join(text.partition("\n\n")[0].split())
    ended = re.match(r".*?\.(?= [A-Z]|$)", paragraph)
    return ended[0] if ended else paragraph


# Markdown.


def table(head: str, other_head: str, rows: list[str]) -> str:
    """A table of two columns."""
    return "\n".join([f"| {head} | {other_head} |", "|---|---|", *rows])


def cell(text: str) -> str:
    """A text as it may stand in a cell of a table."""
    return escaped(" ".join(text.split())).replace("|", r"\|")


def escaped(text: str) -> str:
    """A text in which Markdown sees no markup: `a*b*c` and `<x>` stay as they are."""
    return re.sub(r"([\\`*_<\[])", r"\\\1", text)


def fence(text: str) -> str:
    """A block of text in which every space counts."""
    return f"```text\n{text}\n```"


def anchor(heading: str) -> str:
    """The anchor of a heading that has words of letters, digits and hyphens only."""
    return heading.replace(" ", "-")
