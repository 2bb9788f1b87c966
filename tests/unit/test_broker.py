"""The configuration of a broker: certificates, passwords, access list."""

import base64
import contextlib
import hashlib
import json
import socket
import ssl
import stat
import struct

import bcrypt
import pytest
from cryptography import x509

from tern import storage
from tern.links import mqtt
from ternhost.errors import USAGE, StorageError, UsageError
from ternhost.provision import keys
from ternhost.provision.boards import fleet_file
from ternhost.reach.addresses import AUTHORITY
from ternhost.reach.broker import configuration, mosquitto_files
from ternhost.reach.broker.access import CERTIFICATE, CONFIG, HOST, KEY, Access, host_file
from ternhost.reach.broker.configuration import BrokerOptions
from ternhost.reach.broker.mosquitto import configure_if_missing
from ternhost.store import store_file
from ternhost.store.store import Store
from terntools.boards.attach import write_network

KEYS = {7: bytes(range(32)), 8: bytes(32)}


def passwords(directory):
    """The hash of each user's password."""
    lines = (directory / mosquitto_files.PASSWORDS).read_text().splitlines()
    return dict(line.split(":", 1) for line in lines)


def matches(coded, password):
    _, kind, iterations, salt, digest = coded.split("$")
    expected = hashlib.pbkdf2_hmac(
        "sha512", password.encode(), base64.b64decode(salt), int(iterations)
    )
    return kind == "7" and base64.b64decode(digest) == expected


def subjects(directory):
    """The kind and the text of each name that the broker's certificate is for."""
    certificate = x509.load_pem_x509_certificate((directory / CERTIFICATE).read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [(type(name), str(name.value)) for name in names]


@pytest.mark.parametrize(
    ("user", "password", "is_there"),
    [("7", "secret", True), ("7", "Secret", False), ("8", "secret", False)],
)
def test_the_password_file_knows_its_passwords(tmp_path, user, password, is_there):
    mosquitto_files.write_password_file(tmp_path, [("7", "secret")])
    assert mosquitto_files.has_password(tmp_path, user, password) == is_there


@pytest.mark.parametrize(
    "line", ["7:$6$c2FsdA==$ZGlnZXN0", "7:plain", "7:$7$x$c2FsdA==$ZGlnZXN0", "7"]
)
def test_a_password_of_another_kind_does_not_count_as_missing(tmp_path, line):
    (tmp_path / mosquitto_files.PASSWORDS).write_text(line + "\n")
    assert mosquitto_files.has_password(tmp_path, "7", "secret")


def test_passwords_follow_from_the_keys(tmp_path):
    access = configuration.write_configuration(tmp_path, KEYS)
    hashes = passwords(tmp_path)
    assert set(hashes) == {"tern-host", "00000007", "00000008"}
    assert matches(hashes["tern-host"], access.password)
    for device, key in KEYS.items():
        assert matches(hashes[mqtt.name(device)], mqtt.password(key))


def test_only_their_owner_reads_secrets(tmp_path):
    configuration.write_configuration(tmp_path, KEYS)
    for name in (mosquitto_files.PASSWORDS, mosquitto_files.ACCESS, HOST, KEY, "authority.key"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600, name


def test_writing_again_keeps_authority_and_host_and_takes_new_keys(tmp_path):
    first = configuration.write_configuration(tmp_path, KEYS)
    authority = (tmp_path / AUTHORITY).read_bytes()
    options = BrokerOptions(("broker.local", "10.0.0.7"), port=1234)
    second = configuration.write_configuration(tmp_path, {9: bytes(32)}, options)
    assert (second.password, second.host, second.port) == (first.password, "broker.local", 1234)
    assert (tmp_path / AUTHORITY).read_bytes() == authority
    assert set(passwords(tmp_path)) == {"tern-host", "00000009"}
    assert subjects(tmp_path) == [(x509.DNSName, "broker.local"), (x509.IPAddress, "10.0.0.7")]


def test_a_certificate_is_valid_for_a_board_without_a_clock(tmp_path):
    configuration.write_configuration(tmp_path, KEYS)
    certificate = x509.load_pem_x509_certificate((tmp_path / CERTIFICATE).read_bytes())
    assert certificate.not_valid_before_utc.year < 2000, "an ESP32 without a clock begins in 2000"


def test_python_accepts_the_certificate(tmp_path):
    configuration.write_configuration(tmp_path, {})
    context = ssl.create_default_context(cafile=tmp_path / AUTHORITY)
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / CERTIFICATE, tmp_path / KEY)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(to_client, to_server, server_hostname="localhost")
    broker = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for end in (client, broker):
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
    assert client.getpeercert()["subjectAltName"] == (
        ("DNS", "localhost"),
        ("IP Address", "127.0.0.1"),
    )


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("port", 0),
        ("port", 65536),
        ("names", ("",)),
        ("names", ("localhost", "a b")),
        ("address", "0.0.0.0\nallow_anonymous true"),
        ("prefix", ""),
        ("prefix", "a/#"),
        ("prefix", "a\ntopic readwrite #"),
        ("prefix", 65 * "a"),
    ],
)
def test_an_invalid_configuration_is_refused_and_nothing_is_written(tmp_path, option, value):
    with pytest.raises(UsageError):
        configuration.write_configuration(tmp_path / "new", KEYS, BrokerOptions(**{option: value}))
    assert not (tmp_path / "new").exists()


