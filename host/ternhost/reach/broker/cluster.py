"""The files of a cluster of NATS servers, a broker that survives the loss of a node. Each node has a directory, to be
copied to its machine. Users and their rights are those of Mosquitto's access list.
"""

from __future__ import annotations

import json
import secrets
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from tern import wire
from ternhost.errors import UsageError
from ternhost.extras import require
from ternhost.files import write_file
from ternhost.reach.addresses import AUTHORITY, is_address
from ternhost.reach.broker.access import CERTIFICATE, KEY, Access

NODES = "nodes"
HERE = ("127.0.0.1", "127.0.0.2", "127.0.0.3")  # of a cluster on one machine
CONFIG = "nats.conf"
PID = "nats.pid"
_USERS = "users.conf"
_ROUTES = "routes"  # the file with the password of the nodes among themselves
_LEAST = 3  # nodes: of two, neither goes on alone
_COST = 4  # of bcrypt, the least: the passwords are random and have 128 bits

# A message at QoS 1 reaches a client through a subject of the server's own.
_DELIVERY = "$MQTT.sub.*"

_NATS_CONF = """\
# Written by tern. Start in this directory: nats-server -c nats.conf
server_name: "{name}"
pid_file: "nats.pid"
# For clients of NATS itself, whom users.conf does not let in.
listen: "127.0.0.1:-1"
# A retained message is stored as text.
max_payload: {largest_payload}
max_pending: 32M
jetstream {{ store_dir: "jetstream", max_mem: 128M, max_file: 4G }}
authorization {{ include "users.conf" }}
cluster {{
  name: "tern"
  listen: "{address}:{route_port}"
  no_advertise: true
  authorization {{ user: "node", password: "{password}", timeout: 5 }}
  {route_tls}
  routes: [
    {routes}
  ]
}}
mqtt {{
  listen: "{address}:{port}"
  {tls}
  stream_replicas: 3
  max_ack_pending: 1000
}}
"""


def check(hosts: Sequence[str], *prefixes: str | bool | None) -> None:
    """Raise UsageError where there are too few nodes for a cluster, or NATS has no topics with one of the prefixes."""
    require("bcrypt")
    if len(set(hosts)) < _LEAST:
        raise UsageError(
            f"a cluster has {_LEAST} nodes or more, not {len(set(hosts))}: most of them must run at any time",
            hint="name each node: tern broker config DIR --for nats --name n1.local --name n2.local --name n3.local",
        )
    for prefix in prefixes:
        if "." in str(prefix):
            raise UsageError(f"NATS has no topics with a '.', such as {prefix!r}", hint="name another prefix")


def write_nodes(directory: Path, access: Access) -> None:
    """Write the configuration of each node, and its copies of the certificates. Raises OSError."""
    routes = directory / _ROUTES
    if not routes.exists():
        write_file(routes, secrets.token_urlsafe(16).encode(), secret=True)
    password, port = routes.read_text(), access.port + 1
    tls = f'tls {{ cert_file: "{CERTIFICATE}", key_file: "{KEY}" }}' if access.authority else "# without TLS"
    for name in access.hosts:
        node = directory / NODES / name
        node.mkdir(parents=True, exist_ok=True, mode=0o700)
        conf = _NATS_CONF.format(
            name=name,
            largest_payload=4 * wire.MAX_FRAME,
            address=_bracketed(name) if is_address(name) else "0.0.0.0",
            port=access.port,
            route_port=port,
            password=password,
            tls=tls,
            route_tls=tls.replace(" }", f', ca_file: "{AUTHORITY}", verify: true }}'),
            routes="\n    ".join(
                f"nats://node:{password}@{_bracketed(other)}:{port}" for other in access.hosts
            ),
        )
        write_file(node / CONFIG, conf.encode(), secret=True)
        for file in (AUTHORITY, CERTIFICATE, KEY) if access.authority else ():
            write_file(node / file, (directory / file).read_bytes(), secret=True)


def _bracketed(name: str) -> str:
    return f"[{name}]" if ":" in name else name


def write_users(directory: Path, access: Access, rules: str, passwords: Iterable[tuple[str, str]]) -> None:
    """Write the users of all nodes. rules: Mosquitto's access list; passwords: (user, password). Raises OSError.

    A hash that fits its password stays, since a node drops the connection of a user that has changed.
    """
    import bcrypt

    nodes = [directory / NODES / name for name in access.hosts]
    known = nodes[0] / _USERS
    lines = known.read_text().splitlines()[1:-1] if known.exists() else []
    hashes = {user["user"]: user["password"] for user in map(json.loads, lines)}
    rights = _rights(rules)
    text = "users: [\n"
    for user, password in passwords:
        secret, coded = password.encode(), hashes.get(user, "")
        if not (coded and bcrypt.checkpw(secret, coded.encode())):
            coded = bcrypt.hashpw(secret, bcrypt.gensalt(_COST)).decode()
        publish, subscribe = (
            [subject.replace("%u", user) for subject in rights[way, user] or rights[way, ""]]
            for way in ("write", "read")
        )
        permissions = {"publish": publish, "subscribe": [*subscribe, _DELIVERY]}
        whole = {
            "user": user,
            "password": coded,
            "permissions": permissions,
            "allowed_connection_types": ["MQTT"],
        }
        text += json.dumps(whole) + "\n"
    for node in nodes:
        write_file(node / _USERS, (text + "]\n").encode(), secret=True)


def _rights(rules: str) -> dict[tuple[str, str], list[str]]:
    # (write or read, user) -> subjects of NATS. Boards, to which the patterns apply, are the user "".
    rights: dict[tuple[str, str], list[str]] = defaultdict(list)
    user = ""
    for line in rules.splitlines():
        match line.split():
            case ["user", user]:
                pass
            case [kind, way, topic]:
                subject = topic.replace("/", ".").replace("+", "*").replace("#", ">")
                # '#' stands for the level above, too
                rights[way, user if kind == "topic" else ""] += {subject: 0, subject.removesuffix(".>"): 0}
    return rights
