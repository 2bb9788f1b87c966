"""The host's link to a broker (shared_specs/mqtt.md): one connection for the whole fleet, on
asyncio. gmqtt counts most messages a second: 65,000 at QoS 0 (29,000 at QoS 1), where paho-mqtt
makes 21,000 (14,000) and aiomqtt 9,000 (7,000).
"""

import asyncio
import logging
import ssl
import struct
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import gmqtt
from gmqtt.mqtt.connection import MQTTConnection
from gmqtt.mqtt.constants import UNLIMITED_RECONNECTS, MQTTCommands, MQTTv311
from gmqtt.mqtt.handler import MQTTConnectError
from gmqtt.storage import PersistentStorage

from tern import frames, wire
from tern.links import mqtt as device_link
from ternhost.errors import DeviceError, UsageError
from ternhost.reach.broker.access import Access
from ternhost.reach.broker.sites import Ids, SiteIds
from ternhost.reach.links import read_hello

MODEL = "%s/model"  # down, retained: the averaged model
SITE = "%s/site/%s"  # up, retained: whether a site's broker is connected to this one

_KEEP_ALIVE = 30
_RECONNECT_EVERY = 1.0
_CONNECT_TIMEOUT = 10.0
_GATHER = 0.02  # seconds for frames to gather,
_GATHERINGS = 10  # repeated at most this often,
_MANY = 100  # while at least this many come each time,
_MOST = 5_000  # up to this many in all
_PUBACK = struct.Struct("!BBH")  # type, length, packet id

_log = logging.getLogger("tern.mqtt")
for _name in (
    "tern.mqtt",
    "gmqtt",
):  # a lost broker is nothing special: it logs only if a program wants it
    logging.getLogger(_name).addHandler(logging.NullHandler())


class Client(gmqtt.Client):  # type: ignore[misc]  # gmqtt is not typed
    """gmqtt's client for MQTT 3.1.1, but with one write, and one TLS record, for the PUBACKs of a
    whole read.
    """

    def __init__(self, hosts: deque[str], *args: Any, **kwargs: Any) -> None:
        """hosts: the nodes of the broker; each connection is to the next."""
        super().__init__(*args, **kwargs)
        self._hosts = hosts
        self._gathered = bytearray()  # PUBACKs

    async def _create_connection(self, host: str, *args: Any, **kwargs: Any) -> MQTTConnection:
        self._hosts.rotate(-1)
        async with asyncio.timeout(_CONNECT_TIMEOUT):
            return await super()._create_connection(self._hosts[-1], *args, **kwargs)

    def _send_command_with_mid(self, cmd: int, mid: int, dup: bool, reason_code: int = 0) -> None:
        if cmd != MQTTCommands.PUBACK:
            super()._send_command_with_mid(cmd, mid, dup, reason_code=reason_code)
            return
        if not self._gathered:
            asyncio.get_running_loop().call_soon(self._acknowledge, self._connection)
        self._gathered += _PUBACK.pack(cmd, 2, mid)

    def _acknowledge(self, connection: MQTTConnection) -> None:
        gathered, self._gathered = self._gathered, bytearray()
        if connection is self._connection and not connection.is_closing():
            connection.send_package(gathered)


class _NoAnswer(DeviceError):
    """No broker answers yet: it is down or hangs, and may come."""


class Said(NamedTuple):
    """The unverified HELLO of a board."""

    clients: range
    epoch: int = 0  # of its fleet key; 0 without one
    answers: int = 0  # the epoch of the FLEET_KEY that it answers, else 0
    kept: bool = False  # retained by its broker: the board may sleep by now
    hello: Any = None


