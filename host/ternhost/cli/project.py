"""The project file: `tern.toml` in the working directory, with options that one types again and again.

    data = "flights"                # for every command that has the option
    fleet = "mqtt:my-broker"

    [serve]                         # for one command
    every = "1h"

    [train.fedsgd]                  # for one learner of it; [board.provision]: for one verb
    batch = 8

Its keys are the names of options. Options of the command line override it. There is no option for a
secret, and so there is no secret in it.
"""

import argparse
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ternhost import words
from ternhost.cli.parser import placed, subparsers_of
from ternhost.command import CommandGroup
from ternhost.errors import UsageError
from ternhost.files import storage_errors
from ternhost.options import flag
from ternhost.text import did_you_mean

FILE = "tern.toml"
_WORDS = 'such as data = "flights", or in a table: [serve] every = "1h"'


@dataclass(frozen=True)
class Setting:
    """A value of the project file.

    name: of the option, as a Python name. table: where it stands, such as "train.fedsgd"; empty for
    the top of the file.
    """

    name: str
    value: Any
    table: str = ""

    @property
    def place(self) -> str:
        """Where the value stands, for people."""
        return f"{FILE} [{self.table}]" if self.table else FILE


def load(folder: Path) -> list[Setting]:
    """Read the project file of a folder; return its settings, or none if there is no file.

    Raises UsageError for a file that is no TOML, and for a key at its top that is no word which
    several commands share; StorageError for one that cannot be read, such as a directory.
    """
    path = folder / FILE
    if not os.path.lexists(path):
        return []
    import tomllib  # no start without a project file pays for it

    try:
        with storage_errors("rename it, or make it a file that you may read", path):
            text = path.read_text(encoding="utf-8-sig")  # some editors write a byte order mark
        tables = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{FILE} is no TOML: {error}", hint=_WORDS) from error
    settings = list(_settings(tables))
    places = set()
    for setting in settings:
        if (setting.table, setting.name) in places:
            raise UsageError(
                f"{setting.place}: {setting.name} stands there twice", hint="give it once"
            )
        places.add((setting.table, setting.name))
        if not setting.table and setting.name not in words.HELP:
            suggestion = did_you_mean(setting.name, words.HELP)
            hint = "the option of one command stands in its table, such as [train]"
            raise UsageError(
                f"{FILE}: {setting.name} is no option that commands share",
                hint=f"{suggestion} {hint}".strip(),
            )
    return settings


