"""The host's link to a broker (shared_specs/mqtt.md): one connection for the whole fleet.

It runs on asyncio and gmqtt, which counts most messages a second: 65,000 at QoS 0 (29,000 at
QoS 1), where paho-mqtt makes 21,000 (14,000) and aiomqtt 9,000 (7,000).
"""

import asyncio
import ssl
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from gmqtt.mqtt.constants import MQTTv311
from gmqtt.mqtt.handler import MQTTConnectError

from tern.links import mqtt as device_link
from ternhost.errors import DeviceError, UsageError
from ternhost.reach.broker.access import Access
from ternhost.reach.broker.mqtt_client import CONNECT_TIMEOUT, RECONNECT_EVERY, Client
from ternhost.reach.broker.presence import Presence
from ternhost.reach.broker.sites import Ids

MODEL = "%s/model"  # down, retained: the averaged model
SITE = "%s/site/%s"  # up, retained: whether a site's broker is connected to this one

_KEEP_ALIVE = 30  # seconds
_LEAVE_TIMEOUT = 2.0  # seconds

# Frames that come in quick succession are gathered, since one commit serves them all.
_GATHER_SECONDS = 0.02  # of a wait for more
_MOST_GATHERINGS = 10  # waits one after the other
_LEAST_GATHERED = 100  # frames in a wait, for another one to follow
_MOST_FRAMES = 5_000  # in all


class _NoAnswer(DeviceError):
    """No broker answers yet: it is down or hangs, and may come."""


