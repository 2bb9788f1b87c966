"""The host's link to a broker (shared_specs/mqtt.md): one connection for the whole fleet.

It runs on asyncio and gmqtt, which receives the most messages a second: 65,000 at QoS 0 and 29,000
at QoS 1, where paho-mqtt receives 21,000 and 14,000, and aiomqtt 9,000 and 7,000.
"""

import asyncio
import ssl
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from gmqtt.mqtt.constants import MQTTv311
from gmqtt.mqtt.handler import MQTTConnectError

from tern.links import mqtt as device_link
from ternhost.errors import DeviceError
from ternhost.files import storage_errors
from ternhost.machine_names import HeldName
from ternhost.reach.addresses import reason_of
from ternhost.reach.authority import read_der
from ternhost.reach.broker import copies
from ternhost.reach.broker.access import HOST_USER, Access
from ternhost.reach.broker.kinds import KINDS
from ternhost.reach.broker.mqtt_client import CONNECT_TIMEOUT, RECONNECT_EVERY, Client
from ternhost.reach.broker.presence import Presence
from ternhost.reach.broker.sites import Ids

# Topics with retained messages; the first placeholder is the prefix of the fleet.
MODEL = "%s/model"  # to boards: the averaged model
LIMITS = "%s/model/limits"  # to boards: above which values of features are unusual
SITE = "%s/site/%s"  # to the host: whether a site's broker is connected to this one

_KEEP_ALIVE = 30  # seconds
_LEAVE_TIMEOUT = 2.0  # seconds
# Frames to single boards that the broker may have yet to acknowledge. MQTT allows 65,535 messages;
# the others are left for what is sent to all boards.
_MOST_UNACKNOWLEDGED = 60_000

# Frames that come in quick succession are handed to the driver together, since one commit of the
# database serves them all.
_GATHER_SECONDS = 0.02  # the length of a wait for more frames
_MOST_GATHERINGS = 10  # the most waits one after the other
_LEAST_GATHERED = 100  # so many frames must come in a wait for another one to follow
_MOST_FRAMES = 5_000  # if so many frames have come, there is no further wait


class _NoAnswer(DeviceError):
    """The error if no broker answers yet: it is down or hangs, and may come back."""


