"""The configuration of a broker: certificates, passwords, access list."""

import base64
import hashlib
import socket
import stat

import numpy as np
import pytest
from cryptography import x509

from tern.links import mqtt
from tern.tcp import Lost
from ternhost.errors import USAGE, UsageError
from ternhost.extensions import EXTENSIONS, Extension
from ternhost.privacy.accounting import Policy
from ternhost.provision import keys
from ternhost.provision.boards import provision_fleet
from ternhost.reach.broker import configuration, mosquitto_files
from ternhost.reach.broker.access import CERTIFICATE, CONFIG, HOST, KEY, Access, Rights
from ternhost.reach.broker.configuration import BrokerOptions
from ternhost.reach.broker.guests import Guest
from ternhost.reach.broker.kinds import KINDS, BrokerKind
from ternhost.reach.broker.mosquitto import configure_if_missing
from ternhost.reach.broker.mosquitto_kind import MOSQUITTO
from ternhost.registry import Registry
from ternhost.store import store_file
from ternhost.store.store import Store
from terntools.emulators import at_broker

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
    assert set(hashes) == {"tern-host", "tern-watch", "00000007", "00000008"}
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
        ("names", ("999.1.1.1",)),
        ("names", ("10.0.0",)),
        ("names", ("10.0.0.0.7",)),
        ("names", ("12345",)),
        ("names", ("0x7f.1",)),
        ("names", ("a..b",)),
        ("names", ("-a.local",)),
        ("names", ("a-.local",)),
        ("names", ("broker.local:8883",)),
        ("names", ("mqtts://broker.local",)),
        ("names", ("1:2",)),
        ("names", ("0.0.0.0",)),
        ("names", ("",)),
        ("address", "999.1.1.1"),
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
    """The store has the keys of devices, so only its owner can read it. It is found again when the
    folder was moved.
    """
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


def test_configuring_again_without_options_changes_only_what_depends_on_the_devices(tmp_path):
    first = configuration.configure(tmp_path, port=1234, address="0.0.0.0")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    with Store(first.store) as store:  # as a host has it open
        keys.add(store, [9])
        configuration.configure(tmp_path)
    assert set(passwords(tmp_path)) == {"tern-host", "tern-watch", "00000009"}
    of_devices = {mosquitto_files.PASSWORDS, mosquitto_files.ACCESS, store_file.NAME}
    for name in before.keys() - of_devices:
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


class Visitor(Guest):
    """A program that another package lets see a fleet."""

    name = "visitor"
    title = "the visitor"
    about = "let it in"
    default_prefix = "home"
    user, file = "visitor", "visitor.json"
    publisher, publisher_file = "publisher", "visitor-publisher.json"

    def rights(self, fleet_prefix, own_prefix):
        topics = [f"{own_prefix}/#"]
        return Rights(write=topics, read=[]), Rights(write=[], read=topics)


class Visits(Extension):
    name = "visits"
    guests = (Visitor(),)


@pytest.fixture
def visitor():
    """A guest for `tern broker config --guest`, for one test."""
    with EXTENSIONS.lent("visits", Visits()):
        yield


@pytest.mark.usefixtures("visitor")
@pytest.mark.parametrize(
    ("fleet", "home"), [("tern", "tern/up"), ("farm/a", "farm")], ids=["below", "above"]
)
def test_the_topics_of_a_guest_are_none_of_the_fleet(tmp_path, fleet, home):
    with pytest.raises(UsageError):
        configuration.configure(tmp_path / "new", prefix=fleet, guest_prefixes={"visitor": home})
    assert not (tmp_path / "new").exists()


@pytest.mark.usefixtures("visitor")
def test_a_guest_is_let_in_stays_and_is_let_out_again(here, tern):
    """A guest is a user of the broker beside host and boards, such as a home automation, with
    rights of its own. It stays when the broker is configured again, until its option removes it.
    """
    config = ["broker", "config", "new"]
    for words in (["--guest", "visitor"], ["--port", "1234"], []):
        assert "the visitor reaches it" in tern(*config, *words).out
        assert {"visitor", "publisher"} <= set(passwords(here / "new"))
        access_list = (here / "new" / mosquitto_files.ACCESS).read_text()
        assert "user visitor\ntopic read home/#\ntopic deny tern/round\n" in access_list
    tern(*config, "--guest", "visitor:none")
    assert set(passwords(here / "new")) == {"tern-host", "tern-watch"}