def test_mosquitto_takes_no_path_with_a_space(tmp_path):
    with pytest.raises(UsageError):
        configuration.write_configuration(tmp_path / "a b", KEYS)


def test_a_directory_that_cannot_be_made_is_a_storage_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError):
        configuration.write_configuration(tmp_path / "file" / "x", KEYS)


@pytest.mark.parametrize("place", ["my-broker", "my-broker/other.json"])
def test_a_missing_broker_names_the_command_that_makes_it(tmp_path, place):
    with pytest.raises(UsageError) as caught:  # before keys are written beside it
        Access.load(host_file(tmp_path / place))
    assert caught.value.hint == f"make it: tern broker config {tmp_path / 'my-broker'}"


def test_a_file_that_does_not_say_how_to_reach_a_broker_is_refused(tmp_path):
    (tmp_path / "host.json").write_text('{"host": 1}')
    with pytest.raises(UsageError):
        Access.load(tmp_path / "host.json")


def test_a_configuration_makes_its_store_and_names_it(tmp_path):
    access = configuration.configure(tmp_path / "new")
    store = tmp_path / "new" / store_file.NAME
    assert access.store == str(store)
    assert stat.S_IMODE(store.stat().st_mode) == 0o600
    assert set(passwords(tmp_path / "new")) == {"tern-host"}
    assert json.loads((tmp_path / "new" / HOST).read_text())["store"] == store_file.NAME
    (tmp_path / "new").rename(tmp_path / "moved")
    assert Access.load(tmp_path / "moved" / HOST).store == str(tmp_path / "moved" / store_file.NAME)


def test_the_store_may_be_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Store("fleet/store.sqlite") as store:
        made = keys.add(store, [7])
    access = configuration.configure("broker", "fleet/store.sqlite")
    assert json.loads((tmp_path / "broker" / HOST).read_text())["store"] == "../fleet/store.sqlite"
    assert access.store == "fleet/store.sqlite"
    assert matches(passwords(tmp_path / "broker")["00000007"], mqtt.password(made[7]))


def test_configuring_again_without_options_changes_only_the_passwords(tmp_path):
    first = configuration.configure(tmp_path, port=1234, names=("broker.local",), address="0.0.0.0")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    with Store(first.store) as store:
        keys.add(store, [9])
        assert configuration.configure(tmp_path) == first, "while a host has the store open"
    assert set(passwords(tmp_path)) == {"tern-host", "00000009"}
    for name in before.keys() - {mosquitto_files.PASSWORDS, store_file.NAME}:
        assert (tmp_path / name).read_bytes() == before[name], name
    assert configuration.configure(tmp_path, port=4321).port == 4321


