"""Tracks the requests of a round to a board on a port, which gets a few at a time.

A board answers in order. So a request was lost if a later one is answered first.
"""

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress

from tern import wire
from ternhost.reach.patience import patience_for

# The most requests that a board gets before it has answered one of them. They are enough for it to
# have something to do while the host writes its answers into the database.
UNDER_WAY = 16
MAX_TRIES = 12  # the most requests to one device in a round
# After so many seconds of silence, a board is asked again. The time doubles up to the maximum. For a
# board with a slot, both are longer.
PATIENCE = 1.0
MAX_PATIENCE = 8.0


class OpenRequests:
    """The devices of a board that are still to answer, and the requests to them."""

    def __init__(
        self, devices: Iterable[int] = (), now: float = 0.0, answer_seconds: float = 0.0
    ) -> None:
        """Begin a round at a board.

        devices: those to ask. now: the present time, in seconds. answer_seconds: how long the board
        takes for an answer, because of its slot; 0 if that is not known.
        """
        # Each device that is still to answer is in one of the next three.
        self._to_ask = deque(devices)
        # For devices that were asked, the number of the latest request: 1, 2, 3, ... at this board.
        # They are in the order of these numbers.
        self._under_way: dict[int, int] = {}
        self._waiting: dict[int, float] = {}  # when a device may be asked that must wait

        self._sent = 0  # how many requests were sent so far
        self._tries: dict[int, int] = {}  # how often each device was asked

        # Silence of the board.
        self.heard = now  # when it was heard last
        self._least_patience = patience_for(answer_seconds, PATIENCE)
        self._most_patience = patience_for(answer_seconds, MAX_PATIENCE)
        self._patience = self._least_patience
        self._asked_again = now  # when a request was repeated because of silence

    @property
    def devices(self) -> list[int]:
        """The ids of the devices that are still to answer."""
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
        """Note that something has come from the board."""
        self.heard = now
        self._patience = self._least_patience

    def feed(self, ask: Callable[[int], None]) -> list[int]:
        """Ask devices until the board has as many open requests as it may have.

        ask: sends the request for a device. The result is the list of devices that were asked too
        often already; they are not asked again.
        """
        given_up = []
        while self._to_ask and len(self._under_way) < UNDER_WAY:
            device = self._to_ask.popleft()
            tries = self._tries.get(device, 0)
            if tries >= MAX_TRIES:
                given_up.append(device)
                continue
            self._tries[device] = tries + 1
            self._sent += 1
            self._under_way[device] = self._sent
            ask(device)
        return given_up

    def answered(self, devices: Iterable[int]) -> None:
        """Note that these devices have answered.

        A board answers requests in order. So requests that were sent before theirs and are still
        open were lost, and are repeated before any other device is asked.
        """
        latest_answered = 0  # the number of the latest request that is answered
        for device in devices:
            request = self._under_way.pop(device, 0)
            latest_answered = max(latest_answered, request)
            has_open_request = request > 0
            if not has_open_request:
                # It was to be asked again, and has answered an earlier request meanwhile.
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

        device: its id, or wire.BOARD if the board cannot say which one it is. Then the oldest open
        request is repeated. Nothing happens if the device has no open request.
        """
        if device == wire.BOARD:
            device = next(iter(self._under_way), wire.BOARD)  # the first one is the oldest
        if self._under_way.pop(device, None):
            self._to_ask.append(device)

    def lost_all(self) -> None:
        """Repeat all open requests, before devices are asked that were not asked yet."""
        self._to_ask.extendleft(reversed(self._under_way))
        self._under_way.clear()

    def wait(self, device: int, until: float) -> None:
        """Ask a device again that must wait before it may report, but not before `until`."""
        if self._under_way.pop(device, None):
            self._tries[device] = 0
            self._waiting[device] = until

    def end_waits(self, now: float) -> None:
        """Ask those devices again that had to wait until now or earlier."""
        due = [device for device, until in self._waiting.items() if now >= until]
        for device in due:
            del self._waiting[device]
            self._to_ask.append(device)
            self.heard = now  # the silence of the board counts from now on

    def repeat_after_silence(self, now: float) -> None:
        """Repeat the oldest open request if the board has been silent for long.

        Then that request was probably lost.
        """
        silence = now - max(self.heard, self._asked_again)
        if self._under_way and silence > self._patience:
            self._asked_again = now
            self._patience = min(2 * self._patience, self._most_patience)
            oldest = next(iter(self._under_way))
            del self._under_way[oldest]
            self._to_ask.appendleft(oldest)
