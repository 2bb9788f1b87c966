"""All commands of `tern`, and its parser.

A command is a module or an object with `HEADING` or `heading`, the heading under which
`tern --help` lists it, and with `add_parser(subparsers)`, which calls `add_command`. Only the
command that the command line names is imported; it imports extras and slow packages when it runs.
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
from ternhost.command import CommandGroup, add_missing
from ternhost.registry import Registry


class Command(Protocol):
    """A command: a module, an object such as `RunCommand`, or a `CommandGroup`."""

    def add_parser(self, subparsers: Any) -> None:
        """Add the command's parser to those of argparse."""


# The core's commands. Those of other packages are entry points.
_OWN = {
    "train": "ternhost.cli.running:TRAIN",
    "collect": "ternhost.cli.running:COLLECT",
    "infer": "ternhost.cli.running:INFER",
    "serve": "ternhost.cli.serve",
    "resume": "ternhost.cli.resume",
    "plan": "ternhost.cli.plan",
    "runs": "ternhost.cli.runs",
    "broker": "ternhost.reach.broker.commands",
    "backup": "ternhost.backup.command",
    "card": "ternhost.cli.card",
    "watch": "ternhost.watch.watch_command",
    "dashboard": "ternhost.watch.dashboard_command",
    "privacy": "ternhost.cli.privacy",
    "demo": "ternhost.cli.demo",
    "service": "ternhost.service.commands",
    "data": "ternhost.cli.data:DATA",
    "config": "ternhost.cli.config",
    "cache": "ternhost.cli.cache",
}
COMMANDS: Registry[Command] = Registry("command", "tern.commands", _OWN)

# The order of the headings of `tern --help`. Headings that only packages know come after these.
HEADINGS = ("Learn", "Boards", "Fleets", "Mechanisms", "Measure", "Look", "Set up")
_OTHERS = "Other commands"
_LEAST_COLUMNS = 30  # of a text beside its name


def build_parser(words: Sequence[str] | None = None) -> Parser:
    """Build the parser of `tern`.

    words: the words of a command line, which say which commands the parser needs; None for all. A
    command whose package or module is missing is listed with a text that says so. Raises
    UsageError if the words name a command whose package is missing.
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
    verb = None
    names = _commands_needed(words)
    if words and len(names) == 1 and len(words) > 1:
        verb = words[1]
    for name in names:
        _add_command(subparsers, name, verb)
    if len(names) == len(COMMANDS):
        for name, package in COMMANDS.missing.items():
            subparsers.add_parser(name, help=f"missing: it comes with the package {package}")
        parser.epilog = _overview(subparsers)
    return parser


def _add_command(subparsers: Any, name: str, verb: str | None) -> None:
    """Add a command to the parsers of `tern`; of a group only the named verb, if it is one of it.

    Raises ModuleNotFoundError if the module of the named verb cannot be imported.
    """
    try:
        command = COMMANDS[name]
        if not isinstance(command, CommandGroup):
            command.add_parser(subparsers)
            return
    except ModuleNotFoundError as error:  # the other commands still work
        add_missing(subparsers, name, error)
        return
    command.add_parser(subparsers, verb)


def _commands_needed(words: Sequence[str] | None) -> list[str]:
    """Return the commands whose parsers a command line needs: the one that it names, or all.

    Importing the module of a command takes time, so the others are not imported. --version needs
    none. Raises UsageError for a command whose package is missing.
    """
    if words is None or not words:
        return list(COMMANDS)
    first = words[0]
    if first == "--version":
        return []
    COMMANDS.require_package(first)
    if first in COMMANDS:
        return [first]
    return list(COMMANDS)  # for `tern --help`, and so that an error can name the most similar one


def _overview(subparsers: argparse._SubParsersAction[Any]) -> str:
    """Return the list of all commands, under their headings, for `tern --help`."""
    summaries = {}
    for action in subparsers._choices_actions:
        name = str(action.dest)
        verbs = ", ".join(subparsers_of(subparsers.choices[name]))
        is_group = verbs and subparsers.choices[name].get_default("func") is None
        summaries[name] = f"{action.help}: {verbs}" if is_group else str(action.help)
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
    try:
        command: Any = COMMANDS.get(name)  # None: its package is missing
    except ModuleNotFoundError:
        return _OTHERS
    for attribute in ("heading", "HEADING"):
        if hasattr(command, attribute):
            return str(getattr(command, attribute))
    return _OTHERS
