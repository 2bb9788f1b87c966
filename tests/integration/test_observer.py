"""Observers of a broker: they see which boards are connected, and can do nothing else."""

import asyncio
from contextlib import closing

import pytest
from framing import hello
from harness.raw_client import RawClient, board_client

from tern.links import mqtt
from ternhost.reach.broker import observer
from ternhost.reach.broker.access import OBSERVER, Access

KEYS = {7: bytes(32)}
SECONDS = 2.0  # in which a message that is allowed would arrive


def client_of(access):
    """A client with the name and the password of this access."""
    return RawClient(access, access.user, access.password)


@pytest.fixture
def access(running):
    """How observers reach the running broker."""
    return Access.load(running.directory / OBSERVER)


@pytest.fixture
def board(running):
    """The board of device 7, connected, with its HELLO at the broker."""
    with closing(board_client(running.access, KEYS, 7)) as client:
        client.publish(mqtt.HELLO % ("tern", mqtt.name(7)), hello(7), retain=True)
        yield client


def test_an_observer_sees_a_connected_board(access, board):
    boards = asyncio.run(observer.connected_boards(access))
    assert [seen.clients for seen in boards.values()] == [range(7, 8)]


def test_an_observer_does_not_end_the_connection_of_the_host(running, access, board):
    """A broker ends the connection of a user that connects a second time."""
    with closing(client_of(running.access)) as host:
        asyncio.run(observer.connected_boards(access))
        host.arrived()  # raises an error without a connection


@pytest.mark.parametrize(
    "topic", ["tern/round", "tern/model", "tern/model/limits", f"tern/down/{mqtt.name(7)}"]
)
def test_an_observer_can_send_nothing_to_a_board(access, board, topic):
    board.subscribe(topic)
    with closing(client_of(access)) as client:
        client.publish(topic, b"forged")
    assert board.messages(SECONDS) == []


@pytest.mark.parametrize("topic", ["tern/up/+", "tern/round", f"tern/down/{mqtt.name(7)}"])
def test_an_observer_reads_no_question_and_no_report(running, access, board, topic):
    with closing(client_of(access)) as client:
        client.subscribe(topic)
        board.publish(mqtt.UP % ("tern", mqtt.name(7)), b"report")
        with closing(client_of(running.access)) as host:
            for asked in ("tern/round", f"tern/down/{mqtt.name(7)}"):
                host.publish(asked, b"question")
        assert client.messages(SECONDS) == []
