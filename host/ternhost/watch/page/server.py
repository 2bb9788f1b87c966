"""Serves the page on loopback only, and to no other website."""

import contextlib
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

from ternhost.errors import UsageError
from ternhost.options import require_port
from ternhost.watch.loopback import ADDRESS, REFUSED, is_welcome

PORT = 8642  # the default; another one is taken if it is not free
# Headers of every response: no other site may show the page in a frame, or learn its address.
_GUARDS = (
    (b"x-frame-options", b"DENY"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)

Scope = dict[str, Any]


class OnlyHere:
    """ASGI middleware that accepts only requests for this address, from its own page."""

    def __init__(self, app: Any, port: int) -> None:
        """Wrap an ASGI app. port: of the server, which requests must name."""
        self._app = app
        self._port = port

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        """Pass a request on to the app, or refuse it: HTTP with status 403, a websocket with 1008.

        The parameters are those of the ASGI interface: what the request is, and functions that
        receive and send its messages.
        """
        kind = scope["type"]
        is_request = kind in ("http", "websocket")
        if not is_request:  # such as the start of the server
            await self._app(scope, receive, send)
        elif self._is_welcome(scope):
            if kind == "http":
                send = _with_guards(send)
            await self._app(scope, receive, send)
        elif kind == "websocket":
            await receive()  # the message "connect"
            await send({"type": "websocket.close", "code": 1008})
        else:
            headers = [(b"content-type", b"text/plain; charset=utf-8"), *_GUARDS]
            await send({"type": "http.response.start", "status": 403, "headers": headers})
            await send({"type": "http.response.body", "body": REFUSED})

    def _is_welcome(self, scope: Scope) -> bool:
        """Return whether a request is for this address, and from its own page."""
        headers = []
        for name, value in scope["headers"]:
            headers.append((name.decode("latin-1"), value.decode("latin-1")))
        opens_websocket = scope["type"] == "websocket"
        return is_welcome(self._port, headers, opens_websocket)


def _with_guards(send: Any) -> Any:
    """Wrap an ASGI `send` so that the start of a response gets headers that protect the page."""

    async def send_with_guards(message: Scope) -> None:
        """Send a message of a response."""
        if message["type"] == "http.response.start":
            headers = [*message.get("headers", ()), *_GUARDS]
            message = {**message, "headers": headers}
        await send(message)

    return send_with_guards


def listening(port: int | None) -> socket.socket:
    """Open a socket on a loopback port.

    port: None for `PORT`, or any free one if that is taken. Raises UsageError if the port is not
    available.
    """
    require_port(port, "port")  # raises UsageError for a number that is no port
    any_free_port = 0
    candidates = (PORT, any_free_port) if port is None else (port,)
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
) -> None:
    """Serve the page until SIGINT or SIGTERM.

    listener: the socket of the server. add: a function that puts the page on a FastAPI app. ready: a
    function that is called with the URL of the page when it can be opened.
    """
    import uvicorn
    from fastapi import FastAPI
    from nicegui import ui

    _host, port = listener.getsockname()

    @contextlib.asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        """Do what belongs to the start of the server, before its first request."""
        ready(f"http://{ADDRESS}:{port}/")  # requests can already wait in the socket
        yield

    # The app, without FastAPI's pages of documentation.
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
    logging.getLogger("nicegui").setLevel(logging.ERROR)  # no lines about requests for other paths

    # The server.
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
