"""Remembers devices that could not report yet, and when each of them is to be asked again."""

import heapq
from collections import Counter
from collections.abc import Collection

from tern import wire
from tern.storage import MAX_PAUSE
from ternhost.count.rounds import Refusal

# A device that does not say how long to wait is asked again after 0, 1, 3, 7, ... seconds, and at
# most after so many.
LONGEST_WAIT = 30.0
_MOST_DOUBLINGS = 10  # so that the power of two stays small, however often a device is asked


class PostponedDevices:
    """The devices of a round that are to be asked again later."""

    def __init__(self) -> None:
        """Begin without devices."""
        # When each device may be asked again, by the clock of the caller.
        self.until: dict[int, float] = {}
        # A heap of the same as (time, device). It may have pairs that are no longer in `until`.
        self._queue: list[tuple[float, int]] = []
        self._refusals: Counter[int] = Counter()  # how often each device was postponed

    def add(self, refusal: Refusal, now: float) -> None:
        """Postpone a device that has refused for now, but may report later in the round.

        Either the device must wait before its next report, and says how long; or it could not read
        the request. Then it is asked again at once the first time, and later after ever longer
        pauses.

        refusal: the answer of the device. now: the present time, in seconds.
        """
        device = refusal.device
        self._refusals[device] += 1
        if refusal.code == wire.ERR_TOO_SOON:
            pause = float(min(refusal.detail, MAX_PAUSE))
        else:
            doublings = min(self._refusals[device] - 1, _MOST_DOUBLINGS)
            pause = min(LONGEST_WAIT, 2**doublings - 1)  # 0, 1, 3, 7, ... seconds
        self.until[device] = now + pause
        heapq.heappush(self._queue, (now + pause, device))

    def remove(self, devices: Collection[int]) -> None:
        """Forget devices that have answered."""
        if self.until:
            for device in self.until.keys() & devices:
                del self.until[device]

    def take_due(self, now: float) -> list[int]:
        """Remove the devices that may be asked again by `now`, and return them."""
        due = []
        while self._queue:
            earliest, device = self._queue[0]
            if earliest > now:
                break
            heapq.heappop(self._queue)
            is_current = self.until.get(device) == earliest  # else it has answered, or waits longer
            if is_current:
                del self.until[device]
                due.append(device)
        return due
