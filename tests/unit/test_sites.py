"""`tern broker site` writes the directory of a site and its rights at the central broker."""

import json
import shutil
import stat

import pytest

from tern.links import mqtt
from ternhost.errors import USAGE, UsageError
from ternhost.provision import keys
from ternhost.reach import addresses
from ternhost.reach.addresses import AUTHORITY
from ternhost.reach.broker import configuration
from ternhost.reach.broker.access import BOARDS, CERTIFICATE, CONFIG, HOST, KEY, Access
from ternhost.reach.broker.mosquitto_files import ACCESS, PASSWORDS
from ternhost.store.store import Store


@pytest.fixture
def central(tmp_path):
    """A central broker's directory, and the keys of its devices 1 to 4."""
    with Store(tmp_path / "store.sqlite") as store:
        device_keys = keys.add(store, [1, 2, 3, 4])
    directory = tmp_path / "my-broker"
    configuration.configure(
        directory, tmp_path / "store.sqlite", port=1234, names=("broker.local",)
    )
    return directory, device_keys


def users(directory):
    return {line.partition(":")[0] for line in (directory / PASSWORDS).read_text().splitlines()}


def section(directory, user):
    """The lines of a user in an access list, or None."""
    for part in (directory / ACCESS).read_text().split("\n\n"):
        if part.startswith(f"user {user}\n"):
            return part.splitlines()[1:]
    return None


@pytest.fixture
def lab(central):
    """The directory of a site with a broker, and two of the central broker's devices."""
    directory, _ = central
    configuration.add_site(
        directory,
        "lab",
        bridge=True,
        names=("lab.local",),
        address="0.0.0.0",
        port=8884,
        ids=range(2, 4),
    )
    return directory / "sites" / "lab"


def test_the_broker_of_a_site_lets_in_its_own_boards_alone(lab):
    assert users(lab) == {"00000002", "00000003"}


def test_a_site_has_no_key_of_a_device_and_no_password_of_the_host(central, lab):
    """A site has a broker of its own, joined to the central one; its operator is trusted less. Its
    directory contains no device's key, nor anything made from one, and neither the password of the
    host nor the key of the certificate authority.
    """
    directory, device_keys = central
    secrets = [Access.load(directory / HOST).password.encode()]
    for key in device_keys.values():
        secrets += [key, key.hex().encode(), mqtt.password(key).encode()]

    content = b"".join(path.read_bytes() for path in lab.iterdir())
    assert not [secret for secret in secrets if secret in content]
    assert not (lab / "authority.key").exists()


def test_only_its_owner_reads_the_secrets_of_a_site(lab):
    for name in (CONFIG, HOST, KEY, PASSWORDS, "site.json"):
        assert stat.S_IMODE((lab / name).stat().st_mode) == 0o600, name


@pytest.fixture
def after_new_keys(central, lab, tmp_path):
    """The central directory, after device 5 was added and 3 revoked; a desk has a relay for 4."""
    directory, _ = central
    configuration.add_site(directory, "lab", ids=range(3, 10))
    configuration.add_site(directory, "desk", relay=True, ids=range(4, 5))
    with Store(tmp_path / "store.sqlite") as store:
        keys.add(store, [5, 20])
        keys.revoke(store, [3])
    return directory


def test_new_keys_reach_the_broker_of_a_site(after_new_keys, lab):
    configuration.configure(after_new_keys)
    assert users(lab) == {"00000004", "00000005"}
    assert "topic write tern/up/00000005" in section(after_new_keys, "tern-site-lab")
    desk = json.loads((after_new_keys / "sites" / "desk" / BOARDS).read_text())
    assert list(desk) == ["00000004"], "the relay gets the passwords of its own boards alone"


def test_a_site_is_configured_with_its_central_broker_and_has_no_options_of_its_own(
    after_new_keys, lab
):
    """The central operator decides about the rights of a site. Configuring the site again only
    takes up new passwords of its boards; ports and guests are refused there.
    """
    access = configuration.configure(lab)
    assert access == Access.load(lab / HOST)
    assert users(lab) == {"00000004", "00000005"}

    for options in ({"port": 1234}, {"guest_prefixes": {"visitor": "home"}}):
        with pytest.raises(UsageError):
            configuration.configure(lab, **options)


def test_new_keys_change_nothing_else_of_a_site(after_new_keys, lab):
    """When devices get new keys, the central broker rewrites the passwords at its sites. Settings,
    certificate and the operator's own lines stay, and so does their mode: nobody but the owner may
    read them.
    """
    with (lab / CONFIG).open("a") as conf:
        conf.write("# mine\n")
    others = (CONFIG, CERTIFICATE, KEY, "site.json", HOST)
    before = {name: (lab / name).read_bytes() for name in others}

    configuration.configure(after_new_keys)
    assert {name: (lab / name).read_bytes() for name in others} == before
    assert stat.S_IMODE((lab / CONFIG).stat().st_mode) == 0o600


