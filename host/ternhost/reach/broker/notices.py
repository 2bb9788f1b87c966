"""Retained status messages for observers, sent by a separate thread, so that no round waits for them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

import gmqtt

from ternhost.errors import TernError
from ternhost.reach.broker.access import Access
from ternhost.reach.broker.link import MqttLink

_LEAVING = 5.0  # seconds until the last messages have arrived


class _NoticeLink(MqttLink):
    """A connection without subscriptions. will: (topic, payload), retained, once it is lost."""

    def __init__(self, access: Access, will: tuple[str, bytes], connected: Callable[[], None]) -> None:
        self._will = will
        super().__init__(access)
        self.on_connect = connected

    def renew(self) -> None:
        super().renew()
        topic, payload = self._will
        self._client._will_message = gmqtt.Message(topic, payload, qos=1, retain=True)

    def subscribe(self) -> None:
        pass

    def keep(self, topic: str, payload: bytes) -> None:
        self._publish(topic, payload, retain=True)

    async def arrived(self) -> None:
        """Wait until the broker has acknowledged everything."""
        await self._queue.wait_empty()


class Notices:
    """Keeps the latest message of each topic retained on the broker of `access`, also after a reconnection.

    It waits for a broker that is down. A refusal is reported once, to `warn`.
    """

    def __init__(
        self, access: Access, will: tuple[str, bytes], warn: Callable[[str], None] = lambda message: None
    ) -> None:
        """will: (topic, payload) that the broker retains if this process is lost."""
        self._access = access
        self._will = will
        self._warn = warn
        self._latest: dict[str, bytes] = {}
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended = asyncio.Event()
        self._closing = self._delivered = False
        self._began = time.monotonic()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._keep()), daemon=True)
        self._thread.start()

    def put(self, topic: str, payload: bytes) -> None:
        """Retain this on a topic; an empty payload removes the message. Returns at once."""
        with self._lock:
            self._latest[topic] = payload
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._send, topic)

    def close(self, last: Mapping[str, bytes]) -> bool:
        """Put the last messages and disconnect; return whether they have arrived."""
        for topic, payload in last.items():
            self.put(topic, payload)
        with self._lock:
            self._closing = True
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(3 * _LEAVING)
        return self._delivered

    async def _keep(self) -> None:
        self._link = _NoticeLink(self._access, self._will, self._send_all)
        with self._lock:
            self._loop = asyncio.get_running_loop()
            if self._closing:
                self._ended.set()
        connecting = asyncio.ensure_future(self._link.connect(patience=None))
        leaving = asyncio.ensure_future(self._ended.wait())
        try:
            await asyncio.wait((connecting, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not connecting.done():  # a new connection gets a last chance
                patience = max(0.0, self._began + _LEAVING - time.monotonic())
                await asyncio.wait((connecting,), timeout=patience)
            if connecting.done():
                connecting.result()
                await leaving
                if self._link.connected:
                    await asyncio.wait_for(self._link.arrived(), _LEAVING)
                    self._delivered = True
        except TimeoutError:
            pass
        except TernError as error:
            self._warn(error.message)
        finally:
            connecting.cancel()
            leaving.cancel()
            with self._lock:
                self._loop = None
            with suppress(Exception):
                await self._link.close()

    def _send(self, topic: str) -> None:
        with self._lock:
            payload = self._latest[topic]
        self._link.keep(topic, payload)

    def _send_all(self) -> None:
        with self._lock:
            latest = dict(self._latest)
        for topic, payload in latest.items():
            self._link.keep(topic, payload)
