"""Kinds of brokers, one of which `tern broker config` configures for a fleet.

The core has one kind, Mosquitto. Other packages register theirs as entry points of `tern.brokers`.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from ternhost.errors import UsageError
from ternhost.reach.broker import processes
from ternhost.registry import Registry

if TYPE_CHECKING:
    from ternhost.reach.broker.access import Access, Rights


@dataclass(frozen=True)
class BrokerUsers:
    """The users of a broker: the host, guests, the brokers of sites, and boards.

    passwords: of all users, by name. boards: the names of the boards among them, which have the
    rights of `access.board_rights`. rights: by name, the topics of the host and of guests. bridges:
    the topics of the brokers of sites, as sections of Mosquitto's access list, since only Mosquitto
    has bridges.
    """

    passwords: Mapping[str, str]
    boards: Collection[str]
    rights: Mapping[str, Rights]
    bridges: str


class BrokerKind:
    """The base class of all kinds of brokers. A kind is registered as one object of its class."""

    name: ClassVar[str]  # the value of --for that chooses it

    # What help texts and messages say about it. There, DIR stands for its directory.
    title: ClassVar[str]  # its name, such as "Mosquitto"
    about: ClassVar[str]  # what it is, and what it is good for
    example: ClassVar[str] = ""  # a command that configures one
    start: ClassVar[str]  # how to start it
    without_run: ClassVar[str] = ""  # how it is run, if not by 'tern broker run'

    # How it is reached.
    names_here: ClassVar[Sequence[str]]  # the names of a broker that serves its own machine only
    # How many ports it uses: the one that is configured, and those after it.
    port_count: ClassVar[int] = 1

    def host(self, names: Sequence[str]) -> str:
        """Return what host.json says as the host of a broker that is reached at these names."""
        return names[0]

    def has(self, directory: Path, access: Access) -> bool:
        """Return whether the broker that is configured in a directory is of this kind.

        access: how it is reached.
        """
        raise NotImplementedError

    # Checks. Each raises UsageError, before anything is written.

    def check_bridge(self) -> None:
        """Raise if the broker of a site cannot be bridged to one of this kind."""

    def check_place(self, directory: Path, names: Sequence[str]) -> None:
        """Raise if its files cannot be in this directory, or if it cannot have these names."""

    def check_users(self, prefixes: Sequence[str]) -> None:
        """Raise if it cannot have users whose topics begin with these prefixes."""

    # Files. These raise OSError.

    def is_written(self, directory: Path) -> bool:
        """Return whether its configuration is in its directory, where host.json is."""
        return True

    def listening_address(self, directory: Path) -> str | None:
        """Return the address on which it listens; None if its configuration names none."""
        return None

    def write(self, directory: Path, access: Access, *, address: str, boards: int) -> None:
        """Write its configuration, without its users.

        directory: the broker's directory, with its certificates. access: how the host reaches it.
        address: the one to listen on. boards: how many boards it serves.
        """
        raise NotImplementedError

    def write_users(self, directory: Path, access: Access, users: BrokerUsers) -> None:
        """Write its users, with their passwords and rights.

        directory: the broker's directory. access: how the host reaches it.
        """
        raise NotImplementedError

    def update(self, directory: Path, boards: int) -> None:
        """Change what depends on the number of boards in a configuration that is there already."""

    # The running broker.

    def start_command(self, directory: str) -> str:
        """Return for people the command that starts the broker of a directory."""
        raise NotImplementedError

    def reload(self, directory: Path) -> bool:
        """Make a running broker read its users again, and return whether it runs on this machine.

        directory: its directory; there may be no broker of this kind in it.
        """
        raise NotImplementedError


DEFAULT = "mosquitto"  # the kind of a new broker
_OWN = {DEFAULT: "ternhost.reach.broker.mosquitto_kind:MOSQUITTO"}
KINDS: Registry[BrokerKind] = Registry("kind of broker", "tern.brokers", _OWN)


def kind_of(directory: Path, access: Access) -> BrokerKind:
    """Return the kind of a broker that is configured already.

    directory: the broker's directory. access: how it is reached. Raises UsageError if its kind is
    not registered; the hint names the package that is missing.
    """
    # Mosquitto comes last, since every broker with a single server may be one.
    for kind in reversed(list(KINDS.available())):
        if kind.has(directory, access):
            return kind
    hint = "name another directory"
    if KINDS.missing:
        missing = [f"{package} (for {name})" for name, package in KINDS.missing.items()]
        hint = f"install its package: {', '.join(missing)}"
    raise UsageError(
        f"{directory} has a broker of a kind that is missing here, where there is: "
        f"{', '.join(KINDS)}",
        hint,
    )


def hang_up(directory: Path, pid_file: str, program: str) -> bool:
    """Send SIGHUP to the broker of a directory, on which it reads its files again.

    This needs /proc, and the user who runs the broker. pid_file: the file with the number of its
    process. program: the name of its program, to be sure that it is the broker. Return whether the
    broker runs.
    """
    pid = processes.running(directory, pid_file, program)
    if pid is None:
        return False
    with suppress(OSError):  # it has just ended, or belongs to another user
        os.kill(pid, signal.SIGHUP)
        return True
    return False
