"""What commands share that run until they are stopped: their log, and what a service needs to know.

Such a command calls `add_options` for its parser, and `ready` once it does its work.
"""

import argparse
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ternhost import log
from ternhost import options as fields
from ternhost.options import option

_notify_address = [""]  # of the socket on which systemd listens; "" if it has not started tern
_NEEDS = "service_needs"  # the attribute of the arguments with what `needs_of` calls


@dataclass(frozen=True)
class LogOptions:
    """How a command that runs until it is stopped writes its log."""

    log_format: str = option(log.TEXT, choices=log.FORMATS, group="watching")


@dataclass(frozen=True)
class ServiceNeeds:
    """What a command needs of the machine on which it runs as a service.

    - ports: whether it talks to boards at ports
    - programs: names of programs that it starts
    - runs_broker: the directory of the broker that it runs; None: it runs none
    - uses_broker: the directory of the broker that it connects to; None: there is none
    - writes: other files and directories that it writes
    """

    ports: bool = False
    programs: tuple[str, ...] = ()
    runs_broker: Path | None = None
    uses_broker: Path | None = None
    writes: tuple[Path, ...] = ()


NeedsOf = Callable[[argparse.Namespace], ServiceNeeds]


def add_options(parser: argparse.ArgumentParser, needs: NeedsOf) -> None:
    """Add the options of a command that runs until it is stopped to its parser.

    needs: returns what the command needs as a service, for its arguments. Raises UsageError if it
    cannot be one with these arguments.
    """
    fields.add_arguments(parser, LogOptions)
    may_be_service(parser, needs)


def may_be_service(parser: argparse.ArgumentParser, needs: NeedsOf) -> None:
    """Let a command run as a service, as `add_options` does, without its options."""
    parser.set_defaults(**{_NEEDS: needs})


def needs_of(args: argparse.Namespace) -> ServiceNeeds | None:
    """Return what a command needs as a service; None if it does not run until it is stopped.

    args: the arguments of the command. Raises UsageError if it cannot be a service with them.
    """
    needs: NeedsOf | None = getattr(args, _NEEDS, None)
    if needs is None:
        return None
    return needs(args)


def begin(args: argparse.Namespace) -> None:
    """Prepare the log of a command that begins.

    A command that cannot start says so as any other does, unless the user has chosen a format, or
    systemd has started it.
    """
    # Programs that the command starts must not tell systemd that they are ready.
    _notify_address[:] = [os.environ.pop("NOTIFY_SOCKET", "")]
    style: str | None = getattr(args, "log_format", None)
    if style is None:
        style = log.TEXT if log.is_journal() else log.PLAIN
    log.use(style, _is_quiet(args))


def _is_quiet(args: argparse.Namespace) -> bool:
    """Return whether the log leaves out all but warnings and errors.

    With --json, standard output has the other messages as events, and the log repeats them only if
    the user has chosen its format.
    """
    chosen_format = getattr(args, "log_format", None)
    return bool(args.quiet or (args.json and chosen_format is None))


def started(args: argparse.Namespace) -> None:
    """Note that a command has begun its work: each line of its log has the time from now on."""
    log.use(args.log_format or log.TEXT, _is_quiet(args))


def ready(args: argparse.Namespace) -> None:
    """Note that a command does its work now. If systemd has started it, systemd learns of it."""
    started(args)
    (address,) = _notify_address
    if not address:
        return
    if address.startswith("@"):  # a name that is in no directory
        address = "\0" + address[1:]
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notifier:
        notifier.sendto(b"READY=1", address)