class MqttLink:
    """Frames from and to all boards of a broker.

    `on_connect` is called after each connection, `on_waiting` with a sentence when `connect` waits.
    Frames sent without a connection are lost, so that nothing stale is ever sent.
    """

    def __init__(self, access: Access, *, site_ids: Callable[[], Ids] = dict) -> None:
        """access: how to reach the broker. site_ids: reads the ids of the sites (`SiteIds`)."""
        self.access = access
        self.presence = Presence(site_ids)
        self.connected = False  # now
        self.subscribed = asyncio.Event()  # no message of a board is missed from now on
        self.on_connect: Callable[[], None] = lambda: None
        self.on_waiting: Callable[[str], None] = lambda message: None
        self._frames: list[bytes] = []
        self._arrived = asyncio.Event()
        self._closing = asyncio.Event()
        self._hosts = deque(access.hosts)
        up_topics = device_link.UP % (access.prefix, "")
        site_topics = SITE % (access.prefix, "")
        hello_topics = device_link.HELLO % (access.prefix, "")
        self._prefixes = up_topics, site_topics, hello_topics
        self._unacknowledged = 0  # subscriptions that the broker has not confirmed yet
        self.renew()

    def renew(self) -> None:
        """Make the client of the next attempt: gmqtt's remembers a refusal.

        A subclass adds a will.
        """
        self.client = Client(self._hosts, self.access.user, self.access.password)
        self.client.on_message = self._on_message
        self.client.on_connect = self._on_connect
        self.client.on_subscribe = self._on_subscribe
        self.client.on_disconnect = self._on_disconnect

    # Connecting

    async def connect(self, patience: float | None = 0.0) -> None:
        """Connect for the first time; later it reconnects by itself.

        patience: seconds to retry while no broker answers; None: until `close`. Raises UsageError,
        and DeviceError, at once if the broker refuses this host or has the wrong certificate.
        """
        tls = self._tls_context()
        end = None if patience is None else time.monotonic() + patience
        untried_nodes = len(self._hosts)
        warned = False
        self._closing.clear()
        while not self._closing.is_set():
            try:
                await self._attempt(tls)
            except _NoAnswer as error:
                await self._give_up_client()
                untried_nodes -= 1
                is_last = end is not None and time.monotonic() + RECONNECT_EVERY > end
                if is_last and untried_nodes <= 0:
                    raise
                if not warned:
                    self.on_waiting(f"{error.message}; waiting for it")
                    warned = True
            except BaseException:
                await self._give_up_client()
                raise
            else:
                if not self._closing.is_set():
                    return
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), RECONNECT_EVERY)
        await self._leave()

    def _tls_context(self) -> ssl.SSLContext | bool:
        """Return the context with the fleet's authority; False for a broker without TLS."""
        authority = self.access.authority
        if not authority:
            return False
        try:
            return ssl.create_default_context(cafile=authority)
        except (OSError, ssl.SSLError) as error:
            raise UsageError(f"{authority} is not a certificate: {error}") from error

    async def _attempt(self, tls: ssl.SSLContext | bool) -> None:
        """Connect once.

        Raises _NoAnswer if the broker may come later, and DeviceError if it refuses this host or
        is not the right one.
        """
        access = self.access
        broker = f"the broker at {access.host} port {access.port}"
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                await self.client.connect(
                    access.host, access.port, ssl=tls, keepalive=_KEEP_ALIVE, version=MQTTv311
                )
        except ssl.SSLCertVerificationError as error:
            hint = "use the certificate authority and the host name of 'tern broker config'"
            text = f"{broker} is not the right one: {error.verify_message}"
            raise DeviceError(text, hint) from error
        except MQTTConnectError as error:
            text = f"{broker} refuses this host: {error}"
            hint = "check user and password in host.json"
            if "unavailable" in str(error):  # a cluster, until it has a leader
                raise _NoAnswer(text, hint) from error
            raise DeviceError(text, hint) from error
        except (OSError, TimeoutError) as error:
            reason = getattr(error, "strerror", "")
            text = f"{broker} does not answer"
            if reason:
                text += f": {reason}"
            hint = (
                "start it (tern broker run DIR, or mosquitto -c DIR/mosquitto.conf; for a cluster, "
                "nats-server -c nats.conf in the directory of each node), or check the address"
            )
            raise _NoAnswer(text, hint) from error

    async def _give_up_client(self) -> None:
        await self._leave()
        self.renew()

    async def _leave(self) -> None:
        self.client.stop_reconnect()
        with suppress(Exception):  # there may be no connection to end
            await asyncio.wait_for(self.client.disconnect(), _LEAVE_TIMEOUT)

    async def close(self) -> None:
        """Disconnect from the broker, or stop waiting for it."""
        self._closing.set()
        await self._leave()
        self.connected = False

    def subscribe(self) -> None:
        """Ask for what the broker has for this link, each time that it is connected."""
        self.presence.start_over()
        self.subscribed.clear()
        self._unacknowledged = len(self._prefixes)
        for prefix in self._prefixes:
            self.client.subscribe(prefix + "+", qos=1)

    def _on_connect(self, client: Any, flags: int, code: int, properties: Any) -> None:
        self.connected = True
        self.subscribe()
        self.on_connect()

    def _on_subscribe(self, client: Any, number: int, qos: Any, properties: Any) -> None:
        self._unacknowledged -= 1
        if not self._unacknowledged:
            self.subscribed.set()

    def _on_disconnect(self, client: Any, packet: Any, error: Any = None) -> None:
        if client is self.client:
            self.connected = False
            self.client.queue.clear()

    # Receiving

    async def wait(self, timeout: float) -> bool:
        """Wait for a frame or a HELLO, at most `timeout` seconds; return whether there is a frame."""
        if not self._frames:
            self._arrived.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._arrived.wait(), timeout)
        return bool(self._frames)

    async def take(self, timeout: float) -> list[bytes]:
        """Return unchecked frames of boards in their order; none after `timeout` seconds.

        While many come, it waits a little longer, since one commit serves them all.
        """
        if await self.wait(timeout):
            await self._gather()
        taken = self._frames
        self._frames = []
        return taken

    async def _gather(self) -> None:
        """Wait for more frames, as long as many come."""
        count_before = -_LEAST_GATHERED
        for _ in range(_MOST_GATHERINGS):
            count = len(self._frames)
            few_have_come = count - count_before < _LEAST_GATHERED
            if few_have_come or count >= _MOST_FRAMES:
                return
            count_before = count
            await asyncio.sleep(_GATHER_SECONDS)

    def receive(self, topic: str, payload: bytes, retained: bool = False) -> None:
        """Take a message of the broker."""
        up_topics, site_topics, hello_topics = self._prefixes
        if topic.startswith(up_topics):
            self._frames.append(payload)
            self.presence.take_message(topic.removeprefix(up_topics))
            self._arrived.set()
        elif topic.startswith(hello_topics):
            self.presence.take_hello(topic.removeprefix(hello_topics), payload, retained)
            self._arrived.set()
        elif topic.startswith(site_topics):
            site = topic.removeprefix(site_topics)
            self.presence.take_site(site, connected=payload == b"1", retained=retained)

    def _on_message(
        self, client: Any, topic: str, payload: bytes, qos: int, properties: Any
    ) -> int:
        self.receive(topic, payload, bool(properties.get("retain")))
        return 0

    # Sending

    def announce(self, frame: bytes) -> None:
        """Send `frame` to every board, and retain it for later ones; an empty frame removes it."""
        self.publish(device_link.ROUND % self.access.prefix, frame, retain=True)

    def hand_out(self, frame: bytes) -> None:
        """Have the broker retain `frame`, the averaged model, for every board that wants it."""
        self.publish(MODEL % self.access.prefix, frame, retain=True)

    def ask(self, board: str, frame: bytes) -> None:
        """Send `frame` to one board."""
        self.publish(device_link.DOWN % (self.access.prefix, board), frame)

    def publish(self, topic: str, payload: bytes, retain: bool = False) -> None:
        """Publish a message, unless the connection is lost."""
        # A lost connection is closed before it is reported.
        if self.connected and self.client.is_connected:
            self.client.publish(topic, payload, qos=1, retain=retain)
