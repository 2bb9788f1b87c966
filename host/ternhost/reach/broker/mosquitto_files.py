"""What the files of any Mosquitto of a fleet have in common, the central one and those of sites."""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tern import wire
from ternhost.files import write_file
from ternhost.reach.broker.access import CERTIFICATE, CONFIG, KEY, Access

PASSWORDS = "passwords"
ACCESS = "access"
PID = "mosquitto.pid"
PORT = 8883
QUEUED = 100_000  # messages that may wait for one client

_QUEUED_BYTES = 320  # for each message that may wait, on average
_MEMORY, _MEMORY_EACH = 128 << 20, 32 << 10  # bytes of the broker at least, and for each board
_MEMORY_LINE = re.compile(r"^memory_limit [1-9]\d*$", re.MULTILINE)
_ITERATIONS = 101  # Mosquitto's default; the passwords are random and have 128 bits

# What a board may do; %u is the user name. tern/hello/<board> is removed by an empty message, the board's will.
_BOARD_ACCESS = """\
pattern write {prefix}/up/%u
pattern write {prefix}/hello/%u
pattern read {prefix}/down/%u
pattern read {prefix}/round
pattern read {prefix}/model
"""

_MOSQUITTO_CONF = """\
# Written by tern. Start with: {start}
pid_file {directory}{pid}
per_listener_settings false
{user}listener {port} {address}
{tls}
allow_anonymous false
password_file {directory}{passwords}
acl_file {directory}{access}
use_username_as_clientid true

# No packet of tern is longer. What waits for a client that does not read has a limit, at QoS 0 as well; and so has all
# that the broker keeps: an access list does not refuse to subscribe, however often and to whatever topics.
max_packet_size {largest_packet}
max_inflight_messages 1000
max_queued_messages {queued}
max_queued_bytes {queued_bytes}
upgrade_outgoing_qos true
max_qos 1
memory_limit {memory}
persistent_client_expiration 1h
max_keepalive 3600

# Keeps what the whole fleet is asked, and reports that nobody has taken yet, over a restart.
persistence {persistence}
persistence_location {location}/
autosave_interval 60
log_dest stderr
log_type error
log_type warning
"""


def password_line(user: str, password: str) -> str:
    """A line of Mosquitto's password file: PBKDF2 with SHA-512."""
    salt = secrets.token_bytes(12)
    digest = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, _ITERATIONS)
    encoded = (base64.b64encode(part).decode() for part in (salt, digest))
    return f"{user}:$7${_ITERATIONS}${'$'.join(encoded)}"


def write_password_file(directory: Path, passwords: Iterable[tuple[str, str]]) -> None:
    """passwords: (user, password). Raises OSError."""
    lines = "".join(password_line(user, password) + "\n" for user, password in passwords)
    write_file(directory / PASSWORDS, lines.encode(), secret=True)


def write_access_list(directory: Path, users: str, prefix: str) -> None:
    """users: the sections of those that are no boards. Raises OSError."""
    write_file(directory / ACCESS, (users + _BOARD_ACCESS.format(prefix=prefix)).encode())


def write_conf(
    directory: Path,
    *,
    address: str,
    port: int,
    boards: int,
    tls: bool,
    user: str | None,
    persistence: bool = True,
    queued: int = QUEUED,
    bridge: str = "",
) -> None:
    """Write mosquitto.conf. user: who runs it where it is; None: it is to be run in any place, from within it.

    boards: how many may come, for its memory. bridge: the section of a site's broker, with its password. Raises
    OSError.
    """
    inside = "" if user is None else f"{directory}/"
    text = _MOSQUITTO_CONF.format(
        start=f"mosquitto -c {inside}{CONFIG}" + (", in this directory" if user is None else ""),
        directory=inside,
        location=inside.rstrip("/") or ".",
        pid=PID,
        user=f"user {user or 'root'}\n",  # root: whoever starts it, root or not
        port=port,
        address=address,
        tls=f"certfile {inside}{CERTIFICATE}\nkeyfile {inside}{KEY}\ntls_version tlsv1.2"
        if tls
        else "# without TLS",
        passwords=PASSWORDS,
        access=ACCESS,
        largest_packet=wire.MAX_FRAME + 128,
        queued=queued,
        queued_bytes=queued * _QUEUED_BYTES,
        memory=_memory(boards) if queued else 0,
        persistence="true" if persistence else "false",
    )
    write_file(directory / CONFIG, (text + bridge).encode(), secret=bool(bridge))


def names(directory: Path, access: Access) -> list[str]:
    """Under which names a broker that is configured is reached: the first, and all that its certificate carries."""
    found: list[str] = []
    if access.authority:
        from ternhost.reach.certificates import names_of  # they need an extra

        with suppress(OSError, ValueError):
            found = names_of(directory / CERTIFICATE)
    return [access.host, *(name for name in found if name != access.host)]


def listening(directory: Path) -> dict[str, Any]:
    """What mosquitto.conf says, of the options of `write_conf`; what it does not say is missing."""
    try:
        text = (directory / CONFIG).read_text()
    except OSError:
        return {}
    lines = dict(line.partition(" ")[::2] for line in text.splitlines())
    found: dict[str, Any] = {"persistence": lines.get("persistence") != "false"}
    if address := lines.get("listener", "").partition(" ")[2]:
        found["address"] = address
    if (queued := lines.get("max_queued_messages", "")).isdecimal():
        found["queued"] = int(queued)
    return found


def update_memory(directory: Path, boards: int) -> None:
    """Have mosquitto.conf, which may have been edited, allow as much memory as so many boards need. Raises OSError."""
    path = directory / CONFIG
    text = _MEMORY_LINE.sub(f"memory_limit {_memory(boards)}", path.read_text())
    write_file(path, text.encode(), secret=not path.stat().st_mode & 0o077)


def _memory(boards: int) -> int:
    return max(_MEMORY, _MEMORY_EACH * boards)
