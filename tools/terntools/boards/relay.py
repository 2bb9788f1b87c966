"""Connects a board on a port to a broker, under the board's name, as if it spoke MQTT itself.

The relay uses the MQTT link of the device library, so that the broker sees the same session, hello,
will and pauses as from a board with a network. It has the board's password for the broker, and not
the board's key: it can neither read nor make reports.
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
from ternhost.log import Message
from ternhost.reach.absence import refuses, require_at_port
from ternhost.reach.authority import read_der
from ternhost.reach.links import Received, drain
from ternhost.reach.patience import patience_for
from ternhost.reach.ports import names
from ternhost.reach.ports.link import SerialLink
from ternhost.store.store import Store
from terntools.boards.program import read_file

if TYPE_CHECKING:
    from ternhost.reach.broker.access import Access

# The kinds of frames that a relay passes on from the board to the broker (besides HELLO), and from
# the broker to the board (besides those that every board takes from a broker).
_UP = (wire.REPORT, wire.REPORTS, wire.ERROR, wire.UPDATED)
_DOWN = (wire.MODEL, wire.UPDATE)
_KEEP_ALIVE = 60  # s
_WINDOW = 32  # messages that the broker has not acknowledged
_TOPIC = 100  # bytes of a message besides its frame, the topic included
_LONGEST_PAUSE_MS = 10_000
_BACKLOG = 2 * wire.IN_FLIGHT  # bytes that may wait for a board before the broker is kept waiting
_WAIT_MS = 500  # that the relay waits for something to do
_BUSY_WAIT_MS = 20  # the same while the board is busy, since nothing tells when it is ready
_AGAIN = 2.0  # s until a board that owes a HELLO is asked again
_QUIET = 30.0  # s without a frame, after which a board is asked for a HELLO
_SILENT = 90.0  # s without a frame, after which a board is given up
_RETRY = 1.0  # s until the relay begins again after an error

Tell = Callable[[str], None]  # gets a sentence for people
Passwords = Callable[[int], str | None]  # by the id of a board's first client


def passwords_of(place: Path, access: Access) -> Passwords:
    """Return a function that looks up the password of a board, by the id of its first client.

    It reads the passwords anew in each call: from the file boards.json in `place` if there is one,
    else from the store of the broker. A store has keys, from which the passwords follow.

    place: the directory of a broker or a site. access: to the broker. Raises UsageError if neither
    of the two exists.
    """
    from ternhost.reach.broker.access import BOARDS

    password_file = place / BOARDS
    if password_file.exists():

        def password_in_file(first: int) -> str | None:
            password: str | None = read_object(password_file).get(mqtt.name(first))
            return password

        return password_in_file

    key_store = access.store
    if not key_store or not Path(key_store).exists():
        raise UsageError(
            f"there are no passwords of boards in {place}",
            hint="have the owner of the broker write them: tern broker site DIR SITE --relay",
        )

    def password_of_key(first: int) -> str | None:
        with Store(key_store, create=False, beside=True) as opened:
            key = opened.keys().get(first)
        if not key:
            return None
        password: str = mqtt.password(key)
        return password

    return password_of_key


class _Inbox(SimpleQueue[Received]):
    """A queue of frames from the board, with a socket that select() can wait for.

    The socket, `bell`, is readable as long as there may be frames in the queue. So one call waits
    for the board and for the broker.
    """

    def __init__(self) -> None:
        super().__init__()
        self.bell, self._rope = socket.socketpair()
        self.bell.setblocking(False)
        self._rope.setblocking(False)

    def put(self, item: Received, block: bool = True, timeout: float | None = None) -> None:
        """Add frames, and make `bell` readable. Never blocks: the queue has no limit."""
        super().put(item)
        with suppress(BlockingIOError):  # the socket is full, so it is readable already
            self._rope.send(b"\0")

    def take(self) -> list[Received]:
        """Remove all frames from the queue and return them, without waiting."""
        with suppress(BlockingIOError):
            self.bell.recv(4096)
        return drain(self, 0)

    def close(self) -> None:
        """Close the sockets."""
        self.bell.close()
        self._rope.close()


class _Port(SerialLink):
    """A link to the board that puts every frame into the queue, HELLO frames too.

    The link of a host uses up HELLO frames itself.
    """

    AFTER_LOSS = "it is opened again when it is back"

    def heard(self, received: Any) -> None:
        """Treat received frames as a host's link does, and then pass on the HELLO frames."""
        frames = list(received)
        super().heard(frames)
        hellos = [frame for frame in frames if frame[:1] == bytes((wire.HELLO,))]
        if hellos:
            self._events.put(Received(self, hellos))


