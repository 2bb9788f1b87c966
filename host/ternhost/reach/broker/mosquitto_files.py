"""The files of a Mosquitto, central or at a site."""

import base64
import hashlib
import re
import secrets
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from tern import wire
from ternhost.files import write_file
from ternhost.reach.broker.access import CERTIFICATE, CONFIG, Access, Rights, template

PASSWORDS = "passwords"
ACCESS = "access"
PID = "mosquitto.pid"
LOG = "mosquitto.log"
PORT = 8883

_LEAST_MEMORY = 128 << 20  # bytes of the broker
_MEMORY_OF_A_BOARD = 32 << 10  # bytes
_MQTT_OVERHEAD = 128  # bytes of a packet beside the frame in it: mostly the topic
_OTHERS = 0o077  # the rights of the group and of others, in the mode of a file
_SALT_BYTES = 12
_LISTENER = re.compile(r"^listener (\d+) (\S+)$", re.MULTILINE)
_TLS = re.compile(r"^(certfile|keyfile|tls_version) .*\n", re.MULTILINE)
_MEMORY_LINE = re.compile(r"^memory_limit [1-9]\d*$", re.MULTILINE)
_ITERATIONS = 101  # Mosquitto's default; the passwords are random and have 128 bits


class Listener(NamedTuple):
    """Where a broker listens, and whether with TLS."""

    address: str
    port: int
    tls: bool


def password_line(user: str, password: str) -> str:
    """Return a line of Mosquitto's password file, with the PBKDF2-SHA-512 hash of a password."""
    salt = secrets.token_bytes(_SALT_BYTES)
    encoded_salt = base64.b64encode(salt).decode()
    encoded_digest = base64.b64encode(_digest(password, salt, _ITERATIONS)).decode()
    return f"{user}:$7${_ITERATIONS}${encoded_salt}${encoded_digest}"


def _digest(password: str, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac("sha512", password.encode(), salt, iterations)


@lru_cache(maxsize=1)
def _encoded_passwords(path: Path, changed: int) -> dict[str, str]:
    """Read the password file, and return its encoded passwords by user.

    changed: when the file was written; another time reads it again.
    """
    return dict(line.split(":", 1) for line in path.read_text().splitlines())


def has_password(directory: Path, user: str, password: str) -> bool:
    """Return whether this is the user's password in the password file of a broker.

    True, too, if the file or the entry cannot be read.
    """
    path = directory / PASSWORDS
    try:
        encoded = _encoded_passwords(path, path.stat().st_mtime_ns).get(user)
        if encoded is None:
            return False
        _empty, _algorithm, iterations, salt, expected = encoded.split("$")
        digest = _digest(password, base64.b64decode(salt), int(iterations))
        return digest == base64.b64decode(expected)
    except (OSError, ValueError):  # ValueError: of another kind, such as $6$ of older releases
        return True


def write_password_file(directory: Path, passwords: Iterable[tuple[str, str]]) -> None:
    """Write the password file. passwords: (user, password). Raises OSError."""
    lines = "".join(password_line(user, password) + "\n" for user, password in passwords)
    write_file(directory / PASSWORDS, lines.encode(), secret=True)


def board_rights(prefix: str) -> Rights:
    """Return the rights of a board: it may write hello, since its will removes its HELLO."""
    return Rights.below(prefix, "up/%u hello/%u", "down/%u round model")


def write_access_list(directory: Path, users: str, prefix: str) -> None:
    """Write the access list. users: the sections of all users but boards. Raises OSError."""
    text = users + board_rights(prefix).lines("pattern")
    write_file(directory / ACCESS, text.encode(), secret=True)


def write_conf(
    directory: Path, listener: Listener, *, boards: int, user: str | None = None, bridge: str = ""
) -> None:
    """Write mosquitto.conf.

    boards: how many there are, for its memory. user: the one who runs it in this directory; None:
    it can be moved, and is run from wherever it is. bridge: the section with which a site's
    broker connects to the central one. Raises OSError.
    """
    if user is None:
        inside = "./"
        start = f"mosquitto -c ./{CONFIG}, in this directory"
    else:
        inside = f"{directory}/"
        start = f"mosquitto -c {directory}/{CONFIG}"
    text = template(CONFIG).format(
        start=start,
        directory=inside,
        user=f"user {user or 'root'}\n",  # root: Mosquitto keeps the user that starts it
        port=listener.port,
        address=listener.address,
        largest_packet=wire.MAX_FRAME + _MQTT_OVERHEAD,
        memory=_memory(boards),
    )
    if not listener.tls:
        text = _TLS.sub("", text)
    write_file(directory / CONFIG, (text + bridge).encode(), secret=bool(bridge))


def names(directory: Path, access: Access) -> list[str]:
    """Return the names of a configured broker: the host's, then others of its certificate."""
    certified: list[str] = []
    if access.authority:
        from ternhost.reach.certificates import names_of  # they need an extra

        with suppress(OSError, ValueError):
            certified = names_of(directory / CERTIFICATE)
    return list(dict.fromkeys([*access.hosts, *certified]))  # each once, in this order


def listening(directory: Path) -> tuple[str, int] | None:
    """Return address and port of the listener in mosquitto.conf.

    None if the file is missing, or names no listener.
    """
    path = directory / CONFIG
    if not path.exists():
        return None
    match = _LISTENER.search(path.read_text())
    if match is None:
        return None
    port, address = match.groups()
    return address, int(port)


def update_memory(directory: Path, boards: int) -> None:
    """Set the memory limit in mosquitto.conf for a number of boards; the rest of it stays.

    Users may have edited it, also to have no limit. Raises OSError.
    """
    path = directory / CONFIG
    text = _MEMORY_LINE.sub(f"memory_limit {_memory(boards)}", path.read_text())
    is_secret = not path.stat().st_mode & _OTHERS
    write_file(path, text.encode(), secret=is_secret)


def _memory(boards: int) -> int:
    return max(_LEAST_MEMORY, _MEMORY_OF_A_BOARD * boards)
