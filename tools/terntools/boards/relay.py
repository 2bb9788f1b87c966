"""Connects a board on a port to a broker, under the board's name, as if it spoke MQTT itself.

It uses the device library's link, for the same session, hello, will and pauses, and has the board's
password, not its key.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from queue import SimpleQueue
from random import choice
from select import select
from typing import TYPE_CHECKING, Any

from tern import wire
from tern.links import mqtt
from tern.mqtt import Session
from tern.tcp import Connection, client_context
from ternhost.errors import DeviceError, TernError, UsageError
from ternhost.files import read_object
from ternhost.reach.absence import refuses, require_at_port
from ternhost.reach.links import Received, drain, hello_request
from ternhost.reach.ports import names
from ternhost.reach.ports.link import SerialLink
from ternhost.store.store import Store

if TYPE_CHECKING:
    from ternhost.reach.broker.access import Access

_UP = (wire.REPORT, wire.REPORTS, wire.ERROR, wire.UPDATED)
_DOWN = (wire.MODEL, wire.UPDATE)  # in addition to the kinds that every board takes from a broker
_KEEP_ALIVE = 60  # s
_WINDOW = 32  # messages that the broker has not acknowledged
_TOPIC = 100  # bytes of a message besides its frame, the topic included
_LONGEST_PAUSE_MS = 10_000
_BACKLOG = 2 * wire.IN_FLIGHT  # bytes that may wait for a board before the broker is kept waiting
_WAIT_MS = 500
_AGAIN = 2.0  # s until a board that owes a HELLO is asked again
_QUIET, _SILENT = 30.0, 90.0  # s without a frame, after which a board is asked, and given up
_RETRY = 1.0  # s

Tell = Callable[[str], None]
Passwords = Callable[[int], str | None]  # by the id of a board's first client


def passwords_of(place: Path, access: Access, store: str | None = None) -> Passwords:
    """The boards' passwords, read anew each time: `store`, else boards.json of `place`, else the
    broker's store.

    place: the directory of a broker or a site. Raises UsageError where there is neither.
    """
    from ternhost.reach.broker.access import BOARDS

    kept, keys = place / BOARDS, store or access.store
    in_file = not store and kept.exists()
    if not in_file and not (keys and Path(keys).exists()):
        hint = "have the owner of the broker write them: tern broker config DIR --relay SITE; or name the "
        hint += "--store"
        raise UsageError(f"there are no passwords of boards in {place}", hint)

    def password_of(first: int) -> str | None:
        if not in_file:
            assert keys
            with Store(keys, create=False, beside=True) as opened:
                key = opened.keys().get(first)
            return mqtt.password(key) if key else None
        return read_object(kept).get(mqtt.name(first))

    return password_of


class _Inbox(SimpleQueue[Received]):
    """Frames of the board; `bell` is readable as long as there may be some."""

    def __init__(self) -> None:
        super().__init__()
        self.bell, self._rope = socket.socketpair()
        self.bell.setblocking(False)
        self._rope.setblocking(False)

    def put(self, item: Received, block: bool = True, timeout: float | None = None) -> None:
        super().put(item)
        with suppress(BlockingIOError):  # it rings already
            self._rope.send(b"\0")

    def take(self) -> list[Received]:
        with suppress(BlockingIOError):
            self.bell.recv(4096)
        return drain(self, 0)

    def close(self) -> None:
        self.bell.close()
        self._rope.close()


class _Port(SerialLink):
    """A link that passes on every frame, HELLO too."""

    AFTER_LOSS = "it is opened again when it is back"

    def heard(self, received: Any) -> None:
        received = list(received)
        super().heard(received)
        if hellos := [frame for frame in received if frame[:1] == bytes((wire.HELLO,))]:
            self._events.put(Received(self, hellos))


class _Line(Connection):
    """A connection whose waits also end when the board has sent something."""

    def __init__(self, bell: socket.socket, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._bell = bell

    def wait(self, timeout_ms: int) -> None:
        line = self._socket
        if line is None or not self._read:
            super().wait(timeout_ms)
        elif not (isinstance(line, ssl.SSLSocket) and line.pending()):
            select((line, self._bell), (), (), timeout_ms / 1000)


class Relay:
    """Relays the board on a port, in a thread, until `close`; board and broker may go and come back
    meanwhile.
    """

    def __init__(self, port: str, access: Access, passwords: Passwords, tell: Tell) -> None:
        """port: a name of `names.NAMES`. tell: gets a sentence for each change of state."""
        self.port = port
        self.access = access
        self._passwords = passwords
        self._tell = tell
        self._state = ""  # the last sentence
        self.end = threading.Event()
        self.context = None
        if access.authority:
            try:
                self.context = client_context(
                    ssl.PEM_cert_to_DER_cert(Path(access.authority).read_text())
                )
            except (OSError, ValueError) as error:
                raise UsageError(f"{access.authority} is no certificate: {error}") from error
        self._thread = threading.Thread(target=self._run, name=f"relay {port}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End it. The broker publishes the board's will, as for a board that is switched off."""
        self.end.set()
        self._thread.join()

    def say(self, text: str) -> None:
        if text != self._state:
            self._state = text
            self._tell(f"{self.port}: {text}")

    def _run(self) -> None:
        while not self.end.is_set():
            try:
                self._relay()
            except TernError as error:
                self.say(error.message + (f"\n  {error.hint}" if error.hint else ""))
            self.end.wait(_RETRY)

    def _relay(self) -> None:
        with closing(_Inbox()) as inbox, closing(_Port(names.resolve(self.port), inbox)) as link:
            first = require_at_port(self.port, link.hello()).first or 0
            inbox.take()
            password = self._passwords(first) if first else None
            if password is None:
                text = (
                    f"board {mqtt.name(first)} has no password here"
                    if first
                    else "the board has no key"
                )
                raise DeviceError(
                    text, hint="make it a member: tern up; then run 'tern broker config' again"
                )
            _Passage(self, link, inbox, first, password).run()


