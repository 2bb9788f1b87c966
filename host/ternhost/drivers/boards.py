"""Collects the reports of a round from boards on serial links.

A board answers one request after the other. So few requests are kept under way to each; an answer that overtakes
an earlier request tells that this one, or its answer, was lost, and it is asked again; so is the oldest one when a
board falls silent. Asking again is harmless: a device that has reported sends the same bytes again (ledger.md).
"""

from __future__ import annotations

import queue
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from tern import frames, host_frames, wire
from ternhost.aggregate.aggregator import Accepted, Aggregator, RoundResult
from ternhost.errors import DeviceError, RefusedError
from ternhost.fleet import Fleet
from ternhost.links import Events, Link, Received, open_link

UNDER_WAY = 16  # requests to one board; enough that it never waits for the host to commit the answers
MAX_TRIES = 12  # requests to one device in one round
PATIENCE = 1.0  # seconds of silence until a board is asked again; doubles up to
MAX_PATIENCE = 8.0
SILENCE = 30.0  # seconds of silence after which a board is given up for the round
_REOPEN_EVERY = 1.0
_TICK = 0.05
_HELLO_TIMEOUT = 20.0  # boards may have been started just now
_REOPEN_TIMEOUT = 1.0

Warn = Callable[[str], None]


@dataclass(frozen=True)
class Progress:
    """A round on its way: `reports` of `asked` devices so far."""

    round: int
    reports: int
    asked: int


class Board:
    """A board of the fleet: its link (None while it is gone), its clients, and what it is being asked."""

    def __init__(self, port: str) -> None:
        self.port = port
        self.link: Link | None = None
        self.clients = range(0)
        self.error: DeviceError | None = None
        self.begin([], 0.0)

    def begin(self, devices: Iterable[int], now: float) -> None:
        """Start on a round's devices."""
        self.to_ask = deque(devices)
        self.under_way: dict[int, int] = {}  # device -> serial number of its latest request
        self.tries: dict[int, int] = {}
        self.waiting: dict[int, float] = {}  # device -> when it may be asked again
        self._requests = 0
        self.patience = PATIENCE
        self.heard = now
        self.asked_again = now
        self.opened = now

    def open(self, events: Events, timeout: float) -> host_frames.Hello:
        """Open the port and say hello."""
        link = open_link(self.port, events)
        try:
            hello: host_frames.Hello = link.hello(timeout)
        except BaseException:
            link.close()
            raise
        self.link = link
        self.clients = range(hello.first or 0, (hello.first or 0) + (hello.clients or 0))
        self.error = None
        return hello

    def lose(self, error: DeviceError) -> None:
        """The link is gone: whatever was under way is to be asked again once it is back."""
        self.close()
        self.error = error
        self.to_ask.extendleft(reversed(self.under_way))
        self.under_way.clear()

    def close(self) -> None:
        if self.link:
            self.link.close()
            self.link = None

    def feed(self, request: Callable[[int], bytes]) -> list[int]:
        """Send requests up to UNDER_WAY; return the devices that have been asked too often."""
        given_up = []
        while self.link and self.to_ask and len(self.under_way) < UNDER_WAY:
            device = self.to_ask.popleft()
            if self.tries.get(device, 0) >= MAX_TRIES:
                given_up.append(device)
                continue
            self.tries[device] = self.tries.get(device, 0) + 1
            self._requests += 1
            self.under_way[device] = self._requests
            self.link.send(request(device))
        return given_up

    def answered(self, devices: Iterable[int]) -> None:
        """These have reported or refused. What was asked before them and is still under way was lost."""
        latest = 0
        for device in devices:
            request = self.under_way.pop(device, 0)
            latest = max(latest, request)
            if not request:  # it answered after all, while it was to be asked again
                self.waiting.pop(device, None)
                with suppress(ValueError):
                    self.to_ask.remove(device)
        lost = [device for device, request in self.under_way.items() if request < latest]
        self.to_ask.extendleft(reversed(lost))
        for device in lost:
            del self.under_way[device]

    def lost_one(self, device: int) -> None:
        """A request came damaged: that of `device`, or, if the board cannot tell, the oldest under way."""
        if device == wire.BOARD:
            device = next(iter(self.under_way), wire.BOARD)
        if self.under_way.pop(device, None):
            self.to_ask.append(device)

    def wait(self, device: int, until: float) -> None:
        """Ask this one again, but not before `until`."""
        if self.under_way.pop(device, None):
            self.tries[device] = 0
            self.waiting[device] = until

    def nudge(self, now: float) -> None:
        """Have those asked again whose time has come, and the oldest if the board is silent beyond patience."""
        for device in [device for device, until in self.waiting.items() if now >= until]:
            del self.waiting[device]
            self.to_ask.append(device)
            self.heard = now
        if self.link and self.under_way and now - max(self.heard, self.asked_again) > self.patience:
            self.asked_again = now
            self.patience = min(2 * self.patience, MAX_PATIENCE)
            oldest = next(iter(self.under_way))
            del self.under_way[oldest]
            self.to_ask.appendleft(oldest)

    @property
    def busy(self) -> bool:
        return bool(self.to_ask or self.under_way or self.waiting)