def _settings(table: Mapping[str, Any], name: str = "") -> Iterator[Setting]:
    """Yield the settings of a table and of the tables in it. name: that of the table."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _settings(value, f"{name}.{key}".lstrip("."))
        else:
            yield Setting(key.replace("-", "_"), value, name)


def apply(
    settings: Sequence[Setting], parser: argparse.ArgumentParser, line: Sequence[str]
) -> dict[str, Setting]:
    """Make settings the defaults of the command of a command line.

    parser: that of `tern`. line: the words of the command line. Returns the settings that are in
    force, by name: those that the command line does not override. Raises UsageError for a setting
    that the command does not have, or whose value does not fit.
    """
    path = command_path(parser, line)
    command = _command(parser, path)
    for setting in settings:
        _require_known_table(setting, parser, path)
    given = {word.partition("=")[0] for word in line if word.startswith("--")}
    in_force = {}
    for setting in _for_command(settings, path):
        action = command._option_string_actions.get(flag(setting.name))
        is_shared = not setting.table
        if is_shared and (action is None or action.help == argparse.SUPPRESS):
            continue  # it is for other commands
        if action is None:
            raise _unknown(setting, command)
        if given & set(_alternatives(command, action)):
            continue
        command.set_defaults(**{action.dest: _value(setting, action)})
        action.required = False
        for group in command._mutually_exclusive_groups:
            if action in group._group_actions:
                group.required = False
        in_force[action.dest] = setting
    return in_force


def command_path(parser: argparse.ArgumentParser, line: Sequence[str]) -> list[str]:
    """Return the words of a command line that name a command, its verb and its learner."""
    return [word for command, word in placed(parser, line) if word in subparsers_of(command)]


def words_after(parser: argparse.ArgumentParser, path: Sequence[str]) -> list[str]:
    """Return the commands, verbs or learners that may follow the words of a path."""
    return list(subparsers_of(_command_or_learner(parser, path)))


def options_of(parser: argparse.ArgumentParser, path: Sequence[str]) -> list[argparse.Action]:
    """Return the options that the help of a command and of its learner shows."""
    shown = []
    parsers = [_command(parser, path)]
    if _command_or_learner(parser, path) is not parsers[0]:
        parsers.append(_command_or_learner(parser, path))
    for each in parsers:
        for action in each._actions:
            if action.option_strings and action.help != argparse.SUPPRESS:
                shown.append(action)
    return shown


def _require_known_table(
    setting: Setting, parser: argparse.ArgumentParser, path: Sequence[str]
) -> None:
    """Raise UsageError if the table of a setting is that of no command.

    Only the words of the command that is run can all be checked: the parsers of others are not
    made. parser: that of `tern`. path: the words that name the command that is run.
    """
    from ternhost.cli.tree import COMMANDS  # which imports the commands, and this module with them

    if not setting.table:
        return
    words_of_table = setting.table.split(".")
    first = words_of_table[0]
    unknown, known = first, [*COMMANDS, *COMMANDS.missing]
    if first in known:
        if not path or path[0] != first:
            return
        group = COMMANDS[first]
        found = command_path(parser, words_of_table)
        if isinstance(group, CommandGroup) and words_of_table[1:2] != found[1:2]:
            found = [first, *(word for word in words_of_table[1:2] if word in group.verbs)]
            known = list(group.verbs)  # of which only the parser of one is made
        else:
            known = words_after(parser, found)
        if found == words_of_table:
            return
        unknown = words_of_table[len(found)]
    text = f"{setting.place}: there is no command 'tern {' '.join(words_of_table)}'"
    hint = f"{did_you_mean(unknown, known)} 'tern --help' lists the commands".strip()
    raise UsageError(text, hint=hint)


def _for_command(settings: Sequence[Setting], path: Sequence[str]) -> Iterator[Setting]:
    """Yield the settings for a command: the shared ones first, the most particular ones last.

    path: the words that name the command, its verb and its learner.
    """
    for length in range(len(path) + 1):
        table = ".".join(path[:length])
        yield from (setting for setting in settings if setting.table == table)


def _command(parser: argparse.ArgumentParser, path: Sequence[str]) -> argparse.ArgumentParser:
    """Return the parser of a command, which takes the options of all of its learners."""
    command = parser
    for word in path:
        if command.get_default("func") is not None:
            break  # what follows is a learner, or a verb of a command that does without one
        command = subparsers_of(command)[word]
    return command


def _command_or_learner(
    parser: argparse.ArgumentParser, path: Sequence[str]
) -> argparse.ArgumentParser:
    """Return the parser that the words of a path lead to."""
    for word in path:
        parser = subparsers_of(parser)[word]
    return parser


def _alternatives(command: argparse.ArgumentParser, action: argparse.Action) -> list[str]:
    """Return the names of an option and of those that exclude it."""
    names = list(action.option_strings)
    for group in command._mutually_exclusive_groups:
        if action in group._group_actions:
            for other in group._group_actions:
                names += other.option_strings
    return names


def _value(setting: Setting, action: argparse.Action) -> Any:
    """Return the value of a setting as the option would have it. Raises UsageError."""
    value = setting.value
    is_switch = action.nargs == 0
    if is_switch or isinstance(value, bool):
        if not (isinstance(value, bool) and is_switch):
            must = "true or false" if is_switch else "a text or a number"
            raise UsageError(f"{setting.place}: {setting.name} must be {must}, not {value!r}")
        return value if action.const is not False else not value
    takes_several = action.nargs is not None or isinstance(action, argparse._AppendAction)
    if isinstance(value, list) and not takes_several:
        text = f"{setting.place}: {setting.name} must be one value, not {value!r}"
        raise UsageError(text, hint=f"write it as after {flag(setting.name)}")
    if isinstance(value, list):
        return [_converted(setting, action, each) for each in value]
    return _converted(setting, action, value)


def _converted(setting: Setting, action: argparse.Action, value: Any) -> Any:
    """Convert a value to the type of an option. Raises UsageError."""
    convert: Any = action.type or str
    text = str(value)
    try:
        converted = convert(text)
    except (UsageError, ValueError, argparse.ArgumentTypeError) as error:
        raise UsageError(
            f"{setting.place}: {setting.name} must not be {value!r}",
            hint=f"write it as after {flag(setting.name)}",
        ) from error
    if action.choices is not None and converted not in action.choices:
        known = ", ".join(map(str, action.choices))
        raise UsageError(f"{setting.place}: {setting.name} must be one of {known}, not {value!r}")
    return converted


def _unknown(setting: Setting, command: argparse.ArgumentParser) -> UsageError:
    """Return the error for a setting in the table of a command that does not have the option."""
    names = [name[2:] for name in command._option_string_actions if name.startswith("--")]
    suggestion = did_you_mean(setting.name.replace("_", "-"), names)
    text = f"{setting.place}: '{command.prog}' has no option {flag(setting.name)}"
    return UsageError(text, hint=f"{suggestion} see '{command.prog} --help'".strip())
