"""Serves the page on loopback only, and to no other website."""

import contextlib
import logging
import os
import socket
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

from ternhost.errors import UsageError
from ternhost.options import require_port
from ternhost.watch.loopback import ADDRESS, REFUSED, is_welcome

PORT = 8642  # or any other one where it is taken
_GUARDS = (
    (b"x-frame-options", b"DENY"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)

Scope = dict[str, Any]


class OnlyHere:
    """Accepts only requests for this address, from its own page."""

    def __init__(self, app: Any, port: int) -> None:
        self._app = app
        self._port = port

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        """Pass a request on to the app, or refuse it with 403 (a websocket with 1008).

        The parameters are those of the ASGI interface.
        """
        kind = scope["type"]
        if kind not in ("http", "websocket"):
            await self._app(scope, receive, send)
        elif self._is_welcome(scope):
            await self._app(scope, receive, _guarded(send) if kind == "http" else send)
        elif kind == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008})
        else:
            head = [(b"content-type", b"text/plain; charset=utf-8"), *_GUARDS]
            await send({"type": "http.response.start", "status": 403, "headers": head})
            await send({"type": "http.response.body", "body": REFUSED})

    def _is_welcome(self, scope: Scope) -> bool:
        headers = []
        for name, value in scope["headers"]:
            headers.append((name.decode("latin-1"), value.decode("latin-1")))
        return is_welcome(self._port, headers, scope["type"] == "websocket")


def _guarded(send: Any) -> Any:
    """Wrap an ASGI `send` so that the start of a response gets headers that protect the page."""

    async def sent(message: Scope) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *_GUARDS]}
        await send(message)

    return sent


def listening(port: int | None) -> socket.socket:
    """Open a socket on a loopback port, by default on `PORT` or any other where it is taken.

    Raises UsageError if there is no such socket.
    """
    require_port(port, "port")
    candidates = (PORT, 0) if port is None else (port,)
    for candidate in candidates:
        try:
            return socket.create_server((ADDRESS, candidate))
        except OSError as error:
            if port is not None:
                text = f"cannot open port {port}: {os.strerror(error.errno or 0)}"
                raise UsageError(text, hint="give another --port, or leave it out") from error
    raise UsageError("no loopback port is free", hint="end a program that listens on one")


def serve(
    listener: socket.socket,
    add: Callable[[Any], None],
    ready: Callable[[str], None],
    until: Any = None,
) -> None:
    """Serve the page until SIGINT, SIGTERM, or the end of the file `until`.

    listener: the socket. add: puts the page on an app. ready: is called with the URL when the
    server answers.
    """
    import uvicorn
    from fastapi import FastAPI
    from nicegui import ui

    port = listener.getsockname()[1]

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        ready(f"http://{ADDRESS}:{port}/")  # the socket has been listening all along
        if until is not None:
            threading.Thread(target=watch, daemon=True).start()
        yield

    def watch() -> None:
        with contextlib.suppress(OSError, ValueError):
            while until.read(1):
                pass
        server.should_exit = True

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan)
    add(app)
    app.add_middleware(OnlyHere, port=port)
    ui.run_with(
        app,
        reconnect_timeout=10.0,
        title="tern",
        favicon=_ICON,
        dark=None,  # as the system has it
        tailwind=False,
        binding_refresh_interval=None,
        show_welcome_message=False,
    )
    logging.getLogger("nicegui").setLevel(logging.ERROR)  # requests for missing paths are no news
    config = uvicorn.Config(
        app, lifespan="on", timeout_graceful_shutdown=1, log_level="error", access_log=False
    )
    server = uvicorn.Server(config)
    with contextlib.suppress(KeyboardInterrupt):
        server.run(sockets=[listener])


_ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><path d="M2 9c7-1 10 1 14 6 4-5 7-7 14-6-6 2-9 5-11 9'
    'l-3 7-3-7C11 14 8 11 2 9z" fill="#0072B2"/></svg>'
)
