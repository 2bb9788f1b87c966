"""The files of a cluster of NATS servers, a broker that survives the loss of a node.

Each node has a directory, to be copied to its machine. Users and their rights are those of
Mosquitto's access list.
"""

import json
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ternhost.errors import UsageError
from ternhost.extras import require
from ternhost.files import write_file
from ternhost.reach.addresses import AUTHORITY, bracketed, is_address
from ternhost.reach.broker.access import CERTIFICATE, KEY, Access, Rights, template
from ternhost.reach.broker.mosquitto_files import board_rights

NODES = "nodes"
HERE = ("127.0.0.1", "127.0.0.2", "127.0.0.3")  # of a cluster on one machine
CONFIG = "nats.conf"
PID = "nats.pid"
_USERS = "users.conf"
_ROUTES = "routes"  # the file with the password of the nodes among themselves
_LEAST = 3  # nodes: of two, neither goes on alone
_COST = 4  # of bcrypt, the least: the passwords are random and have 128 bits
_BY_MQTT = {"allowed_connection_types": ["MQTT"]}


def check(hosts: Sequence[str], *prefixes: str | bool | None) -> None:
    """Raise UsageError where there are too few nodes for a cluster, or NATS has no topics with one
    of the prefixes.
    """
    require("bcrypt")
    if len(set(hosts)) < _LEAST:
        raise UsageError(
            f"a cluster has {_LEAST} nodes or more, not {len(set(hosts))}: most of them must run at any time",
            hint="name each node: tern broker config DIR --for nats --name n1.local --name n2.local --name n3.local",
        )
    for prefix in prefixes:
        if "." in str(prefix):
            raise UsageError(
                f"NATS has no topics with a '.', such as {prefix!r}", hint="name another prefix"
            )


def write_nodes(directory: Path, access: Access) -> None:
    """Write the configuration of each node, and its copies of the certificates. Raises OSError."""
    path, port = directory / _ROUTES, access.port + 1
    if not path.exists():
        write_file(path, secrets.token_urlsafe(16).encode(), secret=True)
    password = path.read_text()
    routes = "\n    ".join(
        f"nats://node:{password}@{bracketed(name)}:{port}" for name in access.hosts
    )
    for name in access.hosts:
        node = directory / NODES / name
        node.mkdir(parents=True, exist_ok=True, mode=0o700)
        listens = {"name": name, "address": bracketed(name) if is_address(name) else "0.0.0.0"}
        ports = access.port, port
        conf = template(CONFIG).format(**listens, ports=ports, password=password, routes=routes)
        if not access.authority:
            conf = re.sub(r" +tls .*\n", "", conf)
        write_file(node / CONFIG, conf.encode(), secret=True)
        for file in (AUTHORITY, CERTIFICATE, KEY) if access.authority else ():
            write_file(node / file, (directory / file).read_bytes(), secret=True)


def _subject(topic: str, user: str) -> str:
    return topic.replace("%u", user).replace("/", ".").replace("+", "*").replace("#", ">")


def write_users(
    directory: Path,
    access: Access,
    rights: Mapping[Access, Rights],
    passwords: Iterable[tuple[str, str]],
) -> None:
    """Write the users of all nodes. rights: of all but boards; passwords: (user, password).

    Raises OSError.

    A hash that fits its password stays, since a node drops the connection of a user that has
    changed.
    """
    import bcrypt

    nodes = [directory / NODES / name for name in access.hosts]
    known = nodes[0] / _USERS
    lines = known.read_text().splitlines()[1:-1] if known.exists() else []
    hashes = {user["user"]: user["password"] for user in map(json.loads, lines)}
    by_user = {access.user: of_user for access, of_user in rights.items()}
    text = "users: [\n"
    for user, password in passwords:
        secret, coded = password.encode(), hashes.get(user, "")
        if not (coded and bcrypt.checkpw(secret, coded.encode())):
            coded = bcrypt.hashpw(secret, bcrypt.gensalt(_COST)).decode()
        own = by_user.get(user) or board_rights(access.prefix)
        publish, subscribe = (
            [_subject(topic, user) for topic in topics] for topics in (own.write, own.read)
        )
        # '#' takes the level above, too; a message at QoS 1 reaches a client through a subject of
        # the server's own.
        subscribe += [subject[:-2] for subject in subscribe if subject.endswith(".>")] + [
            "$MQTT.sub.*"
        ]
        permissions = {"publish": publish, "subscribe": subscribe}
        text += (
            json.dumps({"user": user, "password": coded, "permissions": permissions, **_BY_MQTT})
            + "\n"
        )
    for node in nodes:
        write_file(node / _USERS, (text + "]\n").encode(), secret=True)
