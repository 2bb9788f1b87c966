"""The configuration of a broker: certificates, passwords, access list."""

import base64
import hashlib
import json
import socket
import stat

import pytest
from cryptography import x509

from tern.links import mqtt
from ternhost.errors import USAGE, UsageError
from ternhost.provision import keys
from ternhost.reach.addresses import AUTHORITY
from ternhost.reach.broker import configuration, mosquitto_files
from ternhost.reach.broker.access import CERTIFICATE, CONFIG, HOST, KEY, Access
from ternhost.reach.broker.configuration import BrokerOptions
from ternhost.reach.broker.mosquitto import configure_if_missing
from ternhost.store import store_file
from ternhost.store.store import Store

KEYS = {7: bytes(range(32)), 8: bytes(32)}


def passwords(directory):
    """The hash of each user's password."""
    lines = (directory / mosquitto_files.PASSWORDS).read_text().splitlines()
    return dict(line.split(":", 1) for line in lines)


def is_hash_of(coded, password):
    """Whether a line of mosquitto's file of passwords is about this one."""
    _, kind, iterations, salt, digest = coded.split("$")
    expected = hashlib.pbkdf2_hmac(
        "sha512", password.encode(), base64.b64decode(salt), int(iterations)
    )
    return kind == "7" and base64.b64decode(digest) == expected


def test_passwords_follow_from_the_keys(tmp_path):
    access = configuration.write_configuration(tmp_path, KEYS)
    hashes = passwords(tmp_path)
    assert set(hashes) == {"tern-host", "00000007", "00000008"}
    assert is_hash_of(hashes["tern-host"], access.password)
    for device, key in KEYS.items():
        assert is_hash_of(hashes[mqtt.name(device)], mqtt.password(key))


def test_only_their_owner_reads_secrets(tmp_path):
    configuration.write_configuration(tmp_path, KEYS)
    for name in (mosquitto_files.PASSWORDS, mosquitto_files.ACCESS, HOST, KEY, "authority.key"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600, name


def test_a_certificate_is_valid_for_a_board_without_a_clock(tmp_path):
    configuration.write_configuration(tmp_path, KEYS)
    certificate = x509.load_pem_x509_certificate((tmp_path / CERTIFICATE).read_bytes())
    assert certificate.not_valid_before_utc.year < 2000, "an ESP32 without a clock begins in 2000"


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("port", 65536),
        ("names", ("localhost", "a b")),
        ("address", "0.0.0.0\nallow_anonymous true"),
        ("prefix", "a/#"),
        ("prefix", "a\ntopic readwrite #"),
    ],
)
def test_an_invalid_configuration_is_refused_and_nothing_is_written(tmp_path, option, value):
    with pytest.raises(UsageError):
        configuration.write_configuration(tmp_path / "new", KEYS, BrokerOptions(**{option: value}))
    assert not (tmp_path / "new").exists()


def test_a_configuration_makes_its_store_and_names_it(tmp_path):
    access = configuration.configure(tmp_path / "new")
    store = tmp_path / "new" / store_file.NAME
    assert access.store == str(store)
    assert stat.S_IMODE(store.stat().st_mode) == 0o600

    (tmp_path / "new").rename(tmp_path / "moved")
    assert Access.load(tmp_path / "moved" / HOST).store == str(tmp_path / "moved" / store_file.NAME)


def test_the_store_may_be_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Store("fleet/store.sqlite") as store:
        made = keys.add(store, [7])
    access = configuration.configure("broker", "fleet/store.sqlite")
    assert access.store == "fleet/store.sqlite"
    assert is_hash_of(passwords(tmp_path / "broker")["00000007"], mqtt.password(made[7]))


def test_configuring_again_without_options_changes_only_the_passwords(tmp_path):
    first = configuration.configure(tmp_path, port=1234, address="0.0.0.0")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    with Store(first.store) as store:  # as a host has it open
        keys.add(store, [9])
        configuration.configure(tmp_path)
    assert set(passwords(tmp_path)) == {"tern-host", "00000009"}
    for name in before.keys() - {mosquitto_files.PASSWORDS, store_file.NAME}:
        assert (tmp_path / name).read_bytes() == before[name], name


def test_an_option_that_is_not_given_keeps_its_value(tmp_path):
    configuration.configure(tmp_path, names=("broker.local",), address="0.0.0.0", prefix="farm")
    access = configuration.configure(tmp_path, port=4321)
    assert (access.host, access.port, access.prefix) == ("broker.local", 4321, "farm")
    assert "listener 4321 0.0.0.0\n" in (tmp_path / CONFIG).read_text()


def test_a_port_that_is_taken_is_not_the_default(tmp_path, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        monkeypatch.setattr("ternhost.reach.broker.mosquitto.PORT", taken)
        first = configure_if_missing(tmp_path)
    assert first.port != taken
    assert configure_if_missing(tmp_path) == first


@pytest.mark.parametrize(
    ("fleet", "home"), [("tern", "tern/up"), ("farm/a", "farm")], ids=["below", "above"]
)
def test_home_assistant_s_topics_are_none_of_the_fleet(tmp_path, fleet, home):
    with pytest.raises(UsageError):
        configuration.configure(tmp_path / "new", prefix=fleet, home_assistant=home)
    assert not (tmp_path / "new").exists()


NODES = ("n1.local", "n2.local", "n3.local")


def users(directory):
    """The users of a cluster, by name, the same at every node."""
    (text,) = {(directory / "nodes" / node / "users.conf").read_text() for node in NODES}
    return {user["user"]: user for user in map(json.loads, text.splitlines()[1:-1])}


@pytest.fixture
def cluster(tmp_path):
    """The directory of a cluster, and the host's access to it."""
    options = BrokerOptions(NODES, nats=True, prefix="farm/a")
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


@pytest.mark.parametrize(
    "words", ["config one --for nats", "config three --bridge lab", "run three"]
)
def test_a_directory_keeps_its_kind_of_broker_and_a_cluster_is_not_run_by_tern(here, tern, words):
    configuration.configure("one")
    configuration.configure("three", nats=True)
    tern("broker", *words.split(), code=USAGE)
