"""A broker in the host's own process, for a first try: amqtt, with the passwords and the access list of broker.py.

It holds up for a small fleet. Mosquitto is faster, and outlives the host.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from hmac import compare_digest
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from amqtt.broker import Broker
from amqtt.contexts import Action
from amqtt.plugins.base import BaseAuthPlugin, BaseTopicPlugin
from amqtt.session import Session

from tern.links import mqtt
from ternhost.aggregate.store import Store
from ternhost.errors import DeviceError
from ternhost.fleet import broker

_SHUTDOWN = 5.0
for _name in ("amqtt", "transitions"):
    logging.getLogger(_name).addHandler(logging.NullHandler())


class EmbeddedBroker:
    """An amqtt broker for the devices of `store`, with TLS, on a loopback port. An asynchronous context manager.

    Its certificates and host.json are in `directory`, and stay from one time to the next, the port too.
    """

    def __init__(self, directory: str | Path, store: Store) -> None:
        directory = Path(directory)
        port = (
            broker.Access.load(directory / broker.HOST).port
            if (directory / broker.HOST).exists()
            else broker.free_port()
        )
        self.access = broker.write_configuration(directory, {}, port=port)
        self._directory = directory
        self._store = store

    async def __aenter__(self) -> Self:
        access = self.access
        _Passwords.of[access.port] = self._password
        self._broker = Broker(
            {
                "listeners": {
                    "default": {
                        "type": "tcp",
                        "bind": f"127.0.0.1:{access.port}",
                        "ssl": True,
                        "certfile": str(self._directory / broker.CERTIFICATE),
                        "keyfile": str(self._directory / broker.KEY),
                    }
                },
                "plugins": {
                    "ternhost.embedded._Passwords": {"port": access.port},
                    "ternhost.embedded._AccessList": {"prefix": access.prefix},
                },
            }
        )
        self._broker._subscriptions = _Subscriptions()
        try:
            await self._broker.start()
        except Exception as error:  # amqtt wraps what the system says
            raise DeviceError(
                f"no broker can listen on port {access.port}: {error}",
                hint=f"end what listens there, or remove {self._directory}",
            ) from error
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(TimeoutError):  # it waits for clients that may have gone without a word
            await asyncio.wait_for(self._broker.shutdown(), _SHUTDOWN)
        _Passwords.of.pop(self.access.port, None)

    def _password(self, user: str) -> str | None:
        if user == self.access.user:
            return self.access.password
        try:
            device = int(user, 16)
        except ValueError:
            return None
        key = self._store.keys().get(device)
        return mqtt.password(key) if key and user == mqtt.name(device) else None


class _Subscriptions(dict[str, Any]):
    """A dictionary that may change while it is walked through: amqtt 0.12 loses the message on its way if it does."""

    def items(self) -> Any:
        return list(super().items())

    def __iter__(self) -> Any:
        return iter(list(super().__iter__()))


class _Passwords(BaseAuthPlugin):  # type: ignore[misc]  # amqtt is not typed
    """Lets in who knows the password, and takes the user name for the client id."""

    of: dict[int, Callable[[str], str | None]] = {}  # noqa: RUF012  # by port: amqtt makes the plugins itself

    @dataclass
    class Config:
        port: int = 0

    async def authenticate(self, *, session: Session) -> bool | None:
        password = self.of[self.config.port](session.username or "")
        good = password is not None and compare_digest(password.encode(), (session.password or "").encode())
        return good and session.client_id == session.username


class _AccessList(BaseTopicPlugin):  # type: ignore[misc]
    """A board has its own topics and the fleet's, as in broker.py."""

    @dataclass
    class Config:
        prefix: str = "tern"
        host: str = field(default=broker.HOST_USER)

    async def topic_filtering(
        self, *, session: Session | None = None, topic: str | None = None, action: Action | None = None
    ) -> bool | None:
        if session is None or topic is None:
            return False
        config: Any = self.config
        user, prefix = session.username, config.prefix
        if user == config.host:
            writes = topic == mqtt.ROUND % prefix or topic.startswith(mqtt.DOWN % (prefix, ""))
            reads = topic.startswith((mqtt.UP % (prefix, ""), mqtt.HELLO % (prefix, "")))
        else:
            writes = topic in (mqtt.UP % (prefix, user), mqtt.HELLO % (prefix, user))
            reads = topic in (mqtt.DOWN % (prefix, user), mqtt.ROUND % prefix)
        return writes if action == Action.PUBLISH else reads
