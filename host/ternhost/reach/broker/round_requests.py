"""Sends the requests of a round to the devices on a broker, and repeats them.

A round that asks all devices the same is announced with one message to all of them, which the
broker retains. In other rounds each device gets a request.

A board that sleeps is asked only when it wakes and sends its HELLO. If the broker queued requests
for it meanwhile, the board would answer rounds that have ended, and spend budget on them.
"""

import math
import time
from collections.abc import Collection, Iterable
from itertools import islice

from tern.links import mqtt
from ternhost.count.rounds import Refusal
from ternhost.log import Message
from ternhost.reach.broker.postponed import PostponedDevices
from ternhost.reach.broker.roster import BoardOnBroker, Boards, RosterChanges
from ternhost.reach.broker.state import FleetState
from ternhost.store import sleepers
from ternhost.text import counted

MAX_PATIENCE = 30.0  # the longest time without news until devices are asked again, in seconds
# The most devices of a board that are asked again one by one. If there are more, the board gets the
# announcement of the round again.
_MOST_SINGLY = 64
_MOST_IN_FLIGHT = 64  # the most unanswered requests to one board
_MOST_AT_ONCE = 2000  # about the most requests that are sent before the host reads answers again


class RoundRequests:
    """The requests of an open round."""

    def __init__(self, number: int, fleet: FleetState, patience: float) -> None:
        """Announce the round, or begin to ask its devices one by one.

        number: the number of the round. patience: seconds without news until devices are asked
        again.
        """
        self.number = number
        self.announced = fleet.aggregator.for_all(number)  # it asks all devices the same
        self.postponed = PostponedDevices()
        self._fleet = fleet
        self._roster = fleet.roster
        # The boards that can get more requests, in the order in which they get them. A dict without
        # values serves as a set that keeps the order.
        self._with_room: dict[BoardOnBroker, None] = {}
        self._first_patience = patience
        self._patience = patience
        self._last_news = time.monotonic()
        self._next_turn = 0  # the index of the board that is asked again first
        self._begin()

    def _begin(self) -> None:
        """Assign the devices of the round to boards, and send the first requests.

        The round does not wait for a board that was left out of an earlier one for its silence. But
        one of its devices gets a request, too: if it answers, the board takes part again.
        """
        now = time.monotonic()
        boards = self._roster.all()
        for board in boards:
            board.last_heard = now  # silence counts from the beginning of the round
            board.round.given_up = set()
        self.assign(boards)
        for board in boards:
            if not board.left_out or not board.round.unanswered:
                continue
            probed_device = min(board.round.unanswered)
            self._give_up(board)
            is_reachable = board.connected and board.can_be_asked(now)
            if is_reachable and not self.announced:
                self._ask(board, probed_device)
        self.announce()

    def assign(self, uninformed: Iterable[BoardOnBroker] = ()) -> None:
        """Assign the devices that have not answered to the boards that claim to have them.

        If several boards claim a device, each of them is asked, since all but one of them lie.

        uninformed: boards that have just connected, and so have no requests of this round any more.
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

    def follow(self, changes: RosterChanges) -> None:
        """Assign their devices to boards that have connected; they get the requests of the round.

        changes: the boards that have connected since the last call, and all others that have
        changed.
        """
        if changes.reassigned:
            self.assign(changes.arrived)
        elif changes.arrived:
            self._assign_to(changes.arrived)

    def _assign_to(self, arrived: Boards) -> None:
        """Assign their devices to boards that have just connected; nothing changes for the others.

        That takes time only for these boards, and not for the whole fleet. It is for boards that
        claim no other devices than before.

        arrived: the boards, which have no requests of this round any more.
        """
        claimed_devices: list[int] = []
        for board in arrived:
            claimed_devices += self._roster.registered(board.clients)
        unanswered = set(self._fleet.aggregator.unanswered(self.number, claimed_devices))

        unknown_board = self._roster.unknown_board
        unknown_board.round.unanswered -= unanswered
        for board in arrived:
            board.round.unanswered = unanswered.intersection(self._roster.registered(board.clients))
            board.round.in_flight.clear()
            if not self.announced:
                self._fill_queue(board)

    def _fill_queue(self, board: BoardOnBroker) -> None:
        """Queue the devices of a board that can get a request now, and have none yet.

        Devices that are to be asked later are left out, and so are those that sleep and whose board
        is not known.
        """
        # A device is in flight if it has a request that it has not answered yet.
        board.round.in_flight &= board.round.unanswered
        waiting: set[int] = set()
        if board.can_be_asked(time.monotonic()):
            waiting = board.round.unanswered - board.round.in_flight - self.postponed.until.keys()
            is_unknown_board = not board.name
            if is_unknown_board:
                waiting -= self._roster.wake_intervals.keys()
        board.round.queue = sorted(waiting, reverse=True)
        if waiting:
            self._with_room[board] = None

    # The announcement

    def announce(self) -> None:
        """Send the announcement to all boards, if the round is announced."""
        if self.announced:
            self._fleet.link.announce(self._announcement())

    def repeat_announcement(self, board: BoardOnBroker) -> None:
        """Send the announcement to a board that has just got the key with which to verify it."""
        if self.announced and board.round.unanswered:
            self._fleet.link.ask(board.name, self._announcement())

    def _announcement(self) -> bytes:
        """Return the frame that announces the round, sealed with the present key of the fleet."""
        frame = self._fleet.aggregator.announcement(self.number)
        return self._fleet.key.seal(frame)

    def end(self) -> None:
        """Have the broker forget the announcement."""
        if self.announced:
            self._fleet.link.announce(b"")

    # Answers

    def note_answers(self, devices: Collection[int], now: float) -> None:
        """Note that these devices have reported or refused, so that they are not asked again.

        now: the time by the monotonic clock.
        """
        if not devices:
            return
        self._last_news = now
        self._patience = self._first_patience
        for device in devices:
            boards = self._roster.boards_of(device)
            for board in boards:
                board.last_heard = now
                board.round.unanswered.discard(device)
                # If two boards claim the device, the other one may have answered.
                has_surely_answered = len(boards) == 1
                if board.left_out and has_surely_answered:
                    self._take_back(board)
                if not self.announced:
                    self._free_place(board, device)
        self.postponed.remove(devices)

    def postpone(self, refusal: Refusal, now: float) -> None:
        """Ask a device again later, since it must wait, or could not read the request.

        refusal: what the device has answered. now: the time by the monotonic clock.
        """
        self.postponed.add(refusal, now)
        for board in self._roster.boards_of(refusal.device):
            board.last_heard = now
            self._free_place(board, refusal.device)

    def _free_place(self, board: BoardOnBroker, device: int) -> None:
        """Note that a device has answered its request, so that its board can get another one."""
        board.round.in_flight.discard(device)
        if board.round.queue:
            self._with_room[board] = None

    # Asking

    @property
    def can_ask(self) -> bool:
        """Whether there are devices that can get a request now."""
        return bool(self._with_room) and self._fleet.link.connected

    def ask(self) -> None:
        """Send requests to the devices that wait for one.

        The number of unanswered requests to a board is limited, and that of requests in one call.
        """
        room = _MOST_AT_ONCE  # how many more requests this call may send
        while room and self.can_ask:
            board = next(iter(self._with_room))
            room -= self._ask_board(board, room)
            if room:  # then the board can get no more requests now
                del self._with_room[board]

    def _ask_board(self, board: BoardOnBroker, room: int) -> int:
        """Send at most `room` requests to devices of a board; return how many were sent.

        There may be only so many requests in flight, which the board has not answered yet.
        """
        most_in_flight: float = _MOST_IN_FLIGHT
        is_unknown_board = not board.name
        if is_unknown_board:  # it stands for many boards
            most_in_flight = math.inf
        requests = 0
        queue = board.round.queue
        in_flight = board.round.in_flight
        while queue and len(in_flight) < most_in_flight and requests < room:
            device = queue.pop()
            # Since it was queued, the device may have answered, or have asked to wait.
            if device in board.round.unanswered and device not in self.postponed.until:
                in_flight.add(device)
                self._ask(board, device)
                requests += 1
        return requests

    def _ask(self, board: BoardOnBroker, device: int) -> None:
        """Send the request for a device.

        If its board is not known, it goes to the topic of a board with this device alone.
        """
        name = board.name or mqtt.name(device)
        request = self._fleet.aggregator.request(self.number, device)
        self._fleet.link.ask(name, request)

    def ask_again(self, now: float) -> None:
        """Repeat requests that may have been lost, or that a device wanted to get later.

        Devices that wanted to wait are asked when they may be asked again. If there was no news for
        long, all devices are asked again that have not answered. now: the time by the monotonic
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
        self._patience = min(2 * self._patience, MAX_PATIENCE)  # the next wait is longer
        # Boards that sleep are left out: they get the announcement when they wake, or are asked
        # when they send their HELLO.
        boards = []
        for board in self._roster.boards.values():
            if board.connected and board.round.unanswered and not board.wake_interval:
                boards.append(board)
        # Some devices are on boards that are gone or whose HELLO was lost, and a board may claim
        # devices that are elsewhere. They are asked again, too, after the longest wait.
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
        """Ask the devices of boards again that have not answered, in a round that is announced.

        The announcement is a single message that asks all devices the same. It is sent to all boards
        again if very many devices have not answered, or if some of those are on other boards, or if
        `with_unknown_boards` is set. Otherwise a board with many unanswered devices gets it again.
        All other devices get a request each, and so do those of a board without the fleet key, which
        cannot verify the announcement.

        boards: those that are connected and have unanswered devices.
        """
        reached = sum(len(board.round.unanswered) for board in boards)
        unanswered = len(self._fleet.aggregator.unanswered(self.number))
        half_of_devices = self._fleet.aggregator.asked(self.number) // 2
        to_all = unanswered > max(half_of_devices, _MOST_AT_ONCE)
        if to_all or with_unknown_boards or reached < unanswered:
            self.announce()

        if to_all:
            boards = [board for board in boards if not self._has_fleet_key(board)]
        self._repeat_in_turns(boards)

    def _has_fleet_key(self, board: BoardOnBroker) -> bool:
        """Return whether a board has the present fleet key, so that it can verify announcements."""
        return board.key.epoch == self._fleet.key.epoch

    def _repeat_in_turns(self, boards: list[BoardOnBroker]) -> None:
        """Ask the devices of some of these boards again; the others have their turn in the next call.

        In one call about _MOST_AT_ONCE messages are sent.
        """
        turn = self._next_turn % max(1, len(boards))
        room = _MOST_AT_ONCE
        for board in [*boards[turn:], *boards[:turn]]:
            if room <= 0:
                break
            room -= self._repeat(board)
            self._next_turn += 1

    def _repeat(self, board: BoardOnBroker) -> int:
        """Ask the devices of a board again, by the announcement or one by one.

        Return the number of messages.
        """
        if self._has_fleet_key(board) and len(board.round.unanswered) > _MOST_SINGLY:
            self._fleet.link.ask(board.name, self._announcement())
            return 1
        devices = board.round.unanswered - self.postponed.until.keys()
        chosen = list(islice(devices, _MOST_SINGLY))
        for device in chosen:
            self._ask(board, device)
        return len(chosen)

    # Boards that fail

    def leave_out_silent_boards(self, now: float, longest_silence: float) -> None:
        """Let the round go on without the boards that have been silent for too long.

        now: the time by the monotonic clock. longest_silence: how many seconds a board may be
        silent. One that sleeps may be silent until it has woken and had time to answer.
        """
        for board in self._roster.all():
            # The seconds in which a board that sleeps wakes and answers; 0 if it does not sleep.
            wake_deadline = sleepers.least_deadline((board.wake_interval,))
            patience = max(longest_silence, wake_deadline)
            unanswered = board.round.unanswered
            if not unanswered or self._roster.silence(board, now) <= patience:
                continue
            some_must_wait = not unanswered.isdisjoint(self.postponed.until)  # and so are silent
            if not some_must_wait:
                self._leave_out(board, patience)

    def _leave_out(self, board: BoardOnBroker, patience: float) -> None:
        """No longer wait for a board that was silent for `patience` seconds; warn the first time.

        The board is left out of the next rounds, too, until it answers again.
        """
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

        It still waits for devices that another board claims, too, since one of the two lies.
        """
        unreachable = []
        for device in board.round.unanswered:
            if not self._is_on_another_board(device, board):
                unreachable.append(device)
        self._fleet.aggregator.give_up(self.number, unreachable)
        board.round.given_up = board.round.unanswered
        board.round.unanswered = set()
        board.round.queue.clear()

    def _is_on_another_board(self, device: int, board: BoardOnBroker) -> bool:
        """Return whether a board that takes part in the round, other than this, claims a device."""
        for other in self._roster.boards_of(device):
            takes_part = other.connected and not other.left_out
            if other is not board and takes_part:
                return True
        return False

    def _take_back(self, board: BoardOnBroker) -> None:
        """Let a board take part in rounds again that was left out for its silence and has answered.

        Its answers still count in the open round, which no longer waits for them, though.
        """
        board.left_out = False
        if board.name:
            self._fleet.warn(Message(f"board {board.name} is back", board=board.name))
        board.round.unanswered = board.round.given_up
        board.round.given_up = set()
        if not self.announced:
            # Behind those that wait already: the next one to be asked is the last in the list.
            board.round.queue[:0] = sorted(board.round.unanswered, reverse=True)
