"""The parser of command lines: argparse, with errors as UsageError and with "did you mean".

argparse is enough, and every start of `tern` pays for what it imports: 15 ms for argparse, 96 ms for
click (measured on one machine, on 2 cores). A page for each learner and suggestions are a hundred
lines beside it.
"""

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from ternhost.command import help_hint
from ternhost.errors import UsageError
from ternhost.options import KINDS, percent_hint
from ternhost.text import did_you_mean, fitting


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that raises UsageError, so that its errors are reported like all others.

    Options cannot be abbreviated: a script that does so would break when tern gets a new option.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Make a parser with argparse's parameters, whose help keeps the line breaks of texts."""
        settings: dict[str, Any] = {
            "formatter_class": argparse.RawDescriptionHelpFormatter,
            "allow_abbrev": False,
            **kwargs,
            "add_help": False,  # the help does not list itself
        }
        super().__init__(*args, **settings)
        self.add_argument("-h", "--help", action="help", help=argparse.SUPPRESS)

    def error(self, message: str) -> NoReturn:
        """Raise UsageError, where argparse would print the message and exit."""
        without_value = re.fullmatch(r"argument (\S+): expected one argument", message)
        if without_value:
            message = f"{without_value[1]} needs a value"
        raise UsageError(message, hint=help_hint(self.prog))

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print the help; on a terminal, its lines fit."""
        if message:
            super()._print_message(fitting(message, file or sys.stderr), file)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse a command line as argparse does, but explain words that nothing takes."""
        words = list(args)
        self._require_known_options(words)
        namespace, unknown = self.parse_known_args(words, namespace)
        if unknown:
            prog = namespace.prog
            raise UsageError(f"'{prog}' does not take {unknown[0]!r}", hint=help_hint(prog))
        return namespace

    def _require_known_options(self, words: Sequence[str]) -> None:
        """Raise UsageError for an option that the command of a command line does not have.

        argparse would say so, too, but without a suggestion, and only if it has found no other
        mistake: it takes the value of an unknown option for an argument.
        """
        for command, word in placed(self, words):
            name = word.partition("=")[0]
            if _is_option(name) and name not in command._option_string_actions:
                suggestion = did_you_mean(name, command._option_string_actions)
                hint = f"{suggestion} {help_hint(command.prog)}".strip()
                raise UsageError(f"'{command.prog}' has no option {name}", hint=hint)

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        """Return the value that a text stands for. Raises UsageError if it has another form."""
        hint = help_hint(self.prog)
        try:
            return super()._get_value(action, arg_string)
        except UsageError as error:
            raise UsageError(error.message, hint=error.hint or hint) from error
        except argparse.ArgumentError as error:
            kind: Any = action.type
            expected = KINDS.get(kind) or action.metavar or "another value"
            text = f"{_name(action)} must be {expected}, not {arg_string!r}"
            raise UsageError(text, hint=percent_hint(arg_string) or hint) from error

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Raise UsageError for a value that is none of the choices; name the most similar one."""
        if action.choices is None or value in action.choices:
            return
        known = [str(choice) for choice in action.choices]
        if isinstance(action, argparse._SubParsersAction):
            text = f"'{self.prog}' has no {str(action.metavar).lower()} {value!r}"
        else:
            text = f"{_name(action)} must be one of {', '.join(known)}, not {value!r}"
        suggestion = did_you_mean(str(value), known)
        command = _command_with_word(self, str(value))
        if command and isinstance(action, argparse._SubParsersAction):
            suggestion = f"did you mean '{command} {value}'?"
        raise UsageError(text, hint=f"{suggestion} {help_hint(self.prog)}".strip())


def _command_with_word(parser: argparse.ArgumentParser, word: str) -> str:
    """Return the first command below a parser that has a verb or a learner of this name; or ""."""
    for command in subparsers_of(parser).values():
        if word in subparsers_of(command):
            return command.prog
    return ""


def placed(
    parser: argparse.ArgumentParser, line: Sequence[str]
) -> Iterator[tuple[argparse.ArgumentParser, str]]:
    """Yield the words of a command line, each with the parser of the command that takes it.

    The values of options are left out: one may be the name of a command or of a learner. The words
    end where an option or an argument takes all the rest, whatever it is, and at "--".
    """
    command = parser
    is_value = False
    for word in line:
        if word == "--" or any(each.nargs == argparse.REMAINDER for each in _arguments_of(command)):
            return
        if is_value and not _is_option(word):
            is_value = False
            continue
        yield command, word
        if word in subparsers_of(command):
            command = subparsers_of(command)[word]
        action = command._option_string_actions.get(word)
        if action is not None and action.nargs == argparse.REMAINDER:
            return
        is_value = action is not None and action.nargs is None


def _arguments_of(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Return the arguments of a parser that are no options."""
    return [action for action in parser._actions if not action.option_strings]


def _is_option(word: str) -> bool:
    """Return whether a word of a command line looks like an option, and not like a number."""
    return re.match(r"--|-[A-Za-z]", word) is not None


def _name(action: argparse.Action) -> str:
    """Return what messages call an option or an argument."""
    return "/".join(action.option_strings) or str(action.metavar or action.dest)


def subparsers_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of the commands that a parser groups, by name; there may be none."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}
