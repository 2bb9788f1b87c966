"""A board on a port in a round: its link, its clients, and its open requests."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from tern import frames, host_frames, wire
from ternhost.errors import DeviceError, TernError
from ternhost.reach.absence import require_at_port
from ternhost.reach.links import Events, Link, open_link
from ternhost.store.boards import hello_fields

# Requests to one board; enough that it never waits for the host to commit the answers.
UNDER_WAY = 16
MAX_TRIES = 12  # requests to one device in one round
PATIENCE = 1.0  # seconds of silence until a board is asked again; doubles up to
MAX_PATIENCE = 8.0
_REOPEN_EVERY = 2.0
_REOPEN_TIMEOUT = 1.0
_MOST_CLIENTS = 1 << 20  # of a board, which claims them
_TICK = 0.05


class BoardOnPort:
    """A board of the fleet: its link (None while it is gone), its clients, and its open requests."""

    def __init__(self, port: str) -> None:
        self.port = port
        self.link: Link | None = None
        self.clients = range(0)
        self.hello: dict[str, Any] = {}  # fields of its HELLO
        self.error: DeviceError | None = None
        self.given_up: list[int] = []  # its devices in this round when it was left out
        self.left_out = False  # the rounds go on without it until it answers again
        self.unsure = False  # a sent model may not have arrived
        self.opened = 0.0  # time of the last attempt to open its port
        self._opening: threading.Thread | None = None
        self.begin([], 0.0)

    def begin(self, devices: Iterable[int], now: float) -> None:
        """Begin a round, in which these devices of the board are to be asked."""
        self.to_ask = deque(devices)
        self.under_way: dict[int, int] = {}  # device -> serial number of its latest request
        self.tries: dict[int, int] = {}
        self.waiting: dict[int, float] = {}  # device -> when it may be asked again
        self._requests = 0
        self.patience = PATIENCE
        self.heard = now
        self.asked_again = now
        self.given_up = []

    def open(self, events: Events, timeout: float) -> host_frames.Hello:
        """Open the port and say hello. Raises DeviceError."""
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
        """The link is gone: open requests are repeated once it is back."""
        self.close()
        self.error = error
        self.to_ask.extendleft(reversed(self.under_way))
        self.under_way.clear()

    def close(self) -> None:
        """Give the port back."""
        if self._opening and self._opening is not threading.current_thread():
            self._opening.join()
        if self.link:
            self.link.close()
            self.link = None

    def feed(self, request: Callable[[int], bytes]) -> list[int]:
        """Send requests, up to UNDER_WAY; return the devices that were asked too often."""
        given_up = []
        while self.link and self.to_ask and len(self.under_way) < UNDER_WAY:
            device = self.to_ask.popleft()
            if self.tries.get(device, 0) >= MAX_TRIES:
                given_up.append(device)
                continue
            self.tries[device] = self.tries.get(device, 0) + 1
            self._requests += 1
            self.under_way[device] = self._requests
            self.link.send(request(device))
        return given_up

    def answered(self, devices: Iterable[int]) -> None:
        """Note that these devices have answered. Older requests that are still open were lost."""
        latest = 0
        for device in devices:
            request = self.under_way.pop(device, 0)
            latest = max(latest, request)
            if not request:  # it answered while it waited to be asked again
                self.waiting.pop(device, None)
                with suppress(ValueError):
                    self.to_ask.remove(device)
        lost = [device for device, request in self.under_way.items() if request < latest]
        self.to_ask.extendleft(reversed(lost))
        for device in lost:
            del self.under_way[device]

    def lost_one(self, device: int) -> None:
        """Repeat a damaged request.

        It is that for `device`, or the oldest open one if the board cannot tell.
        """
        if device == wire.BOARD:
            device = next(iter(self.under_way), wire.BOARD)
        if self.under_way.pop(device, None):
            self.to_ask.append(device)

    def wait(self, device: int, until: float) -> None:
        """Ask a device again, but not before `until`."""
        if self.under_way.pop(device, None):
            self.tries[device] = 0
            self.waiting[device] = until

    def nudge(self, now: float) -> None:
        """Ask devices again whose wait is over, and repeat a request that a silent board has lost."""
        due = [device for device, until in self.waiting.items() if now >= until]
        for device in due:
            del self.waiting[device]
            self.to_ask.append(device)
            self.heard = now
        silence = now - max(self.heard, self.asked_again)
        if self.link and self.under_way and silence > self.patience:
            self.asked_again = now
            self.patience = min(2 * self.patience, MAX_PATIENCE)
            oldest = next(iter(self.under_way))
            del self.under_way[oldest]
            self.to_ask.appendleft(oldest)

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

    @property
    def busy(self) -> bool:
        """Whether devices of the board are still to answer."""
        return bool(self.to_ask or self.under_way or self.waiting)
