"""The host's end of the connection over Flower: runs the ServerApp, and speaks with it through a socket."""

from __future__ import annotations

import secrets
import socket
import struct
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self

from cryptography.hazmat.primitives.asymmetric import ec

from ternhost.errors import StorageError, UsageError
from ternhost.reach.gateway.flower.control import FAILURES, Control
from ternhost.reach.gateway.flower.files import HOST, Server
from ternhost.reach.gateway.flower.sealed import NONCE, unseal
from ternhost.reach.gateway.flower.serverapp import ANSWERED, ASKED, MOST, RUN
from ternhost.reach.gateway.post import (
    LARGEST,
    Post,
    exactly,
    listening,
    receive_frame,
    send_frame,
    served,
    text_of,
)

_LOOK = 1.0  # seconds between two looks at the SuperLink
_START = 45.0  # seconds for a ServerApp to start; then another one is started
_AGAIN = 2.0  # least seconds between two starts of a ServerApp
_SEND = 5.0  # seconds for the ServerApp to take a question


class FlowerPost(Post):
    """A Post over the SuperLink. It restarts the ServerApp whenever it ends; open questions are lost then."""

    def __init__(self, directory: str | Path) -> None:
        """directory: of the server, or the one above it. Raises UsageError and StorageError."""
        super().__init__()
        self._server = Server.load(directory)
        self._ending = threading.Event()
        self._wake = threading.Event()
        self._lock = threading.Lock()  # of the three below, and of sending
        self._app: socket.socket | None = None
        self._questions: dict[int, tuple[str, bytes]] = {}  # (site, bytes sent) by number
        self._number = 0
        self._run: int | None = None
        self._condition = "the SuperLink has not answered yet"
        self._keys: dict[str, ec.EllipticCurvePublicKey] = {}
        self._nodes: dict[str, tuple[int, bool]] = {}

    def __enter__(self) -> Self:
        path = self._server.directory / HOST
        if served(path):
            raise UsageError(f"{path} is served already", hint="a server has one host: end the other one")
        with ExitStack() as stack:
            try:
                self._control = stack.enter_context(Control(self._server))
                self._door = stack.enter_context(listening(path))
            except OSError as error:
                raise StorageError(f"{error.filename or path}: {error.strerror}") from error
            stack.callback(path.unlink, missing_ok=True)
            threads = [threading.Thread(target=work, daemon=True) for work in (self._tend, self._admit)]
            for thread in threads:
                thread.start()
                stack.callback(thread.join)
            stack.callback(self._leave)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _leave(self) -> None:
        self._ending.set()
        self._wake.set()
        with suppress(OSError):
            self._door.shutdown(socket.SHUT_RDWR)
        self._drop()

    def sites(self) -> Mapping[str, bool]:
        """As Post's: the sites of 'tern gateway init'. A killed node still counts as connected for up to 20 s."""
        nodes = self._nodes
        return {name: name in nodes and nodes[name][1] for name in list(self._keys)}

    def condition(self) -> str:
        return self._condition

    def send(self, site: str, payload: bytes) -> None:
        """As Post's. A question that cannot be sent now is answered with an error at once."""
        if len(payload) > LARGEST:
            raise UsageError(f"a question of {len(payload)} bytes is more than {LARGEST}")
        question = secrets.token_bytes(NONCE) + payload
        with self._lock:
            node = self._nodes.get(site)
            if node is None or self._app is None:
                why = self._condition if self._app is None else f"the SuperLink does not know {site} yet"
                self.received(site, None, why or "the ServerApp is starting")
                return
            self._number += 1
            self._questions[self._number] = site, question
            try:
                send_frame(self._app, ASKED.pack(node[0], self._number) + question)
            except OSError:  # the reading thread will notice, and report it
                with suppress(OSError):
                    self._app.shutdown(socket.SHUT_RDWR)

    def _tend(self) -> None:
        """Track the sites, and keep the ServerApp running, until the end."""
        began = 0.0
        while True:
            self._wake.wait(_LOOK)
            self._wake.clear()
            try:
                if self._ending.is_set():
                    if self._run is not None:
                        self._control.stop(self._run)
                    return
                self._keys, _ = self._control.public_keys()
                self._nodes = self._control.sites(self._keys)
                if self._app is None and time.monotonic() - began > (_AGAIN if self._run is None else _START):
                    if self._run is not None:
                        with suppress(*FAILURES):  # it has ended by itself
                            self._control.stop(self._run)
                    began = time.monotonic()
                    self._run = self._control.start({"socket": str(self._server.directory / HOST)})
                self._condition = "" if self._app else "Flower's ServerApp is starting"
            except Exception as error:  # any error is reported, and then tried again
                self._condition = self._control.trouble(error)
                if self._ending.is_set():
                    return

    def _admit(self) -> None:
        """Accept the ServerApp, one at a time, and read from it."""
        while True:
            try:
                app, _ = self._door.accept()
            except OSError:
                return
            if self._ending.is_set():
                app.close()
                return
            with app, suppress(OSError, EOFError):
                (run,) = RUN.unpack(exactly(app, RUN.size, time.monotonic() + _SEND))
                if run == self._run:  # not an earlier host's
                    self._hear(app)

    def _hear(self, app: socket.socket) -> None:
        app.settimeout(None)
        app.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(_SEND))
        with self._lock:
            self._app = app
        self._wake.set()
        try:
            while True:
                data = receive_frame(app, most=MOST)
                number, failed = ANSWERED.unpack_from(data)
                self._answered(number, bool(failed), data[ANSWERED.size :])
        finally:
            self._drop()
            self._wake.set()

    def _answered(self, number: int, failed: bool, data: bytes) -> None:
        with self._lock:
            site, question = self._questions.pop(number, ("", b""))
        if not site:
            return
        try:
            error, answer = (True, data) if failed else unseal(self._keys[site], question, data)
        except (KeyError, ValueError) as why:
            self.received(site, None, f"an answer without the signature of {site}: {why}")
            return
        self.received(site, None if error else answer, text_of(answer) if error else "")

    def _drop(self) -> None:
        """Drop the ServerApp, and with it the open questions."""
        with self._lock:
            app, self._app = self._app, None
            lost, self._questions = self._questions, {}
            if not self._ending.is_set():
                self._run = None
                self._condition = "Flower's ServerApp has ended; another is starting"
        if app:
            with suppress(OSError):
                app.shutdown(socket.SHUT_RDWR)
        for site, _ in lost.values():
            self.received(site, None, "lost: Flower's ServerApp has ended")


def _timeval(seconds: float) -> bytes:
    return struct.pack("ll", int(seconds), int(seconds % 1 * 1e6))
