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
    """A line of Mosquitto's password file: PBKDF2 with SHA-512."""
    salt = secrets.token_bytes(12)
    encoded_salt = base64.b64encode(salt).decode()
    encoded_digest = base64.b64encode(_digest(password, salt, _ITERATIONS)).decode()
    return f"{user}:$7${_ITERATIONS}${encoded_salt}${encoded_digest}"


def _digest(password: str, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac("sha512", password.encode(), salt, iterations)


@lru_cache(maxsize=1)
def _encoded_passwords(path: Path, changed: int) -> dict[str, str]:
    """By user, the password file at `path`, which was changed at that time."""
    return dict(line.split(":", 1) for line in path.read_text().splitlines())


def has_password(directory: Path, user: str, password: str) -> bool:
    """Whether this is the user's password in the password file; true where that cannot be read."""
    path = directory / PASSWORDS
    try:
        encoded = _encoded_passwords(path, path.stat().st_mtime_ns).get(user)
        if encoded is None:
            return False
        _, _, iterations, salt, digest = encoded.split("$")
        expected = base64.b64decode(digest)
        return _digest(password, base64.b64decode(salt), int(iterations)) == expected
    except (OSError, ValueError):  # ValueError: of another kind, such as $6$ of older releases
        return True


def write_password_file(directory: Path, passwords: Iterable[tuple[str, str]]) -> None:
    """Write the password file. passwords: (user, password). Raises OSError."""
    lines = "".join(password_line(user, password) + "\n" for user, password in passwords)
    write_file(directory / PASSWORDS, lines.encode(), secret=True)


def board_rights(prefix: str) -> Rights:
    """The rights of a board. Its will, an empty message, removes its hello."""
    return Rights.below(prefix, "up/%u hello/%u", "down/%u round model")


def write_access_list(directory: Path, users: str, prefix: str) -> None:
    """Write the access list. users: the sections of all users but boards. Raises OSError."""
    text = users + board_rights(prefix).lines("pattern")
    write_file(directory / ACCESS, text.encode(), secret=True)


def write_conf(
    directory: Path, listener: Listener, *, boards: int, user: str | None = None, bridge: str = ""
) -> None:
    """Write mosquitto.conf.

    boards: their number, for its memory. user: the one who runs it there; None: it can be moved,
    and is run from its directory. bridge: the section of a site's broker. Raises OSError.
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
        largest_packet=wire.MAX_FRAME + 128,
        memory=_memory(boards),
    )
    if not listener.tls:
        text = _TLS.sub("", text)
    write_file(directory / CONFIG, (text + bridge).encode(), secret=bool(bridge))


def names(directory: Path, access: Access) -> list[str]:
    """The names of a configured broker: the first, then the others of its certificate."""
    certified: list[str] = []
    if access.authority:
        from ternhost.reach.certificates import names_of  # they need an extra

        with suppress(OSError, ValueError):
            certified = names_of(directory / CERTIFICATE)
    return list(dict.fromkeys([*access.hosts, *certified]))


def listening(directory: Path) -> tuple[str, int] | None:
    """Address and port of the listener in mosquitto.conf; None where it names none, or is missing."""
    path = directory / CONFIG
    match = _LISTENER.search(path.read_text()) if path.exists() else None
    if match is None:
        return None
    port, address = match.groups()
    return address, int(port)


def update_memory(directory: Path, boards: int) -> None:
    """Set the memory for this number of boards in a mosquitto.conf, which may have been edited.

    Raises OSError.
    """
    path = directory / CONFIG
    text = _MEMORY_LINE.sub(f"memory_limit {_memory(boards)}", path.read_text())
    is_secret = not path.stat().st_mode & 0o077
    write_file(path, text.encode(), secret=is_secret)


def _memory(boards: int) -> int:
    return max(_LEAST_MEMORY, _MEMORY_OF_A_BOARD * boards)
