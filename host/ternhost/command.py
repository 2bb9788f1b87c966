"""Shared by all commands: add a command and its options to the parser, and print the result."""

import argparse
import json
import logging
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TextIO

from ternhost import log
from ternhost.text import fitting, visible
from ternhost.words import HELP

JSON_OBJECT = "print one JSON object"
JSON_LINES = "print one JSON object per line: events, then the result"


def add_command(
    subparsers: Any,
    name: str,
    summary: str,
    example: str,
    run: Callable[[argparse.Namespace], int] | None = None,
    as_json: str = JSON_OBJECT,
) -> argparse.ArgumentParser:
    """Add a (sub)command to `subparsers`, and return its parser.

    summary: its line in the list of commands. example: command lines with which its `--help` ends.
    run: executes the command and returns the exit code; without it, the command only groups others.
    as_json: what --json does, which every command takes; its help ends with it. The namespace of
    the arguments has the name of the command, `prog`.
    """
    closing = []
    if run is not None:
        closing.append(f"--json: {as_json}")
    closing.append("example:")
    closing += [f"  {line.strip()}" for line in example.strip().splitlines()]
    parser: argparse.ArgumentParser = subparsers.add_parser(
        name,
        help=summary,
        description=f"{summary[:1].upper()}{summary[1:]}.",
        epilog="\n".join(closing),
    )
    if run is not None:
        parser.set_defaults(func=run, prog=parser.prog)
    return parser


def add_group(
    subparsers: Any, name: str, summary: str, example: str
) -> "argparse._SubParsersAction[Any]":
    """Add a command that only groups others, such as `tern card`; return what takes its verbs."""
    parser = add_command(subparsers, name, summary, example)
    return parser.add_subparsers(
        title="verbs", dest="verb", metavar="VERB", required=True, prog=parser.prog
    )


@dataclass(frozen=True)
class CommandGroup:
    """A command whose verbs are modules of their own, such as `tern board flash`.

    heading: under which `tern --help` lists the command. verbs: by its name the module of each
    verb, which has a function `add_parser(subparsers)`. It is imported only if it is needed.
    """

    name: str
    heading: str
    summary: str
    example: str
    verbs: Mapping[str, str]

    def add_parser(self, subparsers: Any, verb: str | None = None) -> None:
        """Add the parser of the command: with all verbs, or only with the named one.

        Of all verbs, one whose module cannot be imported is listed with a text that says so. Raises
        ModuleNotFoundError if that is the named one.
        """
        if verb is not None and verb in self.verbs:
            module = import_module(self.verbs[verb])  # first: if it fails, there is no group yet
            module.add_parser(add_group(subparsers, self.name, self.summary, self.example))
            return
        actions = add_group(subparsers, self.name, self.summary, self.example)
        for name in self.verbs:
            try:
                import_module(self.verbs[name]).add_parser(actions)
            except ModuleNotFoundError as error:
                add_missing(actions, name, error)


@dataclass(frozen=True)
class ListedCommand:
    """A command as `tern --help` lists it; what it does is imported only when it is needed.

    heading: under which `tern --help` lists the command. place: what makes its parser, a module or
    a "module:object" with a function `add_parser(subparsers)`. verbs: the names of the commands that
    it groups; none if it does something itself.
    """

    name: str
    heading: str
    summary: str
    place: str
    verbs: tuple[str, ...] = ()

    def add_parser(self, subparsers: Any) -> None:
        """Add the parser of the command. Raises ModuleNotFoundError if it cannot be imported."""
        module, _, attribute = self.place.partition(":")
        maker = import_module(module)
        if attribute:
            maker = getattr(maker, attribute)
        maker.add_parser(subparsers)


def add_missing(subparsers: Any, name: str, error: ModuleNotFoundError) -> None:
    """Add a command that cannot be used, since a module of it is missing."""
    subparsers.add_parser(name, help=f"missing: there is no {error.name}")


def add_option(
    parser: argparse._ActionsContainer,
    words: str,
    text: str = "",
    default: Any = None,
    shown: str = "",
    hidden: bool = False,
    **settings: Any,
) -> None:
    """Add an option to a parser.

    words: "--name METAVAR", "--name" for a switch, or "--name METAVAR..." for a list. text: the
    help, to which the default is added; left out for a name of `words.HELP`, which has its help
    there. default: a number as default also sets the type. shown: the default in words, if there is
    no `default`. hidden: the parser takes the option, but its help does not show it. settings: more
    keywords of `add_argument`, which replace those that follow from the others.
    """
    name, _, metavar = words.partition(" ")
    if not text:
        text = HELP[name.removeprefix("--").replace("-", "_")]
    derived: dict[str, Any] = {}
    if metavar.endswith("..."):
        derived = {"action": "append", "default": [], "metavar": metavar.removesuffix("...")}
        text += "; may be repeated"
    elif metavar or "choices" in settings:
        derived = {"metavar": metavar or None, "default": default, "type": str}
        if isinstance(default, int | float):
            derived["type"] = type(default)
    else:
        settings["action"] = "store_true"
    if isinstance(default, float):
        shown = f"{default:g}"
    elif default is not None:
        shown = str(default)
    if shown:
        text += f" (default: {shown})"
    text = text.replace("%", "%%")  # argparse formats the help
    if hidden:
        text = argparse.SUPPRESS
    parser.add_argument(name, help=text, **{**derived, **settings})


def help_hint(prog: str) -> str:
    """Return the hint of an error that names the help of a command."""
    return f"see '{prog} --help'"


def print_result(result: dict[str, Any], text: str, as_json: bool) -> None:
    """Print a command's result: `result` as one JSON object, or `text` for people.

    Where the log of the command is in JSON, the text is a message of the log.
    """
    if as_json:
        print_line(json.dumps(result))
    elif log.is_json():
        log.say(logging.INFO, text)
    else:
        print_line(fitting(visible(text, lines=True), sys.stdout))


def print_event(
    event: dict[str, Any], message: str, as_json: bool, level: int = logging.INFO
) -> None:
    """Log what happens in a command that runs until it is stopped.

    With --json, also print `event` as one JSON object. level: of `logging`.
    """
    log.say(level, message, **event)
    if as_json:
        print_line(json.dumps(event))


def warn(message: str) -> None:
    """Log a warning for people, which may have several lines."""
    log.say(logging.WARNING, message)


def print_line(line: str, stream: TextIO | None = None) -> None:
    """Print a line, to standard output by default, so that its reader has it at once.

    Several threads may print.
    """
    with log.PRINTING:
        print(line, file=stream or sys.stdout, flush=True)
