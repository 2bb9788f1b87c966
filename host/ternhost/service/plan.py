"""Makes the unit of a service from the words of a command, after checking them."""

import argparse
import contextlib
import os
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from ternhost.cli import everywhere, plugins, project
from ternhost.cli.tree import build_parser
from ternhost.errors import UsageError
from ternhost.long_running import ServiceNeeds, needs_of
from ternhost.service import paths
from ternhost.service.unit import STATE, UNITS, Unit

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_LASTING = "a service runs until it is stopped: such as broker run DIR, serve, relay or dashboard"


def planned(name: str, words: Sequence[str]) -> tuple[Unit, argparse.Namespace]:
    """Return the unit of a service, and the arguments of its command.

    name: of the service. words: those after `tern` of the command that it runs. Raises UsageError
    if they are no command that can be a service.
    """
    if not _NAME.fullmatch(name):
        text = f"the name of a service is letters, digits, - and _, not {name!r}"
        raise UsageError(text, hint="such as: tern service install broker -- broker run my-broker")
    if not words:
        hint = "such as: tern service install broker -- broker run my-broker"
        raise UsageError("the command of the service is missing", hint=hint)
    for word in words:
        if not word.isprintable():
            text = f"{word!r} has a character that no unit can have"
            raise UsageError(text, hint="use names without line breaks and control characters")
    args = _parsed(words)
    with _in_state():
        needs = needs_of(args)
    if needs is None:
        raise UsageError(f"'{args.prog}' ends by itself", hint=_LASTING)
    unit = Unit(
        name,
        interpreter=Path(sys.executable),
        arguments=words,
        needs=needs,
        writable=paths.writable_outside(args),
        after=_brokers_of(needs, UNITS),
    )
    return unit, args


@contextlib.contextmanager
def _in_state() -> Iterator[None]:
    """Work in the directory of services while the context is open, if this user may do so.

    There the paths of a command mean what they will mean for the service.
    """
    if not os.access(STATE, os.X_OK):
        yield
        return
    with contextlib.chdir(STATE):
        yield


def _parsed(words: Sequence[str]) -> argparse.Namespace:
    """Parse a command line as the service will: with the project file of its directory.

    Raises UsageError.
    """
    options = everywhere.taken_from(words)
    for path in options.files:
        plugins.load(path)
    parser = build_parser(options.words)
    settings = project.load(STATE) if STATE.is_dir() else []
    args = argparse.Namespace(prog="tern", json=options.json, quiet=options.quiet)
    args.with_files = list(options.files)
    args.from_project = project.apply(settings, parser, options.words)
    if Path().resolve() != STATE:
        _require_no_settings_here(options.words)
    parsed: argparse.Namespace = parser.parse_args(options.words, args)
    return parsed


def _require_no_settings_here(words: Sequence[str]) -> None:
    """Raise UsageError if a project file in the working directory has settings for a command.

    The service works in another directory, and does not read it.
    """
    parser = build_parser(words)
    in_force = project.apply(project.load(Path()), parser, words)
    if in_force:
        names = ", ".join(sorted(in_force))
        text = f"{project.FILE} in this directory sets {names}, and a service does not read it"
        raise UsageError(text, hint=f"give these as options, or copy the file to {STATE}")


def _brokers_of(needs: ServiceNeeds, units: Path) -> list[str]:
    """Return the names of the installed services that run the broker which a command uses."""
    if needs.uses_broker is None:
        return []
    wanted = STATE / needs.uses_broker
    found = []
    for path in sorted(units.glob("tern-*.service")):
        for line in path.read_text(errors="replace").splitlines():
            if not line.startswith("ExecStart="):
                continue
            words = _words_of(line.partition("=")[2])
            runs_it = any(
                words[place : place + 2] == ["broker", "run"] for place in range(len(words))
            )
            if runs_it and any(STATE / word == wanted for word in words):
                found.append(path.name)
    return found


def _words_of(command: str) -> list[str]:
    """Return the words of a command in a unit; those between blanks if its quotes do not match."""
    try:
        return shlex.split(command)
    except ValueError:  # somebody has edited the unit
        return command.split()
