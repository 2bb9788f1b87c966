"""The `tern` command: runs a command, and turns errors into a message and an exit code."""

import argparse
import contextlib
import errno
import io
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from ternhost import errors, extras, log, long_running
from ternhost.cli import everywhere, plugins, project
from ternhost.cli.everywhere import Everywhere
from ternhost.cli.tree import COMMANDS, build_parser
from ternhost.command import help_hint, print_line
from ternhost.errors import TernError, UsageError
from ternhost.options import flag
from ternhost.signals import ended_by_signals
from ternhost.text import PLAIN

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
_UTF8_MODE = "PYTHONUTF8"  # the environment variable for Python's UTF-8 mode
# How Python's streams treat what they cannot encode, unless PYTHONIOENCODING says how.
_DEFAULT_ERRORS = ("strict", "surrogateescape", "backslashreplace")


def _report(code: int, message: str, hint: str | None = None, *, as_json: bool = False) -> int:
    """Log an error and, with --json, print it as an object on standard output.

    code: the exit code, which is returned. hint: how to put the error right.
    """
    log.error(message, hint, code)
    if as_json:
        with contextlib.suppress(OSError):
            print_line(json.dumps({"error": message, "hint": hint, "exit_code": code}))
    _drop_output()
    return code


def _run(options: Everywhere) -> int:
    """Load the files of --with, run the command of the command line, and return the exit code.

    Every TernError gets a hint; commands in the hint repeat the --with options of this command
    line.
    """
    for path in options.files:
        plugins.load(path)
    args = argparse.Namespace(prog="tern", json=options.json, quiet=options.quiet)
    try:
        parser = build_parser(options.words)
        args.from_project = project.apply(project.load(Path()), parser, options.words)
        args = parser.parse_args(options.words, args)
        _require_values(args, options.words)
        long_running.begin(args)
        return int(args.func(args))
    except argparse.ArgumentError as error:
        # It is about the making of the parser: argparse reports wrong arguments by `Parser.error`.
        text = f"two options of 'tern {options.words[0]}' have one name: {error}"
        hint = "rename the option of the file or package that extends tern"
        raise UsageError(text, hint=hint) from error
    except TernError as error:
        hint = error.hint or error.remedy or help_hint(args.prog)
        error.hint = plugins.with_files(hint, options.files, COMMANDS)
        raise
    except ImportError as error:
        explained = extras.explained(error)
        if explained is None:
            raise
        raise explained from error
    finally:
        sys.stdout.flush()  # here, so that main() handles a closed pipe or a full disk


def _require_values(args: argparse.Namespace, words: Sequence[str]) -> None:
    """Raise UsageError if an option or an argument is an empty text.

    args: the values that were parsed. words: those of the command line.
    """
    options_given = {word.partition("=")[0] for word in words}  # of --name=value the name
    for name, value in vars(args).items():
        if value == "":
            is_option = flag(name) in options_given
            empty_name = flag(name) if is_option else name
            raise UsageError(f"{empty_name} must not be empty", hint="give a value")


def _prepare_streams() -> None:
    """Make sure that the standard streams can be used.

    A stream that is closed is opened on /dev/null. Characters that the encoding of a stream lacks
    are written in plain ones (`text.PLAIN`), unless the user has chosen otherwise by
    PYTHONIOENCODING.
    """
    # A new file gets the lowest free descriptor: in this order each stream gets its own one, 0 to 2.
    # Otherwise the next file that a command opens would get it, and be written to by print.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        is_closed = getattr(sys, name) is None
        if is_closed:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors in _DEFAULT_ERRORS:
            stream.reconfigure(errors=PLAIN)


def _ensure_utf8() -> None:
    """Start this program again in Python's UTF-8 mode if its names of files are ASCII alone.

    That is so in the locale C if the environment keeps Python from using UTF-8 there. Names with
    other letters would be none, neither those that the user gives nor those in directories.
    """
    was_tried = os.environ.get(_UTF8_MODE) == "1"
    if was_tried or os.name != "posix" or sys.getfilesystemencoding() != "ascii":
        return
    os.environ[_UTF8_MODE] = "1"
    os.execv(sys.executable, sys.orig_argv)


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
    and `exit_code`. Raises only SystemExit, for `--help`, `--version`, SIGTERM and SIGHUP, and with
    TERN_DEBUG the exception of a bug.
    """
    if argv is None:
        _ensure_utf8()
    _prepare_streams()
    arguments = sys.argv[1:] if argv is None else argv
    with log.printed(), ended_by_signals():
        return _main(arguments)


def _main(arguments: Sequence[str]) -> int:
    """Do as `main` says, while messages are printed and signals end the command."""
    as_json = everywhere.JSON in arguments
    try:
        return _run(everywhere.taken_from(arguments))
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
