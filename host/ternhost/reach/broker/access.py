"""Reads and writes host.json, which says how to reach a broker.

It is in the broker's directory, which 'tern broker config' writes. The names of other files there
are here, too, and the rights of the broker's users.
"""

import json
import os
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Self

from ternhost.errors import UsageError
from ternhost.files import read_object, write_file
from ternhost.reach.addresses import AUTHORITY

CONFIG = "mosquitto.conf"
HOST = "host.json"
OBSERVER = "watch.json"  # like host.json, for observers, who may only see which boards are there
CERTIFICATE = "broker.pem"
KEY = "broker.key"
HOST_USER = "tern-host"  # the name with which the host logs in
FLEET = "mqtt:"  # how the name of a fleet on a broker begins; the broker's directory follows
BOARDS = "boards.json"  # the passwords of boards, for a relay without their keys

_PREFIX = re.compile(r"[\w.-]+(/[\w.-]+)*", re.ASCII)
_LONGEST_PREFIX = 64  # characters


def template(name: str) -> str:
    """Return a template of a configuration file, with placeholders; it is beside this module."""
    return Path(__file__).with_name(name).read_text()


def check_prefix(prefix: str) -> None:
    """Raise UsageError if the topics of a fleet cannot begin with this prefix."""
    if len(prefix) > _LONGEST_PREFIX or not _PREFIX.fullmatch(prefix):
        hint = f"give at most {_LONGEST_PREFIX} letters, digits, '_', '-' and '.', "
        hint += "in parts divided by '/'"
        raise UsageError(f"topics cannot begin with {prefix!r}", hint)


TO_ALL_BOARDS = "round model model/limits"  # the topics of what the host sends to every board


@dataclass(frozen=True)
class Rights:
    """The topics that a user of a broker may write and read.

    In the topics of boards, %u stands for the name of each board.
    """

    write: Sequence[str]
    read: Sequence[str]
    # In Mosquitto's access list, what a board may do with the topics of its own name, every user may
    # do. These topics are taken from that again for a user that is not a board.
    denied: Sequence[str] = ()

    @classmethod
    def below(cls, prefix: str, write: str, read: str, denied: str = "") -> Self:
        """Return the rights of a user to some topics of a fleet.

        prefix: the beginning of all topics of the fleet. write, read, denied: the rest of the
        topics, divided by spaces, such as "round down/+".
        """

        def topics(names: str) -> list[str]:
            return [f"{prefix}/{name}" for name in names.split()]

        return cls(write=topics(write), read=topics(read), denied=topics(denied))

    def with_name(self, wanted: bool) -> Self:
        """Return the rights to the topics that contain the user's name, %u, or to the others.

        wanted: which of the two.
        """

        def chosen(topics: Sequence[str]) -> list[str]:
            return [topic for topic in topics if ("%u" in topic) == wanted]

        return type(self)(chosen(self.write), chosen(self.read), chosen(self.denied))

    def lines(self, keyword: str = "topic") -> str:
        """Return the rights as lines of Mosquitto's access list.

        keyword: how the lines begin: "topic" for the rights of a single user, or "pattern" for
        those of all users.
        """
        rights = {"write": self.write, "read": self.read, "deny": self.denied}
        text = ""
        for right, topics in rights.items():
            for topic in topics:
                text += f"{keyword} {right} {topic}\n"
        return text


def board_rights(prefix: str) -> Rights:
    """Return the topics that a board may write and read; %u stands for its own name in them.

    The right to write its HELLO is for its will, too, with which the broker removes the HELLO when
    the connection is lost.
    """
    return Rights.below(prefix, write="up/%u hello/%u", read="down/%u round model/#")


@dataclass(frozen=True)
class Access:
    """How a user reaches a broker. In host.json, paths are relative to that file."""

    host: str  # its name or address; for a cluster all of its nodes, divided by commas
    port: int
    user: str
    password: str
    authority: str | None  # the PEM file of its certificate authority; None without TLS
    prefix: str = "tern"  # the beginning of all topics
    store: str | None = None  # the file with the keys of its fleet's devices, where it is known

    def save(self, path: Path) -> None:
        """Write host.json, or a file like it, in whose directory the authority is.

        Paths are written relative to the file. Raises OSError.
        """
        relative = self
        if self.authority:
            relative = replace(relative, authority=AUTHORITY)
        if self.store:
            relative = replace(relative, store=_relative(self.store, path.parent))
        text = json.dumps(asdict(relative), indent=1) + "\n"
        write_file(path, text.encode(), secret=True)

    @property
    def hosts(self) -> list[str]:
        """The nodes of a cluster, or the one host."""
        return self.host.split(",")

    @property
    def is_cluster(self) -> bool:
        """Whether the broker has several nodes."""
        return "," in self.host

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read host.json, or a file like it, and make its paths valid in the working directory.

        Raises UsageError if it has other contents, and StorageError if it cannot be read.
        """
        path = Path(path)
        try:
            access = cls(**read_object(path, f"make it: tern broker config {path.parent}"))
            access._check_types()
            if access.authority:
                access = replace(access, authority=str(path.parent / access.authority))
            if access.store:
                access = replace(access, store=_joined(path.parent, access.store))
            return access
        except (ValueError, TypeError) as error:
            raise UsageError(f"{path} does not say how to reach a broker: {error}") from error

    def _check_types(self) -> None:
        """Raise TypeError if a value, such as one that was read from a file, has another type."""
        if not isinstance(self.port, int):
            raise TypeError("port is no whole number")
        for name in ("host", "user", "password", "prefix"):
            if not isinstance(getattr(self, name), str):
                raise TypeError(f"{name} is no text")
        for name in ("authority", "store"):
            if not isinstance(getattr(self, name), str | None):
                raise TypeError(f"{name} is neither a text nor null")


def _relative(store: str, directory: Path) -> str:
    """Return the path of a store as it is written into a file of a directory.

    It leads out of the directory only if the store is outside it: then it begins at the directory
    itself, and not at a symbolic link to it.
    """
    own_folder = os.path.realpath(os.path.dirname(store))
    return os.path.relpath(os.path.join(own_folder, os.path.basename(store)), directory.resolve())


def _joined(directory: Path, store: str) -> str:
    """Return the path of a store that is written in a file of a directory."""
    is_outside = store.split(os.sep)[0] == os.pardir
    if not is_outside or not directory.is_symlink():
        return os.path.normpath(directory / store)
    return os.path.normpath(directory.resolve() / store)


def host_file(place: str | Path) -> Path:
    """Return the path of a broker's host.json.

    place: that file, or the directory of the broker; neither has to exist.
    """
    path = Path(place)
    names_a_file = path.exists() or path.suffix == ".json"
    if path.is_dir() or not names_a_file:
        return path / HOST
    return path
