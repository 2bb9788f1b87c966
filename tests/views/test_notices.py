"""What is known of the messages that a broker retains for observers; without a broker."""

import asyncio

import pytest
from gmqtt.mqtt.utils import IdGenerator

from ternhost.reach.broker.access import Access
from ternviews.home_assistant.notices import _NoticeLink


@pytest.fixture
def link():
    """A connected link with a message that the broker has not acknowledged."""
    access = Access("127.0.0.1", 1883, "user", "password", authority=None)
    link = _NoticeLink(access, will=("topic", b"offline"), connected=lambda: None)
    link.connected = True
    link.client.id_generator = IdGenerator()
    link.client._unacknowledged.push_message(link.client.id_generator.next_id(), b"message")
    return link


async def arrived(link, event):
    """Return what the link says of its messages if `event` is called while it waits for them."""
    waiting = asyncio.ensure_future(link.arrived())
    await asyncio.sleep(0)
    event()
    return await waiting


def test_messages_have_arrived_once_the_broker_has_acknowledged_them(link):
    def acknowledge():
        link.client._unacknowledged.remove_message_by_mid(1)

    assert asyncio.run(arrived(link, acknowledge))


def test_messages_have_not_arrived_if_the_connection_is_lost_before_they_are_acknowledged(link):
    def lose_connection():
        link._on_disconnect(link.client, b"")

    assert not asyncio.run(arrived(link, lose_connection))
