"""The roster of the boards on a broker, and of the devices that each of them says it has."""

from bisect import bisect_left
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from ternhost.reach.broker.link import MqttLink
from ternhost.reach.broker.presence import BoardHello
from ternhost.store.fleet_key import OWN_KEY_ONLY

GREETING = 3.0  # seconds after a new connection in which the broker sends the boards' HELLOs
# The most HELLOs that are looked at in one go. Meanwhile the host does nothing else, and a broker
# drops a host that does nothing for long.
_MOST_AT_ONCE = 10_000
AWAKE = 10.0  # seconds after its HELLO in which a board that sleeps between rounds can be asked


@dataclass(slots=True)
class BoardKey:
    """What a board's HELLOs say about its copy of the fleet key.

    With the fleet key the host seals what is for all boards. Each new key has a higher number, its
    epoch. The message that brings it to a board is FLEET_KEY.
    """

    epoch: int = 0  # of the key that the board has; 0 if it has none
    answered_epoch: int = 0  # of the key in the last FLEET_KEY that the board has answered
    sent: bool = False  # a FLEET_KEY was sent, and the board does not have that key yet
    warned_ahead: bool = False

    def lacks(self, epoch: int) -> bool:
        """Return whether the board's key is earlier than the one with this epoch, and may change.

        It may not if the board has answered that key, and yet has not taken it.
        """
        has_declined = self.answered_epoch == epoch
        return self.epoch < epoch and not has_declined

    def is_ahead(self, epoch: int) -> bool:
        """Return whether the board's key is later than the one with this epoch.

        The result is True only once, so that there is one warning.
        """
        is_ahead = self.epoch > epoch and self.epoch != OWN_KEY_ONLY
        if self.warned_ahead or not is_ahead:
            return False
        self.warned_ahead = True
        return True

    def takes(self, epoch: int) -> bool:
        """Return whether the board has the key with this epoch now that it was sent.

        The result is True only once for each key that was sent.
        """
        if not self.sent or self.epoch != epoch:
            return False
        self.sent = False
        return True


@dataclass(slots=True)
class BoardRound:
    """The devices of a board in the open round, by how far their requests are."""

    unanswered: set[int] = field(default_factory=set)  # the round waits for their answers
    given_up: set[int] = field(default_factory=set)  # it no longer does: the board fell silent
    queue: list[int] = field(default_factory=list)  # to be asked, the next one last
    in_flight: set[int] = field(default_factory=set)  # asked, and not answered


class BoardOnBroker:
    """A board. The one without a name stands for all boards that are not known yet."""

    def __init__(self, name: str = "") -> None:
        """Begin with a board of which nothing is known but its name.

        name: as in the topics of the board, the id of its first device in hexadecimal digits.
        """
        self.name = name
        self.clients = range(0)  # the ids of the devices on it, which it claims
        self.key = BoardKey()  # its copy of the fleet key
        self.round = BoardRound()  # its devices in the open round
        self.connected = False
        self.left_out = False  # rounds go on without it until it answers again

        # When it was heard, by the monotonic clock.
        self.last_heard = 0.0
        self.last_hello = -AWAKE
        self.wake_interval = 0  # seconds from one wake to the next; 0 if it does not sleep

    def can_be_asked(self, now: float) -> bool:
        """Return whether a request reaches the board now, because it is awake as far as is known.

        A board that sleeps might get the request only after the round. When it wakes, it sends its
        HELLO, and is awake for some seconds. now: the time by the monotonic clock.
        """
        never_sleeps = not self.wake_interval
        is_just_awake = now - self.last_hello < AWAKE
        return never_sleeps or is_just_awake


Boards = list[BoardOnBroker]


class RosterChanges(NamedTuple):
    """The boards that have connected or disconnected since the last look."""

    new: Boards  # connected for the first time, or with another HELLO
    returned: Boards  # connected again
    gone: Boards  # disconnected
    reassigned: Boards  # new ones that say they have other devices than before

    @property
    def arrived(self) -> Boards:
        """The boards that have connected, whether they are new or back."""
        return self.new + self.returned


