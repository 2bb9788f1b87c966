"""A board on a port in a round: its link, its clients, and its open requests."""

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from tern import frames, host_frames, wire
from ternhost.errors import DeviceError, TernError
from ternhost.reach.absence import require_at_port
from ternhost.reach.links import Events, Link, open_link
from ternhost.reach.ports.open_requests import OpenRequests
from ternhost.store.boards import hello_fields

_REOPEN_EVERY = 2.0  # seconds
_REOPEN_TIMEOUT = 1.0  # seconds for the HELLO
_MOST_CLIENTS = 1 << 20  # of a board, which claims them
_TICK = 0.05  # seconds between two looks at the bytes that wait


class BoardOnPort:
    """A board of the fleet: its link (None while it is gone), its clients, and its requests."""

    def __init__(self, port: str) -> None:
        """port: a device path or a URL; `open` opens it."""
        self.port = port
        self.link: Link | None = None
        self.clients = range(0)
        self.hello: dict[str, Any] = {}  # fields of its HELLO
        self.error: DeviceError | None = None
        self.given_up: list[int] = []  # its devices in this round when it was left out
        self.left_out = False  # the rounds go on without it until it answers again
        self.unsure = False  # a sent model may not have arrived
        self.opened = 0.0  # time of the last attempt to open its port
        self.requests = OpenRequests()
        self._opening: threading.Thread | None = None

    @property
    def heard(self) -> float:
        """When it was heard last."""
        return self.requests.heard

    def begin(self, devices: Iterable[int], now: float) -> None:
        """Begin a round, in which these devices of the board are to be asked."""
        self.requests = OpenRequests(devices, now)
        self.given_up = []

    def open(self, events: Events, timeout: float) -> host_frames.Hello:
        """Open the port, ask for the HELLO, and return it. Raises DeviceError.

        events: the queue that gets the board's frames. timeout: seconds for the HELLO.
        """
        link = open_link(self.port, events)
        try:
            hello = link.hello(timeout)
            first = hello.first or 0
            clients = range(first, first + (hello.clients or 0))
            self._check(hello, clients)
        except BaseException:
            link.close()
            raise
        self.clients = clients
        self.hello = hello_fields(hello)
        self.error = None
        self.link = link  # last: another thread may use it from now on
        return hello

    def _check(self, hello: host_frames.Hello, clients: range) -> None:
        """Raise DeviceError if the board on the port cannot be this one."""
        if len(clients) > _MOST_CLIENTS or clients.stop > wire.FLEET:
            raise DeviceError(
                f"the board on {self.port} says that it has {len(clients):,} clients from "
                f"{clients.start} on",
                "no board can have that many: provision it anew, or do not use it",
            )
        require_at_port(self.port, hello)
        if self.clients and clients != self.clients:
            raise DeviceError(
                f"another board than before is on {self.port}", hint="put each board back"
            )

    def reopen(self, events: Events, now: float) -> None:
        """Try to open the port in a thread, if it is time to: it may take long to fail."""
        is_opening = self._opening is not None and self._opening.is_alive()
        if self.link or is_opening or now - self.opened < _REOPEN_EVERY:
            return
        self.opened = now
        self._opening = threading.Thread(target=self._try_to_open, args=(events,), daemon=True)
        self._opening.start()

    def _try_to_open(self, events: Events) -> None:
        try:
            self.open(events, _REOPEN_TIMEOUT)
        except DeviceError as error:
            self.error = error

    def lose(self, error: DeviceError) -> None:
        """Note that the link is gone; open requests are repeated once it is back."""
        self.close()
        self.error = error
        self.requests.lost_all()

    def close(self) -> None:
        """Give the port back."""
        if self._opening and self._opening is not threading.current_thread():
            self._opening.join()
        if self.link:
            self.link.close()
            self.link = None

    def feed(self, request: Callable[[int], bytes]) -> list[int]:
        """Send as many requests as the board may have at a time.

        request: returns the frame for a device. Return the devices that were asked too often.
        """
        link = self.link
        if link is None:
            return []
        return self.requests.feed(lambda device: link.send(request(device)))

    def nudge(self, now: float) -> None:
        """Ask devices again whose wait is over, and repeat a request that a silent board has lost."""
        self.requests.end_waits(now)
        if self.link:
            self.requests.repeat_after_silence(now)

    # The model

    def hand_out(self, model: bytes, key: bytes | None) -> None:
        """Send a MODEL (without its tag) under the key of the first client; there is no answer."""
        if model and key and self.link:
            self.link.send(model + bytes(frames.tag(key, model)))
            self.unsure = True

    def hear_out(self, end: float) -> TernError | None:
        """Wait, until about `end`, for its HELLO, which follows the model.

        Return an error if the model may be lost.
        """
        if not self.link or not self.unsure:
            return None
        while self.link.backlog() and time.monotonic() < end:
            time.sleep(_TICK)
        try:
            self.link.hello(max(_REOPEN_TIMEOUT, end - time.monotonic()))
        except TernError as error:
            return error
        self.unsure = False
        return None
