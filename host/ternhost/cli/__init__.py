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
from functools import partial
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
        """Add the command's parser."""


# Commands of the core. Those of other packages are entry points.
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

# Codes of an OSError that mean a storage error; the others mean bad input.
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
_STORAGE_ERRNOS = {errno.ENOSPC, errno.EDQUOT, errno.EIO, *_FORBIDDEN}
_REMEDIES = {
    **dict.fromkeys((errno.ENOENT, errno.ENOTDIR), "check the path: nothing is there"),
    **dict.fromkeys((errno.EISDIR, errno.EEXIST), "name another path"),
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "make room, and run the command again"),
    **dict.fromkeys(_FORBIDDEN, "check who may read and write it, or name another"),
}


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that raises UsageError, so that its errors are reported like all others."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(*args, **kwargs)

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, hint=help_hint(self.prog))

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse's, but the error for an unknown argument names the help of the subcommand."""
        namespace, unknown = self.parse_known_args(args, namespace)
        if unknown:
            raise UsageError(
                f"unrecognized arguments: {' '.join(unknown)}", hint=help_hint(namespace.prog)
            )
        return namespace


def build_parser(names: Iterable[str] | None = None) -> Parser:
    """Build the parser of `tern` with the commands `names` (default: all).

    A command whose package or module is missing is listed with a text that says so.
    """
    codes = "\n".join(f"  {code:<4} {meaning}" for code, meaning in errors.EXIT_CODES.items())
    summary = "Federated learning on microcontrollers under exact local differential privacy."
    epilog = (
        f"example:\n  tern card design three-outputs --epsilon 2 --json\n\nexit codes:\n{codes}"
    )
    parser = Parser(prog="tern", description=summary, epilog=epilog)
    about = f"tern {version('tern-ldp')}"
    parser.add_argument(
        "--version", action="version", version=about, help="show the version and exit"
    )
    text = "register the algorithms, mechanisms, optimisers, fleets and links that FILE.py defines"
    parser.add_argument(plugins.FLAG, metavar="FILE.py", action="append", help=text)
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
        except ModuleNotFoundError as error:  # the others still work
            subparsers.add_parser(name, help=f"missing: there is no {error.name}")
    return parser


def _needed(argv: Sequence[str]) -> Iterable[str]:
    """Return the commands whose parsers `argv` needs: the one that it names, or all of them.

    --version needs none. Raises UsageError for a command whose package is missing.
    """
    if argv[:1] == ["--version"]:
        return ()
    words = [argument for argument in argv if not argument.startswith("-")]
    command = words[0] if words else ""
    if not command:
        return COMMANDS
    COMMANDS.require_package(command)
    if command not in COMMANDS:
        return COMMANDS  # so that the error lists all of them
    return (command,)


def _report(code: int, message: str, hint: str | None = None, *, as_json: bool = False) -> int:
    """Print an error for people and, with --json, as an object for programs; return `code`."""
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
    raise SystemExit(errors.TERMINATED)  # lets a command end its child processes first


def _run(argv: Sequence[str]) -> int:
    """Parse the command line, run its command, and return the exit code.

    Raises TernError, with a hint that repeats the --with options of this command line.
    """
    extension_files, argv = plugins.load_named(argv)
    args = argparse.Namespace(prog="tern")
    try:
        args = build_parser(_needed(argv)).parse_args(argv, args)
        _require_values(args, argv)
        return int(args.func(args))
    except argparse.ArgumentError as error:  # of the parser, before it reads anything
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
    """Raise UsageError for an option or an argument that is empty."""
    for name, value in vars(args).items():
        if value == "":
            is_option = any(word.partition("=")[0] == flag(name) for word in argv)
            empty_name = flag(name) if is_option else name
            raise UsageError(f"{empty_name} must not be empty", hint="give a value")


def _prepare_streams() -> None:
    """Open /dev/null for standard streams that are closed.

    Standard output then replaces characters that its encoding lacks, instead of failing.
    """
    # In this order each gets its own file descriptor; otherwise the next opened file would get it.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="replace")


def _drop_output() -> None:
    """Discard output that cannot be written, so that Python does not try it again when it exits."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def main(argv: Sequence[str] | None = None) -> int:
    """Run `tern` with `argv` (default: the command line), and return its exit code.

    If a command with --json fails, standard output gets an object with `error`, `hint` (or null)
    and `exit_code`. Raises only SystemExit, for `--help`, `--version` and SIGTERM.
    """
    _prepare_streams()
    arguments = sys.argv[1:] if argv is None else argv
    # argparse also accepts a prefix of --json.
    as_json = any(len(argument) > 2 and "--json".startswith(argument) for argument in arguments)
    report = partial(_report, as_json=as_json)
    previous = None
    with contextlib.suppress(ValueError):  # not the main thread
        previous = signal.signal(signal.SIGTERM, _terminate)
    try:
        return _run(arguments)
    except TernError as error:
        return report(error.exit_code, error.message, error.hint)
    except KeyboardInterrupt:
        return report(errors.INTERRUPTED, "interrupted")
    except BrokenPipeError:
        _drop_output()
        return errors.BROKEN_PIPE
    except OSError as error:
        _drop_output()
        message = str(error.strerror or error)
        if error.filename:
            message = f"{error.filename}: {message}"
        code = errors.STORAGE if error.errno in _STORAGE_ERRNOS else errors.USAGE
        return report(code, message, _REMEDIES.get(error.errno or 0))
    except Exception as error:
        if os.environ.get("TERN_DEBUG"):
            raise
        hint = (
            "this is a bug in tern: run it again with TERN_DEBUG=1 for a traceback, and report it"
        )
        return report(errors.FAULT, f"{type(error).__name__}: {error}", hint)
    finally:
        if previous is not None:
            signal.signal(signal.SIGTERM, previous)
