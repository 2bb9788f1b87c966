"""Asks the devices of a round on a broker, and asks again.

A sleeping board is asked only when it says hello: if its broker queued other questions, the board
would answer, and pay for, rounds that have ended.
"""

import heapq
import math
import time
from collections import Counter, deque
from collections.abc import Collection, Iterable
from itertools import islice

from tern import wire
from tern.links.mqtt import name as board_name
from tern.storage import MAX_PAUSE
from ternhost.count.aggregator import Aggregator
from ternhost.count.rounds import Refusal
from ternhost.learn.schedule import Terms
from ternhost.reach.broker.link import MqttLink
from ternhost.reach.broker.roster import BoardOnBroker, BoardRoster
from ternhost.reach.driver import Warn
from ternhost.store import sleepers
from ternhost.store.fleet_key import FleetKey
from ternhost.text import counted

MAX_PATIENCE = 30.0
# Most clients of a board to ask again one by one; for more, a board with the key gets the whole
# round again.
_SINGLY = 64
_UNDER_WAY = 64  # unanswered requests to one board
_AT_ONCE = 2000  # requests before the host reads again


class Asking:
    """Asks for the reports of an open round, which is announced if it has one question for all
    devices.
    """

    def __init__(
        self,
        number: int,
        aggregator: Aggregator,
        roster: BoardRoster,
        link: MqttLink,
        fleet: FleetKey,
        patience: float,
        warn: Warn,
    ) -> None:
        self.number = number
        self.announced = aggregator.for_all(number)
        self._aggregator = aggregator
        self._roster = roster
        self._link = link
        self._fleet = fleet
        self._warn = warn
        self._start_patience = self._patience = patience
        self._heard = now = time.monotonic()
        self._later: list[tuple[float, int]] = []
        self._waits: dict[int, float] = {}  # devices, and when each may be asked again
        self._unread: Counter[int] = Counter()
        self.hungry: dict[BoardOnBroker, None] = {}  # boards that can be asked for more
        boards = roster.all()
        for board in boards:
            board.heard = now
            board.given_up = set()
        self.deal(boards)
        for board in boards:
            if board.left_out and board.expected:
                probe = min(board.expected)
                self._give_up(board)
                if board.there and not self.announced and board.can_be_asked(now):
                    self._ask(board, probe)
        self.announce()

    def deal(self, fresh: Iterable[BoardOnBroker] = ()) -> None:
        """Compute the expected devices of each board. fresh: boards that do not know the round yet."""
        boards = self._roster.all()
        for board in boards:
            board.expected = set()
        for device in self._aggregator.unanswered(self.number):
            for board in self._roster.of(device):
                board.expected.add(device)
        for board in fresh:
            board.under_way.clear()
        if self.announced:
            return
        now = time.monotonic()
        asleep = self._roster.wakes.keys()
        for board in boards:
            board.under_way &= board.expected
            to_ask = board.expected - board.under_way - self._waits.keys()
            if not board.can_be_asked(now):
                to_ask = set()
            elif not board.name:
                to_ask -= asleep
            board.to_ask = deque(sorted(to_ask))
            if board.to_ask:
                self.hungry[board] = None

    def announce(self, fleet: FleetKey | None = None) -> None:
        """Announce the round, if it is an announced one. fleet: the fleet's key from now on."""
        self._fleet = fleet or self._fleet
        if self.announced:
            self._link.announce(self._announcement())

    def tell(self, board: BoardOnBroker) -> None:
        """Send a board the announcement, which it could not verify before."""
        if self.announced and board.expected:
            self._link.ask(board.name, self._announcement())

    def _announcement(self) -> bytes:
        return self._fleet.seal(self._aggregator.announcement(self.number))

    def end(self) -> None:
        """Remove the announcement."""
        if self.announced:
            self._link.announce(b"")

    # Answers

    def answered(self, devices: Collection[int], now: float) -> None:
        """Note that these devices have reported or refused."""
        if not devices:
            return
        self._heard = now
        self._patience = self._start_patience
        of = self._roster.of
        for device in devices:
            boards = of(device)
            for board in boards:
                board.heard = now
                board.expected.discard(device)
                if board.left_out and len(boards) == 1:  # else the other one may have answered
                    self._take_back(board)
                if not self.announced:
                    self._free(board, device)
        for device in self._waits.keys() & devices if self._waits else ():
            del self._waits[device]

    def put_off(self, refusal: Refusal, now: float) -> None:
        """A device may not report yet, and says how long; or did not read the request: ask at once,
        then ever later.
        """
        device = refusal.device
        self._unread[device] += 1
        if refusal.code == wire.ERR_TOO_SOON:
            wait = float(min(refusal.detail, MAX_PAUSE))
        else:
            wait = min(MAX_PATIENCE, 2 ** min(self._unread[device] - 1, 10) - 1)
        self._waits[device] = now + wait
        heapq.heappush(self._later, (now + wait, device))
        for board in self._roster.of(device):
            board.heard = now
            self._free(board, device)

    def _free(self, board: BoardOnBroker, device: int) -> None:
        board.under_way.discard(device)
        if board.to_ask:
            self.hungry[board] = None

    # Asking

    def feed(self) -> None:
        """Ask for more, up to a limit for each board and for this call."""
        room = _AT_ONCE
        while self.hungry and room and self._link.connected:
            board = next(iter(self.hungry))
            most = _UNDER_WAY if board.name else math.inf
            while board.to_ask and len(board.under_way) < most and room:
                device = board.to_ask.popleft()
                if device in board.expected and device not in self._waits:
                    board.under_way.add(device)
                    self._ask(board, device)
                    room -= 1
            if room:
                del self.hungry[board]

    def _ask(self, board: BoardOnBroker, device: int) -> None:
        self._link.ask(
            board.name or board_name(device), self._aggregator.request(self.number, device)
        )

    def ask_again(self, now: float) -> None:
        """Ask devices whose wait is over; after a long time without news, all that have not
        answered.
        """
        while self._later and self._later[0][0] <= now:
            when, device = heapq.heappop(self._later)
            if self._waits.get(device) == when:
                del self._waits[device]
                self._heard = now
                for board in self._roster.of(device):
                    if board.can_be_asked(now) and (board.name or device not in self._roster.wakes):
                        self._ask(board, device)
        if now - self._heard < self._patience:
            return
        self._heard = now
        self._patience = min(2 * self._patience, MAX_PATIENCE)
        # Some are on boards that are gone or whose hello was lost; and a hello may claim devices
        # that the board lacks.
        last = self._patience == MAX_PATIENCE
        # A sleeping board gets the announcement when it wakes, or is asked at its hello.
        boards = [b for b in self._roster.boards.values() if b.there and b.expected and not b.wake]
        if not self.announced:
            for board in (*boards, *self._roster.nowhere) if last else boards:
                board.under_way.clear()
            self.deal()
            return
        for board in boards:
            if len(board.expected) > _SINGLY and board.epoch == self._fleet.epoch:
                self._link.ask(board.name, self._announcement())
            else:
                for device in islice(board.expected - self._waits.keys(), _SINGLY):
                    self._ask(board, device)
        reached = sum(len(board.expected) for board in boards)
        if last or reached < len(self._aggregator.unanswered(self.number)):
            self.announce()

    # Boards that fail

    def leave_out(self, now: float, terms: Terms) -> None:
        """Go on without the boards that have been silent for too long."""
        for board in self._roster.all():
            patience = max(terms.silence, sleepers.least_deadline((board.wake,)))
            if not board.expected or self._roster.silent(board, now) <= patience:
                continue
            if not board.expected.isdisjoint(self._waits):
                continue
            count = len(board.expected)
            self._give_up(board)
            if board.left_out:
                continue  # it was reported already
            board.left_out = True
            self._warn(
                f"round {self.number}: board {board.name} has been silent for {patience:g} s, and is left "
                f"out with its {counted(count, 'device')} until it answers again"
                if board.name
                else f"round {self.number}: no connected board has {counted(count, 'device')}: left out"
            )

    def _give_up(self, board: BoardOnBroker) -> None:
        # Except for devices that another board claims, too: one of the two lies.
        others = {
            each: [b for b in self._roster.of(each) if b is not board] for each in board.expected
        }
        alone = [
            each
            for each, boards in others.items()
            if all(b.left_out or not b.there for b in boards)
        ]
        self._aggregator.give_up(self.number, alone)
        board.given_up, board.expected = board.expected, set()
        board.to_ask.clear()

    def _take_back(self, board: BoardOnBroker) -> None:
        # Its answers still count in this round, but the round does not wait for them.
        board.left_out = False
        if board.name:
            self._warn(f"board {board.name} is back")
        board.expected, board.given_up = board.given_up, set()
        if not self.announced:
            board.to_ask.extend(sorted(board.expected))
