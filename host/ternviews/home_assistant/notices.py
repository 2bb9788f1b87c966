"""Publishes status messages for observers, which the broker retains.

A separate thread sends them, so that no round has to wait for them.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

import gmqtt

from ternhost.errors import TernError
from ternhost.reach.broker.access import Access
from ternhost.reach.broker.link import MqttLink

_LEAVE_TIMEOUT = 5.0  # seconds until the last messages have arrived


class _NoticeLink(MqttLink):
    """A connection to a broker that only sends, and that has a will."""

    def __init__(
        self, access: Access, will: tuple[str, bytes], connected: Callable[[], None]
    ) -> None:
        """Prepare to connect to a broker.

        access: how to reach the broker. connected: is called after each connection.

        will: the topic and payload of a message that the broker retains when the connection is
        lost.
        """
        self._will = will
        super().__init__(access)
        self.on_connect = connected

    def renew(self) -> None:
        """Make the client of the next attempt to connect, with the will."""
        super().renew()
        topic, payload = self._will
        self.client._will_message = gmqtt.Message(topic, payload, qos=1, retain=True)

    def subscribe(self) -> None:
        pass

    def keep(self, topic: str, payload: bytes) -> None:
        """Have the broker retain a message."""
        self.publish(topic, payload, retain=True)

    async def arrived(self) -> bool:
        """Wait until the broker has acknowledged everything, and return True.

        Return False if the connection is lost before: then the messages are forgotten.
        """
        await self.client.everything_acknowledged()
        return self.connected


class Notices:
    """Has a broker retain the latest message of each topic.

    The messages are sent again after a reconnection. A broker that is down is waited for.
    """

    def __init__(
        self,
        access: Access,
        will: tuple[str, bytes],
        warn: Callable[[str], None] = lambda message: None,
    ) -> None:
        """Begin to connect to the broker, in a thread.

        access: how to reach the broker. will: the topic and payload of a message that the broker
        retains if this process is lost. warn: is called with a sentence if the broker refuses this
        host.
        """
        self._warn = warn
        self._latest: dict[str, bytes] = {}  # the latest message of each topic
        self._link = _NoticeLink(access, will, connected=self._send_all)
        self._began = time.monotonic()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._connecting = asyncio.run_coroutine_threadsafe(self._connect(), self._loop)

    def put(self, topic: str, payload: bytes) -> None:
        """Have the broker retain a message; an empty payload removes it. Returns at once."""
        self._loop.call_soon_threadsafe(self._send, topic, payload)

    def close(self, last: Mapping[str, bytes]) -> bool:
        """Send the last messages, disconnect, and return whether all messages have arrived.

        last: the payload of each message by its topic.
        """
        for topic, payload in last.items():
            self.put(topic, payload)

        # If the connection has only just begun, it gets some seconds to be made.
        with suppress(TimeoutError):
            seconds_left = self._began + _LEAVE_TIMEOUT - time.monotonic()
            self._connecting.result(max(0.0, seconds_left))
        self._connecting.cancel()
        leaving = asyncio.run_coroutine_threadsafe(self._leave(), self._loop)
        try:
            return leaving.result(2 * _LEAVE_TIMEOUT)
        except TimeoutError:
            return False
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    async def _connect(self) -> None:
        """Connect to the broker, however long that takes; warn if the broker refuses this host."""
        try:
            await self._link.connect(patience=None)
        except TernError as error:
            self._warn(error.message)

    async def _leave(self) -> bool:
        """Wait until the last messages have arrived, and disconnect; return whether they have."""
        arrived = False
        if self._link.connected:
            with suppress(TimeoutError):
                arrived = await asyncio.wait_for(self._link.arrived(), _LEAVE_TIMEOUT)
        with suppress(Exception):  # there may be no connection to end
            await self._link.close()
        return arrived

    def _send(self, topic: str, payload: bytes) -> None:
        """Send a message, and remember it for the next connection."""
        self._latest[topic] = payload
        self._link.keep(topic, payload)

    def _send_all(self) -> None:
        """Send the latest message of each topic, after a connection."""
        for topic, payload in self._latest.items():
            self._link.keep(topic, payload)
