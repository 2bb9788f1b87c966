"""The devices of a run, and the clients that they are.

Learners count clients from 0 and know nothing else of them. A run numbers its devices as its store
does: client i is the i-th of them.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ternhost.datasets import Indices

Devices = npt.NDArray[np.int64]


def take(devices: Sequence[int] | Devices, clients: Indices) -> Devices:
    """Return the ids of some devices of a run: those of these clients (n).

    devices: the ids of all devices. A range of them is never expanded into an array.
    clients: their numbers; client i is the i-th device.
    """
    if isinstance(devices, range):
        return devices.start + clients
    chosen: Devices = np.asarray(devices, np.int64)[clients]
    return chosen


def clients_of(devices: Sequence[int] | Devices, some: Devices) -> Indices:
    """Return which clients some devices of a run are (n): the inverse of `take`.

    devices: the ids of all devices, in any order; client i is the i-th of them.
    some: the ids of those to look up (n).
    """
    if isinstance(devices, range):
        return some - devices.start
    order = np.argsort(devices)
    positions = np.searchsorted(np.asarray(devices), some, sorter=order)  # among sorted devices
    clients: Indices = order[positions]
    return clients


def ranges_of(devices: Sequence[int] | Devices) -> list[tuple[int, int]]:
    """Join consecutive devices to ranges; return the first and the last device of each.

    For example, the devices 1, 2, 3, 7 give (1, 3) and (7, 7).
    """
    ranges: list[tuple[int, int]] = []
    for device in map(int, devices):
        if ranges:
            first, last = ranges[-1]
            if device == last + 1:
                ranges[-1] = first, device
                continue
        ranges.append((device, device))
    return ranges


class Turns:
    """Whose turn it is: every client takes part once, in random order, before any does again."""

    def __init__(self, clients: int, group: int, seed: int) -> None:
        """Prepare to divide clients among rounds: all take part once before any does again.

        clients: the number of clients.
        group: how many of them a round asks; a larger number than `clients` means all.
        seed: the seed of the random order.
        """
        self.clients = clients
        self._group = max(1, min(group, clients))
        self._seed = seed
        self._begin()

    def _begin(self) -> None:
        """Go back to the time before the first round."""
        self._rng = np.random.default_rng(self._seed)
        self._queue: Indices = np.empty(0, np.int64)  # clients that wait for their turn, in order
        self._rounds_drawn = 0
        self._last_group: Indices = self._queue  # of the last round that was drawn

    def group(self, number: int) -> Indices:
        """Return the clients (from 0) that a round asks, if all clients take turns in random order.

        It is quick if rounds are asked for in order: for an earlier round, all are drawn again.

        number: the number of the round, from 0.
        """
        asks_everybody = self._group == self.clients
        if asks_everybody:
            return np.arange(self.clients)
        last_round = self._rounds_drawn - 1
        if number < last_round:  # earlier groups are not stored
            self._begin()
        while self._rounds_drawn <= number:
            self._draw()
        return self._last_group

    def _draw(self) -> None:
        """Take the clients of the next round from the queue, which is refilled when it runs out.

        The queue has the clients in the order in which rounds will ask them.
        """
        if len(self._queue) < self._group:
            # Everybody gets another turn. Those who still wait for theirs come last in the new
            # pass, too, so that nobody is twice in a group.
            not_waiting = np.setdiff1d(np.arange(self.clients), self._queue)
            next_pass = [self._rng.permutation(not_waiting), self._rng.permutation(self._queue)]
            self._queue = np.concatenate([self._queue, *next_pass])
        self._last_group = self._queue[: self._group]
        self._queue = self._queue[self._group :]
        self._rounds_drawn += 1


def most_turns(clients: int, group: int, rounds: int) -> int:
    """Return in how many rounds a client takes part at most, if each has `group` clients."""
    return -(-rounds * group // clients)  # rounded up
