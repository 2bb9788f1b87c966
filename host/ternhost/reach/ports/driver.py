"""The driver of boards on ports: asks them for the reports of a round.

A board answers in order. So a request that was sent before one that is answered, and is not
answered itself, was lost and is repeated; so is the oldest request when a board falls silent. To
repeat a request is harmless: a device that has reported sends the same bytes again (ledger.md).

A board that is silent for too long is left out: rounds go on without it until it answers on its
port again.
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
from ternhost.log import Message
from ternhost.reach.driver import BoardBudget, Driver, OnProgress, RoundProgress
from ternhost.reach.fleet import Boards
from ternhost.reach.links import Events, Link, drain
from ternhost.reach.patience import patience_for
from ternhost.reach.ports.board import BoardOnPort
from ternhost.reach.sightings import Sighting, Sightings
from ternhost.reach.stored_rounds import DriverOptions, StoredRounds
from ternhost.store import kept_model
from ternhost.store.store import Store
from ternhost.text import counted

# All times are in seconds.
_CHECK_EVERY = 0.5  # between two checks of the processes of emulated boards
_TICK = 0.05  # to wait for frames
_HELLO_PATIENCE = 20.0  # for a first sign of a board, which may have just started
_MODEL_TIMEOUT = 10.0  # to wait at the end until all boards have received the model


class BoardsDriver(Driver):
    """Reaches the devices on boards, each of which has a link of its own."""

    def __init__(
        self, store: Store, boards: Boards, terms: Terms, **options: Unpack[DriverOptions]
    ) -> None:
        """Prepare to reach boards at their ports. Entering the driver's context opens them.

        store: the database with the keys of the devices, which gets rounds and reports.
        boards: starts the boards of the fleet if need be, and knows their ports.
        terms: when rounds end.
        options: whether results contain the reports of single devices ("individual"), and what else
            `DriverOptions` has; all may be left out.
        """
        # What happens in rounds is kept in the store. The aggregator checks and counts reports.
        self.rounds = StoredRounds(store, **options)
        wants_single_reports = options.get("individual", False)
        super().__init__(terms, self.rounds, individual=wants_single_reports)
        self.aggregator = self.rounds.aggregator
        self._store = store

        # Writes into the store when boards were heard, and what they say about themselves.
        def last_round() -> int:
            return self.aggregator.last_round

        self._sightings = Sightings(store, self.rounds.warn, last_round)

        # The boards: the fleet that has them, and a link to each (empty until they are opened).
        self._fleet = boards
        self.boards: list[BoardOnPort] = []
        self._board_of: dict[int, BoardOnPort] = {}  # by device
        self._events: Events = queue.SimpleQueue()  # gets the frames of all boards

        # Those that are gone for good, by their ports, and when that was checked.
        self._failed: Mapping[str, DeviceError] = {}
        self._last_check = 0.0

    def __enter__(self) -> Self:
        """Open the link to each board, and send it the model in the store, if there is one."""
        self._fleet.__enter__()
        try:
            self._open_boards()
            self._map_devices()
            self._sightings.mark_all_offline()  # those that an earlier host has left online
            for board in self.boards:
                self._send_model(board)
            self._note_sightings(*self.boards)
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(self, *raised: object) -> None:
        """Close all links. Without an error, first wait until the boards have received the model."""
        has_error = any(raised)
        if not has_error:
            self._wait_for_models()
            self._note_sightings(*self.boards)
            self._sightings.mark_all_offline()
        for board in self.boards:
            board.close()
        self._fleet.__exit__(*raised)

    def _open_boards(self) -> None:
        """Open the link to each board of the fleet. Raises DeviceError if one does not answer."""
        self.boards = [BoardOnPort(port) for port in self._fleet.ports]
        for board in self.boards:
            try:
                board.open(self._events, _HELLO_PATIENCE)
            except DeviceError:
                self._raise_failed()  # raises instead if the fleet knows a better reason
                raise

    def _note_sightings(self, *boards: BoardOnPort, error: str | None = None) -> None:
        """Write into the store when these boards were heard, and what they say about themselves.

        error: the message of the error with which they have failed, if so.
        """
        for board in boards:
            sighting = Sighting(
                name=board.port,
                clients=board.clients,
                heard=board.heard,
                online=not board.left_out,
                hello=board.hello,
                error=error,
            )
            self._sightings.note(sighting)
        self._sightings.write()

    def _map_devices(self) -> None:
        """Note on which board each device is.

        Raises DeviceError if a device is on two boards, or if a board has none.
        """
        for board in self.boards:
            if not board.clients:
                raise DeviceError(
                    f"the board on {board.port} has no clients", hint="provision it first"
                )
            for device in board.clients:
                if device in self._board_of:
                    other = self._board_of[device]
                    raise DeviceError(
                        f"device {device} is on {other.port} and on {board.port}",
                        hint="provision the boards of a fleet together, so that each has devices "
                        "of its own",
                    )
                self._board_of[device] = board

    @property
    def budgets(self) -> list[BoardBudget]:
        return self._sightings.budgets(self._read_budgets)

    def _read_budgets(self) -> list[BoardBudget]:
        """Return the privacy budgets of the boards that report one."""
        budgets = []
        for board in self.boards:
            budget = self._sightings.budget(board.clients)
            if budget is not None:
                budgets.append(budget)
        return budgets

    @property
    def devices(self) -> list[int]:
        """The ids of all devices on the boards that were there at the start."""
        return sorted(self._board_of)

    # The model, and limits

    def publish(self, averaged: Averaged) -> None:
        """Store the averaged model or the limits of a run, and send them to each connected board."""
        super().publish(averaged)
        for board in self.boards:
            self._send_model(board)

    def _send_model(self, board: BoardOnPort) -> None:
        """Send a board the model and the limits in the store, if there are any.

        They are sealed with the key of its first client.
        """
        first = board.clients.start
        for kept in (kept_model.kept(self._store), kept_model.kept_limits(self._store)):
            if kept:
                frame = kept_model.for_device(kept, first)
                board.send_model(frame, self.aggregator.key(first))

    def _wait_for_models(self) -> None:
        """Wait at the end until all boards have received the model; warn of those that may not."""
        end = time.monotonic() + _MODEL_TIMEOUT
        for board in self.boards:
            error = board.wait_until_model_arrived(end)
            if error:
                self.rounds.warn(
                    f"{error.message}: it may keep an earlier model until the next run begins"
                )

    # Rounds

    def collect(
        self, number: int, on_progress: OnProgress = lambda progress: None
    ) -> RoundResult | None:
        """Ask boards until the round ends, and return its result; None after `stop`.

        Answers are verified and counted as they come, lost requests are repeated, and boards that
        fail are left out. number: the number of the round. on_progress: is called again and again.
        Raises DeviceError if no board is left, AllRefused if all answers are refusals, and
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
                if self._sightings.write_is_due(len(self.boards), ended=True):
                    self._note_sightings(*self.boards)
                return self._finish(result)
            self._attend_to_boards(number, now)
        return None

    def _feed(self, board: BoardOnPort, number: int) -> None:
        """Send a board as many requests as it may have at a time.

        The round no longer waits for devices that were asked too often. number: the number of the
        round.
        """

        def request(device: int) -> bytes:
            return self.aggregator.request(number, device)

        given_up = board.feed(request)
        if given_up:
            devices = counted(len(given_up), "device")
            self._give_up(number, given_up, f"{board.port}: no answer from {devices}")

    def _begin(self, number: int, unanswered: Sequence[int], now: float) -> None:
        """Begin a round at each board, with those devices of the board that are to be asked.

        The round does not wait for devices that are on no board, nor for those on a board that was
        left out of an earlier round because it had failed or was silent.

        number: the number of the round. unanswered: the devices that are still to report. now: the
        time by the monotonic clock.
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
            # A board that was left out takes part again if it has answered meanwhile.
            if board.left_out and not self._is_back(board):
                self.aggregator.give_up(number, devices)
                board.begin([], now)  # it has nothing to answer in this round
                board.given_up = devices
        if without_board:
            devices_text = counted(len(without_board), "device")
            self._give_up(number, without_board, f"on no board of this fleet: {devices_text}")

    def _give_up(self, number: int, devices: Iterable[int], why: str) -> None:
        """Let a round end without these devices, and warn. why: the reason, for the warning."""
        self.aggregator.give_up(number, devices)
        self.rounds.warn(f"round {number}: {why}")

    def _receive(self, number: int) -> None:
        """Verify and count the frames that have come, and note which requests were lost.

        A frame is a message of a board, such as a report. One that is damaged or whose key is wrong
        cannot be counted, so the device that it names is asked again. number: the number of the
        round.
        """
        # The frames of all boards are verified together, and stored with one commit.
        received_frames: list[bytes] = []
        # The devices that the frames name, each with the board from which the frame has come.
        named: list[tuple[BoardOnPort, int]] = []
        for event in drain(self._events, _TICK):
            received_frames += event.frames
            board = self._board_of_link(event.link)
            if board and event.error:  # the port has failed
                board.lose(event.error)
                self.rounds.warn(event.error.message)
            elif board:
                board.requests.hear(time.monotonic())
                for device in _devices(event.frames, number):
                    named.append((board, device))
        accepted = self.aggregator.accept(received_frames, time.monotonic())
        self._sightings.count_costs(accepted.reports, self.aggregator.costs)
        self._settle(accepted)
        for board, device in named:
            # If the request to this device is still open now, its answer could not be verified, and
            # it is asked again. Otherwise this does nothing.
            board.requests.lost_one(device)

    def _board_of_link(self, link: Link) -> BoardOnPort | None:
        """Return the board with this link; None if the link was closed meanwhile."""
        for board in self.boards:
            if board.link is link:
                return board
        return None

    def _settle(self, accepted: Accepted) -> None:
        """Note at each board which of its devices have answered, and which are to be asked later.

        accepted: the reports and refusals that were in the frames of the boards.
        """
        answering_devices = [device for _round, device in accepted.reports]
        answering_devices += [refusal.device for refusal in accepted.refusals]
        devices_by_board: dict[BoardOnPort, list[int]] = {}
        for device in answering_devices:
            board = self._board_of.get(device)
            if board:
                devices_by_board.setdefault(board, []).append(device)
        for board, devices in devices_by_board.items():
            board.requests.answered(devices)

        # A device that must wait before it spends budget again says for how many seconds.
        for refusal in accepted.unread:
            board = self._board_of.get(refusal.device)
            if board and refusal.code == wire.ERR_TOO_SOON:
                pause = min(refusal.detail, MAX_PAUSE)
                board.requests.wait(refusal.device, time.monotonic() + pause)

    # Boards that fail

    def _attend_to_boards(self, number: int, now: float) -> None:
        """Do what boards need while a round waits for their answers.

        Store when they were heard, leave out those that have failed, take back those that answer
        again, and ask silent ones again. number: the number of the round. now: the time by the
        monotonic clock.
        """
        if self._sightings.write_is_due(len(self.boards)):
            self._note_sightings(*self.boards)
        if now - self._last_check > _CHECK_EVERY:
            self._last_check = now
            self._leave_out_failed(number)
        for board in self.boards:
            may_come_back = board.port not in self._failed
            if board.left_out and may_come_back:
                board.reopen(self._events, now)
                if self._is_back(board):
                    # Its answers still count in this round, which no longer waits for them, though.
                    board.begin(board.given_up, now)
            if board.requests.busy:
                self._ask_again_or_leave_out(board, number, now)

    def _leave_out_failed(self, number: int) -> None:
        """Let rounds go on without the boards that are known to be gone for good.

        number: the number of the open round.
        """
        self._failed = self._fleet.failed()
        for board in self.boards:
            if board.port in self._failed and not board.left_out:
                self._leave_out(number, board, self._failed[board.port])

    def _ask_again_or_leave_out(self, board: BoardOnPort, number: int, now: float) -> None:
        """Ask a board with open requests again, or leave it out if it was silent for too long.

        number: the number of the round. now: the time by the monotonic clock.
        """
        longest_silence = patience_for(board.answer_seconds, self.terms.silence)
        is_too_silent = now - board.heard > longest_silence
        # A board may be silent while one of its devices must wait before it may report.
        if is_too_silent and not board.requests.some_wait:
            text = f"the board on {board.port} has been silent for {self.terms.silence:g} s"
            silent = DeviceError(
                text, hint="check its power; 'tern board info BOARD' shows whether it answers"
            )
            self._leave_out(number, board, board.error or silent)
        else:
            board.reopen(self._events, now)
            board.nudge(now)

    def _leave_out(self, number: int, board: BoardOnPort, error: DeviceError) -> None:
        """Close the link to a board that has failed, and let the round go on without its devices.

        number: the number of the round. error: why the board has failed.
        """
        devices = board.requests.devices
        board.error = error
        board.left_out = True
        board.opened = time.monotonic()
        board.close()
        self._note_sightings(board, error=error.message)
        why = f"{error.message}; {board.port} is left out until it answers again"
        self._give_up(number, devices, why)
        board.begin([], board.opened)  # it has nothing to answer in this round any more
        board.given_up = devices

    def _is_back(self, board: BoardOnPort) -> bool:
        """Return whether a board that was left out has answered on its port again.

        If it has, it takes part in rounds again from now on, and gets the model.
        """
        if board.link is None:
            return False
        board.left_out = False
        self._note_sightings(board)
        self._send_model(board)
        text = f"the board on {board.port} is back"
        self.rounds.warn(Message(text, board=board.port))
        return True

    def _raise_failed(self) -> None:
        """Raise the error of a board that is known to be gone for good, if there is one."""
        for error in self._fleet.failed().values():
            raise error

    def _finish(self, result: RoundResult) -> RoundResult:
        """Return the final result of a round that has ended.

        Raises AllRefused if all answers were refusals. If nobody has reported and no board is left,
        raises the error of one of the boards.
        """
        result = self.rounds.finish(result, individual=self.individual)
        nobody_left = all(board.left_out for board in self.boards)
        if nobody_left and not result.reports:
            self._raise_failed()
            errors = [board.error for board in self.boards if board.error]
            raise errors[0]  # each board that was left out has one
        return result


def _devices(received: Iterable[bytes], number: int) -> Iterator[int]:
    """Yield the device that each of these frames names, if the frame is about this round.

    The device is wire.BOARD (0) if the board could not read which device was asked. received:
    frames that were not verified. number: the number of the round.
    """
    for frame in received:
        with suppress(frames.FrameError):  # a damaged frame names none
            device, round_number = frames.address(frame)
            if round_number == number or device == wire.BOARD:
                yield device