@pytest.mark.usefixtures("visitor")
def test_the_topics_of_a_guest_begin_as_its_option_says(here, tern):
    tern("broker", "config", "new", "--guest", "visitor:house")
    assert "topic read house/#" in (here / "new" / mosquitto_files.ACCESS).read_text()


@pytest.mark.usefixtures("visitor")
def test_a_guest_that_does_not_exist_is_refused_and_nothing_is_written(here, tern):
    failed = tern("broker", "config", "new", "--guest", "visitors", code=USAGE)
    assert "--guest" in failed.err
    assert not (here / "new").exists()


class OtherKind(BrokerKind):
    """A kind of broker as another package adds it, for hosts with names in `.other`."""

    name = "other"
    title = "another broker"
    about = "one with files of its own"
    names_here = ("here.other",)
    without_run = "another broker runs by itself"

    def has(self, directory, access):
        return access.host.endswith(".other")

    def check_bridge(self):
        raise UsageError("it has no bridges")

    def write(self, directory, access, *, address, boards):
        (directory / "other").write_text(f"{access.host} {boards}")

    def write_users(self, directory, access, users):
        (directory / "users").write_text(" ".join(users.passwords))

    def start_command(self, directory):
        return f"other {directory}"

    def reload(self, directory):
        return False


def test_another_kind_of_broker_writes_its_own_files(here, tern):
    """A package can register a kind of broker besides Mosquitto: `--for` chooses it, and later
    calls keep it and only write its users.
    """
    with KINDS.lent("other", OtherKind()):
        made = tern("broker", "config", "new", "--for", "other")
        assert "start the broker: other new" in made.out
        with Store("new/store.sqlite") as store:
            keys.add(store, [7])
        tern("broker", "config", "new")
    assert (here / "new/other").read_text() == "here.other 0", "it is configured once"
    assert (here / "new/users").read_text() == "tern-host tern-watch 00000007"
    assert not (here / "new" / CONFIG).exists()


@pytest.mark.parametrize(
    "words",
    [
        "config one --for other",
        "site new lab",
        "run new",
    ],
)
def test_a_directory_keeps_its_kind_of_broker_and_tern_runs_only_mosquitto(here, tern, words):
    with KINDS.lent("other", OtherKind()):
        configuration.configure("one")
        configuration.configure("new", kind="other")
        tern("broker", *words.split(), code=USAGE)


def test_emulated_boards_name_how_a_broker_of_their_kind_is_started(here, capsys, monkeypatch):
    monkeypatch.setattr(at_broker, "_PATIENCE", 0)
    monkeypatch.setattr(at_broker, "log_in", lambda board: Lost("it does not answer"))
    with KINDS.lent("other", OtherKind()):
        configuration.configure("new", kind="other")
        with Store("new/store.sqlite") as store:
            provision_fleet(store, [here / "board"], np.zeros((1, 2), np.int16), Policy(1, 1))
        at_broker.connect(
            "new", here / "new/store.sqlite", here / "new/store.sqlite", [here / "board"]
        )
    warned = capsys.readouterr().err
    assert "other new" in warned
    assert "tern broker run" not in warned


def test_a_kind_of_broker_that_is_missing_names_its_package(tmp_path, monkeypatch):
    """The folder was configured for a cluster of NATS, and the package with that kind of broker is
    not installed.
    """
    Access("a.other,b.other", 1, "tern-host", "", None).save(tmp_path / HOST)
    kinds = Registry("kind of broker", "tern.brokers", {})
    kinds.register("mosquitto", MOSQUITTO)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ternhost.registry._is_there", lambda package: False)
        assert "nats" not in kinds
    monkeypatch.setattr("ternhost.reach.broker.kinds.KINDS", kinds)
    with pytest.raises(UsageError) as caught:
        configuration.configure(tmp_path)
    assert caught.value.hint == "install its package: terngateway (for nats)"
