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
from dataclasses import dataclass
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
_BUSY_WAIT_MS = 20
_AGAIN = 2.0  # s until a board that owes a HELLO is asked again
_QUIET, _SILENT = 30.0, 90.0  # s without a frame, after which a board is asked, and given up
_RETRY = 1.0  # s

Tell = Callable[[str], None]
Passwords = Callable[[int], str | None]  # by the id of a board's first client


def passwords_of(place: Path, access: Access, store: str | None = None) -> Passwords:
    """Return a function that looks up the password of a board, by the id of its first client.

    They are read anew each time: from `store`, else from boards.json of `place`, else from the
    broker's store. place: the directory of a broker or a site. Raises UsageError if there is
    neither.
    """
    from ternhost.reach.broker.access import BOARDS

    password_file = place / BOARDS
    if not store and password_file.exists():
        return lambda first: read_object(password_file).get(mqtt.name(first))

    key_store = store or access.store
    if not key_store or not Path(key_store).exists():
        raise UsageError(
            f"there are no passwords of boards in {place}",
            hint="have the owner of the broker write them: tern broker config DIR --relay SITE; or "
            "name the --store",
        )

    def password_of(first: int) -> str | None:
        with Store(key_store, create=False, beside=True) as opened:
            key = opened.keys().get(first)
        return mqtt.password(key) if key else None

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
        """All that has come, at once."""
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
        frames = list(received)
        super().heard(frames)
        hellos = [frame for frame in frames if frame[:1] == bytes((wire.HELLO,))]
        if hellos:
            self._events.put(Received(self, hellos))