class Collector:
    """The boards of a fleet, joined to an aggregator. A context manager that opens and closes the ports."""

    def __init__(self, aggregator: Aggregator, fleet: Fleet, warn: Warn = lambda message: None) -> None:
        self._aggregator = aggregator
        self._fleet = fleet
        self._warn = warn
        self._told: set[int] = set()  # codes of refusals that were warned of
        self._events: Events = queue.SimpleQueue()
        self.boards = [Board(port) for port in fleet.ports]
        self._board_of: dict[int, Board] = {}

    def __enter__(self) -> Self:
        try:
            for board in self.boards:
                try:
                    board.open(self._events, _HELLO_TIMEOUT)
                except DeviceError:
                    self._fleet.check()  # may know better why
                    raise
            self._map_devices()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give all ports back."""
        for board in self.boards:
            board.close()

    def _map_devices(self) -> None:
        for board in self.boards:
            if not board.clients:
                raise DeviceError(f"the board on {board.port} has no clients", hint="provision it first")
            for device in board.clients:
                other = self._board_of.setdefault(device, board)
                if other is not board:
                    raise DeviceError(
                        f"device {device} is on {other.port} and on {board.port}",
                        hint="provision the boards of a fleet together, so that each has devices of its own",
                    )

    @property
    def devices(self) -> list[int]:
        """Every device on the boards that are there."""
        return sorted(self._board_of)

    def collect(self, number: int, report: Callable[[Progress], None] = lambda progress: None) -> RoundResult:
        """Ask the devices of a round in flight until it ends, and return its result.

        Devices on boards that are gone or fall silent are given up for the round, with a warning. Raises DeviceError
        if that leaves no board, RefusedError if no device reported and some refused, StorageError.
        """
        now = time.monotonic()
        wanted = self._aggregator.unanswered(number)
        self._begin(number, wanted, now)
        asked = len(wanted) + self._aggregator.reports(number)

        def request(device: int) -> bytes:
            return self._aggregator.request(number, device)

        while True:
            for board in self.boards:
                if given_up := board.feed(request):
                    self._give_up(number, given_up, f"{board.port}: {len(given_up)} devices do not answer")
            self._receive(number)
            now = time.monotonic()
            report(Progress(number, self._aggregator.reports(number), asked))
            for result in self._aggregator.tick(now):
                if result.number == number:
                    self._check(result)
                    return result
            self._look_after_boards(number, now)

    def _begin(self, number: int, wanted: Sequence[int], now: float) -> None:
        of_board: dict[Board, list[int]] = {board: [] for board in self.boards}
        homeless = []
        for device in wanted:
            board = self._board_of.get(device)
            if board is None:
                homeless.append(device)
            else:
                of_board[board].append(device)
        for board, devices in of_board.items():
            board.begin(devices, now)
        if homeless:
            self._give_up(number, homeless, f"{len(homeless)} devices are on no board of this fleet")

    def _give_up(self, number: int, devices: Iterable[int], why: str) -> None:
        self._aggregator.give_up(number, devices)
        self._warn(f"round {number}: {why}")

    def _receive(self, number: int) -> None:
        batch: list[bytes] = []
        heard: list[tuple[Board, int]] = []
        for event in _drain(self._events):
            board = next((board for board in self.boards if board.link is event.link), None)
            if board and event.error:
                board.lose(event.error)
                self._warn(event.error.message)
            elif board:
                board.heard = time.monotonic()
                board.patience = PATIENCE
                heard += [(board, device) for device in _devices(event.frames, number)]
            batch += event.frames
        self._settle(self._aggregator.accept(batch, time.monotonic()))
        for board, device in heard:  # what has not settled the matter: to be asked again
            board.lost_one(device)

    def _settle(self, accepted: Accepted) -> None:
        answered: dict[Board, list[int]] = {}
        refused = [(refusal.round, refusal.device) for refusal in accepted.refusals]
        for _, device in (*accepted.reports, *refused):
            if board := self._board_of.get(device):
                answered.setdefault(board, []).append(device)
        for board, devices in answered.items():
            board.answered(devices)
        for error in accepted.unread:
            if error.code == wire.ERR_TOO_SOON and (board := self._board_of.get(error.device)):
                board.wait(error.device, time.monotonic() + error.detail)

    def _look_after_boards(self, number: int, now: float) -> None:
        for board in self.boards:
            if not board.busy:
                continue
            if now - board.heard > SILENCE and not board.waiting:
                why = (
                    board.error.message
                    if board.error
                    else f"the board on {board.port} does not answer any more"
                )
                board.error = board.error or DeviceError(
                    why, hint="check its power; 'tern device ping' asks it"
                )
                self._give_up(number, [*board.under_way, *board.to_ask], why)
                board.begin([], now)
            elif board.link is None and now - board.opened > _REOPEN_EVERY:
                self._reopen(board)
            else:
                board.nudge(now)

    def _reopen(self, board: Board) -> None:
        try:
            board.open(self._events, _REOPEN_TIMEOUT)
            board.heard = time.monotonic()
        except DeviceError as error:
            board.error = error
        board.opened = time.monotonic()

    def _check(self, result: RoundResult) -> None:
        if result.reports:
            if result.refusals:
                code, words, _ = _explain(result)
                if code not in self._told:  # once a run: most of them will go on refusing
                    self._told.add(code)
                    self._warn(f"round {result.number}: {words}")
            return
        if result.refusals:
            raise AllRefused(result)
        if self._aggregator.statistics.forged:
            raise RefusedError(
                f"no device reported in round {result.number}: their answers carry tags of other keys",
                hint="use the store that these boards were provisioned with",
            )
        self._fleet.check()
        for board in self.boards:
            if board.error:
                raise board.error
        raise DeviceError(
            f"no device reported in round {result.number}",
            hint="check the boards ('tern device ping'), or give them longer with --deadline",
        )


def _drain(events: Events) -> list[Received]:
    # Waits for one, and takes all that are there.
    drained: list[Received] = []
    with suppress(queue.Empty):
        drained.append(events.get(timeout=_TICK))
        while True:
            drained.append(events.get_nowait())
    return drained


def _devices(received: Iterable[bytes], number: int) -> Iterator[int]:
    # The devices that these frames name in this round, checked or not; 0 where a board could not tell.
    for frame in received:
        with suppress(frames.FrameError):
            device, of_round = frames.address(frame)
            if of_round == number or device == wire.BOARD:
                yield device


class AllRefused(RefusedError):
    """Nobody reported in a round, and some refused: says what most of these said, and what can be done."""

    def __init__(self, result: RoundResult) -> None:
        _, words, hint = _explain(result)
        super().__init__(words, hint=hint)
        self.result = result


def _explain(result: RoundResult) -> tuple[int, str, str | None]:
    """The code that most refusals have, what it means, and what can be done."""
    code, count = Counter(refusal.code for refusal in result.refusals.values()).most_common(1)[0]
    one = next(refusal for refusal in result.refusals.values() if refusal.code == code)
    words = {"epsilon": one.detail / 1e6, "detail": one.detail, "next": one.detail + 1}
    what, hint = _REFUSALS.get(code, (wire.error_name(code), None))
    return (
        code,
        f"{count} of {result.asked} devices refuse: {what.format(**words)}",
        hint and hint.format(**words),
    )


_REFUSALS = {
    wire.ERR_OLD_ROUND: (
        "they have seen round {detail} already",
        "use the store that holds their earlier rounds, or start after them: --first-round {next}",
    ),
    wire.ERR_CHANGED_ROUND: (
        "they were asked something else in round {detail} before",
        "use the store that holds their earlier rounds, or start after it with --first-round",
    ),
    wire.ERR_CARD: ("they cannot read the card", "check it with 'tern card show'"),
    wire.ERR_NOT_CERTIFIED: (
        "the card does not keep the epsilon of {epsilon:g} that it claims",
        "check it with 'tern card certify'",
    ),
    wire.ERR_POLICY: (
        "a report would cost more than the epsilon of {epsilon:g} that they allow for one",
        "use a card of a smaller epsilon, or fewer coordinates",
    ),
    wire.ERR_BUDGET: (
        "their budget is spent; an epsilon of {epsilon:g} is left",
        "no report of theirs can be had any more: that is what the budget is for",
    ),
    wire.ERR_LEDGER: (
        "their ledger cannot be read or written",
        "check the board's disk; a damaged ledger is never made again: erase the board, and give it a new id",
    ),
    wire.ERR_ENTROPY: (
        "their entropy source failed its health test",
        "restart the boards; if it stays so, do not use them",
    ),
    wire.ERR_DATA: (
        "their records are missing or have another dimension ({detail})",
        "train on the data set that they were provisioned with",
    ),
    wire.ERR_MODEL: (
        "their boards lack the module for this kind of round",
        "put it there: tern deploy --with inference, local or collect; or --whole",
    ),
    wire.ERR_SLOT: (
        "local training on all their records might not fit their slot: {detail} epochs times records do",
        "ask for fewer epochs (--local-epochs), or provision them with a longer --slot-ms",
    ),
}