class _Line(Connection):
    """A connection to the broker whose waits also end when the board has sent something."""

    def __init__(self, bell: socket.socket, *arguments: Any) -> None:
        """bell: as in _Inbox. arguments: as of Connection."""
        super().__init__(*arguments)
        self._bell = bell

    def wait(self, timeout_ms: int) -> None:
        """Wait for data from the broker or from the board, for `timeout_ms` at most."""
        connection = self._socket
        if connection is None or not self._read:  # not connected yet
            super().wait(timeout_ms)
            return
        # Decrypted bytes of TLS are in a buffer of which select() knows nothing.
        has_data = isinstance(connection, ssl.SSLSocket) and connection.pending() > 0
        if not has_data:
            select((connection, self._bell), (), (), timeout_ms / 1000)


@dataclass(frozen=True)
class _Question:
    """A frame from the broker that the board answers by a HELLO, which repeats four of its bytes.

    They are the nonce of a HELLO_REQUEST, or the epoch of the key in a FLEET_KEY.
    """

    frame: bytes  # a HELLO_REQUEST or a FLEET_KEY; b"" for none
    sent_at: float  # of time.monotonic()

    def __bool__(self) -> bool:
        return bool(self.frame)

    def is_answered_by(self, hello: bytes) -> bool:
        """Return whether a HELLO answers this question and not one that the relay asked itself."""
        if not self.frame:
            return False
        repeated_at = 5  # the epoch of a FLEET_KEY, after its type and the device
        if self.frame[0] == wire.HELLO_REQUEST:
            repeated_at = 1  # the nonce, after the type
        return hello[1:5] == self.frame[repeated_at : repeated_at + 4]


_NO_QUESTION = _Question(b"", 0.0)


