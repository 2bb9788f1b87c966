"""Asks the devices of a round on a broker, and asks again.

A sleeping board is asked only when it says hello: if its broker queued other questions, the board
would answer, and pay for, rounds that have ended.
"""

import math
import time
from collections import deque
from collections.abc import Collection, Iterable
from itertools import islice

from tern.links import mqtt
from ternhost.count.rounds import Refusal
from ternhost.reach.broker.postponed import PostponedDevices
from ternhost.reach.broker.roster import BoardOnBroker
from ternhost.reach.broker.state import FleetState
from ternhost.store import sleepers
from ternhost.text import counted

MAX_PATIENCE = 30.0  # seconds
# Most clients of a board to ask again one by one; for more, a board with the key gets the whole
# round again.
_MOST_SINGLY = 64
_MOST_IN_FLIGHT = 64  # unanswered requests to one board
_MOST_AT_ONCE = 2000  # requests before the host reads again


class RoundRequests:
    """The requests of an open round, which is announced if it has one question for all devices."""

    def __init__(self, number: int, fleet: FleetState, patience: float) -> None:
        """Announce the round, or begin to ask its devices one by one.

        number: of the round. patience: seconds without news until devices are asked again.
        """
        self.number = number
        self.announced = fleet.aggregator.for_all(number)
        self.postponed = PostponedDevices()
        self._fleet = fleet
        self._roster = fleet.roster
        self._with_room: dict[BoardOnBroker, None] = {}  # boards that can be asked for more
        self._first_patience = patience
        self._patience = patience
        self._last_news = time.monotonic()
        self._begin()

    def _begin(self) -> None:
        """Assign the devices to boards, and ask.

        A board that was left out is not waited for. One of its devices is asked all the same: if
        it answers, the board takes part again.
        """
        now = time.monotonic()
        boards = self._roster.all()
        for board in boards:
            board.last_heard = now
            board.round.given_up = set()
        self.assign(boards)
        for board in boards:
            if board.left_out and board.round.unanswered:
                probed_device = min(board.round.unanswered)
                self._give_up(board)
                if board.connected and not self.announced and board.can_be_asked(now):
                    self._ask(board, probed_device)
        self.announce()

    def assign(self, uninformed: Iterable[BoardOnBroker] = ()) -> None:
        """Assign the devices that have not answered to the boards that claim them.

        uninformed: boards that do not know the round yet: what they were asked is forgotten.
        """
        boards = self._roster.all()
        for board in boards:
            board.round.unanswered = set()
        for device in self._fleet.aggregator.unanswered(self.number):
            for board in self._roster.boards_of(device):
                board.round.unanswered.add(device)
        for board in uninformed:
            board.round.in_flight.clear()
        if not self.announced:
            for board in boards:
                self._fill_queue(board)

    def _fill_queue(self, board: BoardOnBroker) -> None:
        """Queue the devices of a board that are to be asked now: all but those asked already.

        Postponed devices wait; and so do those that sleep and are on no known board.
        """
        board.round.in_flight &= board.round.unanswered
        waiting: set[int] = set()
        if board.can_be_asked(time.monotonic()):
            waiting = board.round.unanswered - board.round.in_flight - self.postponed.until.keys()
            if not board.name:
                waiting -= self._roster.wake_intervals.keys()
        board.round.queue = deque(sorted(waiting))
        if waiting:
            self._with_room[board] = None

    # The announcement

    def announce(self) -> None:
        """Announce the round under the present key of the fleet, if it has one question for all."""
        if self.announced:
            self._fleet.link.announce(self._announcement())

    def repeat_announcement(self, board: BoardOnBroker) -> None:
        """Send a board the announcement, which it could not verify before."""
        if self.announced and board.round.unanswered:
            self._fleet.link.ask(board.name, self._announcement())

    def _announcement(self) -> bytes:
        return self._fleet.key.seal(self._fleet.aggregator.announcement(self.number))

    def end(self) -> None:
        """Remove the announcement."""
        if self.announced:
            self._fleet.link.announce(b"")

    # Answers

    def note_answers(self, devices: Collection[int], now: float) -> None:
        """Note that these devices have reported or refused."""
        if not devices:
            return
        self._last_news = now
        self._patience = self._first_patience
        for device in devices:
            boards = self._roster.boards_of(device)
            for board in boards:
                board.last_heard = now
                board.round.unanswered.discard(device)
                if board.left_out and len(boards) == 1:  # else the other one may have answered
                    self._take_back(board)
                if not self.announced:
                    self._free_place(board, device)
        self.postponed.remove(devices)

    def postpone(self, refusal: Refusal, now: float) -> None:
        """Ask a device again later, since it may not report yet or did not read the request."""
        self.postponed.add(refusal, now)
        for board in self._roster.boards_of(refusal.device):
            board.last_heard = now
            self._free_place(board, refusal.device)

    def _free_place(self, board: BoardOnBroker, device: int) -> None:
        """Note that the request to a device is no longer in flight: the board may get another."""
        board.round.in_flight.discard(device)
        if board.round.queue:
            self._with_room[board] = None

    # Asking

    @property
    def can_ask(self) -> bool:
        """Whether there are devices to ask now."""
        return bool(self._with_room) and self._fleet.link.connected

    def ask(self) -> None:
        """Ask for more, up to a limit for each board and for this call."""
        room = _MOST_AT_ONCE
        while room and self.can_ask:
            board = next(iter(self._with_room))
            room -= self._ask_board(board, room)
            if room:
                del self._with_room[board]

    def _ask_board(self, board: BoardOnBroker, room: int) -> int:
        """Ask at most `room` devices of a board; return how many were asked."""
        most_in_flight = _MOST_IN_FLIGHT if board.name else math.inf
        requests = 0
        queue, in_flight = board.round.queue, board.round.in_flight
        while queue and len(in_flight) < most_in_flight and requests < room:
            device = queue.popleft()
            if device in board.round.unanswered and device not in self.postponed.until:
                in_flight.add(device)
                self._ask(board, device)
                requests += 1
        return requests

    def _ask(self, board: BoardOnBroker, device: int) -> None:
        name = board.name or mqtt.name(device)
        self._fleet.link.ask(name, self._fleet.aggregator.request(self.number, device))

    def ask_again(self, now: float) -> None:
        """Ask devices again whose wait is over.

        If there was no news for long, ask all again that have not answered. now: by the monotonic
        clock.
        """
        for device in self.postponed.take_due(now):
            self._last_news = now
            for board in self._roster.boards_of(device):
                may_sleep = not board.name and device in self._roster.wake_intervals
                if board.can_be_asked(now) and not may_sleep:
                    self._ask(board, device)
        if now - self._last_news < self._patience:
            return

        self._last_news = now
        self._patience = min(2 * self._patience, MAX_PATIENCE)
        boards = []
        for board in self._roster.boards.values():
            # A sleeping board gets the announcement when it wakes, or is asked at its HELLO.
            if board.connected and board.round.unanswered and not board.wake_interval:
                boards.append(board)
        # Some devices are on boards that are gone or whose HELLO was lost; and a HELLO may claim
        # devices that the board lacks. In the end, they are asked, too.
        with_unknown_boards = self._patience == MAX_PATIENCE
        if self.announced:
            self._announce_again(boards, with_unknown_boards)
            return
        for board in boards:
            board.round.in_flight.clear()
        if with_unknown_boards:
            self._roster.unknown_board.round.in_flight.clear()
        self.assign()

    def _announce_again(self, boards: list[BoardOnBroker], with_unknown_boards: bool) -> None:
        """Ask boards again in a round that is announced.

        A board with the fleet's key and many devices gets the announcement again; otherwise its
        devices are asked one by one. Devices on unknown boards are reached by all boards' topic.
        """
        for board in boards:
            has_key = board.key.epoch == self._fleet.key.epoch
            if has_key and len(board.round.unanswered) > _MOST_SINGLY:
                self._fleet.link.ask(board.name, self._announcement())
            else:
                unasked_devices = board.round.unanswered - self.postponed.until.keys()
                for device in islice(unasked_devices, _MOST_SINGLY):
                    self._ask(board, device)
        reached = sum(len(board.round.unanswered) for board in boards)
        if with_unknown_boards or reached < len(self._fleet.aggregator.unanswered(self.number)):
            self.announce()

    # Boards that fail

    def leave_out_silent_boards(self, now: float, longest_silence: float) -> None:
        """Go on without the boards that have been silent for too long.

        now: by the monotonic clock. longest_silence: seconds; a sleeping board may be silent until
        it has had a chance to answer.
        """
        for board in self._roster.all():
            wake_deadline = sleepers.least_deadline((board.wake_interval,))
            patience = max(longest_silence, wake_deadline)
            unanswered = board.round.unanswered
            if not unanswered or self._roster.silence(board, now) <= patience:
                continue
            if unanswered.isdisjoint(self.postponed.until):
                self._leave_out(board, patience)

    def _leave_out(self, board: BoardOnBroker, patience: float) -> None:
        """Give up the devices of a board that was silent for `patience` seconds, and warn once."""
        devices = counted(len(board.round.unanswered), "device")
        self._give_up(board)
        if board.left_out:
            return  # it was reported already
        board.left_out = True
        if board.name:
            warning = (
                f"round {self.number}: board {board.name} has been silent for {patience:g} s, "
                f"and is left out with its {devices} until it answers again"
            )
        else:
            warning = f"round {self.number}: no connected board has {devices}: left out"
        self._fleet.warn(warning)

    def _give_up(self, board: BoardOnBroker) -> None:
        """Let the round end without the devices of a board.

        Except for devices that another board claims, too: one of the two lies.
        """
        unreachable = []
        for device in board.round.unanswered:
            other_boards = [each for each in self._roster.boards_of(device) if each is not board]
            if all(other.left_out or not other.connected for other in other_boards):
                unreachable.append(device)
        self._fleet.aggregator.give_up(self.number, unreachable)
        board.round.given_up = board.round.unanswered
        board.round.unanswered = set()
        board.round.queue.clear()

    def _take_back(self, board: BoardOnBroker) -> None:
        """Let a board take part again that was left out and has answered.

        Its answers still count in this round, but the round does not wait for them.
        """
        board.left_out = False
        if board.name:
            self._fleet.warn(f"board {board.name} is back")
        board.round.unanswered = board.round.given_up
        board.round.given_up = set()
        if not self.announced:
            board.round.queue.extend(sorted(board.round.unanswered))
