"""A cluster of NATS servers as a kind of broker: it survives the loss of a node.

Each node has a directory, to be copied to its machine. Users have the same rights as with
Mosquitto.
"""

import json
import re
import secrets
from collections.abc import Sequence
from pathlib import Path

from ternhost.errors import UsageError
from ternhost.extras import require
from ternhost.files import write_file
from ternhost.reach.addresses import AUTHORITY, bracketed, is_address
from ternhost.reach.broker.access import CERTIFICATE, KEY, Access, Rights, board_rights
from ternhost.reach.broker.kinds import BrokerKind, BrokerUsers, hang_up

NODES = "nodes"  # in the directory of the broker, with a directory for each node
CONFIG = "nats.conf"
_TEMPLATE = Path(__file__).with_name("nats_broker.conf")
_PID = "nats.pid"
_USERS = "users.conf"
_ROUTES = "routes"  # the file with the password with which nodes connect to each other
# The least number of nodes. NATS needs a majority to go on, so of two nodes none could be lost.
_LEAST = 3
# The least cost of a hash that bcrypt allows. The passwords are random and have 128 bits, so that
# nobody can try them all, however fast the hash is.
_BCRYPT_COST = 4
_PASSWORD_BYTES = 16


class NatsCluster(BrokerKind):
    """A cluster of three NATS servers or more, each on its own machine."""

    name = "nats"
    title = "a cluster of NATS"
    about = "a cluster of NATS servers, which survives the loss of one, in DIR/nodes"
    example = (
        "tern broker config my-cluster --for nats --host n1.local --host n2.local --host n3.local"
    )
    start = "for a cluster, nats-server -c nats.conf in the directory of each node"
    without_run = (
        "nodes of a cluster run without tern: nats.conf in each directory of DIR/nodes says how"
    )
    names_here = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
    port_count = 2  # for clients, and for the nodes among themselves

    def host(self, names: Sequence[str]) -> str:
        return ",".join(names)  # the host may connect to any node

    def has(self, directory: Path, access: Access) -> bool:
        return access.is_cluster

    def check_bridge(self) -> None:
        raise UsageError(
            "a site's own broker is bridged to Mosquitto, and not to a cluster",
            hint="boards of a site connect to the cluster itself, and those on USB with --relay",
        )

    def check_place(self, directory: Path, names: Sequence[str]) -> None:
        node_count = len(set(names))
        if node_count < _LEAST:
            raise UsageError(
                f"a cluster has {_LEAST} nodes or more, not {node_count}: "
                "most of them must run at any time",
                hint="name each node: tern broker config DIR --for nats --host n1.local "
                "--host n2.local --host n3.local",
            )

    def check_users(self, prefixes: Sequence[str]) -> None:
        require("bcrypt")  # with which passwords are hashed
        for prefix in prefixes:
            if "." in prefix:
                raise UsageError(
                    f"NATS has no topics with a '.', such as {prefix!r}", hint="name another prefix"
                )

    def write(self, directory: Path, access: Access, *, address: str, boards: int) -> None:
        """Write the configuration of each node, and copies of the certificates for it.

        directory: the broker's directory. access: how the cluster is reached. address and boards
        are not used: nodes listen on their own addresses, and have a fixed limit of memory.
        """
        password_path = directory / _ROUTES
        if not password_path.exists():
            new_password = secrets.token_urlsafe(_PASSWORD_BYTES)
            write_file(password_path, new_password.encode(), secret=True)
        password = password_path.read_text()
        for name in access.hosts:
            node = directory / NODES / name
            node.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_file(node / CONFIG, _node_conf(name, access, password).encode(), secret=True)
            if access.authority:
                for file in (AUTHORITY, CERTIFICATE, KEY):
                    write_file(node / file, (directory / file).read_bytes(), secret=True)

    def write_users(self, directory: Path, access: Access, users: BrokerUsers) -> None:
        """Write the file with the users for each node.

        The hash of a password that has not changed stays as it is, since a node drops the
        connection of a user whose hash changes.
        """
        nodes = [directory / NODES / name for name in access.hosts]
        old_hashes = _read_hashes(nodes[0] / _USERS)
        rights_of_boards = board_rights(access.prefix)

        # A user in each line, which is JSON: `_read_hashes` relies on that.
        text = "users: [\n"
        for user, password in users.passwords.items():
            user_rights = users.rights.get(user, rights_of_boards)
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

    def start_command(self, directory: str) -> str:
        return f"nats-server -c {CONFIG} in each of {directory}/{NODES}/*, on its machine"

    def reload(self, directory: Path) -> bool:
        nodes = sorted((directory / NODES).glob("*"))
        reloaded = [hang_up(node, _PID, "nats-server") for node in nodes]
        return any(reloaded)


NATS_CLUSTER = NatsCluster()


def _node_conf(name: str, access: Access, password: str) -> str:
    """Return the text of nats.conf for a node.

    name: the host name or address of the node. access: how the cluster is reached. password: with
    which nodes connect to each other.
    """
    address = "0.0.0.0"  # a host name may stand for any of the machine's addresses
    if is_address(name):
        address = bracketed(name)
    route_port = access.port + 1  # where nodes connect to each other
    routes = []
    for host in access.hosts:
        routes.append(f"nats://node:{password}@{bracketed(host)}:{route_port}")
    conf = _TEMPLATE.read_text().format(
        name=name,
        address=address,
        ports=(access.port, route_port),
        password=password,
        routes="\n    ".join(routes),
    )
    if not access.authority:  # the template has lines for TLS
        conf = re.sub(r" +tls .*\n", "", conf)
    return conf


def _read_hashes(path: Path) -> dict[str, str]:
    """Return the hash of each user's password from a file that `NatsCluster.write_users` has written.

    The result is empty if there is no such file.
    """
    if not path.exists():
        return {}
    lines = path.read_text().splitlines()
    hashes = {}
    for line in lines[1:-1]:  # between those with the brackets; each is a user in JSON
        entry = json.loads(line)
        hashes[entry["user"]] = entry["password"]
    return hashes


def _hash(password: str, old_hash: str | None) -> str:
    """Return the bcrypt hash of a password: the old one if it is right, or else a new one."""
    import bcrypt

    secret = password.encode()
    if old_hash and bcrypt.checkpw(secret, old_hash.encode()):
        return old_hash
    return bcrypt.hashpw(secret, bcrypt.gensalt(_BCRYPT_COST)).decode()


def _permissions(rights: Rights, user: str) -> dict[str, list[str]]:
    """Return the NATS subjects to which a user may publish and subscribe.

    rights: the MQTT topics that the user may write and read.
    """
    publish = [_subject(topic, user) for topic in rights.write]
    subscribe = [_subject(topic, user) for topic in rights.read]
    for subject in list(subscribe):
        if subject.endswith(".>"):
            # In MQTT "a/#" includes "a" itself, while in NATS "a.>" does not include "a".
            subscribe.append(subject.removesuffix(".>"))
    # The server delivers messages at QoS 1 through a subject of its own.
    subscribe.append("$MQTT.sub.*")
    return {"publish": publish, "subscribe": subscribe}


def _subject(topic: str, user: str) -> str:
    """Return the NATS subject of an MQTT topic, in which %u stands for the user."""
    subject = topic.replace("%u", user).replace("/", ".")
    return subject.replace("+", "*").replace("#", ">")
