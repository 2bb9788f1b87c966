"""for-boards.json: what boards need to know of their broker, without secrets."""

import json
import shutil

import pytest

from ternhost.errors import UsageError
from ternhost.reach.addresses import AUTHORITY, DEVICE_AUTHORITY
from ternhost.reach.broker import configuration, for_boards
from ternhost.reach.broker.access import HOST, Access
from ternhost.reach.broker.for_boards import FILE
from ternhost.reach.broker.sites import SITES

OPTIONS = {"names": ("broker.example.org",), "address": "0.0.0.0", "port": 8884, "prefix": "lab"}


@pytest.fixture
def broker(tmp_path):
    """The directory of a broker that boards reach over the network."""
    directory = tmp_path / "broker"
    configuration.configure(directory, **OPTIONS)
    return directory


def test_boards_learn_where_their_broker_is(broker):
    known = for_boards.read(broker)
    assert (known.host, known.port, known.prefix) == ("broker.example.org", 8884, "lab")


def test_boards_learn_the_certificate_of_the_authority(broker):
    assert for_boards.read(broker).authority_der == (broker / DEVICE_AUTHORITY).read_bytes()


def test_boards_without_tls_learn_no_certificate(tmp_path):
    configuration.configure(tmp_path, tls=False)
    assert for_boards.read(tmp_path).authority_der is None


def test_boards_get_the_first_name_that_is_not_of_each_machine_itself(tmp_path):
    configuration.configure(tmp_path, names=("localhost", "broker.local"))
    assert Access.load(tmp_path / HOST).host == "localhost"
    assert for_boards.read(tmp_path).host == "broker.local"


def test_the_file_has_no_secrets(broker):
    members = json.loads((broker / FILE).read_text())
    assert members == {
        "host": "broker.example.org",
        "port": 8884,
        "prefix": "lab",
        "authority": (broker / AUTHORITY).read_text(),
    }


def test_a_copy_of_the_file_says_the_same(broker, tmp_path):
    copy = shutil.copy(broker / FILE, tmp_path / "copied.json")
    assert for_boards.read(copy) == for_boards.read(broker)


def test_configuring_again_writes_a_missing_file(broker):
    (broker / FILE).unlink()
    configuration.configure(broker)
    assert for_boards.read(broker).host == "broker.example.org"


def test_boards_of_a_site_find_its_own_broker(broker):
    configuration.add_site(broker, "north", bridge=True, names=["north.example.org"], port=8885)
    known = for_boards.read(broker / SITES / "north")
    assert (known.host, known.port) == ("north.example.org", 8885)


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        "{}",
        '{"host": 1, "port": 8883, "prefix": "tern", "authority": null}',
        '{"host": "h", "port": 8883, "prefix": "tern", "authority": "no certificate"}',
    ],
)
def test_a_file_that_says_something_else_is_refused(tmp_path, content):
    (tmp_path / FILE).write_text(content)
    with pytest.raises(UsageError, match=FILE):
        for_boards.read(tmp_path)


def test_a_directory_without_the_file_is_refused(tmp_path):
    with pytest.raises(UsageError) as error:
        for_boards.read(tmp_path)
    assert "tern broker config" in error.value.hint


def test_what_the_host_knows_is_enough(broker):
    access = Access.load(broker / HOST)
    assert for_boards.BrokerForBoards.of(access) == for_boards.read(broker)
