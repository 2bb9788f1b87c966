"""A board on a port: its link, the devices on it, and its open requests."""

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from tern import frames, host_frames, wire
from ternhost.errors import DeviceError, TernError
from ternhost.reach.absence import require_at_port
from ternhost.reach.links import Events, Link, open_link
from ternhost.reach.patience import MOST_WAIT, patience_for
from ternhost.reach.ports.open_requests import OpenRequests
from ternhost.store.boards import hello_fields

_REOPEN_EVERY = 2.0  # seconds between two attempts to open a port again
# Seconds in which the HELLO must come then; a board with a slot has more.
_REOPEN_PATIENCE = 1.0
_MOST_CLIENTS = 1 << 20  # the most devices that a board may claim to have
_TICK = 0.05  # seconds between two looks whether all bytes were sent


class BoardOnPort:
    """A board of the fleet. Times are by the monotonic clock."""

    def __init__(self, port: str) -> None:
        """Note where a board is. port: a device path or a URL, which `open` opens."""
        # The board.
        self.port = port
        self.clients = range(0)  # the ids of the devices on it
        self.hello: dict[str, Any] = {}  # the fields of its last HELLO

        # Its link.
        self.link: Link | None = None  # None while the board is gone
        self.error: DeviceError | None = None  # why it is gone
        self.opened = 0.0  # when its port was opened, or an attempt was made to do that
        self._opening: threading.Thread | None = None  # this attempt
        self.answer_seconds = 0.0  # how long the board takes for a HELLO, and so for other answers

        # The open round.
        self.requests = OpenRequests()
        self.left_out = False  # rounds go on without it until it answers again
        self.given_up: list[int] = []  # its devices for which the round no longer waits

        self.model_may_be_lost = False  # a model was sent, which may not have arrived

    @property
    def heard(self) -> float:
        """When the board was heard last."""
        return self.requests.heard

    def begin(self, devices: Iterable[int], now: float) -> None:
        """Begin a round in which these devices of the board are to be asked."""
        self.requests = OpenRequests(devices, now, self.answer_seconds)
        self.given_up = []

    def open(self, events: Events, patience: float, most: float = MOST_WAIT) -> host_frames.Hello:
        """Open the port, ask the board for its HELLO, and return it. Raises DeviceError.

        With the HELLO, the board says which devices are on it. events: the queue that gets the
        board's frames from now on. patience, most: as of `Link.hello`.
        """
        link = open_link(self.port, events)
        try:
            hello = link.hello(patience, most)
            first = hello.first or 0
            count = hello.clients or 0
            clients = range(first, first + count)
            self._check(hello, clients)
        except BaseException:
            link.close()
            raise
        self.clients = clients
        self.hello = hello_fields(hello)
        self.error = None
        self.answer_seconds = link.answer_seconds
        # The link comes last: as soon as it is there, another thread may use the board.
        self.link = link
        return hello

    def _check(self, hello: host_frames.Hello, clients: range) -> None:
        """Raise DeviceError if the board on the port is not this one, or cannot be a real one.

        hello: its HELLO. clients: the ids of the devices that it claims to have.
        """
        if len(clients) > _MOST_CLIENTS or clients.stop > wire.FLEET:
            raise DeviceError(
                f"the board on {self.port} says that it has {len(clients):,} clients from "
                f"{clients.start} on",
                "no board can have that many: provision it again, or do not use it",
            )
        require_at_port(self.port, hello)
        if self.clients and clients != self.clients:
            raise DeviceError(
                f"another board than before is on {self.port}", hint="put each board back"
            )

    def reopen(self, events: Events, now: float) -> None:
        """Try to open the port of a board that is gone, every few seconds.

        That is done in a thread, since it may take long to fail. events: the queue that gets the
        board's frames if the port can be opened.
        """
        is_opening = self._opening is not None and self._opening.is_alive()
        is_too_early = now - self.opened < _REOPEN_EVERY
        if self.link or is_opening or is_too_early:
            return
        self.opened = now
        self._opening = threading.Thread(target=self._try_to_open, args=(events,), daemon=True)
        self._opening.start()

    def _try_to_open(self, events: Events) -> None:
        """Open the port, or remember why that has failed."""
        patience = patience_for(self.answer_seconds, _REOPEN_PATIENCE)
        try:
            self.open(events, patience, most=patience)
        except DeviceError as error:
            self.error = error

    def lose(self, error: DeviceError) -> None:
        """Close a link that was lost. The open requests are repeated once the board is back."""
        self.close()
        self.error = error
        self.requests.lost_all()

    def close(self) -> None:
        """Close the port, after an attempt to open it that is under way."""
        if self._opening and self._opening is not threading.current_thread():
            self._opening.join()
        if self.link:
            self.link.close()
            self.link = None

    def feed(self, request: Callable[[int], bytes]) -> list[int]:
        """Send requests until the board has as many as it may have at a time.

        Return the devices that have been asked too often without an answer: they get no further
        request. request: a function that returns the frame with the request for a device.
        """
        link = self.link
        if link is None:
            return []

        def ask(device: int) -> None:
            link.send(request(device))

        return self.requests.feed(ask)

    def nudge(self, now: float) -> None:
        """Ask devices again that wanted to wait until now, or whose request was perhaps lost."""
        self.requests.end_waits(now)
        if self.link and not self.link.backlog():  # a request that is not sent yet is not lost
            self.requests.repeat_after_silence(now)

    # The model

    def send_model(self, model: bytes, key: bytes | None) -> None:
        """Send the averaged model or the limits of a run to the board, which does not answer.

        model: the frame MODEL without its authentication tag. key: the key of the board's first
        client, with which the tag is made. Without one of them, nothing is sent.
        """
        if model and key and self.link:
            tag = bytes(frames.tag(key, model))
            self.link.send(model + tag)
            self.model_may_be_lost = True

    def wait_until_model_arrived(self, end: float) -> TernError | None:
        """Wait until the board has surely received the model, but not much longer than `end`.

        A board handles frames in order. So it has the model when it answers a request for its HELLO
        that was sent later. Return the error if no answer comes, or else None.
        """
        if not self.link or not self.model_may_be_lost:
            return None
        while self.link.backlog() and time.monotonic() < end:
            time.sleep(_TICK)
        seconds_left = end - time.monotonic()
        try:
            self.link.hello(max(_REOPEN_PATIENCE, seconds_left))
        except TernError as error:
            return error
        self.model_may_be_lost = False
        return None
