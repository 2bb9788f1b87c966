"""The files of a cluster of NATS servers as a broker: configurations of its nodes, and users."""

import json
import stat

import pytest

from ternhost.errors import USAGE
from ternhost.reach.addresses import AUTHORITY
from ternhost.reach.broker import configuration
from ternhost.reach.broker.access import CERTIFICATE, KEY
from ternhost.reach.broker.configuration import BrokerOptions

KEYS = {7: bytes(range(32)), 8: bytes(32)}
NODES = ("n1.local", "n2.local", "n3.local")


def users(directory):
    """The users of a cluster, by name, the same at every node."""
    (text,) = {(directory / "nodes" / node / "users.conf").read_text() for node in NODES}
    return {user["user"]: user for user in map(json.loads, text.splitlines()[1:-1])}


@pytest.fixture
def cluster(tmp_path):
    """The directory of a cluster, and the host's access to it."""
    options = BrokerOptions(NODES, kind="nats", prefix="farm/a")
    return tmp_path, configuration.write_configuration(tmp_path, KEYS, options)


@pytest.mark.parametrize("node", NODES)
def test_a_node_of_a_cluster_has_its_files_in_a_directory(cluster, node):
    directory, _ = cluster
    files = {path.name: path for path in (directory / "nodes" / node).iterdir()}
    assert files.keys() == {"nats.conf", "users.conf", AUTHORITY, CERTIFICATE, KEY}
    for path in files.values():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path.name

    conf = files["nats.conf"].read_text()
    for other in NODES:
        assert f"@{other}:8884" in conf, "the nodes know each other"


RIGHTS = {  # as subjects of NATS: "." for "/", and "*" for "+"
    "tern-host": {
        "publish": ["farm.a.round", "farm.a.model", "farm.a.model.limits", "farm.a.down.*"],
        "subscribe": ["farm.a.up.*", "farm.a.hello.*", "farm.a.site.*", "$MQTT.sub.*"],
    },
    "tern-watch": {
        "publish": ["farm.a.hello.tern-watch"],
        "subscribe": ["farm.a.hello.*", "$MQTT.sub.*"],
    },
    "00000007": {
        "publish": ["farm.a.up.00000007", "farm.a.hello.00000007"],
        "subscribe": [
            "farm.a.down.00000007",
            "farm.a.round",
            "farm.a.model.>",
            "farm.a.model",
            "$MQTT.sub.*",
        ],
    },
}


@pytest.mark.parametrize("name", RIGHTS)
def test_a_user_of_a_cluster_has_the_rights_that_mosquitto_gives(cluster, name):
    directory, _ = cluster
    assert users(directory)[name]["permissions"] == RIGHTS[name]


@pytest.mark.parametrize(
    "words",
    [
        "config new --for nats --host n1.local --host n2.local",
        "config new --for nats --prefix farm.a",
    ],
)
def test_a_cluster_that_cannot_run_is_refused(here, tern, words):
    configuration.configure("three", kind="nats")
    tern("broker", *words.split(), code=USAGE)
    assert not (here / "new").exists()
