"""Reads and writes the files of a Mosquitto broker, a central one or that of a site."""

import base64
import hashlib
import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from tern import wire
from ternhost.files import write_file
from ternhost.reach.broker.access import CERTIFICATE, CONFIG, KEY, Access, board_rights, template

PROGRAM = "mosquitto"
PASSWORDS = "passwords"
ACCESS = "access"
PID = "mosquitto.pid"
LOG = "mosquitto.log"
DATABASE = "mosquitto.db"  # retained messages, sessions and what waits for clients
DAMAGED = "mosquitto.db.damaged"
_BEFORE = "mosquitto.db.before"  # a second name of the database while Mosquitto starts
PORT = 8883

# The limit of the broker's memory, in bytes: so much for each board, and not less than the least.
_LEAST_MEMORY = 128 << 20
_MEMORY_OF_A_BOARD = 32 << 10
_MQTT_OVERHEAD = 128  # bytes of an MQTT packet beside the frame in it: mostly the topic
_OTHERS = 0o077  # the rights of the group and of others, in the mode of a file
_SALT_BYTES = 12  # as in Mosquitto's own password files
_LISTENER = re.compile(r"^listener (\d+) (\S+)$", re.MULTILINE)
_TLS = re.compile(r"^(certfile|keyfile|tls_version) .*\n", re.MULTILINE)
# It says what is the default. Mosquitto 2.1 warns of the option, and 3.0 will not know it.
_OUTDATED = re.compile(r"^per_listener_settings false\n", re.MULTILINE)
_MEMORY_LINE = re.compile(r"^memory_limit [1-9]\d*$", re.MULTILINE)
# The first line of a mosquitto.conf in which an earlier release of tern has written absolute paths,
# and what stands there now.
_WRITTEN_FOR = re.compile(
    r"^# Written by tern\. Start with: mosquitto -c (?P<directory>/.*)/mosquitto\.conf$",
    re.MULTILINE,
)
_NOW_STARTED = "# Written by tern. Start in this directory with: mosquitto -c mosquitto.conf"
_DIRECTIVES = "pid_file|certfile|keyfile|password_file|acl_file|persistence_location"
_OWN_FILES = f"{PID}|{CERTIFICATE}|{KEY}|{PASSWORDS}|{ACCESS}|"  # the last one is the directory
_ITERATIONS = 101  # Mosquitto's default; the passwords are random and have 128 bits


class Listener(NamedTuple):
    """Where a broker listens, and whether with TLS."""

    address: str
    port: int
    tls: bool


def password_line(user: str, password: str) -> str:
    """Return the line for a user in Mosquitto's password file, with a hash of the password.

    Its form is USER:$7$ITERATIONS$SALT$HASH, where 7 stands for PBKDF2-SHA-512, and salt and hash
    are in Base64.
    """
    salt = secrets.token_bytes(_SALT_BYTES)
    digest = _digest(password, salt, _ITERATIONS)
    encoded_salt = base64.b64encode(salt).decode()
    encoded_digest = base64.b64encode(digest).decode()
    return f"{user}:$7${_ITERATIONS}${encoded_salt}${encoded_digest}"


def _digest(password: str, salt: bytes, iterations: int) -> bytes:
    """Return the PBKDF2-SHA-512 hash of a password."""
    return hashlib.pbkdf2_hmac("sha512", password.encode(), salt, iterations)


@lru_cache(maxsize=1)
def _encoded_passwords(path: Path, changed: int) -> dict[str, str]:
    """Return the hash of each user's password, in Mosquitto's form, from a password file.

    The result is cached. path: the path of the file. changed: when the file was written, so that a
    changed file is read again.
    """
    hashes = {}
    for line in path.read_text().splitlines():
        user, encoded = line.split(":", 1)
        hashes[user] = encoded
    return hashes


def has_password(directory: Path, user: str, password: str) -> bool:
    """Return whether a user has this password according to the password file of a broker.

    The result is True, too, if the file cannot be read, or has a hash of another kind: then nobody
    is told that a password is wrong. directory: the broker's directory.
    """
    path = directory / PASSWORDS
    try:
        encoded_by_user = _encoded_passwords(path, path.stat().st_mtime_ns)
        encoded = encoded_by_user.get(user)  # "$7$ITERATIONS$SALT$HASH"
        if encoded is None:
            return False
        _empty, _algorithm, iterations, salt, expected = encoded.split("$")
        digest = _digest(password, base64.b64decode(salt), int(iterations))
        return digest == base64.b64decode(expected)
    except (OSError, ValueError):  # ValueError: of another kind, such as $6$ of older releases
        return True


def write_password_file(directory: Path, passwords: Iterable[tuple[str, str]]) -> None:
    """Write the password file of a broker. passwords: (user name, password). Raises OSError."""
    text = ""
    for user, password in passwords:
        text += password_line(user, password) + "\n"
    write_file(directory / PASSWORDS, text.encode(), secret=True)