class Relay:
    """Connects the board on a port with the broker, in a thread, until `close`.

    The board and the broker may disappear and come back.
    """

    def __init__(self, port: str, access: Access, passwords: Passwords, tell: Tell) -> None:
        """Start the thread.

        port: of the board, in one of the forms of `names.NAMES`. access: address and certificate of
        the broker. passwords: as from `passwords_of`. tell: gets a sentence for each change of
        state. Raises UsageError for a bad certificate.
        """
        self.port = port
        self.access = access
        self._passwords = passwords
        self._tell = tell
        self._state = ""  # the last sentence for `tell`
        self.end = threading.Event()
        self.context = None  # of TLS; None for a broker without it
        if access.authority:
            certificate = read_der(read_file(access.authority), access.authority)
            self.context = client_context(certificate)
        self._thread = threading.Thread(target=self._run, name=f"relay {port}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End it. The broker publishes the board's will, as for a board that is switched off."""
        self.end.set()
        self._thread.join()

    def say(self, text: str) -> None:
        """Pass a sentence about the state on to the user, unless it repeats the last one."""
        if text != self._state:
            self._state = text
            self._tell(Message(f"{self.port}: {text}", board=self.port))

    def _run(self) -> None:
        """Relay until the relay is closed; after an error, tell it and begin again."""
        while not self.end.is_set():
            try:
                self._relay()
            except TernError as error:
                hint = f"\n  {error.hint}" if error.hint else ""
                self.say(error.message + hint)
            self.end.wait(_RETRY)

    def _relay(self) -> None:
        """Open the port, and relay frames until the relay is closed.

        Raises TernError, for example once the board is gone.
        """
        with closing(_Inbox()) as inbox, closing(_Port(names.resolve(self.port), inbox)) as link:
            first = require_at_port(self.port, link.hello()).first or 0
            inbox.take()  # ignore what came before the board was identified
            hint = "provision it: tern board up; then run 'tern broker config' again"
            if not first:
                raise DeviceError("the board has no key", hint)
            password = self._passwords(first)
            if password is None:
                raise DeviceError(f"board {mqtt.name(first)} has no password here", hint)
            passage = _Passage(self, link, inbox, first=first, password=password)
            passage.run()


class _Passage:
    """The traffic between a board and the broker, as long as the board is there."""

    def __init__(self, relay: Relay, link: _Port, inbox: _Inbox, first: int, password: str) -> None:
        """Prepare the board's session with the broker; `run` connects it.

        relay: the relay whose `end` ends the traffic, and which tells its state. first: the id of
        the board's first client, from which the board's name follows.
        """
        self._relay = relay
        self._name = mqtt.name(first)

        # The side of the board.
        self._link = link
        self._inbox = inbox
        self._question = _NO_QUESTION  # that the board must answer by a HELLO before it gets more
        self._heard = time.monotonic()  # when the board's last frame came
        self._checked = self._heard  # when it was last asked whether it is there

        # The side of the broker.
        self._session = self._new_session(password)
        self._broker = mqtt.Mqtt(self._session, relay.access.prefix, self._name, _LONGEST_PAUSE_MS)
        for kind in _DOWN:
            self._broker.admit(kind)

        # Frames that wait, for the broker and for the board.
        self._up: deque[bytes] = deque()
        self._down: deque[bytes] = deque()

    def _new_session(self, password: str) -> Session:
        """Create the board's MQTT session with the broker, without connecting it.

        The broker publishes the session's will if the relay disappears. It is an empty message on
        the topic of the board's hello, by which hosts see that the board is gone.
        """
        access = self._relay.access
        inbox = self._inbox
        context = self._relay.context

        def connect() -> _Line:
            host = choice(access.hosts)  # any node of a cluster
            return _Line(inbox.bell, host, access.port, context, host)

        name = self._name.encode()
        hello_topic = mqtt.HELLO % (access.prefix, self._name)
        return Session(
            connect,
            name,  # the id of the MQTT client
            name,  # the user
            password.encode(),
            keep_alive=_KEEP_ALIVE,
            will=(hello_topic.encode(), b""),
            window=_WINDOW,
            slot=wire.MAX_FRAME + _TOPIC,
        )

    def run(self) -> None:
        """Pass frames on in both directions, until the relay ends.

        Raises DeviceError once the board is gone.
        """
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
            # After a proper disconnect, the broker would not publish the board's will.
            self._session.close()

    def _take(self, frame: bytes) -> None:
        """Queue a frame of the board for the broker, if it is of a kind that a broker gets.

        A HELLO, in which a board describes itself, goes on only if it answers a request that came
        through the broker. The relay asks for HELLOs, too, to see whether the board is there, and
        the answers to those are for the relay alone.
        """
        self._heard = time.monotonic()
        if frame[:1] == bytes((wire.HELLO,)):
            if self._question.is_answered_by(frame):
                self._question = _NO_QUESTION
                self._up.append(frame)
        elif frame and frame[0] in _UP:
            self._up.append(frame)

    def _may_publish(self) -> bool:
        """Return whether a frame waits for the broker, and the broker can take it."""
        has_room = self._broker.waiting() < _WINDOW - 1
        return bool(self._up) and self._session.connected and has_room

    def _publish(self) -> None:
        """Send the board's frames to the broker, as far as it can take them."""
        while self._may_publish():
            frame = self._up.popleft()
            self._broker.send(frame, len(frame))

    def _fetch(self) -> None:
        """Pass one frame from the broker on to the board, or else fetch one from the broker.

        If there is nothing to do in either direction, wait for the broker or the board. The board is
        busy while it has not answered a question, or has too many bytes left to receive; nothing
        tells when it is ready again, so the wait is short then.
        """
        is_busy = bool(self._question) or self._link.backlog() > _BACKLOG
        if self._down and not is_busy:
            self._send(self._down.popleft())
            return
        frame = None
        if not self._down:  # while a frame waits for the board, the broker is kept waiting
            frame = self._broker.receive(0)
            if not self._session.connected:
                # What waits for the broker is dropped: once asked again, the board repeats it.
                self._up.clear()
        if frame is not None:
            self._down.append(bytes(frame))
        elif not self._may_publish():
            self._session.wait(_BUSY_WAIT_MS if is_busy else _WAIT_MS)

    def _send(self, frame: bytes) -> None:
        """Send a frame to the board, and remember it if the board must answer it by a HELLO."""
        if frame[0] in (wire.HELLO_REQUEST, wire.FLEET_KEY):
            self._question = _Question(frame, time.monotonic())
        self._link.send(frame)

    def _tell_state(self) -> None:
        """Tell the user how the board is connected to the broker.

        Raises DeviceError if the broker refuses the board.
        """
        access = self._relay.access
        broker = f"the broker at {access.host} port {access.port}"
        error = self._broker.error
        if self._session.connected:
            self._relay.say(f"board {self._name} is on {broker}")
        elif refuses(error):
            # The relay then begins again, and reads the password anew.
            raise DeviceError(
                f"{broker} does not let board {self._name} in: {error}",
                hint="give it the board's password: tern broker config",
            )
        elif error:
            self._relay.say(f"board {self._name} waits for {broker}: {error}")

    def _check_board(self) -> None:
        """Ask a board that has sent nothing for a while whether it is there.

        A question of the broker that the board has not answered is repeated. All times are in
        seconds. Raises DeviceError after a long silence.
        """
        now = time.monotonic()
        if self._question and now - self._question.sent_at > self._patience(_AGAIN):
            self._send(self._question.frame)
        silence = now - self._heard
        if silence > self._patience(_SILENT):
            raise DeviceError(f"board {self._name} does not answer", hint="press its reset button")
        quiet = self._patience(_QUIET)
        if silence > quiet and now - self._checked > quiet:
            self._checked = now
            self._link.ask_hello()

    def _patience(self, least: float) -> float:
        """Return how many seconds to wait for the board. least: if it answers at once."""
        return patience_for(self._link.answer_seconds, least)
