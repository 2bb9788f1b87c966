"""What the host has sent to its broker, and the broker has not acknowledged; without a broker."""

from collections import deque

import pytest
from gmqtt.mqtt.utils import IdGenerator

from tern.links import mqtt
from ternhost.reach.broker import link
from ternhost.reach.broker.access import Access
from ternhost.reach.broker.link import MqttLink
from ternhost.reach.broker.mqtt_client import Client

BOARD = mqtt.name(7)


def test_the_ids_of_forgotten_messages_can_be_used_again():
    client = Client(deque(["localhost"]), "user", "password")
    client.id_generator = IdGenerator(max=2)  # there is a single id
    message_id = client.id_generator.next_id()
    client._persistent_storage.push_message(message_id, b"")

    client.forget_unacknowledged()
    assert client.id_generator.next_id() == message_id


class BusyClient:
    """Stands for the connection to a broker that does not acknowledge; records the topics."""

    is_connected = True

    def __init__(self, unacknowledged):
        self.unacknowledged = unacknowledged
        self.topics = []

    def publish(self, topic, payload, qos, retain):
        self.topics.append(topic)


@pytest.fixture
def busy_link():
    """A link to a broker that has as many messages to acknowledge as single boards may cause."""
    busy = MqttLink(Access("localhost", 1883, "user", "password", None))
    busy.client = BusyClient(link._MOST_UNACKNOWLEDGED)
    busy.connected = True
    return busy


def test_a_board_is_not_asked_while_the_broker_is_behind(busy_link):
    assert not busy_link.ask(BOARD, b"frame")
    assert busy_link.client.topics == []


def test_a_round_is_announced_even_while_the_broker_is_behind(busy_link):
    busy_link.announce(b"frame")
    assert busy_link.client.topics == [mqtt.ROUND % busy_link.access.prefix]


def test_a_board_is_asked_once_the_broker_has_acknowledged(busy_link):
    busy_link.client.unacknowledged -= 1
    assert busy_link.ask(BOARD, b"frame")
    assert busy_link.client.topics == [mqtt.DOWN % (busy_link.access.prefix, BOARD)]
