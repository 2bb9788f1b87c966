"""The boards on a broker, and the devices that each of them claims."""

from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Mapping

from ternhost.reach.broker.link import MqttLink
from ternhost.store.fleet_key import OWN_KEY_ONLY

GREETING = 3.0  # seconds after a new connection in which the broker sends the hellos
AWAKE = 10.0  # seconds after its hello in which a sleeping board can be asked


class BoardOnBroker:
    """A board, and its devices that have not answered.

    The one without a name stands for unknown boards.
    """

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.clients = range(0)
        self.epoch = 0  # of its fleet key
        self.answers = 0  # epoch of the last FLEET_KEY that it has answered
        self.key_sent = False  # a FLEET_KEY that it has not taken yet
        self.warned_ahead = False
        self.there = False
        self.left_out = False  # the rounds go on without it until it answers again
        self.expected: set[int] = set()  # its devices that have not answered
        self.given_up: set[int] = set()
        self.to_ask: deque[int] = deque()
        self.under_way: set[int] = set()
        self.heard = 0.0
        self.wake = 0  # seconds between its wakes; 0: it does not sleep
        self.greeted = -AWAKE  # time of its hello

    def can_be_asked(self, now: float) -> bool:
        """Whether it gets a question now: a sleeping board may get it only after the round."""
        return not self.wake or now - self.greeted < AWAKE

    def lacks(self, epoch: int) -> bool:
        """Whether it has an earlier fleet key, and has not declined this one."""
        return self.there and self.epoch < epoch != self.answers

    def is_ahead(self, epoch: int) -> bool:
        """Whether it has a later fleet key; true once."""
        ahead = self.there and epoch < self.epoch != OWN_KEY_ONLY and not self.warned_ahead
        self.warned_ahead = self.warned_ahead or ahead
        return ahead

    def takes(self, epoch: int) -> bool:
        """Whether it has taken the FLEET_KEY; true once."""
        taken = self.key_sent and self.epoch == epoch
        self.key_sent = self.key_sent and not taken
        return taken


Boards = list[BoardOnBroker]


class BoardRoster:
    """The boards of a broker. False claims cost no more memory than the devices of the store."""

    def __init__(self, devices: Collection[int], wakes: Mapping[int, int] | None = None) -> None:
        """wakes: seconds between two wakes, for devices that sleep."""
        self.boards: dict[str, BoardOnBroker] = {}
        self.nowhere = [BoardOnBroker()]  # holds the devices that no board claims
        self._claims: dict[int, list[BoardOnBroker]] = {}  # of two claims one is a lie
        self._doubtful: set[str] = set()  # boards from before the connection was lost
        self.connected_at = 0.0
        self._sure_at = 0.0  # from then on, doubtful boards without a hello are gone
        self.know(devices, wakes or {})

    def know(self, devices: Collection[int], wakes: Mapping[int, int]) -> None:
        """Set the devices with a key, and the wake intervals of those that sleep."""
        self.devices = sorted(devices)
        self.wakes = {device: seconds for device, seconds in wakes.items() if device in devices}
        self._claims = {}
        for board in self.boards.values():
            self._claim(board, board.clients)

    def all(self) -> list[BoardOnBroker]:
        """Every board, and the one that stands for unknown boards."""
        return [*self.boards.values(), *self.nowhere]

    def of(self, device: int) -> list[BoardOnBroker]:
        """The boards that claim a device: if there are several, the true one will answer."""
        return self._claims.get(device) or self.nowhere

    @property
    def claimed(self) -> list[int]:
        """The devices on known boards."""
        return [device for device in self.devices if self._claims.get(device)]

    def connected(self, now: float) -> None:
        """The host has a new connection: silence counts from now, and hellos come again."""
        self._sure_at = now + GREETING if self.connected_at else now
        self.connected_at = now

    def asleep(self, now: float) -> list[BoardOnBroker]:
        """The boards that sleep now. (The hello of one that disconnected stays at the broker.)"""
        sleepers = [board for board in self.boards.values() if board.wake]
        return [board for board in sleepers if not (board.there and board.can_be_asked(now))]

    def silent(self, board: BoardOnBroker, now: float) -> float:
        """Seconds of silence of a board, while the host could hear it."""
        return now - max(board.heard, self.connected_at)

    def look(self, link: MqttLink, now: float) -> tuple[Boards, Boards, Boards]:
        """Update the boards from `link`: those that are new, those that are back, and those that
        are gone.
        """
        self._doubtful |= link.changed
        link.changed = set()
        new: list[BoardOnBroker] = []
        again: list[BoardOnBroker] = []
        gone: list[BoardOnBroker] = []
        for name in self._doubtful & link.boards.keys():
            board = self.boards.setdefault(name, BoardOnBroker(name))
            (again if board.clients and not board.there else new).append(board)
            claimed = link.boards[name]
            if board.clients != claimed.clients:
                self._claim(board, claimed.clients)
            board.epoch, board.answers = claimed.epoch, claimed.answers
            if not claimed.kept:
                board.greeted = now
            board.there, board.left_out, board.heard = True, False, now
        self._doubtful -= link.boards.keys()
        if self._doubtful and link.connected and now >= self._sure_at:
            known = [self.boards[name] for name in self._doubtful & self.boards.keys()]
            gone = [board for board in known if board.there]
            for board in gone:
                board.there = False
            self._doubtful.clear()
        return new, again, gone

    def _claim(self, board: BoardOnBroker, clients: range) -> None:
        for device in self.known(board.clients):
            if board in self._claims.get(device, ()):
                self._claims[device].remove(board)
        board.clients = clients
        # By the first: a real board has one client.
        board.wake = self.wakes.get(clients.start, 0)
        for device in self.known(clients):
            self._claims.setdefault(device, []).append(board)

    def known(self, clients: range) -> list[int]:
        """The devices of the store among these."""
        start, stop = (bisect_left(self.devices, end) for end in (clients.start, clients.stop))
        return self.devices[start:stop]
