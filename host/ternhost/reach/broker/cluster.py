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
_BCRYPT_COST = 4  # the least: the passwords are random and have 128 bits


def check(hosts: Sequence[str], *prefixes: str | bool | None) -> None:
    """Raise UsageError for too few nodes, or for prefixes of topics that NATS cannot have."""
    require("bcrypt")
    node_count = len(set(hosts))
    if node_count < _LEAST:
        raise UsageError(
            f"a cluster has {_LEAST} nodes or more, not {node_count}: "
            "most of them must run at any time",
            hint="name each node: tern broker config DIR --for nats --name n1.local "
            "--name n2.local --name n3.local",
        )
    for prefix in prefixes:
        if "." in str(prefix):
            raise UsageError(
                f"NATS has no topics with a '.', such as {prefix!r}", hint="name another prefix"
            )


def write_nodes(directory: Path, access: Access) -> None:
    """Write the configuration of each node, and its copies of the certificates. Raises OSError."""
    path = directory / _ROUTES
    if not path.exists():
        write_file(path, secrets.token_urlsafe(16).encode(), secret=True)
    password = path.read_text()
    for name in access.hosts:
        node = directory / NODES / name
        node.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_file(node / CONFIG, _node_conf(name, access, password).encode(), secret=True)
        if access.authority:
            for file in (AUTHORITY, CERTIFICATE, KEY):
                write_file(node / file, (directory / file).read_bytes(), secret=True)


def _node_conf(name: str, access: Access, password: str) -> str:
    """Return the configuration of a node.

    name: of the node. password: of the nodes among themselves, with which each connects to all.
    """
    route_port = access.port + 1
    routes = []
    for host in access.hosts:
        routes.append(f"nats://node:{password}@{bracketed(host)}:{route_port}")
    conf = template(CONFIG).format(
        name=name,
        address=bracketed(name) if is_address(name) else "0.0.0.0",
        ports=(access.port, route_port),
        password=password,
        routes="\n    ".join(routes),
    )
    if not access.authority:
        conf = re.sub(r" +tls .*\n", "", conf)
    return conf


def write_users(
    directory: Path,
    access: Access,
    rights: Mapping[Access, Rights],
    passwords: Iterable[tuple[str, str]],
) -> None:
    """Write the file with the users of a cluster for each of its nodes.

    rights: of the users that are no boards. passwords: (user, password) of all. A hash that fits
    its password stays, since a node drops the connection of a user that has changed. Raises
    OSError.
    """
    nodes = [directory / NODES / name for name in access.hosts]
    old_hashes = _read_hashes(nodes[0] / _USERS)
    rights_by_user = {account.user: account_rights for account, account_rights in rights.items()}
    text = "users: [\n"
    for user, password in passwords:
        user_rights = rights_by_user.get(user) or board_rights(access.prefix)
        entry = {
            "user": user,
            "password": _hash(password, old_hashes.get(user)),
            "permissions": _permissions(user_rights, user),
            "allowed_connection_types": ["MQTT"],
        }
        text += json.dumps(entry) + "\n"
    text += "]\n"
    for node in nodes:
        write_file(node / _USERS, text.encode(), secret=True)


def _read_hashes(path: Path) -> dict[str, str]:
    """Read the password hashes in a node's file of users, by user."""
    if not path.exists():
        return {}
    entries = path.read_text().splitlines()[1:-1]  # between the lines with the brackets
    hashes = {}
    for line in entries:
        entry = json.loads(line)
        hashes[entry["user"]] = entry["password"]
    return hashes


def _hash(password: str, old_hash: str | None) -> str:
    """Return the old hash if it is that of the password, or else a new one."""
    import bcrypt

    secret = password.encode()
    if old_hash and bcrypt.checkpw(secret, old_hash.encode()):
        return old_hash
    return bcrypt.hashpw(secret, bcrypt.gensalt(_BCRYPT_COST)).decode()


def _permissions(rights: Rights, user: str) -> dict[str, list[str]]:
    """Return the subjects of NATS to which a user may publish and subscribe."""
    publish = [_subject(topic, user) for topic in rights.write]
    subscribe = [_subject(topic, user) for topic in rights.read]
    # '#' takes the level above, too.
    subscribe += [subject.removesuffix(".>") for subject in subscribe if subject.endswith(".>")]
    # A message at QoS 1 reaches a client through a subject of the server's own.
    subscribe.append("$MQTT.sub.*")
    return {"publish": publish, "subscribe": subscribe}


def _subject(topic: str, user: str) -> str:
    """Return the NATS subject of an MQTT topic, in which %u stands for the user."""
    subject = topic.replace("%u", user).replace("/", ".")
    return subject.replace("+", "*").replace("#", ">")
