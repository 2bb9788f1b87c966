"""A Mosquitto broker for a fleet: its configuration with certificates, passwords and an access list.

A board may write only its own topics and read only its own and the fleet's; the host may write what boards read. Its
client id is its user name, so that no board can take another's session.
"""

from __future__ import annotations

import base64
import getpass
import hashlib
import json
import os
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tern import wire
from tern.links import mqtt
from ternhost.aggregate.store import Store
from ternhost.errors import StorageError, UsageError
from ternhost.links.access import (
    AUTHORITY,
    CERTIFICATE,
    CONFIG,
    HOME_ASSISTANT,
    HOST,
    KEY,
    PUBLISHER,
    Access,
    write_file,
)

HOST_USER = "tern-host"
PUBLISHER_USER, HOME_USER = "tern-publisher", "home-assistant"

PASSWORDS = "passwords"
ACCESS = "access"
PID = "mosquitto.pid"
STORE = "store.sqlite"  # of the devices' keys, unless host.json names another
PORT = 8883

_NAME = re.compile(r"[A-Za-z0-9:]([A-Za-z0-9.:-]{0,61}[A-Za-z0-9:])?")
_PREFIX = re.compile(r"[\w.-]+(/[\w.-]+)*", re.ASCII)
_LONGEST_PREFIX = 64
_MOST_HOSTS = 1000
_QUEUED_BYTES = 320  # for each message that may wait, on average
_MEMORY, _MEMORY_EACH = 128 << 20, 32 << 10  # bytes of the broker at least, and for each board
_MEMORY_LINE = re.compile(r"^memory_limit [1-9]\d*$", re.MULTILINE)
_ITERATIONS = 101  # Mosquitto's default; the passwords are random and have 128 bits

# tern/hello/<board> is removed by an empty message, the board's will. %u is the user name.
_HOST_ACCESS = """\
user {host}
topic write {prefix}/round
topic write {prefix}/model
topic write {prefix}/down/+
topic read {prefix}/up/+
topic read {prefix}/hello/+

"""
_BOARD_ACCESS = """\
pattern write {prefix}/up/%u
pattern write {prefix}/hello/%u
pattern read {prefix}/down/%u
pattern read {prefix}/round
pattern read {prefix}/model
"""

# Only where it is asked for: a user of its own tells Home Assistant of the fleet, and another is Home Assistant. What
# every board may, by the patterns, they may not.
_HOME_ACCESS = """\
user {publisher}
topic write {discovery}
topic write {prefix}/fleet/+
{denied}
user {home}
topic read {home_prefix}/#
topic read {prefix}/fleet/+
topic write {home_prefix}/status
{denied}
"""
_DENIED = "".join(
    f"topic deny {{prefix}}/{name}\n" for name in ("round", "model", "down/+", "up/+", "hello/+")
)

_MOSQUITTO_CONF = """\
# Written by tern. Start with: mosquitto -c {config}
pid_file {pid}
per_listener_settings false
user {user}
listener {port} {address}
{tls}
allow_anonymous false
password_file {passwords}
acl_file {access}
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

# Keeps what the whole fleet is asked, and reports that the host has not taken yet, over a restart.
persistence {persistence}
persistence_location {directory}/
autosave_interval 60
log_dest stderr
log_type error
log_type warning
"""


def check_prefix(prefix: str) -> None:
    """Raise UsageError where no fleet's topics can begin so."""
    if len(prefix) > _LONGEST_PREFIX or not _PREFIX.fullmatch(prefix):
        raise UsageError(
            f"topics cannot begin with {prefix!r}",
            hint=f"give at most {_LONGEST_PREFIX} letters, digits, '_', '-' and '.', in parts divided by '/'",
        )


def password_line(user: str, password: str) -> str:
    """A line of Mosquitto's password file: PBKDF2 with SHA-512."""
    salt = secrets.token_bytes(12)
    digest = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, _ITERATIONS)
    encoded = (base64.b64encode(part).decode() for part in (salt, digest))
    return f"{user}:$7${_ITERATIONS}${'$'.join(encoded)}"