class MqttLink:
    """Frames from and to all boards of a broker.

    `on_connect` is called after each connection, `on_waiting` with a sentence when `connect` waits.
    Frames sent without a connection are lost, so that nothing stale is ever sent.
    """

    def __init__(self, access: Access, *, sites: Callable[[], Ids] = dict) -> None:
        """sites: as of `SiteIds`."""
        self.access = access
        self.boards: dict[str, Said] = {}  # connected boards
        self.changed: set[str] = set()  # boards whose hello has come or gone; the reader empties it
        self._gone: dict[str, Said] = {}  # boards whose hello was emptied, and that hello
        self.strangers: set[str] = set()  # boards of another schema, which understand nothing
        self.sites: dict[str, bool] = {}  # sites with a broker: whether it is connected
        self.sites_back = False  # a site is connected again; the reader resets it
        self.on_connect: Callable[[], None] = lambda: None
        self.on_waiting: Callable[[str], None] = lambda message: None
        self._frames: list[bytes] = []
        self._arrived = asyncio.Event()
        self.subscribed = asyncio.Event()  # no message of a board is missed from now on
        self._unacknowledged = 0  # subscriptions
        self._up_prefix = device_link.UP % (access.prefix, "")
        self._hello_prefix = device_link.HELLO % (access.prefix, "")
        self._site_prefix = SITE % (access.prefix, "")
        self.site_ids = SiteIds(sites)
        self._closing = asyncio.Event()
        self._hosts = deque(access.hosts)
        self.connected = False  # now
        self.renew()

    def renew(self) -> None:
        """Make the client of the next attempt: gmqtt's remembers a refusal.

        A subclass adds a will.
        """
        self._queue = queue = PersistentStorage()
        user, password = self.access.user, self.access.password
        self._client = Client(
            self._hosts, user, clean_session=True, persistent_storage=queue, logger=_log
        )
        retries = {"reconnect_delay": _RECONNECT_EVERY, "reconnect_retries": UNLIMITED_RECONNECTS}
        self._client.set_config(retries)
        self._client.set_auth_credentials(user, password)
        self._client.on_message = self._on_message
        self._client.on_connect = self._accepted
        self._client.on_subscribe = self._on_subscribe
        self._client.on_disconnect = self._on_disconnect

    async def connect(self, patience: float | None = 0.0) -> None:
        """Connect for the first time; later it reconnects by itself. patience: seconds to retry
        while no broker answers; None: until `close`. Raises UsageError, and DeviceError, at once if
        the broker refuses this host or has the wrong certificate.
        """
        authority = self.access.authority
        try:
            context = ssl.create_default_context(cafile=authority) if authority else False
        except (OSError, ssl.SSLError) as error:
            raise UsageError(f"{authority} is not a certificate: {error}") from error
        end = None if patience is None else time.monotonic() + patience
        left, warned = len(self._hosts), False  # nodes to try in any case
        self._closing.clear()
        while not self._closing.is_set():
            try:
                await self._attempt(context)
                if not self._closing.is_set():
                    return
            except BaseException as error:
                await self._leave()
                self.renew()
                left -= 1
                late = left <= 0 and end is not None and time.monotonic() + _RECONNECT_EVERY > end
                if late or not isinstance(error, _NoAnswer):
                    raise
                if not warned:
                    self.on_waiting(f"{error.message}; waiting for it")
                    warned = True
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), _RECONNECT_EVERY)
        await self._leave()

    async def _attempt(self, context: ssl.SSLContext | bool) -> None:
        access = self.access
        where = f"the broker at {access.host} port {access.port}"
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT):
                await self._client.connect(
                    access.host, access.port, ssl=context, keepalive=_KEEP_ALIVE, version=MQTTv311
                )
        except ssl.SSLCertVerificationError as error:
            hint = "use the certificate authority and the host name of 'tern broker config'"
            raise DeviceError(
                f"{where} is not the right one: {error.verify_message}", hint
            ) from error
        except MQTTConnectError as error:
            kind = (
                _NoAnswer if "unavailable" in str(error) else DeviceError
            )  # until a cluster has a leader
            text = f"{where} refuses this host: {error}"
            raise kind(text, hint="check user and password in host.json") from error
        except (OSError, TimeoutError) as error:
            why = f": {error.strerror}" if getattr(error, "strerror", "") else ""
            hint = (
                "start it (tern broker run DIR, or mosquitto -c DIR/mosquitto.conf; for a cluster, "
            )
            hint += "nats-server -c nats.conf in the directory of each node), or check the address"
            raise _NoAnswer(f"{where} does not answer{why}", hint) from error

    async def _leave(self) -> None:
        self._client.stop_reconnect()
        with suppress(Exception):  # there may be no connection to end
            await asyncio.wait_for(self._client.disconnect(), 2.0)

    async def close(self) -> None:
        """Disconnect from the broker, or stop waiting for it."""
        self._closing.set()
        await self._leave()
        self.connected = False

    # Receiving

    async def wait(self, timeout: float) -> bool:
        """Wait for a frame or a hello, at most `timeout` seconds; return whether there is a frame
        to take.
        """
        if not self._frames:
            self._arrived.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._arrived.wait(), timeout)
        return bool(self._frames)

    async def take(self, timeout: float) -> list[bytes]:
        """Unchecked frames of boards, in order; none if none come within `timeout` seconds.

        While many come, it waits a little longer, since one commit serves them all.
        """
        if await self.wait(timeout):
            before = -_MANY
            for _ in range(_GATHERINGS):
                if not before + _MANY <= len(self._frames) < _MOST:
                    break
                before = len(self._frames)
                await asyncio.sleep(_GATHER)
        taken, self._frames = self._frames, []
        return taken

    def _on_message(
        self, client: Any, topic: str, payload: bytes, qos: int, properties: Any
    ) -> int:
        if topic.startswith(self._up_prefix):
            self._frames.append(payload)
            if self._gone and (board := topic.removeprefix(self._up_prefix)) in self._gone:
                # It has moved: the will came from the site that it left.
                self.boards[board] = self._gone.pop(board)
                self.changed.add(board)
            self._arrived.set()
        elif topic.startswith(self._hello_prefix):
            self._on_hello(
                topic.removeprefix(self._hello_prefix), payload, bool(properties.get("retain"))
            )
        elif topic.startswith(self._site_prefix):
            site = topic.removeprefix(self._site_prefix)
            self.sites[site] = there = payload == b"1"
            if there and not properties.get("retain"):
                self.sites_back = True
                self.site_ids.back(site, time.monotonic())
        return 0

    def _on_hello(self, board: str, payload: bytes, kept: bool = False) -> None:
        self.changed.add(board)
        before = self.boards.pop(board, None)
        self._gone.pop(board, None)
        if before and not payload:
            self._gone[board] = before
        self.strangers.discard(board)
        with suppress(frames.FrameError):
            hello = read_hello(payload)
            if hello.schema != wire.SCHEMA:
                self.strangers.add(board)
            elif hello.first and board == device_link.name(hello.first):
                clients = self.site_ids.cut(range(hello.first, hello.first + (hello.clients or 0)))
                kept = kept or self.site_ids.resent(hello.first, time.monotonic())
                self.boards[board] = Said(clients, hello.epoch or 0, hello.nonce, kept, hello)
        self._arrived.set()

    def _accepted(self, client: Any, flags: int, code: int, properties: Any) -> None:
        self.connected = True
        self.subscribe()
        self.on_connect()

    def subscribe(self) -> None:
        """Ask for what the broker has for this link, each time that it is connected."""
        self.changed |= self.boards.keys()
        self.boards.clear()  # the broker sends their hellos again
        self._gone.clear()
        self.strangers.clear()
        self.subscribed.clear()
        self.site_ids.renew()
        self._unacknowledged = 3
        for prefix in (self._up_prefix, self._site_prefix, self._hello_prefix):
            self._client.subscribe(prefix + "+", qos=1)

    def _on_subscribe(self, client: Any, number: int, qos: Any, properties: Any) -> None:
        self._unacknowledged -= 1
        if not self._unacknowledged:
            self.subscribed.set()

    def _on_disconnect(self, client: Any, packet: Any, error: Any = None) -> None:
        if client is self._client:
            self.connected = False
            self._queue.clear()

    # Sending

    def announce(self, frame: bytes) -> None:
        """Send `frame` to every board, and retain it for later ones; an empty frame removes it."""
        self._publish(device_link.ROUND % self.access.prefix, frame, retain=True)

    def hand_out(self, frame: bytes) -> None:
        """Have the broker retain `frame`, the averaged model, for every board that wants it."""
        self._publish(MODEL % self.access.prefix, frame, retain=True)

    def ask(self, board: str, frame: bytes) -> None:
        self._publish(device_link.DOWN % (self.access.prefix, board), frame)

    def _publish(self, topic: str, payload: bytes, retain: bool = False) -> None:
        if (
            self.connected and self._client.is_connected
        ):  # a lost connection is closed before it is reported
            self._client.publish(topic, payload, qos=1, retain=retain)