class _Passage:
    """The traffic between a board and the broker, as long as the board is there."""

    def __init__(self, relay: Relay, link: _Port, inbox: _Inbox, first: int, password: str) -> None:
        """relay: ends the traffic, and gets its state, again and again. first: the board's first
        client.
        """
        self._link, self._inbox, self._end, self._say = link, inbox, relay.end, relay.say
        access = relay.access
        self._name = mqtt.name(first)
        hello = mqtt.HELLO % (access.prefix, self._name)
        self._session = Session(
            lambda: _Line(
                inbox.bell, host := choice(access.hosts), access.port, relay.context, host
            ),
            self._name.encode(),
            self._name.encode(),
            password.encode(),
            keep_alive=_KEEP_ALIVE,
            will=(hello.encode(), b""),
            window=_WINDOW,
            slot=wire.MAX_FRAME + _TOPIC,
        )
        self._broker = mqtt.Mqtt(self._session, access.prefix, self._name, _LONGEST_PAUSE_MS)
        for kind in _DOWN:
            self._broker.admit(kind)
        self._where = f"the broker at {access.host} port {access.port}"
        self._up: deque[bytes] = deque()
        self._down: deque[bytes] = deque()
        self._owing = b""  # the frame that the board must answer with a HELLO before it gets more
        self._nonce = 0  # of that HELLO
        self._asked = 0.0
        self._heard = time.monotonic()
        self._checked = self._heard

    def run(self) -> None:
        """Raises DeviceError once the board is gone."""
        try:
            while not self._end.is_set():
                for received in self._inbox.take():
                    if received.error:
                        raise received.error
                    for frame in received.frames:
                        self._take(frame)
                self._publish()
                self._fetch()
                self._look()
        finally:
            self._session.close()  # not disconnect: its will is to be published

    def _take(self, frame: bytes) -> None:
        self._heard = time.monotonic()
        if frame[:1] == bytes((wire.HELLO,)):
            # Others answer the link, which counts credits anew.
            if self._owing and frame[1:5] == self._nonce.to_bytes(4, "little"):
                self._owing = b""
                self._up.append(frame)
        elif frame and frame[0] in _UP:
            self._up.append(frame)

    def _publish(self) -> None:
        while self._up and self._session.connected and self._broker.waiting() < _WINDOW - 1:
            frame = self._up.popleft()
            self._broker.send(frame, len(frame))

    def _fetch(self) -> None:
        busy = self._owing or self._link.backlog() > _BACKLOG
        if self._down and not busy:
            self._send(self._down.popleft())
            return
        frame = None
        if not self._down:
            frame = self._broker.receive(0)
            if not self._session.connected:
                self._up.clear()  # once asked again, the board repeats its answers
        if frame is not None:
            self._down.append(bytes(frame))
        elif not (self._up and self._session.connected and self._broker.waiting() < _WINDOW - 1):
            self._session.wait(20 if busy else _WAIT_MS)

    def _send(self, frame: bytes) -> None:
        if frame[0] in (wire.HELLO_REQUEST, wire.FLEET_KEY):
            self._owing, self._asked = frame, time.monotonic()
            at = 1 if frame[0] == wire.HELLO_REQUEST else 5
            self._nonce = int.from_bytes(frame[at : at + 4], "little")
        self._link.send(frame)

    def _look(self) -> None:
        now = time.monotonic()
        if self._session.connected:
            self._say(f"board {self._name} is on {self._where}")
        elif refuses(self._broker.error):  # its password may be another by now
            hint = "give it the board's password: tern broker config"
            raise DeviceError(
                f"{self._where} does not let board {self._name} in: {self._broker.error}", hint
            )
        elif self._broker.error:
            self._say(f"board {self._name} waits for {self._where}: {self._broker.error}")
        if self._owing and now - self._asked > _AGAIN:
            self._send(self._owing)
        quiet = now - self._heard
        if quiet > _SILENT:
            raise DeviceError(f"board {self._name} does not answer", hint="press its reset button")
        if quiet > _QUIET and now - self._checked > _QUIET:
            self._checked = now
            self._link.send(hello_request()[1])
