"""Retained status messages for observers.

They are sent by a separate thread, so that no round waits for them.
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
    """A connection without subscriptions, and with a will.

    will: (topic, payload) that the broker retains once the connection is lost.
    """

    def __init__(
        self, access: Access, will: tuple[str, bytes], connected: Callable[[], None]
    ) -> None:
        self._will = will
        super().__init__(access)
        self.on_connect = connected

    def renew(self) -> None:
        super().renew()
        topic, payload = self._will
        self.client._will_message = gmqtt.Message(topic, payload, qos=1, retain=True)

    def subscribe(self) -> None:
        pass

    def keep(self, topic: str, payload: bytes) -> None:
        """Have the broker retain a message."""
        self.publish(topic, payload, retain=True)

    async def arrived(self) -> None:
        """Wait until the broker has acknowledged everything."""
        await self.client.queue.wait_empty()


class Notices:
    """Keeps the latest message of each topic retained, also after a reconnection.

    It waits for a broker that is down.
    """

    def __init__(
        self,
        access: Access,
        will: tuple[str, bytes],
        warn: Callable[[str], None] = lambda message: None,
    ) -> None:
        """Begin to connect to the broker, in a thread.

        will: (topic, payload) that the broker retains if this process is lost. warn: gets a
        sentence if the broker refuses this host.
        """
        self._warn = warn
        self._latest: dict[str, bytes] = {}
        self._link = _NoticeLink(access, will, self._send_all)
        self._began = time.monotonic()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._connecting = asyncio.run_coroutine_threadsafe(self._connect(), self._loop)

    def put(self, topic: str, payload: bytes) -> None:
        """Retain this on a topic; an empty payload removes the message. Returns at once."""
        self._loop.call_soon_threadsafe(self._send, topic, payload)

    def close(self, last: Mapping[str, bytes]) -> bool:
        """Put the last messages and disconnect; return whether they have arrived."""
        for topic, payload in last.items():
            self.put(topic, payload)
        # A connection that has just begun gets a last chance.
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
        try:
            await self._link.connect(patience=None)
        except TernError as error:
            self._warn(error.message)

    async def _leave(self) -> bool:
        """Wait for the last messages to arrive, and disconnect; return whether they have arrived."""
        arrived = False
        if self._link.connected:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._link.arrived(), _LEAVE_TIMEOUT)
                arrived = True
        with suppress(Exception):
            await self._link.close()
        return arrived

    def _send(self, topic: str, payload: bytes) -> None:
        self._latest[topic] = payload
        self._link.keep(topic, payload)

    def _send_all(self) -> None:
        for topic, payload in self._latest.items():
            self._link.keep(topic, payload)
