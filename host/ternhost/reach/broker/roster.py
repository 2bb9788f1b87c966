"""The boards that are connected to a broker, and the devices that each of them claims."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Mapping

from ternhost.reach.broker.link import MqttLink
from ternhost.store.fleet_key import OWN_KEY_ONLY

GREETING = 3.0  # seconds after a new connection, in which the broker tells who is there
AWAKE = 10.0  # seconds after its hello, in which a board that sleeps can be asked


class BoardOnBroker:
    """A board, and the devices of it that have not answered. The one without a name stands for unknown boards."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.clients = range(0)
        self.epoch = 0  # of its fleet key
        self.answers = 0  # of the FLEET_KEY that it has answered last
        self.brought = False  # it was sent one, and has not said yet that it took it
        self.told_ahead = False
        self.there = False
        self.left_out = False  # the rounds go on without it until it answers again
        self.expected: set[int] = set()  # its devices that have not answered
        self.given_up: set[int] = set()
        self.to_ask: deque[int] = deque()
        self.under_way: set[int] = set()
        self.heard = 0.0
        self.wake = 0  # it sleeps, and wakes every so many seconds; 0: it does not
        self.greeted = -AWAKE  # when it said hello

    def can_be_asked(self, now: float) -> bool:
        """Whether it would get a question now: one that sleeps would find it only after the round."""
        return not self.wake or now - self.greeted < AWAKE

    def lacks(self, epoch: int) -> bool:
        """Whether it has an earlier fleet key, and has not declined this one."""
        own = max(self.epoch, 1)  # files of protocol 1 do not name the first
        return self.there and own < epoch != self.answers

    def is_ahead(self, epoch: int) -> bool:
        """Whether it has a later fleet key, if it has a part in one at all; true once."""
        ahead = self.there and epoch < self.epoch != OWN_KEY_ONLY and not self.told_ahead
        self.told_ahead = self.told_ahead or ahead
        return ahead

    def takes(self, epoch: int) -> bool:
        """Whether it has taken a fleet key that it was sent; true once."""
        taken = self.brought and self.epoch == epoch
        self.brought = self.brought and not taken
        return taken


class BoardRoster:
    """The boards of a broker. False claims cost no more memory than the devices of the store."""

    def __init__(self, devices: Collection[int], wakes: Mapping[int, int] | None = None) -> None:
        """wakes: how many seconds pass from one wake to the next, of devices that sleep."""
        self.boards: dict[str, BoardOnBroker] = {}
        self.nowhere = [BoardOnBroker()]  # where the devices are that no board claims
        self._claims: dict[int, list[BoardOnBroker]] = {}  # one of them lies if there are two
        self._doubtful: set[str] = set()  # boards that were there before the connection was lost
        self._connected_at = 0.0
        self._sure_at = 0.0  # when those that are not there are gone
        self.know(devices, wakes or {})

    def know(self, devices: Collection[int], wakes: Mapping[int, int]) -> None:
        """Of all devices that have a key, these; some of them sleep."""
        self.devices = sorted(devices)
        self.wakes = {device: seconds for device, seconds in wakes.items() if device in devices}
        self._claims = {}
        for board in self.boards.values():
            self._claim(board, board.clients)

    def all(self) -> list[BoardOnBroker]:
        """Every board, and that of the devices that are on none."""
        return [*self.boards.values(), *self.nowhere]

    def of(self, device: int) -> list[BoardOnBroker]:
        """The boards that say they have a device: more than one may, and the true one will answer."""
        return self._claims.get(device) or self.nowhere

    @property
    def claimed(self) -> list[int]:
        """The devices that are on boards."""
        return [device for device in self.devices if self._claims.get(device)]

    def connected(self, now: float) -> None:
        """The host has a new connection: silence counts from now on, and hellos come anew."""
        self._sure_at = now + GREETING if self._connected_at else now
        self._connected_at = now

    def asleep(self, now: float) -> list[BoardOnBroker]:
        """The boards that sleep: the hello of one that took its leave stays at the broker."""
        return [
            board
            for board in self.boards.values()
            if board.wake and not (board.there and board.can_be_asked(now))
        ]

    def silent(self, board: BoardOnBroker, now: float) -> float:
        """Seconds without a word of a board that could have been heard."""
        return now - max(board.heard, self._connected_at)

    def look(
        self, link: MqttLink, now: float
    ) -> tuple[list[BoardOnBroker], list[BoardOnBroker], list[BoardOnBroker]]:
        """Take note of what `link` has heard: boards that are new, that are there again, and that are gone."""
        self._doubtful |= link.changed
        link.changed = set()
        new: list[BoardOnBroker] = []
        again: list[BoardOnBroker] = []
        gone: list[BoardOnBroker] = []
        for name in self._doubtful & link.boards.keys():
            board = self.boards.setdefault(name, BoardOnBroker(name))
            (again if board.clients and not board.there else new).append(board)
            said = link.boards[name]
            if board.clients != said.clients:
                self._claim(board, said.clients)
            board.epoch, board.answers = said.epoch, said.answers
            if not said.kept:
                board.greeted = now
            board.there, board.left_out, board.heard = True, False, now
        self._doubtful -= link.boards.keys()
        if self._doubtful and link.connected and now >= self._sure_at:
            gone = [
                self.boards[name] for name in self._doubtful & self.boards.keys() if self.boards[name].there
            ]
            for board in gone:
                board.there = False
            self._doubtful.clear()
        return new, again, gone

    def _claim(self, board: BoardOnBroker, clients: range) -> None:
        for device in self._known(board.clients):
            if board in self._claims.get(device, ()):
                self._claims[device].remove(board)
        board.clients = clients
        # By the first: a real board has no other, and boards that do not sleep are many.
        board.wake = self.wakes.get(clients.start, 0)
        for device in self._known(clients):
            self._claims.setdefault(device, []).append(board)

    def _known(self, clients: range) -> list[int]:
        return self.devices[
            bisect_left(self.devices, clients.start) : bisect_left(self.devices, clients.stop)
        ]
