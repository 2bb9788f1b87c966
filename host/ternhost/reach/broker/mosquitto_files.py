"""The files of a Mosquitto, central or at a site."""

import base64
import hashlib
import re
import secrets
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from tern import wire
from ternhost.files import write_file
from ternhost.reach.broker.access import CERTIFICATE, CONFIG, Access, Rights, template

PASSWORDS = "passwords"
ACCESS = "access"
PID = "mosquitto.pid"
LOG = "mosquitto.log"
PORT = 8883

_MEMORY, _MEMORY_EACH = 128 << 20, 32 << 10  # bytes of the broker at least, and for each board
_LISTENER = re.compile(r"^listener (\d+) (\S+)$", re.MULTILINE)
_TLS = re.compile(r"^(certfile|keyfile|tls_version) .*\n", re.MULTILINE)
_MEMORY_LINE = re.compile(r"^memory_limit [1-9]\d*$", re.MULTILINE)
_ITERATIONS = 101  # Mosquitto's default; the passwords are random and have 128 bits


def password_line(user: str, password: str) -> str:
    """A line of Mosquitto's password file: PBKDF2 with SHA-512."""
    salt = secrets.token_bytes(12)
    encoded = (
        base64.b64encode(part).decode() for part in (salt, _digest(password, salt, _ITERATIONS))
    )
    return f"{user}:$7${_ITERATIONS}${'$'.join(encoded)}"


def _digest(password: str, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac("sha512", password.encode(), salt, iterations)


@lru_cache(maxsize=1)
def _coded_passwords(path: Path, changed: int) -> dict[str, str]:
    return dict(line.split(":", 1) for line in path.read_text().splitlines())


def has_password(directory: Path, user: str, password: str) -> bool:
    """Whether this is the user's password in the password file; true where that cannot be read."""
    path = directory / PASSWORDS
    with suppress(
        OSError, ValueError
    ):  # ValueError: of another kind, such as $6$ of older releases
        coded = _coded_passwords(path, path.stat().st_mtime_ns).get(user)
        _, _, iterations, salt, digest = coded.split("$") if coded else ("", "", "1", "", "")
        return _digest(password, base64.b64decode(salt), int(iterations)) == base64.b64decode(
            digest
        )
    return True


def write_password_file(directory: Path, passwords: Iterable[tuple[str, str]]) -> None:
    """passwords: (user, password). Raises OSError."""
    lines = "".join(password_line(user, password) + "\n" for user, password in passwords)
    write_file(directory / PASSWORDS, lines.encode(), secret=True)


def board_rights(prefix: str) -> Rights:
    """The rights of a board. Its will, an empty message, removes its hello."""
    return Rights.below(prefix, "up/%u hello/%u", "down/%u round model")


def write_access_list(directory: Path, users: str, prefix: str) -> None:
    """users: the sections of all users but boards. Raises OSError."""
    write_file(
        directory / ACCESS, (users + board_rights(prefix).lines("pattern")).encode(), secret=True
    )


def write_conf(
    directory: Path,
    *,
    address: str,
    port: int,
    boards: int,
    tls: bool,
    user: str | None,
    bridge: str = "",
) -> None:
    """Write mosquitto.conf. user: the one who runs it there; None: it can be moved, and is run from
    its directory. boards: their number, for its memory. bridge: the section of a site's broker.
    Raises OSError.
    """
    inside = "./" if user is None else f"{directory}/"
    start = f"mosquitto -c {inside}{CONFIG}" + (", in this directory" if user is None else "")
    account = f"user {user or 'root'}\n"  # root: Mosquitto keeps the user that starts it
    place = {"start": start, "directory": inside, "user": account, "port": port, "address": address}
    limits = {"largest_packet": wire.MAX_FRAME + 128, "memory": _memory(boards)}
    text = template(CONFIG).format(**place, **limits)
    if not tls:
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
    return match and (match[2], int(match[1]))


def update_memory(directory: Path, boards: int) -> None:
    """Set the memory for this number of boards in a mosquitto.conf, which may have been edited.

    Raises OSError.
    """
    path = directory / CONFIG
    text = _MEMORY_LINE.sub(f"memory_limit {_memory(boards)}", path.read_text())
    write_file(path, text.encode(), secret=not path.stat().st_mode & 0o077)


def _memory(boards: int) -> int:
    return max(_MEMORY, _MEMORY_EACH * boards)