class BoardRoster:
    """The boards that have connected to a broker, and which devices are on which of them.

    A board claims its devices with its HELLO, which may be a lie. Only the claims of devices in the
    host's store are kept, so that lies cannot fill the memory.
    """

    def __init__(
        self, devices: Collection[int], wake_intervals: Mapping[int, int] | None = None
    ) -> None:
        """Begin without boards.

        devices: the ids of all devices with a key in the host's store. wake_intervals: for each
        device that sleeps, the seconds from one wake to the next.
        """
        self.boards: dict[str, BoardOnBroker] = {}  # by name
        self.unknown_board = BoardOnBroker()  # has the devices that no board claims
        self.connected_at = 0.0  # when the host connected to the broker, by the monotonic clock
        # The boards that claim each device, for those that any board claims. If there are several
        # boards, all but one of them lie.
        self._claims: dict[int, Boards] = {}
        # The names of boards whose HELLO has come or gone, or that were there before the connection
        # was lost. At this time, those of them without a HELLO are gone.
        self._doubtful: set[str] = set()
        self._sure_at = 0.0
        self.is_behind = False  # some HELLOs that have come were not looked at yet
        self.register(devices, wake_intervals or {})

    def register(self, devices: Collection[int], wake_intervals: Mapping[int, int]) -> None:
        """Replace the devices whose boards matter.

        devices: the ids of all devices with a key in the host's store.
        wake_intervals: for each device that sleeps, the seconds from one wake to the next.
        """
        self.devices = sorted(devices)
        self.wake_intervals = {}
        for device, seconds in wake_intervals.items():
            if device in devices:
                self.wake_intervals[device] = seconds
        self._claims = {}
        for board in self.boards.values():
            self._claim(board, board.clients)

    def all(self) -> Boards:
        """Return every board, and the one that stands for all unknown boards."""
        return [*self.boards.values(), self.unknown_board]

    def boards_of(self, device: int) -> Boards:
        """Return the boards that claim a device, or the unknown board if none does.

        If there are several, only the true one can answer for the device.
        """
        return self._claims.get(device) or [self.unknown_board]

    @property
    def claimed(self) -> list[int]:
        """The devices in the store that some board claims."""
        return [device for device in self.devices if device in self._claims]

    @property
    def all_are_claimed(self) -> bool:
        """Whether some board claims each device in the store."""
        return len(self._claims) == len(self.devices)

    def registered(self, clients: range) -> list[int]:
        """Return those of the devices with these ids that have a key in the host's store."""
        start = bisect_left(self.devices, clients.start)
        stop = bisect_left(self.devices, clients.stop)
        return self.devices[start:stop]

    def asleep(self, now: float) -> Boards:
        """Return the boards that sleep now, as far as is known.

        Such a board may count as connected: the broker keeps its HELLO, the message with which it
        has connected, while it sleeps.
        """
        asleep = []
        for board in self.boards.values():
            is_awake = board.connected and board.can_be_asked(now)
            if board.wake_interval and not is_awake:
                asleep.append(board)
        return asleep

    def silence(self, board: BoardOnBroker, now: float) -> float:
        """Return for how many seconds the host has not heard a board, although it was connected."""
        silent_since = max(board.last_heard, self.connected_at)
        return now - silent_since

    def note_connection(self, now: float) -> None:
        """Note that the host has connected to the broker, which now sends the boards' HELLOs.

        Boards that were there before a connection was lost are gone if their HELLO does not come
        within some seconds.
        """
        self._sure_at = now
        is_reconnection = bool(self.connected_at)
        if is_reconnection:
            self._sure_at += GREETING
        self.connected_at = now

    def update(self, link: MqttLink, now: float) -> RosterChanges:
        """Update the boards from their HELLOs, and return which have connected or disconnected.

        A HELLO is the message in which a board describes itself when it connects. If very many have
        come, only some are looked at; the others have their turn in the next call (`is_behind`).

        link: the connection to the broker, which has the HELLOs. now: the time by the monotonic
        clock.
        """
        presence = link.presence
        changes = RosterChanges(new=[], returned=[], gone=[], reassigned=[])
        self._doubtful |= presence.changed
        presence.changed = set()

        # Boards with a HELLO are there.
        with_hello = (name for name in self._doubtful if name in presence.boards)
        names = list(islice(with_hello, _MOST_AT_ONCE))
        for name in names:
            self._note_hello(name, presence.boards[name], changes, now)
        self._doubtful.difference_update(names)
        self.is_behind = len(names) == _MOST_AT_ONCE

        # The others are gone, unless their HELLO may still come after a reconnection.
        is_sure = link.connected and now >= self._sure_at
        if self._doubtful and is_sure and not self.is_behind:
            for name in self._doubtful & self.boards.keys():
                board = self.boards[name]
                if board.connected:
                    board.connected = False
                    changes.gone.append(board)
            self._doubtful.clear()
        return changes

    def _note_hello(self, name: str, hello: BoardHello, changes: RosterChanges, now: float) -> None:
        """Note that a board with a HELLO is there.

        name: of the board. changes: gets it. now: the time by the monotonic clock.
        """
        board = self.boards.get(name)
        if board is None:
            board = BoardOnBroker(name)
            self.boards[name] = board
        was_there_before = bool(board.clients)
        if was_there_before and not board.connected:
            changes.returned.append(board)
        else:
            changes.new.append(board)
        if was_there_before and board.clients != hello.clients:
            changes.reassigned.append(board)
        self._greet(board, hello, now)

    def _greet(self, board: BoardOnBroker, hello: BoardHello, now: float) -> None:
        """Note what a board says in its HELLO, the message in which it describes itself.

        now: the time by the monotonic clock.
        """
        if board.clients != hello.clients:
            self._claim(board, hello.clients)
        board.key.epoch = hello.epoch
        board.key.answered_epoch = hello.answered_epoch
        board.connected = True
        board.left_out = False
        board.last_heard = now
        if not hello.retained:  # otherwise the board may have sent it long ago
            board.last_hello = now

    def _claim(self, board: BoardOnBroker, clients: range) -> None:
        """Note which devices a board says it has, which may be a lie, instead of those of before.

        clients: the ids of the devices.
        """
        for device in self.registered(board.clients):
            claimants = self._claims.get(device, [])
            if board in claimants:
                claimants.remove(board)
            if not claimants:
                self._claims.pop(device, None)
        board.clients = clients
        # A real board that sleeps has only one client.
        board.wake_interval = self.wake_intervals.get(clients.start, 0)
        for device in self.registered(clients):
            self._claims.setdefault(device, []).append(board)
