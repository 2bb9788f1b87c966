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
_PUBACK_LENGTH = 2  # bytes behind the length

# A lost broker is nothing special: it is logged only if a program wants that.
LOG = logging.getLogger("tern.mqtt")
LOG.addHandler(logging.NullHandler())
logging.getLogger("gmqtt").addHandler(logging.NullHandler())


class Client(gmqtt.Client):  # type: ignore[misc]  # gmqtt is not typed
    """A client for MQTT 3.1.1 that reconnects for ever.

    The PUBACKs of everything that one read brings leave in one write, and one TLS record.
    """

    def __init__(self, hosts: deque[str], user: str, password: str) -> None:
        """hosts: the nodes of the broker; each connection is to the next."""
        self.queue = PersistentStorage()  # messages that the broker has not acknowledged
        super().__init__(user, clean_session=True, persistent_storage=self.queue, logger=LOG)
        self.set_config(
            {"reconnect_delay": RECONNECT_EVERY, "reconnect_retries": UNLIMITED_RECONNECTS}
        )
        self.set_auth_credentials(user, password)
        self._hosts = hosts
        self._pubacks = bytearray()  # waiting to be sent

    async def _create_connection(self, host: str, *args: Any, **kwargs: Any) -> MQTTConnection:
        """Connect to the next node, whatever `host` gmqtt asks for."""
        self._hosts.rotate(-1)
        async with asyncio.timeout(CONNECT_TIMEOUT):
            return await super()._create_connection(self._hosts[-1], *args, **kwargs)

    def _send_command_with_mid(self, cmd: int, mid: int, dup: bool, reason_code: int = 0) -> None:
        """Send a command of a message (`mid`); a PUBACK waits for others of the same read."""
        if cmd != MQTTCommands.PUBACK:
            super()._send_command_with_mid(cmd, mid, dup, reason_code=reason_code)
            return
        if not self._pubacks:
            asyncio.get_running_loop().call_soon(self._acknowledge, self._connection)
        self._pubacks += _PUBACK.pack(cmd, _PUBACK_LENGTH, mid)

    def _acknowledge(self, connection: MQTTConnection) -> None:
        """Send the PUBACKs that wait, if the connection that they are for still stands."""
        pubacks = self._pubacks
        self._pubacks = bytearray()
        if connection is self._connection and not connection.is_closing():
            connection.send_package(pubacks)
