"""A Mosquitto whose database is damaged starts without it, and keeps the file."""

import random
from contextlib import closing

import pytest
from harness.raw_client import RawClient

from tern.links import mqtt
from ternhost.errors import DeviceError
from ternhost.reach.broker import configuration
from ternhost.reach.broker import mosquitto as mosquittos
from ternhost.reach.broker.mosquitto_files import DAMAGED, DATABASE

RETAINED = b"what the broker keeps" * 20


@pytest.fixture
def directory(tmp_path):
    """The directory of a broker that has kept a message, and does not run."""
    configuration.configure(tmp_path, port=mosquittos.free_port())
    with mosquittos.Mosquitto(tmp_path) as broker:
        retain(broker.access)
    assert RETAINED in (tmp_path / DATABASE).read_bytes()
    return tmp_path


def retain(access):
    with closing(RawClient(access, access.user, access.password)) as host:
        host.publish(mqtt.ROUND % access.prefix, RETAINED, retain=True)


def cut_in(parts):
    """Cut a content behind a part of it."""
    return lambda content: content[: int(len(content) * parts)]


def flipped(content):
    """The content with a tenth of its bytes changed."""
    rng = random.Random(7)
    changed = bytearray(content)
    for position in rng.sample(range(len(content)), len(content) // 10):
        changed[position] ^= 0xFF
    return bytes(changed)


DAMAGES = {
    "empty": lambda content: b"",
    "zeros, as after a power cut": lambda content: bytes(len(content)),
    "noise": lambda content: random.Random(7).randbytes(500),
    "another file": lambda content: b"allow_anonymous false\n",
    "cut in its header": lambda content: content[:20],
    "cut at a quarter": cut_in(0.25),
    "cut at half": cut_in(0.5),
    "without its last byte": lambda content: content[:-1],
    "with changed bytes": flipped,
    "with zeros behind it": lambda content: content + bytes(4096),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_broker_starts_whatever_is_in_its_database(directory, damage):
    path = directory / DATABASE
    path.write_bytes(damage(path.read_bytes()))
    with mosquittos.Mosquitto(directory) as broker:
        assert broker.answers(5.0)


@pytest.mark.usefixtures("mosquitto")
def test_the_damaged_file_is_kept(directory):
    (directory / DATABASE).write_bytes(b"damaged")
    with mosquittos.Mosquitto(directory):
        assert (directory / DAMAGED).read_bytes() == b"damaged"


def test_a_database_that_is_sound_stays_if_the_broker_does_not_start(directory):
    before = (directory / DATABASE).read_bytes()
    conf = directory / "mosquitto.conf"
    conf.write_text(conf.read_text() + "no_such_option true\n")
    with pytest.raises(DeviceError):
        mosquittos.Mosquitto(directory)
    assert (directory / DATABASE).read_bytes() == before
