"""The `tern` command: runs a command's module, and turns errors into a message and an exit code.

A command module defines `add_parser(subparsers)`, which calls `add_command` and sets `func(args) ->
int` as a default of the parser. Only the module of the named command is imported; that module
imports extras and slow packages when it runs.
"""

import argparse
import contextlib
import errno
import io
import json
import os
import signal
import sys
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from types import FrameType
from typing import Any, NoReturn, Protocol

from ternhost import errors, extras
from ternhost.cli import plugins
from ternhost.command import help_hint, print_line
from ternhost.errors import TernError, UsageError
from ternhost.options import flag
from ternhost.registry import Registry


class Command(Protocol):
    """The module of a command."""

    def add_parser(self, subparsers: Any) -> None:
        """Add the command's parser to those of argparse."""


# The modules of the core's commands. Those of other packages are entry points.
_OWN = {
    "demo": "ternhost.cli.demo",
    "train": "ternhost.cli.running:TRAIN",
    "infer": "ternhost.cli.running:INFER",
    "runs": "ternhost.cli.runs",
    "privacy": "ternhost.cli.privacy",
    "collect": "ternhost.cli.running:COLLECT",
    "card": "ternhost.cli.card",
    "cache": "ternhost.cli.cache",
    "plan": "ternhost.cli.plan",
    "serve": "ternhost.cli.serve",
    "broker": "ternhost.reach.broker.commands",
    "dashboard": "ternhost.watch.dashboard_command",
    "watch": "ternhost.watch.watch_command",
}
COMMANDS: Registry[Command] = Registry("command", "tern.commands", _OWN)

_NOTHING_THERE = "check the path: nothing is there"
_OTHER_PATH = "name another path"
_NO_ROOM = "make room, and run the command again"
_FORBIDDEN = "check who may read and write it, or name another"
# The remedies for an OSError by its code.
_REMEDIES = {
    errno.ENOENT: _NOTHING_THERE,
    errno.ENOTDIR: _NOTHING_THERE,
    errno.EISDIR: _OTHER_PATH,
    errno.EEXIST: _OTHER_PATH,
    errno.ENOSPC: _NO_ROOM,
    errno.EDQUOT: _NO_ROOM,
    errno.EACCES: _FORBIDDEN,
    errno.EPERM: _FORBIDDEN,
    errno.EROFS: _FORBIDDEN,
}
# The codes that mean a failing or forbidden storage; all others mean a wrong input.
_STORAGE_ERRNOS = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EIO,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
}


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that raises UsageError, so that its errors are reported like all others."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Make a parser with argparse's parameters, whose help keeps the line breaks of texts."""
        if "formatter_class" not in kwargs:
            kwargs["formatter_class"] = argparse.RawDescriptionHelpFormatter
        super().__init__(*args, **kwargs)

    def error(self, message: str) -> NoReturn:
        """Raise UsageError, where argparse would print the message and exit."""
        raise UsageError(message, hint=help_hint(self.prog))

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse arguments as argparse does, but refuse unknown ones with the help of their command.

        argparse itself would name the help of `tern` as a whole.
        """
        namespace, unknown = self.parse_known_args(args, namespace)
        if unknown:
            raise UsageError(
                f"unrecognized arguments: {' '.join(unknown)}", hint=help_hint(namespace.prog)
            )
        return namespace


def build_parser(names: Iterable[str] | None = None) -> Parser:
    """Build the parser of `tern`.

    names: of the commands that it has; None for all. A command whose package or module is missing is
    listed with a text that says so.
    """
    # `tern` itself.
    summary = "Federated learning on microcontrollers under exact local differential privacy."
    epilog = "example:\n  tern card design three-outputs --epsilon 2 --json\n\nexit codes:"
    for code, meaning in errors.EXIT_CODES.items():
        epilog += f"\n  {code:<4} {meaning}"
    parser = Parser(prog="tern", description=summary, epilog=epilog)
    about = f"tern {version('tern-ldp')}"
    parser.add_argument(
        "--version", action="version", version=about, help="show the version and exit"
    )
    text = "register the algorithms, mechanisms, optimisers, fleets and links that FILE.py defines"
    parser.add_argument(plugins.FLAG, metavar="FILE.py", action="append", help=text)

    # Its commands.
    subparsers = parser.add_subparsers(
        title="commands", dest="command", metavar="COMMAND", required=True
    )
    if names is None:
        names = COMMANDS
        for name, package in COMMANDS.missing.items():
            subparsers.add_parser(name, help=f"missing: it comes with the package {package}")
    for name in names:
        try:
            COMMANDS[name].add_parser(subparsers)
        except ModuleNotFoundError as error:  # the other commands still work
            subparsers.add_parser(name, help=f"missing: there is no {error.name}")
    return parser


def _commands_needed(argv: Sequence[str]) -> Iterable[str]:
    """Return the commands whose parsers a command line needs: the one that it names, or all.

    Importing the module of a command takes time, so the others are not imported. --version needs
    none. Raises UsageError for a command whose package is missing.
    """
    if argv[:1] == ["--version"]:
        return ()
    words = [argument for argument in argv if not argument.startswith("-")]
    if not words or not words[0]:
        return COMMANDS
    command = words[0]
    COMMANDS.require_package(command)
    if command not in COMMANDS:
        return COMMANDS  # so that the error lists all of them
    return (command,)


def _report(code: int, message: str, hint: str | None = None, *, as_json: bool = False) -> int:
    """Print an error on standard error and, with --json, as an object on standard output.

    code: the exit code, which is returned. hint: how to put the error right.
    """
    text = f"tern: {message}"
    if hint:
        text += f"\n  {hint}"
    with contextlib.suppress(OSError):  # a closed pipe or a full disk
        print_line(text, sys.stderr)
    if as_json:
        with contextlib.suppress(OSError):
            print_line(json.dumps({"error": message, "hint": hint, "exit_code": code}))
    _drop_output()
    return code


def _terminate(signum: int, frame: FrameType | None) -> NoReturn:
    """End the program on SIGTERM by an exception, so that a command ends its child processes first.

    The parameters are those of every signal handler.
    """
    raise SystemExit(errors.TERMINATED)


def _run(argv: Sequence[str]) -> int:
    """Parse the command line, run its command, and return the exit code.

    Every TernError gets a hint; commands in the hint repeat the --with options of this command
    line.
    """
    extension_files, argv = plugins.load_named(argv)
    args = argparse.Namespace(prog="tern")
    try:
        parser = build_parser(_commands_needed(argv))
        args = parser.parse_args(argv, args)
        _require_values(args, argv)
        return int(args.func(args))
    except argparse.ArgumentError as error:
        # It is about the making of the parser: argparse reports wrong arguments by `Parser.error`.
        text = f"two options of 'tern {argv[0]}' have one name: {error}"
        hint = "rename the option of the file or package that extends tern"
        raise UsageError(text, hint=hint) from error
    except TernError as error:
        hint = error.hint or error.remedy or help_hint(args.prog)
        error.hint = plugins.with_files(hint, extension_files, COMMANDS)
        raise
    except ImportError as error:
        explained = extras.explained(error)
        if explained is None:
            raise
        raise explained from error
    finally:
        sys.stdout.flush()  # here, so that main() handles a closed pipe or a full disk


def _require_values(args: argparse.Namespace, argv: Sequence[str]) -> None:
    """Raise UsageError if an option or an argument is an empty text.

    args: the values that were parsed. argv: the words of the command line.
    """
    options_given = {word.partition("=")[0] for word in argv}  # of --name=value the name
    for name, value in vars(args).items():
        if value == "":
            is_option = flag(name) in options_given
            empty_name = flag(name) if is_option else name
            raise UsageError(f"{empty_name} must not be empty", hint="give a value")


def _prepare_streams() -> None:
    """Make sure that the standard streams can be used.

    A stream that is closed is opened on /dev/null. Standard output replaces characters that its
    encoding lacks by a question mark, instead of failing.
    """
    # A new file gets the lowest free descriptor: in this order each stream gets its own one, 0 to 2.
    # Otherwise the next file that a command opens would get it, and be written to by print.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        is_closed = getattr(sys, name) is None
        if is_closed:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="replace")


def _drop_output() -> None:
    """Discard output that cannot be written, so that Python does not try it again when it exits."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            # From now on the stream writes to /dev/null, also what it still has in its buffer.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())