class MqttLink:
    """Sends frames to all boards on a broker, and receives theirs.

    Frames that are sent while there is no connection are lost, so that boards never get old ones.
    """

    def __init__(self, access: Access, *, site_ids: Callable[[], Ids] = dict) -> None:
        """Prepare to connect to a broker.

        access: how to reach the broker. site_ids: a function that returns which devices belong to
        each site; the link believes no site that speaks for others.
        """
        self.access = access
        self.presence = Presence(site_ids)  # who is connected to the broker
        self.on_connect: Callable[[], None] = lambda: None  # called after each connection
        # Called with a sentence when no broker answers and `connect` begins to wait for it.
        self.on_waiting: Callable[[str], None] = lambda message: None

        # The state of the connection.
        self.connected = False
        self.subscribed = asyncio.Event()  # set when no message of a board can be missed any more
        self._closing = asyncio.Event()  # set when the link is to be closed
        self._only_host: HeldName | None = None  # held while this is the host's link
        self._hosts = deque(access.hosts)  # the nodes of the broker; the client tries them by turns

        # What has been received.
        self._frames: list[bytes] = []
        self._arrived = asyncio.Event()  # set when a frame or a HELLO has come

        # The beginnings of the topics to which the host subscribes.
        up_topics = device_link.UP % (access.prefix, "")
        site_topics = SITE % (access.prefix, "")
        hello_topics = device_link.HELLO % (access.prefix, "")
        self._prefixes = up_topics, site_topics, hello_topics
        self._unacknowledged = 0  # subscriptions that the broker has not confirmed yet
        self.renew()

    def renew(self) -> None:
        """Make a new client for the next attempt to connect.

        That is needed since a client of gmqtt that was refused once does not try again. A subclass
        adds a will.
        """
        self.client = Client(self._hosts, self.access.user, self.access.password)
        self.client.on_message = self._on_message
        self.client.on_connect = self._on_connect
        self.client.on_subscribe = self._on_subscribe
        self.client.on_disconnect = self._on_disconnect

    # Connecting

    async def connect(self, patience: float | None = 0.0) -> None:
        """Connect for the first time. Afterwards the link reconnects by itself.

        patience: for how many seconds to try again while no broker answers; None for ever, until
        `close` is called. Each node of a cluster is tried at least once.
        Raises UsageError if the certificate authority cannot be read, or if another host on this
        machine is connected to this broker, or to one with a copy of its directory. Raises DeviceError if no
        broker has answered in time, and at once if the broker refuses this host or has the wrong
        certificate.
        """
        tls = self._tls_context()
        if self.access.user == HOST_USER and self._only_host is None:
            self._only_host = copies.hold_host(self.access)
        try:
            await self._connect_patiently(tls, patience)
        except BaseException:
            self._let_other_hosts_in()
            raise

    async def _connect_patiently(self, tls: ssl.SSLContext | bool, patience: float | None) -> None:
        """Do what `connect` does, which has the parameter `patience` and the errors, too.

        tls: the result of `_tls_context`.
        """
        end = float("inf")
        if patience is not None:
            end = time.monotonic() + patience
        untried_nodes = len(self._hosts)
        warned = False
        self._closing.clear()
        while not self._closing.is_set():
            try:
                await self._attempt(tls)
            except _NoAnswer as error:
                await self._give_up_client()
                untried_nodes -= 1
                is_out_of_time = time.monotonic() + RECONNECT_EVERY > end
                if is_out_of_time and untried_nodes <= 0:
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
        await self._leave()  # `close` was called meanwhile

    def _tls_context(self) -> ssl.SSLContext | bool:
        """Return a TLS context that trusts the fleet's authority; False for a broker without TLS.

        Raises UsageError if the authority's certificate is none, and StorageError if it cannot be read.
        """
        authority = self.access.authority
        if not authority:
            return False
        with storage_errors():
            content = Path(authority).read_bytes()
        certificate = read_der(content, authority)
        return ssl.create_default_context(cadata=certificate)

    async def _attempt(self, tls: ssl.SSLContext | bool) -> None:
        """Try once to connect. tls: the result of `_tls_context`.

        Raises _NoAnswer if the broker may answer later, and DeviceError if it refuses this host or
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
            is_without_leader = "unavailable" in str(error)  # a cluster that has only just started
            if is_without_leader:
                raise _NoAnswer(text, hint) from error
            raise DeviceError(text, hint) from error
        except (OSError, TimeoutError) as error:
            text = f"{broker} does not answer: {reason_of(error)}"
            ways_to_start = "; ".join(kind.start for kind in KINDS.available())
            hint = f"start it ({ways_to_start}), or check the address"
            raise _NoAnswer(text, hint) from error

    async def _give_up_client(self) -> None:
        """Disconnect, and make a new client for the next attempt."""
        await self._leave()
        self.renew()

    async def _leave(self) -> None:
        """Disconnect, if there is a connection, and do not reconnect."""
        self.client.stop_reconnect()
        with suppress(Exception):  # there may be no connection to end
            await asyncio.wait_for(self.client.disconnect(), _LEAVE_TIMEOUT)

    async def close(self) -> None:
        """Disconnect from the broker, or stop waiting for it."""
        self._closing.set()
        await self._leave()
        self.connected = False
        self._let_other_hosts_in()

    def _let_other_hosts_in(self) -> None:
        """Let another process be the host of this broker."""
        if self._only_host is not None:
            self._only_host.close()
            self._only_host = None

    def subscribe(self) -> None:
        """Subscribe to the topics of boards and sites, after each connection."""
        self.presence.start_over()
        self.subscribed.clear()
        self._unacknowledged = len(self._prefixes)
        for prefix in self._prefixes:
            self.client.subscribe(prefix + "+", qos=1)

    # The parameters of the next methods are those with which gmqtt calls them.

    def _on_connect(self, client: Any, flags: int, code: int, properties: Any) -> None:
        self.connected = True
        self.subscribe()
        self.on_connect()

    def _on_subscribe(self, client: Any, number: int, qos: Any, properties: Any) -> None:
        self._unacknowledged -= 1
        if not self._unacknowledged:
            self.subscribed.set()

    def _on_disconnect(self, client: Any, packet: Any, error: Any = None) -> None:
        if client is self.client:  # not an earlier one, which was given up
            self.connected = False
            self.client.forget_unacknowledged()  # what was not sent must not be sent late

    # Receiving

    async def wait(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds for a frame or a HELLO; return whether there are frames."""
        if not self._frames:
            self._arrived.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._arrived.wait(), timeout)
        return bool(self._frames)

    async def take(self, timeout: float) -> list[bytes]:
        """Wait at most `timeout` seconds for frames of boards, and return them in their order.

        They are not verified. While many come, it waits a little longer: the more frames the driver
        gets together, the fewer commits it needs.
        """
        if await self.wait(timeout):
            await self._gather()
        taken = self._frames
        self._frames = []
        return taken

    async def _gather(self) -> None:
        """Wait a few times for more frames, as long as many come each time.

        The driver stores the frames that it gets together with one commit, so a few milliseconds of
        waiting save many commits.
        """
        count_before = -_LEAST_GATHERED  # so that there is a first wait
        for _ in range(_MOST_GATHERINGS):
            count = len(self._frames)
            few_have_come = count - count_before < _LEAST_GATHERED
            if few_have_come or count >= _MOST_FRAMES:
                return
            count_before = count
            await asyncio.sleep(_GATHER_SECONDS)

    def receive(self, topic: str, payload: bytes, retained: bool = False) -> None:
        """Take a message from the broker: a frame or a HELLO of a board, or one of a site.

        retained: whether the broker has kept the message, which may be old then.
        """
        up_topics, site_topics, hello_topics = self._prefixes  # the beginnings of topics
        if topic.startswith(up_topics):
            self._frames.append(payload)
            self.presence.take_message(topic.removeprefix(up_topics))
            self._arrived.set()
        elif topic.startswith(hello_topics):
            self.presence.take_hello(topic.removeprefix(hello_topics), payload, retained)
            self._arrived.set()
        elif topic.startswith(site_topics):
            site = topic.removeprefix(site_topics)
            is_connected = payload == b"1"
            self.presence.take_site(site, connected=is_connected, retained=retained)

    def _on_message(
        self, client: Any, topic: str, payload: bytes, qos: int, properties: Any
    ) -> int:
        self.receive(topic, payload, bool(properties.get("retain")))
        return 0

    # Sending

    def announce(self, frame: bytes) -> None:
        """Send a request to every board, and have the broker retain it for those that come later.

        An empty frame removes what the broker has retained.
        """
        self.publish(device_link.ROUND % self.access.prefix, frame, retain=True)

    def retain_model(self, frame: bytes) -> None:
        """Have the broker retain the averaged model, which is `frame`, for all boards that use it.

        An empty frame removes what the broker has retained.
        """
        self.publish(MODEL % self.access.prefix, frame, retain=True)

    def retain_limits(self, frame: bytes) -> None:
        """Have the broker retain the limits of features, as `retain_model` does with the model."""
        self.publish(LIMITS % self.access.prefix, frame, retain=True)

    def ask(self, board: str, frame: bytes) -> bool:
        """Send a frame to one board, and return whether it was sent. board: its name.

        It is not sent while the broker has yet to acknowledge very many frames.
        """
        if self.client.unacknowledged >= _MOST_UNACKNOWLEDGED:
            return False
        self.publish(device_link.DOWN % (self.access.prefix, board), frame)
        return True

    def publish(self, topic: str, payload: bytes, retain: bool = False) -> None:
        """Publish a message, unless there is no connection."""
        # gmqtt closes a lost connection first, and calls `_on_disconnect` later.
        if self.connected and self.client.is_connected:
            self.client.publish(topic, payload, qos=1, retain=retain)
