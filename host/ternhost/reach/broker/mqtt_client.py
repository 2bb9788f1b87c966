"""gmqtt's client, adapted to many messages a second and to brokers with several nodes."""

import asyncio
import logging
import struct
from collections import deque
from typing import Any

import gmqtt
from gmqtt.mqtt.connection import MQTTConnection
from gmqtt.mqtt.constants import UNLIMITED_RECONNECTS, MQTTCommands
from gmqtt.storage import PersistentStorage

CONNECT_TIMEOUT = 10.0  # seconds
RECONNECT_EVERY = 1.0  # seconds
_PUBACK = struct.Struct("!BBH")  # type, length, packet id
_PUBACK_LENGTH = 2  # the bytes behind the length: the packet id

# A lost broker is nothing special: it is logged only if a program wants that.
LOG = logging.getLogger("tern.mqtt")
LOG.addHandler(logging.NullHandler())
logging.getLogger("gmqtt").addHandler(logging.NullHandler())


class _Unacknowledged(PersistentStorage):  # type: ignore[misc]  # gmqtt is not typed
    """The published messages that the broker has not acknowledged."""

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._messages)


class Client(gmqtt.Client):  # type: ignore[misc]  # gmqtt is not typed
    """A client for MQTT 3.1.1 that reconnects for ever.

    A PUBACK acknowledges a message. The PUBACKs of all messages that one read of the socket brings
    are sent with one write, and so in one TLS record, which is much faster.
    """

    def __init__(self, hosts: deque[str], user: str, password: str) -> None:
        """Prepare to connect as a user, whose name is the id of the client, too.

        hosts: the nodes of the broker. Each attempt to connect goes to the next one.
        """
        self._unacknowledged = _Unacknowledged()
        super().__init__(
            user, clean_session=True, persistent_storage=self._unacknowledged, logger=LOG
        )
        self.set_config(
            {"reconnect_delay": RECONNECT_EVERY, "reconnect_retries": UNLIMITED_RECONNECTS}
        )
        self.set_auth_credentials(user, password)
        self._hosts = hosts
        self._pubacks = bytearray()  # waiting to be sent

    @property
    def unacknowledged(self) -> int:
        """How many published messages the broker has not acknowledged; MQTT allows 65,535."""
        return self._unacknowledged.count

    async def everything_acknowledged(self) -> None:
        """Wait until the broker has acknowledged every published message."""
        await self._unacknowledged.wait_empty()

    def forget_unacknowledged(self) -> None:
        """Forget the messages that the broker has not acknowledged, so that none is sent again.

        Their ids can be used for other messages.
        """
        for message_id, _packet in self._unacknowledged.get_all():
            self.id_generator.free_id(message_id)
        self._unacknowledged.clear()

    async def _create_connection(self, host: str, *args: Any, **kwargs: Any) -> MQTTConnection:
        """Connect to the next node of the broker, whatever `host` gmqtt asks for."""
        self._hosts.rotate(-1)
        async with asyncio.timeout(CONNECT_TIMEOUT):
            return await super()._create_connection(self._hosts[-1], *args, **kwargs)

    def _send_command_with_mid(self, cmd: int, mid: int, dup: bool, reason_code: int = 0) -> None:
        """Send a packet about a message, or gather it if it is a PUBACK, which acknowledges one.

        Many messages of boards come at once, and one write for all their PUBACKs is much faster.

        cmd: the type of the packet. mid: the id of the message. dup, reason_code: as in gmqtt,
        which calls this method.
        """
        if cmd != MQTTCommands.PUBACK:
            super()._send_command_with_mid(cmd, mid, dup, reason_code=reason_code)
            return
        if not self._pubacks:
            # The event loop calls this after all messages of the present read were handled.
            asyncio.get_running_loop().call_soon(self._acknowledge, self._connection)
        self._pubacks += _PUBACK.pack(cmd, _PUBACK_LENGTH, mid)

    def _acknowledge(self, connection: MQTTConnection) -> None:
        """Send the gathered PUBACKs, unless the connection that they belong to was lost."""
        pubacks = self._pubacks
        self._pubacks = bytearray()
        if connection is self._connection and not connection.is_closing():
            connection.send_package(pubacks)
