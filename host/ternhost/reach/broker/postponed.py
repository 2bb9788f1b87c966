"""Devices that could not answer yet, and when each is to be asked again."""

import heapq
from collections import Counter
from collections.abc import Collection

from tern import wire
from tern.storage import MAX_PAUSE
from ternhost.count.rounds import Refusal

LONGEST_WAIT = 30.0  # seconds, of a device that does not name its pause
_MOST_DOUBLINGS = 10  # of that wait


class PostponedDevices:
    """The devices of a round that are to be asked again later."""

    def __init__(self) -> None:
        self.until: dict[int, float] = {}  # when each may be asked again
        self._queue: list[tuple[float, int]] = []  # a heap; may hold outdated entries
        self._refusals: Counter[int] = Counter()

    def add(self, refusal: Refusal, now: float) -> None:
        """Postpone the device of a refusal, which does not mean that it will not report.

        Either it may not report yet, and says for how long; or it could not read the request: then
        it is asked again at once the first time, and later after ever longer waits.
        """
        device = refusal.device
        self._refusals[device] += 1
        if refusal.code == wire.ERR_TOO_SOON:
            pause = float(min(refusal.detail, MAX_PAUSE))
        else:
            doublings = min(self._refusals[device] - 1, _MOST_DOUBLINGS)
            pause = min(LONGEST_WAIT, 2**doublings - 1)
        self.until[device] = now + pause
        heapq.heappush(self._queue, (now + pause, device))

    def remove(self, devices: Collection[int]) -> None:
        """Forget devices that have answered."""
        if self.until:
            for device in self.until.keys() & devices:
                del self.until[device]

    def take_due(self, now: float) -> list[int]:
        """Remove the devices whose wait is over, and return them."""
        due = []
        while self._queue and self._queue[0][0] <= now:
            time, device = heapq.heappop(self._queue)
            if self.until.get(device) == time:
                del self.until[device]
                due.append(device)
        return due
