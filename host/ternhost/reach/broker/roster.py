"""The boards on a broker, and the devices that each of them claims."""

from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ternhost.reach.broker.link import MqttLink
from ternhost.reach.broker.presence import BoardHello
from ternhost.store.fleet_key import OWN_KEY_ONLY

GREETING = 3.0  # seconds after a new connection in which the broker sends the HELLOs
AWAKE = 10.0  # seconds after its HELLO in which a sleeping board can be asked


@dataclass
class BoardKey:
    """The copy of the fleet key that a board has, by its HELLOs."""

    epoch: int = 0
    answered_epoch: int = 0  # of the last FLEET_KEY that it has answered
    sent: bool = False  # a FLEET_KEY that it has not taken yet
    warned_ahead: bool = False

    def lacks(self, epoch: int) -> bool:
        """Return whether it is of an earlier epoch, and the board has not declined this one."""
        return self.epoch < epoch and self.answered_epoch != epoch

    def is_ahead(self, epoch: int) -> bool:
        """Return whether it is of a later epoch; true only once."""
        if self.warned_ahead or self.epoch == OWN_KEY_ONLY or self.epoch <= epoch:
            return False
        self.warned_ahead = True
        return True

    def takes(self, epoch: int) -> bool:
        """Return whether the board has taken the FLEET_KEY that was sent; true only once."""
        if not self.sent or self.epoch != epoch:
            return False
        self.sent = False
        return True


@dataclass
class BoardRound:
    """The devices of a board in the open round."""

    unanswered: set[int] = field(default_factory=set)
    given_up: set[int] = field(default_factory=set)  # when the board was left out
    queue: deque[int] = field(default_factory=deque)  # to be asked
    in_flight: set[int] = field(default_factory=set)  # asked, and not answered


class BoardOnBroker:
    """A board. The one without a name stands for unknown boards."""

    def __init__(self, name: str = "") -> None:
        """name: as in the topics of the board, the id of its first client in hexadecimal digits."""
        self.name = name
        self.clients = range(0)
        self.key = BoardKey()
        self.round = BoardRound()
        self.connected = False
        self.left_out = False  # the rounds go on without it until it answers again
        self.last_heard = 0.0
        self.last_hello = -AWAKE
        self.wake_interval = 0  # seconds between its wakes; 0: it does not sleep

    def can_be_asked(self, now: float) -> bool:
        """Return whether the board is awake, as far as known, and gets a question now.

        A board that sleeps may get it only after the round.
        """
        return not self.wake_interval or now - self.last_hello < AWAKE


Boards = list[BoardOnBroker]


class RosterChanges(NamedTuple):
    """The boards that have come or gone."""

    new: Boards
    returned: Boards
    gone: Boards

    @property
    def arrived(self) -> Boards:
        """Those that are new, and those that are back."""
        return self.new + self.returned


class BoardRoster:
    """The boards of a broker. False claims cost no more memory than the devices of the store."""

    def __init__(
        self, devices: Collection[int], wake_intervals: Mapping[int, int] | None = None
    ) -> None:
        """wake_intervals: seconds between two wakes, for devices that sleep."""
        self.boards: dict[str, BoardOnBroker] = {}
        self.unknown_board = BoardOnBroker()  # holds the devices that no board claims
        self.connected_at = 0.0
        self._claims: dict[int, Boards] = {}  # of two claims one is a lie
        self._doubtful: set[str] = set()  # boards from before the connection was lost
        self._sure_at = 0.0  # from then on, doubtful boards without a HELLO are gone
        self.register(devices, wake_intervals or {})

    def register(self, devices: Collection[int], wake_intervals: Mapping[int, int]) -> None:
        """Set the devices with a key, and the wake intervals of those that sleep."""
        self.devices = sorted(devices)
        self.wake_intervals = {
            device: seconds for device, seconds in wake_intervals.items() if device in devices
        }
        self._claims = {}
        for board in self.boards.values():
            self._claim(board, board.clients)

    def all(self) -> Boards:
        """Return every board, and the one that stands for unknown boards."""
        return [*self.boards.values(), self.unknown_board]

    def boards_of(self, device: int) -> Boards:
        """Return the boards that claim a device; if there are several, the true one will answer.

        For a device that no board claims it is the unknown board.
        """
        return self._claims.get(device) or [self.unknown_board]

    @property
    def claimed(self) -> list[int]:
        """The devices that some board claims."""
        return [device for device in self.devices if self._claims.get(device)]

    def registered(self, clients: range) -> list[int]:
        """Return the devices with a key among these clients."""
        start = bisect_left(self.devices, clients.start)
        stop = bisect_left(self.devices, clients.stop)
        return self.devices[start:stop]

    def asleep(self, now: float) -> Boards:
        """Return the boards that sleep now.

        They may count as connected: their HELLO stays at the broker when they disconnect.
        """
        asleep = []
        for board in self.boards.values():
            is_awake = board.connected and board.can_be_asked(now)
            if board.wake_interval and not is_awake:
                asleep.append(board)
        return asleep

    def silence(self, board: BoardOnBroker, now: float) -> float:
        """Return the seconds in which the host could have heard a board, and has not."""
        return now - max(board.last_heard, self.connected_at)

    def note_connection(self, now: float) -> None:
        """Note that the host has a new connection.

        From now on silence counts, and the broker sends the HELLOs again. Boards from before the
        connection was lost are gone if their HELLO does not come.
        """
        self._sure_at = now
        if self.connected_at:
            self._sure_at += GREETING
        self.connected_at = now

    def update(self, link: MqttLink, now: float) -> RosterChanges:
        """Update the boards from the HELLOs that have come; return which have come or gone."""
        presence = link.presence
        changes = RosterChanges([], [], [])
        self._doubtful |= presence.changed
        presence.changed = set()
        for name in self._doubtful & presence.boards.keys():
            board = self.boards.setdefault(name, BoardOnBroker(name))
            if board.clients and not board.connected:
                changes.returned.append(board)
            else:
                changes.new.append(board)
            self._greet(board, presence.boards[name], now)
        self._doubtful -= presence.boards.keys()

        if self._doubtful and link.connected and now >= self._sure_at:
            for name in self._doubtful & self.boards.keys():
                board = self.boards[name]
                if board.connected:
                    board.connected = False
                    changes.gone.append(board)
            self._doubtful.clear()
        return changes

    def _greet(self, board: BoardOnBroker, hello: BoardHello, now: float) -> None:
        """Note the HELLO of a board that is connected."""
        if board.clients != hello.clients:
            self._claim(board, hello.clients)
        board.key.epoch = hello.epoch
        board.key.answered_epoch = hello.answered_epoch
        board.connected = True
        board.left_out = False
        board.last_heard = now
        if not hello.retained:
            board.last_hello = now

    def _claim(self, board: BoardOnBroker, clients: range) -> None:
        """Note that a board claims these clients, and no longer those that it claimed before."""
        for device in self.registered(board.clients):
            if board in self._claims.get(device, ()):
                self._claims[device].remove(board)
        board.clients = clients
        # By the first: a real board has one client.
        board.wake_interval = self.wake_intervals.get(clients.start, 0)
        for device in self.registered(clients):
            self._claims.setdefault(device, []).append(board)
