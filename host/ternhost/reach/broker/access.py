"""How to reach a broker, in host.json of the directory that 'tern broker config' writes.

Also the names of the broker's files.
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
PUBLISHER = "publisher.json"  # as host.json, for publishing to Home Assistant
HOME_ASSISTANT = "home-assistant.json"  # as host.json, for Home Assistant
CERTIFICATE = "broker.pem"
KEY = "broker.key"
BOARDS = "boards.json"  # the passwords of boards, for a relay without their keys

_PREFIX = re.compile(r"[\w.-]+(/[\w.-]+)*", re.ASCII)
_LONGEST_PREFIX = 64


def template(name: str) -> str:
    """Read the configuration file of this name beside this module, with its placeholders."""
    return Path(__file__).with_name(name).read_text()


def check_prefix(prefix: str) -> None:
    """Raise UsageError if the topics of a fleet cannot begin with this prefix."""
    if len(prefix) > _LONGEST_PREFIX or not _PREFIX.fullmatch(prefix):
        hint = f"give at most {_LONGEST_PREFIX} letters, digits, '_', '-' and '.', "
        hint += "in parts divided by '/'"
        raise UsageError(f"topics cannot begin with {prefix!r}", hint)


@dataclass(frozen=True)
class Rights:
    """The topics that a user may write and read; those of boards have %u for the board's name."""

    write: Sequence[str]
    read: Sequence[str]
    denied: Sequence[str] = ()  # among what Mosquitto allows to boards, and so to all users

    @classmethod
    def below(cls, prefix: str, write: str, read: str, denied: str = "") -> Self:
        """Make the rights to topics of a fleet.

        write, read, denied: topics without the fleet's prefix, divided by spaces.
        """

        def topics(names: str) -> list[str]:
            return [f"{prefix}/{name}" for name in names.split()]

        return cls(topics(write), topics(read), topics(denied))

    def lines(self, keyword: str = "topic") -> str:
        """Return the rights as lines of Mosquitto's access list.

        keyword: with which they begin: "topic", or "pattern" for the rights of all users.
        """
        rights = {"write": self.write, "read": self.read, "deny": self.denied}
        text = ""
        for right, topics in rights.items():
            for topic in topics:
                text += f"{keyword} {right} {topic}\n"
        return text


@dataclass(frozen=True)
class Access:
    """How to reach a broker. In host.json, the paths are relative to it."""

    host: str  # of a cluster: all of its nodes, divided by commas
    port: int
    user: str
    password: str
    authority: str | None  # PEM file; None for a broker without TLS
    prefix: str = "tern"
    store: str | None = None  # the file with the keys of its fleet's devices, where it is known

    def save(self, path: Path) -> None:
        """Write host.json, or a file like that, with the authority beside it. Raises OSError."""
        authority = AUTHORITY if self.authority else None
        store = os.path.relpath(self.store, path.parent) if self.store else None
        relative = replace(self, authority=authority, store=store)
        write_file(path, json.dumps(asdict(relative), indent=1).encode() + b"\n", secret=True)

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
        """Read host.json, as `write_configuration` made it. Raises UsageError and StorageError."""
        path = Path(path)
        try:
            access = cls(**read_object(path, f"make it: tern broker config {path.parent}"))
            if access.authority:
                access = replace(access, authority=str(path.parent / access.authority))
            if access.store:
                access = replace(access, store=os.path.normpath(path.parent / access.store))
            return access
        except (ValueError, TypeError) as error:
            raise UsageError(f"{path} does not say how to reach a broker: {error}") from error


def host_file(place: str | Path) -> Path:
    """Return the path of a broker's host.json. place: that file, or the broker's directory."""
    path = Path(place)
    is_file = path.exists() or path.suffix == ".json"
    if path.is_dir() or not is_file:
        return path / HOST
    return path