def write_configuration(
    directory: str | Path,
    keys: Mapping[int, bytes],
    *,
    names: Sequence[str] = ("localhost", "127.0.0.1"),
    address: str = "127.0.0.1",
    port: int = PORT,
    prefix: str = "tern",
    tls: bool = True,
    persistence: bool = True,
    queued: int = 100_000,
    hosts: int = 1,
    store: str | Path | None = None,
    home_assistant: str | bool | None = None,
) -> Access:
    """Write all that Mosquitto needs into `directory`, and host.json, with which the host reaches it.

    keys: of the first client of each board. names: host names and addresses under which boards reach the broker, which
    its certificate carries. queued: messages that may wait for one client; 0: no limit, and none to the broker's
    memory. hosts: how many processes may be connected as hosts at once, with names of their own: host.json,
    host-2.json, ... store: where the keys are, which host.json tells from then on. home_assistant: what its topics of
    discovery begin with, to let Home Assistant see the fleet; False: no more. What is there already stays: the
    authority, passwords of hosts and the store. Raises StorageError and UsageError.
    """
    if bad := [name for name in (*names, address) if not _NAME.fullmatch(name)]:
        raise UsageError(f"{bad[0]!r} is no host name or address", hint="such as broker.local or 10.0.0.7")
    if not 1 <= port <= 65535 or not 1 <= hosts <= _MOST_HOSTS:
        raise UsageError(f"a port is 1 to 65535, and hosts at once are 1 to {_MOST_HOSTS}")
    for topics in (prefix, home_assistant):
        if isinstance(topics, str):
            check_prefix(topics)
    directory = Path(directory).absolute()
    if any(character.isspace() for character in str(directory)):
        raise UsageError(f"{directory}: Mosquitto takes no path with a space", hint="name another directory")
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        if tls:
            from ternhost.fleet.certificates import write_certificates  # they need an extra

            write_certificates(directory, names)
        for host in range(1, hosts + 1):
            suffix = "" if host == 1 else f"-{host}"
            _write_host(
                directory / HOST.replace(".", suffix + "."),
                Access(names[0], port, HOST_USER + suffix, "", AUTHORITY if tls else None, prefix),
                None if suffix else store,
            )
        _let_home_assistant(directory, home_assistant)
        _write_access(directory)
        write_passwords(directory, keys)
        files = f"certfile {directory / CERTIFICATE}\nkeyfile {directory / KEY}\ntls_version tlsv1.2"
        text = _MOSQUITTO_CONF.format(
            config=directory / CONFIG,
            pid=directory / PID,
            user=getpass.getuser(),
            port=port,
            address=address,
            tls=files if tls else "# without TLS",
            passwords=directory / PASSWORDS,
            access=directory / ACCESS,
            largest_packet=wire.MAX_FRAME + 128,
            queued=queued,
            queued_bytes=queued * _QUEUED_BYTES,
            memory=_memory(keys) if queued else 0,
            persistence="true" if persistence else "false",
            directory=directory,
        )
        write_file(directory / CONFIG, text.encode())
    except OSError as error:
        raise StorageError(f"cannot write {error.filename}: {error.strerror}") from error
    return Access.load(directory / HOST)


def _hosts(directory: Path) -> list[Access]:
    return [Access.load(path) for path in sorted(directory.glob(HOST.replace(".", "*.")))]


def home_access(directory: str | Path) -> tuple[Access, Access] | None:
    """How tern reaches the broker of a directory for Home Assistant, and how Home Assistant does; None: not at all.

    The prefix of the second is that of discovery. Raises UsageError and StorageError.
    """
    paths = [Path(directory) / name for name in (PUBLISHER, HOME_ASSISTANT)]
    if not all(path.exists() for path in paths):
        return None
    publisher, home = (Access.load(path) for path in paths)
    return publisher, home


def discovery_topic(publisher: Access, home: Access) -> str:
    """Where Home Assistant is told what there is to know of a fleet."""
    return f"{home.prefix}/device/{publisher.prefix.replace('/', '_').replace('.', '_')}/config"


