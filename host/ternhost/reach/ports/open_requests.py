"""The requests to a board on a port in a round, of which it gets a few at a time.

A board answers in order. So a request is lost if a later one is answered first.
"""

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress

from tern import wire

# Requests to one board; enough that it never waits for the host to commit the answers.
UNDER_WAY = 16
MAX_TRIES = 12  # requests to one device in one round
PATIENCE = 1.0  # seconds of silence until a board is asked again; doubles up to
MAX_PATIENCE = 8.0


class OpenRequests:
    """The devices of a board that are still to answer, and the requests to them."""

    def __init__(self, devices: Iterable[int] = (), now: float = 0.0) -> None:
        """devices: those to ask in a round, which begins for the board at `now`."""
        self.heard = now  # when the board was heard last
        self._to_ask = deque(devices)
        self._under_way: dict[int, int] = {}  # device -> serial number of its latest request
        self._tries: dict[int, int] = {}  # by device
        self._waiting: dict[int, float] = {}  # device -> when it may be asked again
        self._sent = 0  # requests so far, which number them
        self._patience = PATIENCE
        self._asked_again = now

    @property
    def devices(self) -> list[int]:
        """The devices that are still to answer."""
        return [*self._under_way, *self._to_ask, *self._waiting]

    @property
    def busy(self) -> bool:
        """Whether devices are still to answer."""
        return bool(self._to_ask or self._under_way or self._waiting)

    @property
    def some_wait(self) -> bool:
        """Whether a device has said that it must not be asked yet."""
        return bool(self._waiting)

    def hear(self, now: float) -> None:
        """Note that the board was heard."""
        self.heard = now
        self._patience = PATIENCE

    def feed(self, ask: Callable[[int], None]) -> list[int]:
        """Ask devices until UNDER_WAY requests are open.

        ask: sends a request to a device. Return the devices that were asked too often.
        """
        given_up = []
        while self._to_ask and len(self._under_way) < UNDER_WAY:
            device = self._to_ask.popleft()
            if self._tries.get(device, 0) >= MAX_TRIES:
                given_up.append(device)
                continue
            self._tries[device] = self._tries.get(device, 0) + 1
            self._sent += 1
            self._under_way[device] = self._sent
            ask(device)
        return given_up

    def answered(self, devices: Iterable[int]) -> None:
        """Note that these devices have answered. Older requests that are still open were lost."""
        latest_answered = 0
        for device in devices:
            request = self._under_way.pop(device, 0)
            latest_answered = max(latest_answered, request)
            if not request:  # it answered while it waited to be asked again
                self._waiting.pop(device, None)
                with suppress(ValueError):
                    self._to_ask.remove(device)

        lost_devices = []
        for device, request in self._under_way.items():
            if request < latest_answered:
                lost_devices.append(device)
        self._to_ask.extendleft(reversed(lost_devices))  # first again, in the same order
        for device in lost_devices:
            del self._under_way[device]

    def lost_one(self, device: int) -> None:
        """Ask a device again whose request or answer was damaged.

        device: wire.BOARD if the board cannot tell; then it is that of the oldest open request.
        """
        if device == wire.BOARD:
            device = next(iter(self._under_way), wire.BOARD)
        if self._under_way.pop(device, None):
            self._to_ask.append(device)

    def lost_all(self) -> None:
        """Repeat all open requests, before others."""
        self._to_ask.extendleft(reversed(self._under_way))
        self._under_way.clear()

    def wait(self, device: int, until: float) -> None:
        """Ask a device again, but not before `until`."""
        if self._under_way.pop(device, None):
            self._tries[device] = 0
            self._waiting[device] = until

    def end_waits(self, now: float) -> None:
        """Ask the devices again whose wait is over."""
        due = [device for device, until in self._waiting.items() if now >= until]
        for device in due:
            del self._waiting[device]
            self._to_ask.append(device)
            self.heard = now

    def repeat_after_silence(self, now: float) -> None:
        """Repeat the oldest request if the board has been silent for long: it was lost."""
        silence = now - max(self.heard, self._asked_again)
        if self._under_way and silence > self._patience:
            self._asked_again = now
            self._patience = min(2 * self._patience, MAX_PATIENCE)
            oldest = next(iter(self._under_way))
            del self._under_way[oldest]
            self._to_ask.appendleft(oldest)
