"""The host's link to a broker: it waits for the broker, connects again, and names errors."""

import asyncio
import dataclasses
import functools
from contextlib import asynccontextmanager

import pytest
import rig
from harness.raw_client import board_client

from ternhost.errors import DeviceError
from ternhost.reach.broker import configuration
from ternhost.reach.broker.link import MqttLink
from ternhost.reach.broker.mosquitto import Mosquitto, free_port
from terntools.emulators.unix_fleet import EmulatedFleet

KEYS = {1: bytes(32), 2: bytes(range(32))}


def asynchronous(test):
    """A test that runs this coroutine function."""

    @functools.wraps(test)
    def run(**fixtures):
        asyncio.run(test(**fixtures))

    return run


async def until(condition):
    """Wait until `condition()` is true."""
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.02)


@asynccontextmanager
async def connected(access):
    """A link whose subscriptions the broker has acknowledged."""
    link = MqttLink(access)
    await link.connect()
    await until(link.subscribed.is_set)
    yield link
    await link.close()


@asynchronous
async def test_a_link_names_what_is_wrong_with_its_broker(running, tmp_path):
    """A link is the host's connection to the broker of its boards. Its error tells a wrong
    password, a certificate of another authority and a port without a broker apart.
    """
    access = running.access
    other = configuration.write_configuration(
        tmp_path / "other", {}, configuration.BrokerOptions(port=access.port)
    )
    for changed, message in (
        ({"password": "wrong"}, "refuses this host"),
        ({"authority": other.authority}, "is not the right one"),
        ({"port": free_port()}, "does not answer"),
    ):
        with pytest.raises(DeviceError, match=message):
            await MqttLink(dataclasses.replace(access, **changed)).connect()


@asynchronous
async def test_a_link_connects_again_and_sends_nothing_stale(running):
    """The broker dies and comes back. What the host sends in between is dropped, not kept for
    later: a board must not pay for a question that is over. The host announces its current round
    anew at each connection instead.
    """
    link, connections = MqttLink(running.access), []
    link.on_connect = lambda: connections.append(
        link.announce(b"announcement %d" % len(connections))
    )
    await link.connect()

    await asyncio.to_thread(running.kill)
    await until(lambda: not link.connected)
    link.announce(b"stale")
    link.ask("00000001", b"stale")
    await asyncio.to_thread(running.start)
    await until(lambda: link.connected)

    # What a board hears that connects now:
    reader = board_client(running.access, KEYS, 1)
    reader.subscribe("tern/down/00000001")
    reader.subscribe("tern/round")
    heard = await asyncio.to_thread(reader.messages, 60.0, 1)
    heard += await asyncio.to_thread(reader.messages, 1.0)
    reader.close()
    await link.close()
    assert len(connections) == 2
    packet_number_bytes = 2  # with which a payload at QoS 1 begins
    payloads = [payload[packet_number_bytes:] for _, payload in heard]
    assert payloads == [b"announcement 1"], "of the second connection, and of nothing else"


@asynchronous
async def test_a_link_waits_for_a_broker_that_is_not_there(running):
    """With a patience in seconds the host's connection fails after it; with None it waits for as
    long as it takes. Either way the host says once that it waits.
    """
    running.close()
    link, messages = MqttLink(running.access), []
    link.on_waiting = messages.append
    with pytest.raises(DeviceError, match="does not answer"):
        await link.connect(patience=1.5)
    assert len(messages) == 1

    waiting = asyncio.create_task(link.connect(patience=None))
    await asyncio.sleep(2.5)
    assert not waiting.done()

    await asyncio.to_thread(running.start)
    await asyncio.wait_for(waiting, 60)
    await asyncio.wait_for(link.subscribed.wait(), 60)
    assert link.connected
    await link.close()

    assert len(messages) == 2, "once each time"
    assert "does not answer" in messages[0]
    assert messages[0].endswith("; waiting for it")


@asynchronous
async def test_host_and_boards_try_the_other_nodes_of_a_cluster(tmp_path, micropython):
    """Both know two addresses of the broker, and nothing listens at the first."""
    nodes = "127.0.0.2,127.0.0.1"  # nothing listens at the first
    _, boards = rig.on_broker(tmp_path, 3, host=nodes, server="localhost", longest_pause_ms=500)
    with Mosquitto(tmp_path / "broker") as broker, EmulatedFleet(micropython, boards):
        async with connected(dataclasses.replace(broker.access, host=nodes)) as link:
            await until(lambda: len(link.presence.boards) == 3)