def write_access_list(directory: Path, users: str, boards: Iterable[str], prefix: str) -> None:
    """Write the access list of a broker, which says what topics each user may write and read.

    users: the sections of all users that are not boards. boards: the user name of each board.
    prefix: the beginning of all topics of the fleet. Raises OSError.
    """
    rights = board_rights(prefix)
    # A pattern is for topics with the name of the user in them: Mosquitto 2.1 warns of any other.
    to_all_boards = rights.with_name(False).lines()
    sections = [f"user {board}\n{to_all_boards}\n" for board in boards]
    text = users + "".join(sections) + rights.with_name(True).lines("pattern")
    write_file(directory / ACCESS, text.encode(), secret=True)


def write_conf(
    directory: Path, listener: Listener, *, boards: int, user: str | None = None, bridge: str = ""
) -> None:
    """Write mosquitto.conf, the configuration of a Mosquitto broker.

    directory: the broker's directory. listener: where it listens, and whether with TLS.
    boards: how many boards there are, from which the limit of its memory follows.
    user: the user who runs it; None for a site's broker, whose directory is moved to another
        machine.
    bridge: for a site's broker, the section with which it connects to the central one.
    Raises OSError.
    """
    text = template(CONFIG).format(
        user=f"user {user or 'root'}\n",  # with root, Mosquitto keeps the user that starts it
        port=listener.port,
        address=listener.address,
        largest_packet=wire.MAX_FRAME + _MQTT_OVERHEAD,
        memory=_memory(boards),
    )
    if not listener.tls:  # the template has lines for TLS
        text = _TLS.sub("", text)
    text += bridge
    has_password = bool(bridge)  # the one of the bridge
    write_file(directory / CONFIG, text.encode(), secret=has_password)


def names(directory: Path, access: Access) -> list[str]:
    """Return the host names and addresses at which a broker is reached.

    First come those at which the host reaches it, then others of its certificate. directory: of
    the broker. access: how the host reaches it.
    """
    certified: list[str] = []
    if access.authority:
        from ternhost.reach.certificates import names_of  # they need an extra

        with suppress(OSError, ValueError):  # there may be no valid certificate
            certified = names_of(directory / CERTIFICATE)
    all_names = [*access.hosts, *certified]
    return list(dict.fromkeys(all_names))  # each once, in this order


def listening(directory: Path) -> tuple[str, int] | None:
    """Return the address and port at which a broker listens, according to its mosquitto.conf.

    Return None if there is no such file, or if it names no listener.
    """
    path = directory / CONFIG
    if not path.exists():
        return None
    match = _LISTENER.search(path.read_text())
    if match is None:
        return None
    port, address = match.groups()
    return address, int(port)


def modernise(directory: Path) -> None:
    """Change what an earlier release of tern has written into a mosquitto.conf and is wrong today.

    Absolute paths, which are wrong once the directory was moved or copied, become relative. An
    option that Mosquitto 3.0 will not know is removed. What users have written stays: only paths of
    tern's own files are changed, in the directory where they were when tern wrote the file. Raises
    OSError.
    """
    path = directory / CONFIG
    text = path.read_text()
    new_text = _OUTDATED.sub("", text)
    match = _WRITTEN_FOR.search(text)
    if match is not None:
        written_for = re.escape(match["directory"])
        of_tern = re.compile(rf"^({_DIRECTIVES}) {written_for}/({_OWN_FILES})$", re.MULTILINE)
        new_text = of_tern.sub(r"\1 ./\2", new_text)
        new_text = new_text.replace(match.group(), _NOW_STARTED)
    if new_text != text:
        _rewrite(path, new_text)


@contextmanager
def database_before(directory: Path) -> Iterator[None]:
    """Keep what the database contains under a second name while the context is open.

    Mosquitto 2.1 replaces a database that it cannot read by an empty one before it ends.
    """
    second_name = directory / _BEFORE
    with suppress(OSError):  # no database, or no second names on this file system
        second_name.unlink(missing_ok=True)
        second_name.hardlink_to(directory / DATABASE)
    try:
        yield
    finally:
        with suppress(OSError):
            second_name.unlink(missing_ok=True)


def set_database_aside(directory: Path) -> None:
    """Move a damaged database aside, over one that was moved before. Raises OSError.

    Within `database_before`, that is the database of before.
    """
    (directory / DATABASE).replace(directory / DAMAGED)
    if (directory / _BEFORE).exists():
        # With two names of one file, this changes nothing, and the second name is removed later.
        (directory / _BEFORE).replace(directory / DAMAGED)


def update_memory(directory: Path, boards: int) -> None:
    """Set the limit of memory in mosquitto.conf for a number of boards, and change nothing else.

    Users may have edited the file. If they have removed the limit, there remains none. Raises
    OSError.
    """
    path = directory / CONFIG
    text = _MEMORY_LINE.sub(f"memory_limit {_memory(boards)}", path.read_text())
    _rewrite(path, text)


def _rewrite(path: Path, text: str) -> None:
    """Replace the text of a file, which stays as secret as it was. Raises OSError."""
    is_secret = not path.stat().st_mode & _OTHERS
    write_file(path, text.encode(), secret=is_secret)


def _memory(boards: int) -> int:
    """Return the limit of the memory for a broker with so many boards, in bytes."""
    return max(_LEAST_MEMORY, _MEMORY_OF_A_BOARD * boards)
