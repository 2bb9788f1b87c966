"""A guard before the SuperLink, which authenticates a request before its body is read: Flower parses a whole request
first, so anybody who reaches the port could fill the memory. A site signs the time with its key, in three headers.
"""

from __future__ import annotations

import asyncio
import binascii
import hmac
import ipaddress
import re
import time
from base64 import b64decode
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from flwr.common.constant import SYSTEM_TIME_TOLERANCE, TIMESTAMP_HEADER, TIMESTAMP_TOLERANCE
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
from flwr.supercore.date import now
from flwr.supercore.primitives.asymmetric import public_key_to_bytes, verify_signature
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from ternhost.reach.gateway.flower.control import HEADER
from ternhost.reach.gateway.flower.files import public_keys
from ternhost.reach.gateway.post import LARGEST

_FLEET = re.compile(r"/v1/fleet/[a-z-]+")
_RUNTIME = "/v1/runtime/"
_LARGEST_REQUEST = LARGEST + (1 << 20)  # bytes
_PATIENCE = 30.0  # seconds until the first request of a connection; also for the body of any request,
_SLOWEST = 1 << 15  # bytes of it for each further second
_SETTLED = 1_000_000_000  # nanoseconds after which another change of a directory changes its time


class Guard:
    """An ASGI application before Flower's. Unread requests get 401 or 403 (sender), 413 (too long), 408 (too slow)."""

    def __init__(self, app: Any, secret: str, sites: Path, patience: float = _PATIENCE) -> None:
        """secret: of the Control API. sites: the directory with the public keys. patience: seconds for any body."""
        self._app = app
        self._secret = secret.encode()
        self._keys = _Keys(sites)
        self._patience = patience

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        if scope["type"] != "http":
            return None  # Flower has no websockets
        headers = dict(scope["headers"])
        if status := self._objection(scope, headers):
            return await _refuse(send, status)
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > _LARGEST_REQUEST or b"transfer-encoding" in headers:
            return await _refuse(send, 413)
        await self._timed(scope, receive, send, self._patience + int(length) / _SLOWEST)

    def _objection(self, scope: Any, headers: Mapping[bytes, bytes]) -> int:
        """The status for a refusal; 0 for a valid sender."""
        path = scope["path"]
        if _FLEET.fullmatch(path):
            return 0 if self._keys.signed(headers) else 401
        if not _from_here(scope):
            return 403
        if path.startswith(_RUNTIME):
            return 0
        return 0 if hmac.compare_digest(headers.get(HEADER.encode(), b""), self._secret) else 403

    async def _timed(self, scope: Any, receive: Any, send: Any, seconds: float) -> None:
        """Have Flower answer, unless the body takes longer than the limit."""
        end = asyncio.get_running_loop().time() + seconds
        whole = late = False

        async def receive_in_time() -> Any:
            nonlocal whole, late
            if whole:
                return await receive()
            try:
                async with asyncio.timeout_at(end):
                    message = await receive()
            except TimeoutError:
                late = True
                return {"type": "http.disconnect"}
            whole = not message.get("more_body", False)
            return message

        async def send_in_time(message: Any) -> None:
            if not late:
                await send(message)

        try:
            await self._app(scope, receive_in_time, send_in_time)
        except Exception:
            if not late:
                raise
        if late:
            await _refuse(send, 408)


class Connection(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """Uvicorn's connection, closed if no request comes: Uvicorn would wait for the first one for ever."""

    patience = _PATIENCE

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.loop.call_later(self.patience, self._look)

    def _look(self) -> None:
        if self.cycle is None:
            self.transport.abort()


class _Keys:
    """The current public keys of the sites."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._read_at = -1
        self._keys: dict[bytes, ec.EllipticCurvePublicKey] = {}

    def signed(self, headers: Mapping[bytes, bytes]) -> bool:
        """Whether a site has signed the current time, in Flower's format."""
        try:
            timestamp = headers[TIMESTAMP_HEADER.encode()]
            age = (now() - datetime.fromisoformat(timestamp.decode("ascii"))).total_seconds()
            key = self._known().get(b64decode(headers[FLEET_HTTP_PUBLIC_KEY_HEADER.encode()], validate=True))
            signature = b64decode(headers[FLEET_HTTP_SIGNATURE_HEADER.encode()], validate=True)
        except (KeyError, ValueError, TypeError, binascii.Error):
            return False
        if key is None or not -SYSTEM_TIME_TOLERANCE < age < TIMESTAMP_TOLERANCE + SYSTEM_TIME_TOLERANCE:
            return False
        return verify_signature(key, timestamp, signature)

    def _known(self) -> Mapping[bytes, ec.EllipticCurvePublicKey]:
        with suppress(OSError):  # it cannot be read now: the known keys stay
            changed = self._directory.stat().st_mtime_ns
            if changed != self._read_at:
                keys, wrong = public_keys(self._directory)
                self._keys = {public_key_to_bytes(key): key for key in keys.values()}
                settled = time.time_ns() - changed > _SETTLED
                self._read_at = changed if settled and not wrong else -1
        return self._keys


def _from_here(scope: Any) -> bool:
    client, server = scope.get("client"), scope.get("server")
    if not client or not server:
        return False
    return ipaddress.ip_address(client[0]).is_loopback or client[0] == server[0]


async def _refuse(send: Any, status: int) -> None:
    headers = [(b"content-length", b"0"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b""})