def test_a_site_whose_directory_is_removed_has_no_rights_any_more(central, lab):
    directory, _ = central
    shutil.rmtree(lab)
    configuration.configure(directory)
    assert "tern-site-lab" not in users(directory)
    assert section(directory, "tern-site-lab") is None


def test_a_site_for_a_relay_has_only_access_and_passwords(central):
    """A relay passes frames from boards on cables to the central broker, without a broker of its
    own. Its directory has the passwords of its boards, which their keys give, and no others; the
    central broker knows no user for the site.
    """
    directory, device_keys = central
    configuration.add_site(directory, "desk", relay=True, ids=range(2, 4))

    site = directory / "sites" / "desk"
    assert {path.name for path in site.iterdir()} == {AUTHORITY, BOARDS, HOST, "site.json"}
    assert json.loads((site / BOARDS).read_text()) == {
        mqtt.name(device): mqtt.password(device_keys[device]) for device in (2, 3)
    }
    assert stat.S_IMODE((site / BOARDS).stat().st_mode) == 0o600
    assert section(directory, "tern-site-desk") is None
    assert "tern-site-desk" not in users(directory)


@pytest.mark.parametrize(
    "options",
    [
        {"name": "../lab"},
        {"name": "lab", "bridge": True, "names": ("broker.local",)},
        {"name": "lab", "bridge": True, "address": "0.0.0.0\nuser x"},
        {"name": "lab", "relay": True, "port": 1},
    ],
    ids=["path", "name of the central broker", "line", "no broker"],
)
def test_an_impossible_site_is_refused(central, options):
    directory, _ = central
    with pytest.raises(UsageError):
        configuration.add_site(directory, **options)
    assert not (directory / "sites").exists()


@pytest.mark.parametrize(
    "options",
    [
        {"names": ("shed.local", "10.0.0.7")},  # the central broker
        {"names": ("lab.local",)},
        {"ids": range(99, 121)},  # device 99 is at the lab
    ],
    ids=["central name", "name of a site", "device"],
)
def test_brokers_share_no_name_and_no_device(tmp_path, options):
    configuration.configure(tmp_path, names=("broker.local", "10.0.0.7", "localhost"))
    lab = {"names": ("lab.local", "localhost"), "ids": range(1, 100)}
    configuration.add_site(tmp_path, "lab", bridge=True, **lab)
    with pytest.raises(UsageError):
        configuration.add_site(tmp_path, "shed", bridge=True, **options)
    assert not (tmp_path / "sites" / "shed").exists()


# tern broker site


@pytest.fixture
def broker(here, tern):
    """Add a site to a new broker by the command, and return what it prints as JSON."""
    tern("broker", "config", "my-broker")

    def add(*words):
        return tern("broker", "site", "my-broker", *words, "--json").json

    return add


def test_a_new_site_has_a_broker_of_its_own_where_the_options_say(broker):
    site = broker("lab", "--host", "lab.local", "--port", "8884")
    assert site["bridge"]
    assert not site["relay"]
    assert (site["names"], site["address"], site["port"]) == (["lab.local"], "0.0.0.0", 8884)


@pytest.mark.parametrize(
    ("names", "address"),
    [
        (["lab.local"], "0.0.0.0"),
        (["localhost", "lab.local"], "0.0.0.0"),
        (["2001:db8::7"], "::"),
        (["localhost", "127.0.0.2"], "127.0.0.1"),
        (["::1"], "::1"),
    ],
)
def test_a_broker_listens_on_the_network_if_one_of_its_names_is_of_the_network(names, address):
    assert addresses.listening_address(names) == address


def test_a_new_site_without_options_has_a_broker_of_its_own(broker):
    assert broker("lab")["bridge"]


def test_a_site_with_a_relay_alone_has_no_broker(broker):
    site = broker("desk", "--relay")
    assert site["relay"]
    assert not site["bridge"]


def test_a_site_may_have_a_broker_and_a_relay(broker):
    site = broker("desk", "--relay", "--host", "desk.local")
    assert site["relay"]
    assert site["bridge"]


def test_new_ids_change_nothing_else_of_a_site(broker):
    before = broker("desk", "--relay", "--ids", "1-9")
    assert broker("desk", "--ids", "20-29") == {**before, "first": 20, "last": 29}


def test_the_password_of_a_site_is_not_printed(broker):
    assert "password" not in broker("lab")


def test_a_broker_that_is_not_configured_can_have_no_site(here, tern):
    failed = tern("broker", "site", "missing", "lab", code=USAGE)
    assert "tern broker config missing" in failed.err
    assert not (here / "missing").exists()
