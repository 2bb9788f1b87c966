"""Flower's SuperLink behind a guard. A process: python -m ternhost.links.flower.superlink DIRECTORY

Flower serves three protocols on one port, and asks for a key in one of them: Fleet, that of the sites. Whoever reaches
the port could start programs by Control, or take the ServerApp's place by Runtime. So the guard leaves to others Fleet
alone; Runtime is for this machine, with a secret of Flower's; Control for this machine, with a secret of ours.

It keeps nothing on disk: a database makes a question take three times as long with ten sites, and what is lost with the
process is told or asked again, sites by 'tern gateway superlink', questions by the host.
"""

from __future__ import annotations

import hmac
import importlib
import ipaddress
import os
import re
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import Any

from ternhost.links.flower.children import end_with_parent
from ternhost.links.flower.control import HEADER
from ternhost.links.flower.files import AUTHORITY, CERTIFICATE, CONTROL, EXECUTOR, KEY, Server
from ternhost.links.post import LARGEST

_FLEET = re.compile(r"/v1/fleet/[a-z-]+")
_RUNTIME = "/v1/runtime/"
_SUPEREXEC = "from flwr.supercore.cli import flower_superexec as run; run()"  # its command, wherever that is
_LARGEST_REQUEST = LARGEST + (1 << 20)  # bytes


class Guard:
    """An ASGI application before Flower's: 403 for whom it does not let in, 413 for what is too long."""

    def __init__(self, app: Any, secret: str) -> None:
        self._app = app
        self._secret = secret.encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            if not self._admits(scope):
                return await _refuse(send, 403)
            length = dict(scope["headers"]).get(b"content-length", b"0")
            if not length.isdigit() or int(length) > _LARGEST_REQUEST or _chunked(scope):
                return await _refuse(send, 413)
        elif scope["type"] != "lifespan":
            return None  # Flower has no websockets
        await self._app(scope, receive, send)

    def _admits(self, scope: Any) -> bool:
        path = scope["path"]
        if _FLEET.fullmatch(path):
            return True
        if not _from_here(scope):
            return False
        if path.startswith(_RUNTIME):
            return True
        given = dict(scope["headers"]).get(HEADER.encode(), b"")
        return hmac.compare_digest(given, self._secret)


def _from_here(scope: Any) -> bool:
    client, server = scope.get("client"), scope.get("server")
    if not client or not server:
        return False
    return ipaddress.ip_address(client[0]).is_loopback or client[0] == server[0]


def _chunked(scope: Any) -> bool:
    return any(name == b"transfer-encoding" for name, _ in scope["headers"])


async def _refuse(send: Any, status: int) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


def main() -> None:
    """Serve until SIGTERM."""
    end_with_parent()
    server = Server.load(sys.argv[1])
    where = server.directory
    sys.argv = [
        "flower-superlink",
        *("--host", server.address, "--port", str(server.port)),
        *("--ssl-ca-certfile", str(where / AUTHORITY)),
        *("--ssl-certfile", str(where / CERTIFICATE)),
        *("--ssl-keyfile", str(where / KEY)),
        "--enable-supernode-auth",
        *("--isolation", "process"),
        *("--superexec-auth-secret-file", str(where / EXECUTOR)),
        "--disable-runtime-dependency-installation",
    ]
    import uvicorn
    from flwr.superlink.main import create_app

    # As its own command does from here on, but for the guard, and without a line in the log for each request.
    command = importlib.import_module("flwr.superlink.cli.flower_superlink")  # a function has the same name
    config = command._parse_superlink_lifespan_config()
    app = create_app(config, command.SuperLinkLifespan)
    threading.Thread(target=_execute, args=(server,), daemon=True).start()
    uvicorn.run(
        Guard(app, (where / CONTROL).read_text().strip()),
        host=server.address,
        port=server.port,
        access_log=False,
        proxy_headers=False,  # who connects is who it is, whatever a header says
        log_level="warning",
        ssl_certfile=config.ssl_certfile,
        ssl_keyfile=config.ssl_keyfile,
        workers=1,
    )


def _execute(server: Server) -> None:
    """Run Flower's SuperExec, which starts the ServerApp, as soon as it finds the SuperLink; again when it ends.

    It is in this process's group, with which it is killed: left alone it would look for a new SuperLink ever later.
    """
    host, _, port = server.here.rpartition(":")
    while True:
        with suppress(OSError), socket.create_connection((host.strip("[]"), int(port)), 1.0):
            break
        time.sleep(0.1)
    while True:
        subprocess.run(
            [
                *(sys.executable, "-c", _SUPEREXEC, "--runtime-api-address", server.here),
                *("--root-certificates", str(server.directory / AUTHORITY)),
                *("--superexec-auth-secret-file", str(server.directory / EXECUTOR)),
                *("--parent-pid", str(os.getpid())),
            ],
            check=False,
        )
        time.sleep(1.0)


if __name__ == "__main__":
    os.umask(0o077)
    main()
