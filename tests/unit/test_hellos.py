"""What boards, and brokers of sites, may have a host believe: hellos carry no proof."""

import time

import pytest

from tern import frames
from ternhost.aggregate.store import Store
from ternhost.drivers.base import Terms
from ternhost.drivers.broker import BrokerDriver
from ternhost.fleet import keys
from ternhost.links.access import Access
from ternhost.links.mqtt import MqttLink

ACCESS = Access("localhost", 8883, "tern-host", "secret", None)


def say(link, first, clients=1, live=True):
    """Have the link hear the hello of a board."""
    out = bytearray(200)
    n = frames.encode_hello(out, 0, first, clients, 0, 0, 0, 0, 0, 0, 1, 0, "test")
    retain = {} if live else {"retain": 1}
    link._on_message(None, f"tern/hello/{first:08x}", bytes(out[:n]), 1, retain)


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "store.sqlite") as store:
        keys.add(store, [1, 2, 3, 9])
        yield store


def test_a_board_without_a_key_leaves_no_row(store):
    driver = BrokerDriver(store, lambda: MqttLink(ACCESS), Terms(), standing=True)
    driver.link = MqttLink(ACCESS)
    for first in (1, 9, *range(100, 200)):
        say(driver.link, first)
    driver._look_at_boards(time.monotonic())
    driver._note_heard()
    assert [board.first for board in store.boards()] == [1, 9]
    driver._runner.close()
