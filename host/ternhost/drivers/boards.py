"""Boards on serial links, asked for the reports of a round.

A board answers one request after the other. So few requests are kept under way to each; an answer that overtakes
an earlier request tells that this one, or its answer, was lost, and it is asked again; so is the oldest one when a
board falls silent. Asking again is harmless: a device that has reported sends the same bytes again (ledger.md).

A board that is lost or silent for too long is left out, so that the round goes on at the others' speed, and is taken
back when it answers to its port again.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from tern import frames, host_frames, wire
from tern.storage import MAX_PAUSE
from ternhost.aggregate import kept_model
from ternhost.aggregate.aggregator import Accepted
from ternhost.aggregate.questions import Averaged
from ternhost.aggregate.rounds import RoundResult
from ternhost.aggregate.store import Store
from ternhost.drivers.base import Progress, Tell, Terms, Warn
from ternhost.drivers.ports import Boards
from ternhost.drivers.stored import StoredDriver
from ternhost.errors import DeviceError, TernError
from ternhost.links import Events, Link, Received, open_link

UNDER_WAY = 16  # requests to one board; enough that it never waits for the host to commit the answers
MAX_TRIES = 12  # requests to one device in one round
PATIENCE = 1.0  # seconds of silence until a board is asked again; doubles up to
MAX_PATIENCE = 8.0
_REOPEN_EVERY = 2.0
_CHECK_EVERY = 0.5  # seconds between two looks whether the processes of emulated boards live
_TICK = 0.05
_HELLO_TIMEOUT = 20.0  # boards may have been started just now
_REOPEN_TIMEOUT = 1.0
_HEARING_OUT = 10.0  # in the end, until all have their model
_MOST_CLIENTS = 1 << 20  # of a board: what is mapped is what it says


class Board:
    """A board of the fleet: its link (None while it is gone), its clients, and what it is being asked."""

    def __init__(self, port: str) -> None:
        self.port = port
        self.link: Link | None = None
        self.clients = range(0)
        self.budget_left: int | None = None  # of its first client, micro-epsilon
        self.error: DeviceError | None = None
        self.given_up: list[int] = []  # in this round, when it was left out
        self.left_out = False  # the rounds go on without it until it answers again
        self.unsure = False  # whether a model that was sent to it has arrived
        self.opened = 0.0  # when its port was opened last, or tried
        self._opening: threading.Thread | None = None
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
        self.given_up = []

    def open(self, events: Events, timeout: float) -> host_frames.Hello:
        """Open the port and say hello."""
        link = open_link(self.port, events)
        try:
            hello: host_frames.Hello = link.hello(timeout)
        except BaseException:
            link.close()
            raise
        clients = range(hello.first or 0, (hello.first or 0) + (hello.clients or 0))
        if len(clients) > _MOST_CLIENTS or clients.stop > wire.FLEET:
            link.close()
            raise DeviceError(
                f"the board on {self.port} says that it has {len(clients):,} clients from {clients.start} on",
                hint="no board has so many: provision it anew, or do not use it",
            )
        if self.clients and clients != self.clients:
            link.close()
            raise DeviceError(
                f"another board than before is on {self.port}", hint="put each board back where it was"
            )
        self.clients = clients
        self.budget_left = hello.budget
        self.error = None
        self.link = link  # last: whoever sees it may use it
        return hello

    def reopen(self, events: Events, now: float) -> None:
        """Try it in a thread, if it is time to: a port may take long to tell that nobody is there."""
        if self.link or (self._opening and self._opening.is_alive()) or now - self.opened < _REOPEN_EVERY:
            return
        self.opened = now
        self._opening = threading.Thread(target=self._try_to_open, args=(events,), daemon=True)
        self._opening.start()

    def _try_to_open(self, events: Events) -> None:
        try:
            self.open(events, _REOPEN_TIMEOUT)
        except DeviceError as error:
            self.error = error

    def lose(self, error: DeviceError) -> None:
        """The link is gone: whatever was under way is to be asked again once it is back."""
        self.close()
        self.error = error
        self.to_ask.extendleft(reversed(self.under_way))
        self.under_way.clear()

    def close(self) -> None:
        if self._opening and self._opening is not threading.current_thread():
            self._opening.join()
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


class BoardsDriver(StoredDriver):
    """Boards on ports, joined to an aggregator over `store`."""

    def __init__(
        self,
        store: Store,
        boards: Boards,
        terms: Terms,
        *,
        run: str | None = None,
        individual: bool = False,
        warn: Warn = lambda message: None,
    ) -> None:
        """boards: opened with the driver. Others as of StoredDriver."""
        super().__init__(store, terms, run=run, individual=individual, warn=warn)
        self._fleet = boards
        self._events: Events = queue.SimpleQueue()
        self.boards: list[Board] = []
        self._board_of: dict[int, Board] = {}
        self._checked = 0.0
        self._failed: Mapping[str, DeviceError] = {}
        self._stopped = threading.Event()

    def __enter__(self) -> Self:
        self._fleet.__enter__()
        try:
            self.boards = [Board(port) for port in self._fleet.ports]
            for board in self.boards:
                try:
                    board.open(self._events, _HELLO_TIMEOUT)
                except DeviceError:
                    self._raise_failed()  # may know better why
                    raise
            self._map_devices()
            for board in self.boards:
                self._hand_out_model(board)
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._hear_out()
        for board in self.boards:
            board.close()
        self._fleet.__exit__(kind, error, trace)

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
    def budget_left(self) -> int | None:
        left = [board.budget_left for board in self.boards if board.budget_left is not None]
        return min(left, default=None)

    @property
    def devices(self) -> list[int]:
        """Every device on the boards that were there at first."""
        return sorted(self._board_of)

    def stop(self) -> None:
        self._stopped.set()

    def wait(self, seconds: float) -> None:
        self._stopped.wait(seconds)

    # The model

    def publish(self, averaged: Averaged) -> None:
        """Keep it, and send it to the boards that are there: to each under the key of its first client."""
        super().publish(averaged)
        for board in self.boards:
            self._hand_out_model(board)

    def _hand_out_model(self, board: Board) -> None:
        frame = kept_model.kept(self._store)
        key = self.aggregator.key(board.clients.start)
        if frame and key and board.link:
            frame = kept_model.for_device(frame, board.clients.start)
            board.link.send(frame + bytes(frames.tag(key, frame)))
            board.unsure = True

    def _hear_out(self) -> None:
        """Wait until the boards have what was sent to them last: a HELLO comes after whatever was asked before it."""
        end = time.monotonic() + _HEARING_OUT
        for board in self.boards:
            if board.link and board.unsure:
                while board.link.backlog() and time.monotonic() < end:
                    time.sleep(_TICK)
                try:
                    board.link.hello(max(_REOPEN_TIMEOUT, end - time.monotonic()))
                except TernError as error:
                    self._warn(
                        f"{error.message}: its model may be an earlier one; it is sent again with the next run"
                    )

    # Rounds

    def collect(self, number: int, tell: Tell = lambda progress: None) -> RoundResult | None:
        """Ask the devices of a round in flight until it ends, and return its result.

        Raises DeviceError where no board is left, AllRefused where no device reported and some refused, StorageError.
        """
        self._begin_round()
        wanted = self.aggregator.unanswered(number)
        self._begin(number, wanted, time.monotonic())
        asked = len(wanted) + self.aggregator.reports(number)

        def request(device: int) -> bytes:
            return self.aggregator.request(number, device)

        while not self._stopped.is_set():
            for board in self.boards:
                if given_up := board.feed(request):
                    self._give_up(number, given_up, f"{board.port}: {len(given_up)} devices do not answer")
            self._receive(number)
            now = time.monotonic()
            tell(Progress(number, self.aggregator.reports(number), asked))
            for result in self.aggregator.tick(now):
                if result.number == number:
                    self._check(result)
                    return self._whole(result)
            self._look_after_boards(number, now)
        return None

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
            if board.left_out and not self._is_back(board):
                self.aggregator.give_up(number, devices)
                board.begin([], now)
                board.given_up = devices
        if homeless:
            self._give_up(number, homeless, f"{len(homeless)} devices are on no board of this fleet")

    def _give_up(self, number: int, devices: Iterable[int], why: str) -> None:
        self.aggregator.give_up(number, devices)
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
        self._settle(self._take_in(batch))
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
                board.wait(error.device, time.monotonic() + min(error.detail, MAX_PAUSE))

    # Boards that fail

    def _look_after_boards(self, number: int, now: float) -> None:
        if now - self._checked > _CHECK_EVERY:
            self._checked = now
            self._failed = self._fleet.failed()
            for board in self.boards:
                if board.port in self._failed and not board.left_out:
                    self._leave_out(number, board, self._failed[board.port])
        for board in self.boards:
            if board.left_out and board.port not in self._failed:
                board.reopen(self._events, now)
                if self._is_back(board):
                    # What it still answers in this round counts, but nobody waits for that.
                    board.begin(board.given_up, now)
            if not board.busy:
                continue
            if now - board.heard > self._terms.silence and not board.waiting:
                silent = DeviceError(
                    f"the board on {board.port} has been silent for {self._terms.silence:g} s",
                    hint="check its power; 'tern device ping' asks it",
                )
                self._leave_out(number, board, board.error or silent)
            else:
                board.reopen(self._events, now)
                board.nudge(now)

    def _leave_out(self, number: int, board: Board, error: DeviceError) -> None:
        devices = [*board.under_way, *board.to_ask, *board.waiting]
        board.error = error
        board.left_out = True
        board.opened = time.monotonic()
        board.close()
        self._give_up(number, devices, f"{error.message}; {board.port} is left out until it answers again")
        board.begin([], board.opened)
        board.given_up = devices

    def _is_back(self, board: Board) -> bool:
        # Whether a board that was left out has answered to its port again.
        if board.link is None:
            return False
        board.left_out = False
        self._hand_out_model(board)
        self._warn(f"the board on {board.port} is back")
        return True

    def _raise_failed(self) -> None:
        for error in self._fleet.failed().values():
            raise error

    def _check(self, result: RoundResult) -> None:
        self._check_refusals(result)
        if not result.reports and all(board.left_out for board in self.boards):
            self._raise_failed()
            raise next(board.error for board in self.boards if board.error)


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