def main(argv: Sequence[str] | None = None) -> int:
    """Run `tern` with the arguments `argv` (default: the command line), and return its exit code.

    If a command with --json fails, standard output gets an object with `error`, `hint` (or null)
    and `exit_code`. Raises only SystemExit, for `--help`, `--version` and SIGTERM, and with
    TERN_DEBUG the exception of a bug.
    """
    _prepare_streams()
    arguments = sys.argv[1:] if argv is None else argv
    as_json = _asks_for_json(arguments)
    previous_handler = None
    with contextlib.suppress(ValueError):  # only the main thread may set a signal handler
        previous_handler = signal.signal(signal.SIGTERM, _terminate)
    try:
        return _run(arguments)
    except TernError as error:
        return _report(error.exit_code, error.message, error.hint, as_json=as_json)
    except KeyboardInterrupt:
        return _report(errors.INTERRUPTED, "interrupted", as_json=as_json)
    except BrokenPipeError:  # whoever reads the output has ended, such as `head`
        _drop_output()
        return errors.BROKEN_PIPE
    except OSError as error:
        return _report_os_error(error, as_json)
    except Exception as error:
        if os.environ.get("TERN_DEBUG"):
            raise
        message = f"{type(error).__name__}: {error}"
        hint = (
            "this is a bug in tern: run it again with TERN_DEBUG=1 for a traceback, and report it"
        )
        return _report(errors.FAULT, message, hint, as_json=as_json)
    finally:
        if previous_handler is not None:
            signal.signal(signal.SIGTERM, previous_handler)


def _asks_for_json(arguments: Sequence[str]) -> bool:
    """Return whether the arguments contain --json, or a prefix of it, which argparse accepts, too."""
    for argument in arguments:
        names_an_option = len(argument) > len("--")
        if names_an_option and "--json".startswith(argument):
            return True
    return False


def _report_os_error(error: OSError, as_json: bool) -> int:
    """Print an error of the operating system with a remedy, if one is known; return the exit code."""
    _drop_output()
    message = str(error.strerror or error)
    if error.filename:
        message = f"{error.filename}: {message}"
    is_storage_error = error.errno in _STORAGE_ERRNOS
    code = errors.STORAGE if is_storage_error else errors.USAGE
    hint = _REMEDIES.get(error.errno or 0)
    return _report(code, message, hint, as_json=as_json)