def _let_home_assistant(directory: Path, prefix: str | bool | None) -> None:
    """Let Home Assistant, whose discovery topics begin with `prefix`, see the fleet of a broker; False: no more; None:
    as before. To be called before the passwords and the access list are written.
    """
    if prefix is None and (before := home_access(directory)):
        prefix = before[1].prefix
    if prefix is None:
        return
    if not isinstance(prefix, str):
        for name in (PUBLISHER, HOME_ASSISTANT):
            (directory / name).unlink(missing_ok=True)
        return
    host = json.loads((directory / HOST).read_text())
    for name, user, of in ((PUBLISHER, PUBLISHER_USER, host["prefix"]), (HOME_ASSISTANT, HOME_USER, prefix)):
        own = Access(host["host"], host["port"], user, "", host["authority"], of)
        _write_host(directory / name, own, None)


def _write_access(directory: Path) -> None:
    text = "".join(_HOST_ACCESS.format(host=host.user, prefix=host.prefix) for host in _hosts(directory))
    if users := home_access(directory):
        publisher, home = users
        text += _HOME_ACCESS.format(
            publisher=publisher.user,
            discovery=discovery_topic(publisher, home),
            prefix=publisher.prefix,
            denied=_DENIED.format(prefix=publisher.prefix),
            home=home.user,
            home_prefix=home.prefix,
        )
    write_file(
        directory / ACCESS,
        (text + _BOARD_ACCESS.format(prefix=Access.load(directory / HOST).prefix)).encode(),
    )


def _memory(keys: Mapping[int, bytes]) -> int:
    return max(_MEMORY, _MEMORY_EACH * len(keys))


def _write_host(path: Path, access: Access, store: str | Path | None) -> None:
    old = Access.load(path) if path.exists() else None
    password = old.password if old else secrets.token_urlsafe(16)
    store = store or (old.store if old else None)
    relative = os.path.relpath(store, path.parent) if store else None
    whole = asdict(replace(access, password=password, store=relative))
    write_file(path, json.dumps(whole, indent=1).encode() + b"\n", secret=True)


def configure(
    directory: str | Path,
    store: str | Path | None = None,
    *,
    home_assistant: str | bool | None = None,
    **options: Any,
) -> Access:
    """Write the configuration of a broker for the devices of a store, which is made, empty, where there is none.

    store: by default the one that host.json tells, or store.sqlite in the directory. home_assistant, options: of
    `write_configuration`; where there is a configuration and no other option is named, its passwords change, its memory
    with their number, and the access list; `reload` has a Mosquitto that runs take them. Raises StorageError and
    UsageError.
    """
    directory = Path(directory)
    old = Access.load(directory / HOST) if (directory / HOST).exists() else None
    path = Path(store or (old and old.store) or directory / STORE)
    keys: dict[int, bytes] = {}
    if path.exists():
        with Store(path, create=False, beside=True) as there:
            keys = there.keys()
    if old and old.store and not options and (directory / CONFIG).exists():
        if isinstance(home_assistant, str):
            check_prefix(home_assistant)
        _write_host(directory / HOST, replace(old, authority=old.authority and AUTHORITY), path)
        _let_home_assistant(directory, home_assistant)
        _write_access(directory)
        write_passwords(directory, keys)
        text = (directory / CONFIG).read_text()
        write_file(directory / CONFIG, _MEMORY_LINE.sub(f"memory_limit {_memory(keys)}", text).encode())
    else:
        write_configuration(directory, keys, store=path, home_assistant=home_assistant, **options)
    if not path.exists():
        Store(path, beside=True).close()
    return Access.load(directory / HOST)


def write_passwords(directory: str | Path, keys: Mapping[int, bytes]) -> None:
    """Write the password file anew, for the hosts and for the boards whose first clients have `keys`.

    A broker that runs takes it on SIGHUP. Raises StorageError.
    """
    directory = Path(directory)
    hosts = [*_hosts(directory), *(home_access(directory) or ())]
    lines = [password_line(host.user, host.password) for host in hosts]
    lines += [password_line(mqtt.name(device), mqtt.password(key)) for device, key in keys.items()]
    try:
        write_file(directory / PASSWORDS, "\n".join(lines).encode() + b"\n", secret=True)
    except OSError as error:
        raise StorageError(f"cannot write {error.filename}: {error.strerror}") from error
