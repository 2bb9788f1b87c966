"""All commands of `tern`, and its parser.

A command is an object with `heading`, the heading under which `tern --help` lists it, and with
`add_parser(subparsers)`, which calls `add_command`. A `ListedCommand` and a `CommandGroup` also have
the rest of what `tern --help` says about them. So only the command that the command line names is
imported; it imports extras and slow packages when it runs. An extension may also register a module,
with `HEADING` instead of `heading`: that is imported for `tern --help`, too.
"""

from __future__ import annotations

import argparse
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any, Protocol

from ternhost import errors
from ternhost.cli import everywhere
from ternhost.cli.parser import Parser, subparsers_of
from ternhost.command import CommandGroup, ListedCommand, add_missing
from ternhost.registry import Registry


class Command(Protocol):
    """A command: a `ListedCommand`, a `CommandGroup`, or an object or a module of an extension."""

    def add_parser(self, subparsers: Any) -> None:
        """Add the command's parser to those of argparse."""


# The core's commands. Those of other packages are entry points.
_LISTED = "ternhost.listed_commands"
_OWN = {
    "train": f"{_LISTED}:TRAIN",
    "collect": f"{_LISTED}:COLLECT",
    "infer": f"{_LISTED}:INFER",
    "serve": f"{_LISTED}:SERVE",
    "resume": f"{_LISTED}:RESUME",
    "plan": f"{_LISTED}:PLAN",
    "runs": f"{_LISTED}:RUNS",
    "broker": f"{_LISTED}:BROKER",
    "backup": f"{_LISTED}:BACKUP",
    "card": f"{_LISTED}:CARD",
    "watch": f"{_LISTED}:WATCH",
    "dashboard": f"{_LISTED}:DASHBOARD",
    "privacy": f"{_LISTED}:PRIVACY",
    "demo": f"{_LISTED}:DEMO",
    "service": f"{_LISTED}:SERVICE",
    "data": f"{_LISTED}:DATA",
    "config": f"{_LISTED}:CONFIG",
    "cache": f"{_LISTED}:CACHE",
}
COMMANDS: Registry[Command] = Registry("command", "tern.commands", _OWN)

# The order of the headings of `tern --help`. Headings that only packages know come after these.
HEADINGS = ("Learn", "Boards", "Fleets", "Mechanisms", "Measure", "Look", "Set up")
_OTHERS = "Other commands"
_LEAST_COLUMNS = 30  # of a text beside its name


def build_parser(words: Sequence[str] | None = None) -> Parser:
    """Build the parser of `tern`.

    words: the words of a command line, which say which commands the parser needs; None for all. If
    they are only options, such as for `tern --help`, the parser only lists the commands. If they
    begin with an unknown word, the parser has all commands, so that its error can name a verb with
    its command. A command whose package or module is missing is listed with a text that says so.
    Raises UsageError if the words name a command whose package is missing.
    """
    parser = Parser(
        prog="tern",
        usage="tern COMMAND ...",
        description=(
            "Federated learning on microcontrollers under exact local differential privacy."
        ),
    )
    parser.add_argument(
        "--version",
        action="version",
        version=f"tern {version('tern-ldp')}",
        help=argparse.SUPPRESS,
    )
    subparsers = parser.add_subparsers(
        dest="command", metavar="COMMAND", required=True, help=argparse.SUPPRESS, prog="tern"
    )
    if words is not None and words[:1] == ["--version"]:
        return parser
    if words and _is_command(words[0]):
        _add_named(subparsers, words)
        return parser

    only_listed = words is not None and all(word.startswith("-") for word in words)
    for name in COMMANDS:
        command = _command(name)
        if only_listed and isinstance(command, ListedCommand | CommandGroup):
            subparsers.add_parser(name, help=command.summary)
        else:
            _add_command(subparsers, name)
    for name, package in COMMANDS.missing.items():
        subparsers.add_parser(name, help=f"missing: it comes with the package {package}")
    parser.epilog = _overview(subparsers)
    return parser


def _is_command(word: str) -> bool:
    """Return whether there is a command of this name. Raises UsageError if its package is missing."""
    COMMANDS.require_package(word)
    return word in COMMANDS


def _command(name: str) -> Any:
    """Return a command; None if its package or its module is missing."""
    try:
        return COMMANDS.get(name)
    except ModuleNotFoundError:
        return None


def _add_named(subparsers: Any, words: Sequence[str]) -> None:
    """Add the command that a command line names; of a group only the named verb, if the group has it.

    words: the words of the command line. Raises ModuleNotFoundError if a module of the command or of
    the named verb is missing.
    """
    command = COMMANDS[words[0]]
    if isinstance(command, CommandGroup):
        verb = words[1] if len(words) > 1 else None
        command.add_parser(subparsers, verb)
    else:
        command.add_parser(subparsers)


def _add_command(subparsers: Any, name: str) -> None:
    """Add a command with all of its verbs; if a module is missing, a text that says so."""
    try:
        COMMANDS[name].add_parser(subparsers)
    except ModuleNotFoundError as error:  # the other commands still work
        add_missing(subparsers, name, error)


def _overview(subparsers: argparse._SubParsersAction[Any]) -> str:
    """Return the list of all commands, under their headings, for `tern --help`."""
    summaries = {}
    for action in subparsers._choices_actions:
        name = str(action.dest)
        verbs = ", ".join(_verbs_of(name, subparsers.choices[name]))
        summaries[name] = f"{action.help}: {verbs}" if verbs else str(action.help)
    width = max(map(len, summaries)) + 2
    commands_of_heading: dict[str, list[str]] = {heading: [] for heading in HEADINGS}
    for name in summaries:
        commands_of_heading.setdefault(heading_of(name), []).append(name)

    lines: list[str] = []
    for heading, names in commands_of_heading.items():
        if names:
            lines += [*_section(heading, {name: summaries[name] for name in names}, width), ""]
    lines += [*_section("Every command takes", everywhere.HELP, 18), ""]
    lines += ["example:", "  tern demo", "  tern train --help", "  tern board up --help", ""]
    meanings = {str(code): meaning for code, meaning in errors.EXIT_CODES.items()}
    lines += _section("exit codes", meanings, 6)
    return "\n".join(lines)


def _verbs_of(name: str, parser: argparse.ArgumentParser) -> list[str]:
    """Return the names of the verbs of a command that only groups others; of another one none."""
    command = _command(name)
    if isinstance(command, ListedCommand | CommandGroup):
        return list(command.verbs)
    does_something_itself = parser.get_default("func") is not None
    return [] if does_something_itself else list(subparsers_of(parser))


def _section(heading: str, texts: Mapping[str, str], width: int) -> list[str]:
    """Return a heading, and the lines of each name and its text, which begins at column `width`.

    A text goes on in the next line where the terminal ends. On a narrow one it begins below its
    name.
    """
    columns = max(_LEAST_COLUMNS, shutil.get_terminal_size().columns - 2)
    is_narrow = columns < width + _LEAST_COLUMNS
    lines = [f"{heading}:"]
    for name, text in texts.items():
        first = f"  {name:{width}}"
        if is_narrow:
            lines.append(f"  {name}")
            first = " " * 4
        indent = " " * len(first)
        lines += textwrap.wrap(text, columns, initial_indent=first, subsequent_indent=indent)
    return lines


def heading_of(name: str) -> str:
    """Return the heading under which `tern --help` lists a command."""
    command = _command(name)
    for attribute in ("heading", "HEADING"):
        if hasattr(command, attribute):
            return str(getattr(command, attribute))
    return _OTHERS
