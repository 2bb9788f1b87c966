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
from ternhost.reach.driver import BoardBudget, Driver, OnProgress, RoundProgress
from ternhost.reach.fleet import Boards
from ternhost.reach.links import Events, Link, drain
from ternhost.reach.ports.board import BoardOnPort
from ternhost.reach.sightings import Sighting, Sightings
from ternhost.reach.stored_rounds import DriverOptions, StoredRounds
from ternhost.store import kept_model
from ternhost.store.store import Store
from ternhost.text import counted

_CHECK_EVERY = 0.5  # seconds between two checks of the processes of emulated boards
_TICK = 0.05  # seconds to wait for frames
_HELLO_TIMEOUT = 20.0  # boards may have just started
_HEARING_OUT = 10.0  # seconds at the end until all boards have their model


class BoardsDriver(Driver):
    """Boards on ports, and an aggregator on `store`."""

    def __init__(
        self, store: Store, boards: Boards, terms: Terms, **options: Unpack[DriverOptions]
    ) -> None:
        """store: with the devices' keys. boards: are opened with the driver. terms: of rounds."""
        self.rounds = StoredRounds(store, **options)
        super().__init__(terms, self.rounds, individual=options.get("individual", False))
        self.aggregator = self.rounds.aggregator
        self._store = store
        self._sightings = Sightings(store, self.rounds.warn, lambda: self.aggregator.last_round)
        self._fleet = boards
        self._events: Events = queue.SimpleQueue()
        self.boards: list[BoardOnPort] = []
        self._board_of: dict[int, BoardOnPort] = {}
        self._last_check = 0.0  # of boards that are gone for good, by the monotonic clock
        self._failed: Mapping[str, DeviceError] = {}

    def __enter__(self) -> Self:
        """Open the link to each board, and send it the model that the store keeps."""
        self._fleet.__enter__()
        try:
            self._open_boards()
            self._map_devices()
            self._sightings.forget()
            for board in self.boards:
                self._hand_out_model(board)
            self._note_sightings(*self.boards)
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(self, *raised: object) -> None:
        """Close all links; without an error, wait first until the boards have their model."""
        if not any(raised):
            self._hear_out()
            self._note_sightings(*self.boards)
            self._sightings.forget()
        for board in self.boards:
            board.close()
        self._fleet.__exit__(*raised)

    def _open_boards(self) -> None:
        """Open the link to each board. Raises DeviceError."""
        self.boards = [BoardOnPort(port) for port in self._fleet.ports]
        for board in self.boards:
            try:
                board.open(self._events, _HELLO_TIMEOUT)
            except DeviceError:
                self._raise_failed()  # the fleet may know a better reason
                raise

    def _note_sightings(self, *boards: BoardOnPort, error: str | None = None) -> None:
        """Write into the store when these boards were heard. error: why they have failed."""
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
        """Note on which board each device is. Raises DeviceError if it is on two boards."""
        for board in self.boards:
            if not board.clients:
                raise DeviceError(
                    f"the board on {board.port} has no clients", hint="provision it first"
                )
            for device in board.clients:
                other = self._board_of.setdefault(device, board)
                if other is not board:
                    raise DeviceError(
                        f"device {device} is on {other.port} and on {board.port}",
                        hint="provision the boards of a fleet together, so that each has devices "
                        "of its own",
                    )

    @property
    def budgets(self) -> list[BoardBudget]:
        return self._sightings.budgets(self._read_budgets)

    def _read_budgets(self) -> list[BoardBudget]:
        budgets = [self._sightings.budget(board.clients) for board in self.boards]
        return [budget for budget in budgets if budget is not None]

    @property
    def devices(self) -> list[int]:
        """Every device on the boards that were there at the start."""
        return sorted(self._board_of)

    # The model

    def publish(self, averaged: Averaged) -> None:
        """Store a model, and send it to each connected board under the key of its first client."""
        super().publish(averaged)
        for board in self.boards:
            self._hand_out_model(board)

    def _hand_out_model(self, board: BoardOnPort) -> None:
        first = board.clients.start
        model = kept_model.kept(self._store)
        if model:
            board.hand_out(kept_model.for_device(model, first), self.aggregator.key(first))

    def _hear_out(self) -> None:
        """Wait at the end until all boards have their model, and warn of those that may not."""
        end = time.monotonic() + _HEARING_OUT
        for board in self.boards:
            error = board.hear_out(end)
            if error:
                self.rounds.warn(
                    f"{error.message}: it may have an earlier model, until the next run begins"
                )

    # Rounds

    def collect(
        self, number: int, on_progress: OnProgress = lambda progress: None
    ) -> RoundResult | None:
        """Ask boards until the round ends, and return its result; None after `stop`.

        Raises DeviceError if no board is left, AllRefused if there are only refusals, and
        StorageError.
        """
        unanswered = self.aggregator.unanswered(number)
        self._begin(number, unanswered, time.monotonic())
        asked = len(unanswered) + self.aggregator.reports(number)
        while not self.stopped:
            for board in self.boards:
                self._feed(board, number)
            self._receive(number)
            now = time.monotonic()
            on_progress(RoundProgress(number, self.aggregator.reports(number), asked))
            result = self.aggregator.ended(number, now)
            if result:
                if self._sightings.due(len(self.boards), ended=True):
                    self._note_sightings(*self.boards)
                return self._finish(result)
            self._look_after_boards(number, now)
        return None

    def _feed(self, board: BoardOnPort, number: int) -> None:
        """Send a board as many requests as it may have, and give up devices that never answer."""
        given_up = board.feed(lambda device: self.aggregator.request(number, device))
        if given_up:
            devices = counted(len(given_up), "device")
            self._give_up(number, given_up, f"{board.port}: no answer from {devices}")

    def _begin(self, number: int, unanswered: Sequence[int], now: float) -> None:
        """Give each board its devices of the round, and give up those on no board.

        unanswered: the devices that are still to report. now: by the monotonic clock.
        """
        devices_by_board: dict[BoardOnPort, list[int]] = {board: [] for board in self.boards}
        without_board: list[int] = []
        for device in unanswered:
            board = self._board_of.get(device)
            if board:
                devices_by_board[board].append(device)
            else:
                without_board.append(device)
        for board, devices in devices_by_board.items():
            board.begin(devices, now)
            if board.left_out and not self._is_back(board):
                self.aggregator.give_up(number, devices)
                board.begin([], now)
                board.given_up = devices
        if without_board:
            devices_text = counted(len(without_board), "device")
            self._give_up(number, without_board, f"on no board of this fleet: {devices_text}")

    def _give_up(self, number: int, devices: Iterable[int], why: str) -> None:
        self.aggregator.give_up(number, devices)
        self.rounds.warn(f"round {number}: {why}")

    def _receive(self, number: int) -> None:
        """Count the frames of boards that have come, and repeat the requests that were lost."""
        received_frames: list[bytes] = []
        named: list[tuple[BoardOnPort, int]] = []  # boards with devices that their frames name
        for event in drain(self._events, _TICK):
            received_frames += event.frames
            board = self._board_of_link(event.link)
            if board and event.error:
                board.lose(event.error)
                self.rounds.warn(event.error.message)
            elif board:
                board.requests.hear(time.monotonic())
                for device in _devices(event.frames, number):
                    named.append((board, device))
        accepted = self.aggregator.accept(received_frames, time.monotonic())
        self._sightings.answered(accepted.reports, self.aggregator.costs)
        self._settle(accepted)
        for board, device in named:
            # The answer of a device that is still open could not be read: ask it again.
            board.requests.lost_one(device)

    def _board_of_link(self, link: Link) -> BoardOnPort | None:
        for board in self.boards:
            if board.link is link:
                return board
        return None

    def _settle(self, accepted: Accepted) -> None:
        """Tell the boards which of their devices have answered, and which must wait."""
        answering_devices = [device for _round, device in accepted.reports]
        answering_devices += [refusal.device for refusal in accepted.refusals]
        devices_by_board: dict[BoardOnPort, list[int]] = {}
        for device in answering_devices:
            board = self._board_of.get(device)
            if board:
                devices_by_board.setdefault(board, []).append(device)
        for board, devices in devices_by_board.items():
            board.requests.answered(devices)

        # A board that has just paid may have to wait before it pays for the next report.
        for refusal in accepted.unread:
            board = self._board_of.get(refusal.device)
            if board and refusal.code == wire.ERR_TOO_SOON:
                pause = min(refusal.detail, MAX_PAUSE)
                board.requests.wait(refusal.device, time.monotonic() + pause)

    # Boards that fail

    def _look_after_boards(self, number: int, now: float) -> None:
        """Write when boards were heard, find those that failed, and ask silent ones again.

        number: of the round. now: by the monotonic clock.
        """
        if self._sightings.due(len(self.boards)):
            self._note_sightings(*self.boards)
        if now - self._last_check > _CHECK_EVERY:
            self._last_check = now
            self._leave_out_failed(number)
        for board in self.boards:
            if board.left_out and board.port not in self._failed:
                board.reopen(self._events, now)
                if self._is_back(board):
                    # Its answers still count in this round, but the round does not wait for them.
                    board.begin(board.given_up, now)
            if board.requests.busy:
                self._look_after(board, number, now)

    def _leave_out_failed(self, number: int) -> None:
        """Go on without the boards that are known to be gone for good."""
        self._failed = self._fleet.failed()
        for board in self.boards:
            if board.port in self._failed and not board.left_out:
                self._leave_out(number, board, self._failed[board.port])

    def _look_after(self, board: BoardOnPort, number: int, now: float) -> None:
        """Ask a board again, or leave it out if it has been silent for too long."""
        if now - board.heard > self.terms.silence and not board.requests.some_wait:
            text = f"the board on {board.port} has been silent for {self.terms.silence:g} s"
            silent = DeviceError(text, hint="check its power; 'tern device ping BOARD' asks it")
            self._leave_out(number, board, board.error or silent)
        else:
            board.reopen(self._events, now)
            board.nudge(now)

    def _leave_out(self, number: int, board: BoardOnPort, error: DeviceError) -> None:
        """Close the link to a board that has failed, and go on without its devices."""
        devices = board.requests.devices
        board.error = error
        board.left_out = True
        board.opened = time.monotonic()
        board.close()
        self._note_sightings(board, error=error.message)
        why = f"{error.message}; {board.port} is left out until it answers again"
        self._give_up(number, devices, why)
        board.begin([], board.opened)
        board.given_up = devices

    def _is_back(self, board: BoardOnPort) -> bool:
        """Return whether a board that was left out has answered on its port again.

        If it has, it takes part again, and gets the model.
        """
        if board.link is None:
            return False
        board.left_out = False
        self._note_sightings(board)
        self._hand_out_model(board)
        self.rounds.warn(f"the board on {board.port} is back")
        return True

    def _raise_failed(self) -> None:
        """Raise the error of a board that is known to be gone, if there is one."""
        for error in self._fleet.failed().values():
            raise error

    def _finish(self, result: RoundResult) -> RoundResult:
        """Check the result of a round, and return it; raise the error of a board if none is left.

        Raises AllRefused if there were only refusals.
        """
        result = self.rounds.finish(result, individual=self.individual)
        if not result.reports and all(board.left_out for board in self.boards):
            self._raise_failed()
            raise next(board.error for board in self.boards if board.error)
        return result


def _devices(received: Iterable[bytes], number: int) -> Iterator[int]:
    """Yield the device that each of these frames names, if the frame is of this round.

    received: unchecked frames. The device is wire.BOARD (0) if the board could not read which one
    was asked.
    """
    for frame in received:
        with suppress(frames.FrameError):
            device, round_number = frames.address(frame)
            if round_number == number or device == wire.BOARD:
                yield device
