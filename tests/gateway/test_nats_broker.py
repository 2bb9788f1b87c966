"""The files of a cluster of NATS servers as a broker: configurations of its nodes, and users."""

import json
import stat

import bcrypt
import pytest
from cryptography import x509

from tern.links import mqtt
from ternhost.errors import USAGE
from ternhost.provision import keys
from ternhost.reach.addresses import AUTHORITY
from ternhost.reach.broker import configuration
from ternhost.reach.broker.access import CERTIFICATE, KEY
from ternhost.reach.broker.configuration import BrokerOptions
from ternhost.store.store import Store

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
    assert f'server_name: "{node}"' in conf
    for other in NODES:
        assert f"@{other}:8884" in conf, "the nodes know each other"


def test_a_host_and_the_certificate_of_a_cluster_name_every_node(cluster):
    directory, access = cluster
    assert access.hosts == [*NODES]
    certificate = x509.load_pem_x509_certificate((directory / CERTIFICATE).read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [name.value for name in names] == [*NODES]


RIGHTS = {
    "tern-host": {
        "publish": ["farm.a.round", "farm.a.model", "farm.a.down.*"],
        "subscribe": ["farm.a.up.*", "farm.a.hello.*", "farm.a.site.*", "$MQTT.sub.*"],
    },
    "00000007": {
        "publish": ["farm.a.up.00000007", "farm.a.hello.00000007"],
        "subscribe": ["farm.a.down.00000007", "farm.a.round", "farm.a.model", "$MQTT.sub.*"],
    },
}


@pytest.mark.parametrize("name", RIGHTS)
def test_a_user_of_a_cluster_has_the_rights_that_mosquitto_gives(cluster, name):
    directory, _ = cluster
    assert users(directory)[name]["permissions"] == RIGHTS[name]


def test_users_of_a_cluster_log_in_with_their_passwords_over_mqtt_alone(cluster):
    directory, _ = cluster
    user_by_name = users(directory)
    assert user_by_name.keys() == {"tern-host", "00000007", "00000008"}
    for user in user_by_name.values():
        assert user["allowed_connection_types"] == ["MQTT"]
    hashed = user_by_name["00000007"]["password"].encode()
    assert bcrypt.checkpw(mqtt.password(KEYS[7]).encode(), hashed)


def test_a_cluster_that_is_configured_again_keeps_its_nodes_and_the_hashes_of_its_users(tmp_path):
    first = configuration.configure(tmp_path, names=NODES, kind="nats")
    conf, before = (tmp_path / "nodes/n1.local/nats.conf").read_text(), users(tmp_path)
    with Store(first.store) as store:
        keys.add(store, [9])
    assert configuration.configure(tmp_path) == first
    assert users(tmp_path).keys() == {"tern-host", "00000009"}
    assert users(tmp_path)["tern-host"] == before["tern-host"], "a changed user is disconnected"
    assert (tmp_path / "nodes/n1.local/nats.conf").read_text() == conf


@pytest.mark.parametrize(
    "words",
    [
        "config one --for nats",
        "config three --for mosquitto",
        "config three --bridge lab",
        "config three --address 0.0.0.0",
        "config new --for nats --name n1.local --name n2.local",
        "config new --for nats --prefix farm.a",
        "run three",
    ],
)
def test_a_directory_keeps_its_kind_of_broker_and_a_cluster_is_not_run_by_tern(here, tern, words):
    configuration.configure("one")
    configuration.configure("three", kind="nats")
    tern("broker", *words.split(), code=USAGE)
