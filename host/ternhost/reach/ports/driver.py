"""Asks boards on serial links for the reports of a round.

A board answers in order: an overtaken request was lost and is repeated, like the oldest one when a
board falls silent. Repetition is harmless: a device that has reported sends the same bytes again
(ledger.md). A board that is silent for too long is left out until it answers on its port again.
"""

import queue
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Self, Unpack

from tern import frames, wire
from tern.storage import MAX_PAUSE
from ternhost.count.outcomes import Accepted
from ternhost.count.questions import Averaged
from ternhost.count.rounds import RoundResult
from ternhost.errors import DeviceError
from ternhost.learn.schedule import Terms
from ternhost.reach.driver import BoardBudget, OnProgress, RoundProgress
from ternhost.reach.fleet import Boards
from ternhost.reach.links import Events, drain
from ternhost.reach.ports.board import PATIENCE, BoardOnPort
from ternhost.reach.sightings import Sighting
from ternhost.reach.stored import DriverOptions, ReportsDriver
from ternhost.store import kept_model
from ternhost.store.store import Store
from ternhost.text import counted

_CHECK_EVERY = 0.5  # seconds between two checks of the processes of emulated boards
_TICK = 0.05
_HELLO_TIMEOUT = 20.0  # boards may have just started
_HEARING_OUT = 10.0  # seconds at the end until all boards have their model