def test_an_option_that_is_not_given_keeps_its_value(tmp_path):
    configuration.configure(
        tmp_path,
        port=1234,
        names=("broker.local", "10.0.0.7"),
        address="0.0.0.0",
        prefix="farm",
    )
    conf = (tmp_path / CONFIG).read_text()
    access = configuration.configure(tmp_path, tls=True)
    assert (access.host, access.port, access.prefix) == ("broker.local", 1234, "farm")
    assert (tmp_path / CONFIG).read_text() == conf
    assert [name for _, name in subjects(tmp_path)] == ["broker.local", "10.0.0.7"]
    configuration.configure(tmp_path, port=4321)
    assert "listener 4321 0.0.0.0\n" in (tmp_path / CONFIG).read_text()


def test_a_configuration_without_tls_stays_without_it(tmp_path):
    configuration.configure(tmp_path, tls=False, names=("broker.local",))
    assert "certfile" not in (tmp_path / CONFIG).read_text()
    assert not (tmp_path / KEY).exists()
    access = configuration.configure(tmp_path, port=4321)
    assert (access.authority, access.host) == (None, "broker.local")
    assert configuration.configure(tmp_path, tls=True).authority


def test_a_port_that_is_taken_is_not_the_default(tmp_path, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        monkeypatch.setattr("ternhost.reach.broker.mosquitto.PORT", taken)
        first = configure_if_missing(tmp_path)
    assert first.port != taken
    assert configure_if_missing(tmp_path) == first


def test_a_board_gets_its_network_and_fleet_files(tmp_path):
    access = configuration.write_configuration(tmp_path / "broker", KEYS)
    write_network(
        tmp_path,
        access,
        bytes(range(32)),
        pause=60,
        slot=250,
        ahead=24,
        epoch=3,
        records=64,
        keep_alive=30,
    )
    config = json.loads((tmp_path / mqtt.CONFIG).read_text())
    assert config == {
        "host": "localhost",
        "port": 8883,
        "prefix": "tern",
        "authority": "authority.der",
        "keep_alive": 30,
    }
    x509.load_der_x509_certificate((tmp_path / "authority.der").read_bytes())
    path = tmp_path / storage.FLEET
    assert storage.read_fleet(str(path)) == (bytes(range(32)), 60, 250, 24, 3, 64, 0)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_bytes() == struct.pack(
        "<4s32sIHHIHH", b"TFL3", bytes(range(32)), 60, 250, 24, 3, 64, 0
    )


@pytest.mark.parametrize(
    ("fleet", "home"),
    [
        ("tern", "tern"),
        ("tern", "tern/up"),
        ("farm/a", "farm"),
        ("homeassistant/x", "homeassistant"),
    ],
)
def test_home_assistant_is_kept_apart_from_the_fleet(tmp_path, fleet, home):
    with pytest.raises(UsageError, match="Home Assistant's topics cannot begin"):
        configuration.configure(tmp_path / "new", prefix=fleet, home_assistant=home)
    assert not (tmp_path / "new").exists()
    configuration.configure(tmp_path, prefix=fleet)
    with pytest.raises(UsageError, match="Home Assistant's topics cannot begin"):
        configuration.configure(tmp_path, home_assistant=home)
    configuration.configure(tmp_path, home_assistant="terns")
    with pytest.raises(UsageError, match="Home Assistant's topics cannot begin"):
        configuration.configure(tmp_path, prefix="terns/b")
    configuration.configure(tmp_path, prefix="terns/b", home_assistant=False)
    configuration.configure(tmp_path, prefix="terns/b", home_assistant="homeassistant")
    for name in ("round", "model", "down/+", "up/+", "hello/+", "site/+"):
        assert (tmp_path / mosquitto_files.ACCESS).read_text().count(
            f"topic deny terns/b/{name}\n"
        ) == 2


@pytest.mark.parametrize(
    ("name", "least", "most", "message"),
    [
        ("pause", 0, 86400, "--pause must be 0 to 86400 seconds, not {}"),
        ("slot", 0, 65535, "--slot-ms must be 0 to 65535, not {}"),
        ("ahead", 1, 1000, "--reserve must be 1 to 1000 reports, not {}"),
        ("epoch", 0, 2**32 - 1, "an epoch has 32 bits and a bound of records 16, not {} and 0"),
        ("records", 0, 65535, "an epoch has 32 bits and a bound of records 16, not 1 and {}"),
    ],
)
def test_a_policy_out_of_range_is_refused(name, least, most, message):
    for value in (least, most):
        assert fleet_file(bytes(32), **{name: value})
    for value in (least - 1, most + 1):
        with pytest.raises(UsageError) as caught:
            fleet_file(bytes(32), **{name: value})
        assert str(caught.value) == message.format(value)


NODES = ("n1.local", "n2.local", "n3.local")


def users(directory):
    """The users of a cluster, by name, the same at every node."""
    (text,) = {(directory / "nodes" / node / "users.conf").read_text() for node in NODES}
    return {user["user"]: user for user in map(json.loads, text.splitlines()[1:-1])}


def test_a_cluster_has_a_directory_for_each_node_and_the_rights_of_mosquitto(tmp_path):
    access = configuration.write_configuration(
        tmp_path, KEYS, BrokerOptions(NODES, nats=True, prefix="farm/a")
    )
    assert access.hosts == [*NODES]
    for node in NODES:
        files = {path.name: path for path in (tmp_path / "nodes" / node).iterdir()}
        assert files.keys() == {"nats.conf", "users.conf", AUTHORITY, CERTIFICATE, KEY}
        assert {stat.S_IMODE(path.stat().st_mode) for path in files.values()} == {0o600}
        conf = files["nats.conf"].read_text()
        assert f'server_name: "{node}"' in conf
        assert all(f"@{other}:8884" in conf for other in NODES)
    assert [name for _, name in subjects(tmp_path)] == [*NODES]
    rights = {name: user["permissions"] for name, user in users(tmp_path).items()}
    assert rights.keys() == {"tern-host", "00000007", "00000008"}
    assert rights["tern-host"] == {
        "publish": ["farm.a.round", "farm.a.model", "farm.a.down.*"],
        "subscribe": ["farm.a.up.*", "farm.a.hello.*", "farm.a.site.*", "$MQTT.sub.*"],
    }
    assert rights["00000007"] == {
        "publish": ["farm.a.up.00000007", "farm.a.hello.00000007"],
        "subscribe": ["farm.a.down.00000007", "farm.a.round", "farm.a.model", "$MQTT.sub.*"],
    }
    assert all(user["allowed_connection_types"] == ["MQTT"] for user in users(tmp_path).values())
    coded = users(tmp_path)["00000007"]["password"].encode()
    assert bcrypt.checkpw(mqtt.password(KEYS[7]).encode(), coded)
    write_network(tmp_path, access, bytes(32))
    assert json.loads((tmp_path / mqtt.CONFIG).read_text())["host"] == ",".join(NODES)


def test_a_cluster_that_is_configured_again_keeps_its_nodes_and_the_hashes_of_its_users(tmp_path):
    first = configuration.configure(tmp_path, names=NODES, nats=True)
    conf, before = (tmp_path / "nodes/n1.local/nats.conf").read_text(), users(tmp_path)
    with Store(first.store) as store:
        keys.add(store, [9])
    assert configuration.configure(tmp_path) == first
    assert users(tmp_path).keys() == {"tern-host", "00000009"}
    assert users(tmp_path)["tern-host"] == before["tern-host"], "a changed user is disconnected"
    assert configuration.configure(tmp_path, nats=True, tls=True).hosts == [*NODES]
    assert (tmp_path / "nodes/n1.local/nats.conf").read_text() == conf


def test_a_directory_keeps_its_kind_of_broker_and_a_cluster_is_not_run_by_tern(here, tern):
    configuration.configure("one")
    configuration.configure("three", nats=True)
    for words, message in (
        ("config one --for nats", "one has another kind of broker already"),
        ("config three --for mosquitto", "three has another kind of broker already"),
        ("config three --bridge lab", "--address and --bridge are for Mosquitto"),
        ("run three", "nodes of a cluster run without tern"),
    ):
        assert message in tern("broker", *words.split(), code=USAGE).err
    tern("broker", "config", "three", "--relay", "desk", "--boards", "1-9")
    assert Access.load(host_file("three/sites/desk")).hosts == [
        "127.0.0.1",
        "127.0.0.2",
        "127.0.0.3",
    ]