class _Line(Connection):
    """A connection whose waits also end when the board has sent something."""

    def __init__(self, bell: socket.socket, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._bell = bell

    def wait(self, timeout_ms: int) -> None:
        """Wait for data from the broker or from the board, for `timeout_ms` at most."""
        connection = self._socket
        if connection is None or not self._read:
            super().wait(timeout_ms)
        elif not (isinstance(connection, ssl.SSLSocket) and connection.pending()):
            select((connection, self._bell), (), (), timeout_ms / 1000)


@dataclass(frozen=True)
class _Question:
    """A frame from the broker that the board answers by a HELLO with its nonce."""

    frame: bytes
    sent_at: float  # of time.monotonic()

    def __bool__(self) -> bool:
        return bool(self.frame)

    def is_answered_by(self, hello: bytes) -> bool:
        """Whether a HELLO has the nonce of this question; the link's own questions have others."""
        if not self.frame:
            return False
        start = 1 if self.frame[0] == wire.HELLO_REQUEST else 5
        return hello[1:5] == self.frame[start : start + 4]


_NO_QUESTION = _Question(b"", 0.0)


class Relay:
    """Relays the board on a port, in a thread, until `close`; both ends may go and come back."""

    def __init__(self, port: str, access: Access, passwords: Passwords, tell: Tell) -> None:
        """Start to relay the board on a port, in a thread.

        port: a name of `names.NAMES`. access: to the broker. passwords: as from `passwords_of`.
        tell: gets a sentence for each change of state. Raises UsageError for a bad certificate.
        """
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
        """Tell a sentence about the state, unless it is the last one."""
        if text != self._state:
            self._state = text
            self._tell(f"{self.port}: {text}")

    def _run(self) -> None:
        """Relay again and again, and tell what goes wrong, until the relay is closed."""
        while not self.end.is_set():
            try:
                self._relay()
            except TernError as error:
                hint = f"\n  {error.hint}" if error.hint else ""
                self.say(error.message + hint)
            self.end.wait(_RETRY)

    def _relay(self) -> None:
        """Relay frames until the board is gone. Raises TernError."""
        with closing(_Inbox()) as inbox, closing(_Port(names.resolve(self.port), inbox)) as link:
            first = require_at_port(self.port, link.hello()).first or 0
            inbox.take()
            hint = "make it a member: tern up; then run 'tern broker config' again"
            if not first:
                raise DeviceError("the board has no key", hint)
            password = self._passwords(first)
            if password is None:
                raise DeviceError(f"board {mqtt.name(first)} has no password here", hint)
            _Passage(self, link, inbox, first, password).run()


class _Passage:
    """The traffic between a board and the broker, as long as the board is there."""

    def __init__(self, relay: Relay, link: _Port, inbox: _Inbox, first: int, password: str) -> None:
        """Prepare the session of the board `first` with the broker.

        relay: ends the traffic, and gets its state. first: the id of the board's first client.
        """
        self._relay = relay
        self._link = link
        self._inbox = inbox
        self._name = mqtt.name(first)
        self._session = self._new_session(password)
        self._broker = mqtt.Mqtt(self._session, relay.access.prefix, self._name, _LONGEST_PAUSE_MS)
        for kind in _DOWN:
            self._broker.admit(kind)
        self._up: deque[bytes] = deque()
        self._down: deque[bytes] = deque()
        self._question = _NO_QUESTION  # that the board must answer by a HELLO before it gets more
        self._heard = time.monotonic()
        self._checked = self._heard

    def _new_session(self, password: str) -> Session:
        """Create the board's session with the broker, whose will is an empty hello."""
        access, inbox, context = self._relay.access, self._inbox, self._relay.context

        def connect() -> _Line:
            host = choice(access.hosts)
            return _Line(inbox.bell, host, access.port, context, host)

        name = self._name.encode()
        hello_topic = mqtt.HELLO % (access.prefix, self._name)
        return Session(
            connect,
            name,
            name,
            password.encode(),
            keep_alive=_KEEP_ALIVE,
            will=(hello_topic.encode(), b""),
            window=_WINDOW,
            slot=wire.MAX_FRAME + _TOPIC,
        )

    def run(self) -> None:
        """Pass frames on. Raises DeviceError once the board is gone."""
        try:
            while not self._relay.end.is_set():
                for received in self._inbox.take():
                    if received.error:
                        raise received.error
                    for frame in received.frames:
                        self._take(frame)
                self._publish()
                self._fetch()
                self._tell_state()
                self._check_board()
        finally:
            self._session.close()  # not disconnect: its will is to be published

    def _take(self, frame: bytes) -> None:
        """Take a frame of the board. A HELLO for the link's own question goes no further."""
        self._heard = time.monotonic()
        if frame[:1] == bytes((wire.HELLO,)):
            if self._question.is_answered_by(frame):
                self._question = _NO_QUESTION
                self._up.append(frame)
        elif frame and frame[0] in _UP:
            self._up.append(frame)

    def _may_publish(self) -> bool:
        """Whether a frame waits for the broker, and the broker can take it."""
        has_room = self._session.connected and self._broker.waiting() < _WINDOW - 1
        return bool(self._up) and has_room

    def _publish(self) -> None:
        """Send the board's frames to the broker, as far as it can take them."""
        while self._may_publish():
            frame = self._up.popleft()
            self._broker.send(frame, len(frame))

    def _fetch(self) -> None:
        """Pass a frame of the broker on, or wait for one; with the board busy, only shortly."""
        is_busy = bool(self._question) or self._link.backlog() > _BACKLOG
        if self._down and not is_busy:
            self._send(self._down.popleft())
            return
        frame = None
        if not self._down:
            frame = self._broker.receive(0)
            if not self._session.connected:
                self._up.clear()  # once asked again, the board repeats its answers
        if frame is not None:
            self._down.append(bytes(frame))
        elif not self._may_publish():
            self._session.wait(_BUSY_WAIT_MS if is_busy else _WAIT_MS)

    def _send(self, frame: bytes) -> None:
        """Send a frame to the board. Some ask for a HELLO."""
        if frame[0] in (wire.HELLO_REQUEST, wire.FLEET_KEY):
            self._question = _Question(frame, time.monotonic())
        self._link.send(frame)

    def _tell_state(self) -> None:
        """Say how the board is connected to the broker. Raises DeviceError if it is refused."""
        access = self._relay.access
        broker = f"the broker at {access.host} port {access.port}"
        error = self._broker.error
        if self._session.connected:
            self._relay.say(f"board {self._name} is on {broker}")
        elif refuses(error):  # its password may be another by now
            raise DeviceError(
                f"{broker} does not let board {self._name} in: {error}",
                hint="give it the board's password: tern broker config",
            )
        elif error:
            self._relay.say(f"board {self._name} waits for {broker}: {error}")

    def _check_board(self) -> None:
        """Ask a quiet board whether it is there. Raises DeviceError after a long silence."""
        now = time.monotonic()
        if self._question and now - self._question.sent_at > _AGAIN:
            self._send(self._question.frame)
        silence = now - self._heard
        if silence > _SILENT:
            raise DeviceError(f"board {self._name} does not answer", hint="press its reset button")
        if silence > _QUIET and now - self._checked > _QUIET:
            self._checked = now
            self._link.send(hello_request()[1])