class BoardsDriver(ReportsDriver):
    """Boards on ports, and an aggregator on `store`."""

    def __init__(
        self, store: Store, boards: Boards, terms: Terms, **options: Unpack[DriverOptions]
    ) -> None:
        """boards: opened with the driver."""
        super().__init__(store, terms, **options)
        self._fleet = boards
        self._events: Events = queue.SimpleQueue()
        self.boards: list[BoardOnPort] = []
        self._board_of: dict[int, BoardOnPort] = {}
        self._checked = 0.0
        self._failed: Mapping[str, DeviceError] = {}

    def __enter__(self) -> Self:
        self._fleet.__enter__()
        try:
            self.boards = [BoardOnPort(port) for port in self._fleet.ports]
            for board in self.boards:
                try:
                    board.open(self._events, _HELLO_TIMEOUT)
                except DeviceError:
                    self._raise_failed()  # may have a better reason
                    raise
            self._map_devices()
            self._sightings.forget()
            for board in self.boards:
                self._hand_out_model(board)
            self._saw(*self.boards)
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(self, *raised: object) -> None:
        if not any(raised):
            self._hear_out()
            self._saw(*self.boards)
            self._sightings.forget()
        for board in self.boards:
            board.close()
        self._fleet.__exit__(*raised)

    def _saw(self, *boards: BoardOnPort, error: str | None = None) -> None:
        for board in boards:
            self._sightings.note(
                Sighting(
                    board.port,
                    board.clients,
                    board.heard,
                    online=not board.left_out,
                    hello=board.hello,
                    error=error,
                )
            )
        self._sightings.write()

    def _map_devices(self) -> None:
        for board in self.boards:
            if not board.clients:
                raise DeviceError(
                    f"the board on {board.port} has no clients", hint="provision it first"
                )
            for device in board.clients:
                if (other := self._board_of.setdefault(device, board)) is not board:
                    hint = "provision the boards of a fleet together, so that each has devices of its own"
                    raise DeviceError(
                        f"device {device} is on {other.port} and on {board.port}", hint
                    )

    def read_budgets(self) -> list[BoardBudget]:
        known = (self._sightings.budget(board.clients) for board in self.boards)
        return [budget for budget in known if budget is not None]

    @property
    def devices(self) -> list[int]:
        """Every device on the boards that were there at the start."""
        return sorted(self._board_of)

    # The model

    def publish(self, averaged: Averaged) -> None:
        """Store it, and send it to each connected board under the key of its first client."""
        super().publish(averaged)
        for board in self.boards:
            self._hand_out_model(board)

    def _hand_out_model(self, board: BoardOnPort) -> None:
        first = board.clients.start
        if model := kept_model.kept(self._store):
            board.hand_out(kept_model.for_device(model, first), self.aggregator.key(first))

    def _hear_out(self) -> None:
        end = time.monotonic() + _HEARING_OUT
        for board in self.boards:
            if error := board.hear_out(end):
                self._warn(
                    f"{error.message}: it may have an earlier model, until the next run begins"
                )

    # Rounds

    def collect(
        self, number: int, on_progress: OnProgress = lambda progress: None
    ) -> RoundResult | None:
        """Raises DeviceError where no board is left, AllRefused for refusals without reports, and
        StorageError.
        """
        wanted = self.aggregator.unanswered(number)
        self._begin(number, wanted, time.monotonic())
        asked = len(wanted) + self.aggregator.reports(number)
        while not self.stopped:
            for board in self.boards:
                if given_up := board.feed(lambda device: self.aggregator.request(number, device)):
                    why = f"{board.port}: no answer from {counted(len(given_up), 'device')}"
                    self._give_up(number, given_up, why)
            self._receive(number)
            now = time.monotonic()
            on_progress(RoundProgress(number, self.aggregator.reports(number), asked))
            if result := self.aggregator.ended(number, now):
                if self._sightings.due(len(self.boards), ended=True):
                    self._saw(*self.boards)
                self._check(result)
                return self.with_reports(result)
            self._look_after_boards(number, now)
        return None

    def _begin(self, number: int, wanted: Sequence[int], now: float) -> None:
        of_board: dict[BoardOnPort, list[int]] = {board: [] for board in self.boards}
        homeless: list[int] = []
        for device in wanted:
            board = self._board_of.get(device)
            (of_board[board] if board else homeless).append(device)
        for board, devices in of_board.items():
            board.begin(devices, now)
            if board.left_out and not self._is_back(board):
                self.aggregator.give_up(number, devices)
                board.begin([], now)
                board.given_up = devices
        if homeless:
            self._give_up(
                number, homeless, f"on no board of this fleet: {counted(len(homeless), 'device')}"
            )

    def _give_up(self, number: int, devices: Iterable[int], why: str) -> None:
        self.aggregator.give_up(number, devices)
        self._warn(f"round {number}: {why}")

    def _receive(self, number: int) -> None:
        batch: list[bytes] = []
        heard: list[tuple[BoardOnPort, int]] = []
        for event in drain(self._events, _TICK):
            board = next((board for board in self.boards if board.link is event.link), None)
            if board and event.error:
                board.lose(event.error)
                self._warn(event.error.message)
            elif board:
                board.heard = time.monotonic()
                board.patience = PATIENCE
                heard += [(board, device) for device in _devices(event.frames, number)]
            batch += event.frames
        accepted = self.aggregator.accept(batch, time.monotonic())
        self._sightings.answered(accepted.reports, self.aggregator.costs)
        self._settle(accepted)
        for board, device in heard:  # a request that is still open was not settled, and is repeated
            board.lost_one(device)

    def _settle(self, accepted: Accepted) -> None:
        answered: dict[BoardOnPort, list[int]] = {}
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
        if self._sightings.due(len(self.boards)):
            self._saw(*self.boards)
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
                    # Its answers still count in this round, but the round does not wait for them.
                    board.begin(board.given_up, now)
            if not board.busy:
                continue
            if now - board.heard > self.terms.silence and not board.waiting:
                text = f"the board on {board.port} has been silent for {self.terms.silence:g} s"
                silent = DeviceError(text, hint="check its power; 'tern device ping BOARD' asks it")
                self._leave_out(number, board, board.error or silent)
            else:
                board.reopen(self._events, now)
                board.nudge(now)

    def _leave_out(self, number: int, board: BoardOnPort, error: DeviceError) -> None:
        devices = [*board.under_way, *board.to_ask, *board.waiting]
        board.error = error
        board.left_out = True
        board.opened = time.monotonic()
        board.close()
        self._saw(board, error=error.message)
        self._give_up(
            number, devices, f"{error.message}; {board.port} is left out until it answers again"
        )
        board.begin([], board.opened)
        board.given_up = devices

    def _is_back(self, board: BoardOnPort) -> bool:
        # Whether a board that was left out has answered on its port again.
        if board.link is None:
            return False
        board.left_out = False
        self._saw(board)
        self._hand_out_model(board)
        self._warn(f"the board on {board.port} is back")
        return True

    def _raise_failed(self) -> None:
        for error in self._fleet.failed().values():
            raise error

    def _check(self, result: RoundResult) -> None:
        self.check_refusals(result)
        if not result.reports and all(board.left_out for board in self.boards):
            self._raise_failed()
            raise next(board.error for board in self.boards if board.error)


def _devices(received: Iterable[bytes], number: int) -> Iterator[int]:
    # The devices in these unchecked frames of this round; 0 where a board could not tell.
    for frame in received:
        with suppress(frames.FrameError):
            device, of_round = frames.address(frame)
            if of_round == number or device == wire.BOARD:
                yield device
