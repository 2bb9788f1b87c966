"""Runs tern beside a user's program: answers rounds from its records and gives it the model.

No step blocks for longer than the work of one record, except in the calls that
docs/guides/application.md lists.
"""

import asyncio
import gc

from tern import compat, frames, wire
from tern.client import REFUSALS, Client
from tern.compat import MICROPYTHON, TYPE_CHECKING, const, ticks_diff, ticks_ms
from tern.links import beside
from tern.storage import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Protocol

    from tern.boards import Base
    from tern.limits import Limits
    from tern.model import Model
    from tern.recorder import Recorder
    from tern.storage import Clients
    from tern.update import Update

    class Watchdog(Protocol):
        def feed(self) -> object: ...


if MICROPYTHON:
    from asyncio import sleep_ms
else:

    def sleep_ms(ms):
        return asyncio.sleep(ms / 1000)


BRINGS = (
    "dns, lease, limits, model, recorder"  # deployed with this module, since programs import them
)

# After so much work other tasks have their turn; to give way takes half as long as a record.
_STEP_MS = const(2)
_TICK_MS = const(5)  # between two looks at the link
# The same in once() with a slot, but then exactly: the work in between would add up, and show.
_LOOK_MS = const(8)
_LONGEST_S = const(300)  # the longest pause after an exception
_QUIET_MS = const(300)  # how long once() waits for more frames after an acknowledged report
_PATIENCE_MS = const(2000)  # and without a report, since the host may still ask for one
_KIND_AT = const(9)  # where a MODEL has its kind: after its type, its device and its round

# directories: two nodes on one ledger would spend the same budget twice
_in_use: "set[str]" = set()


class Live(Client):
    """A Client whose records the program itself collects.

    Its answers are generators, so that the program's other tasks run in between. Models from the
    host, and parameters of its questions, go to the program's `model`; limits go to its `limits`.
    """

    def __init__(self, board, recorder, model, update=None, limits=None):
        """board: see tern.boards. recorder: has the program's records. model: gets what the fleet
        learns. update: takes packages of other firmware, or None. limits: gets what the fleet says
        is unusual, or None.

        Raises StorageError if the board has several clients.
        """
        super().__init__(board)
        self._recorder = self.policy.recorder = recorder
        self._model = model
        self._limits = limits
        self._update = update
        # Allocate and open everything now, while there is memory, before the program's tasks run.
        # A hello opens the files.
        self.report.answerers.gradients.room(recorder.d)
        self.hello(0)
        if self.clients and self.clients.count > 1:
            raise StorageError("a program's records are of one device")

    def steps(
        self, frame: memoryview, send: "Callable[[bytearray, int], object]"
    ) -> "Iterator[None]":
        """Answer `frame` as respond() does, or take a MODEL; yields between two pieces of work.

        So other tasks of the program can run meanwhile. send: a function that takes the reply and
        its length; it is called once, but not for a MODEL.
        """
        if len(frame) and frame[0] == wire.MODEL:
            self._take_model(frame)
            return
        epoch = self.policy.epoch
        # For a frame with the fleet's tag, the client that answers it; otherwise begin() finds it.
        member = wire.BOARD
        if frames.is_for_fleet(frame) and self.members(frame):
            member = self.clients.first
        self.session.take(frame)
        try:
            length = self.begin(frame, member)
            if not length:  # a report that has to be made
                yield
                self.allow()
                yield
                answerer = self.report.answerer
                values = None
                if hasattr(answerer, "steps"):
                    yield from answerer.steps(self.clients, self.records)
                    values = answerer.result
                length = self.release(values)
        except REFUSALS as error:
            length = self.refuse(error)
        send(self.reply, length)
        if self.filler is None:
            self.settle()
        if self.policy.epoch != epoch:  # the fleet has got a new key
            self._model.forget_round()
            if self._limits:
                self._limits.forget_round()
        yield
        if self.reply[0] == wire.REPORT:
            try:
                self._model.take_round(self.session.round)  # which may write a file
            except Exception:  # used, if not kept
                pass

    def _take_model(self, frame):
        """Use the model or the limits of a MODEL frame, if it is for this device and authentic."""
        try:
            receiver = self._model
            if frame[_KIND_AT] == wire.LIMITS:
                receiver = self._limits
            if not receiver:  # this program has no use for limits
                return
            key = self.open_clients().key
            if frame[4] == 255:  # the highest byte of the device id FLEET: for the whole fleet
                key = self.policy.fleet_key
            receiver.take_model(frame, key)
        except Exception:  # no model, or none for us
            pass

    def other(self, frame: memoryview) -> int:
        """Answer an UPDATE, if the program takes updates; raise FrameError for other frames."""
        address = self.session.address
        if self._update and address and frame[0] == wire.UPDATE:
            return self._update.take(frame, self.find(address[0]).key, self.reply)
        return super().other(frame)

    def free(self) -> int:
        """Return 0 for the free heap that a HELLO states.

        The true number would tell how many records there are, by the table of a recorder's
        segments.
        """
        return 0

    def open_records(self, client: "Clients") -> "Recorder":
        """Return the recorder, and set which of its records are those of `client`.

        With fewer than its `least`, the client answers as if it had one record, of zeros. Raises
        FrameError if records have another dimension.
        """
        recorder = self._recorder
        if self.session.round.d != recorder.d:
            raise frames.FrameError(wire.ERR_DATA, "records of another dimension", recorder.d)
        count = recorder.count
        client.records = min(count, self.policy.bound or count)
        client.start = count - client.records
        if count < recorder.least:  # then read() of the recorder gives zeros
            client.records = 1
        return recorder


class App:
    """The node of a program: run() beside its tasks, or once() between two sleeps."""

    def __init__(
        self,
        board: "Base",
        recorder: "Recorder",
        model: "Model",
        update: "Update | None" = None,
        limits: "Limits | None" = None,
    ) -> None:
        """Open recorder, model and limits in the directory of `board`, which has one device.

        Raises StorageError and OSError for unfit files or several devices, RuntimeError for a
        second App of a board.
        """
        if board.directory in _in_use:
            raise RuntimeError("one App a board")
        recorder.open(board.directory)
        for received in (model, limits):
            if received:
                received.in_place = board.in_place
                received.open(board.directory)
        self.board = board
        self.recorder = recorder
        self.model = model
        self.limits = limits
        self.update = update
        self.reports = 0  # sent since the start, repeated ones as well
        self.error: "Exception | None" = None  # the last exception, or why once() had no connection
        self._client = Live(board, recorder, model, update, limits)
        self._held: "tuple[bytearray, int]" = None  # an answer, and how long it is
        _in_use.add(board.directory)

    async def run(self, watchdog: "Watchdog | None" = None) -> None:
        """Answer the host beside other tasks, for ever; on a computer until the port closes.

        Raises nothing: _session() keeps an exception in `error`, and a new session begins after a
        pause. watchdog: a machine.WDT. From then on the whole library feeds it, wherever its work
        may take long.
        """
        if watchdog:
            compat.feed = watchdog.feed
        pause = 1  # s
        while True:
            reports = self.reports
            if await self._session() is None:  # the port has closed
                return
            # Short again after a session that sent reports; else twice as long each time.
            pause = 1 if self.reports > reports else min(2 * pause, _LONGEST_S)
            for _ in range(pause):
                compat.feed()
                await sleep_ms(1000)

    def once(self, timeout_ms: int = 20000) -> bool:
        """Connect, answer rounds, take the model, disconnect, all within about `timeout_ms`; then
        Wi-Fi is off.

        Return whether a report was acknowledged; if not, `error` says why. Raises nothing: a board
        must go to sleep.
        """
        reports = self.reports
        return bool(asyncio.run(self._session(timeout_ms))) and self.reports > reports

    async def _session(self, timeout_ms=0):
        """Serve one connection, from opening the link to closing it.

        timeout_ms: as for _serve(). Returns whether all that was sent was acknowledged; False after
        an exception, which is kept in `error`; None if the other end has gone for good.
        """
        board = self.board
        link = None
        try:
            gc.collect()
            if not self._client:
                self._client = Live(board, self.recorder, self.model, self.update, self.limits)
            if timeout_ms:
                # The ledger pays for one report only: what it paid for in advance would be lost
                # when the board sleeps.
                self._client.policy.ahead = 1
            link = board.link()
            return await self._serve(link, timeout_ms)
        except EOFError:
            return None
        except Exception as error:
            self.error = error
            board.failed(error)
            return False
        finally:
            self._held = None
            self.recorder.patient = False
            if self._client:
                self._client.close()
                self._client = None
            if link:
                if link.console:
                    board.end()
                if timeout_ms:  # whatever ended it: a radio that stays on empties the battery
                    link.disconnect()
                link.close()

    async def _serve(self, link, timeout_ms):
        """Answer what comes on `link`; return whether all that was sent was acknowledged.

        timeout_ms: 0 to serve for ever. Otherwise it ends soon after the last frame, or after
        `timeout_ms` at the latest.
        """
        link.admit(wire.MODEL)
        link.admit(wire.UPDATE)
        if link.console:
            self.board.begin()
        # A link with a slot has a last public moment, from which all that can be seen is timed, so
        # that no time tells anything about records. While it serves for ever, the recorder writes
        # only at such moments, too.
        slotted = hasattr(link, "last")
        self.recorder.patient = patient = slotted and not timeout_ms

        # When it began, and when something last came.
        start = heard = getattr(link, "last", ticks_ms())
        reports_before = self.reports
        answered = is_over = False
        while not is_over:
            compat.feed()
            frame = beside.receive(link, self.recorder) if patient else link.receive(0)
            if frame is not None:
                await self._answer(link, frame, first=not answered)
                answered = True

            now = ticks_ms()
            if slotted or frame is not None or link.waiting():
                heard = getattr(link, "last", now)
            if answered and not link.waiting():  # and the answers are acknowledged
                self._confirm_update()
                # Once a report was sent, hardly anything more comes; before that, a round may.
                quiet = _QUIET_MS if self.reports > reports_before else _PATIENCE_MS
                is_over = timeout_ms and ticks_diff(now, heard) > quiet
            is_over = is_over or (timeout_ms and ticks_diff(now, start) > timeout_ms)
            await sleep_ms(_TICK_MS)
            if slotted and timeout_ms:
                link.until(_LOOK_MS, -1)

        if answered and not link.waiting():
            return True
        self.error = getattr(link, "error", None)  # why there was no connection
        return False

    async def _answer(self, link, frame, first):
        """Answer `frame`, and give way to other tasks between two pieces of its work.

        first: whether it is the connection's first frame.
        """
        client = self._client
        client.arrived = getattr(link, "last", ticks_ms())
        if client.policy.paid and first:
            # Nobody knows when the client paid last: its pause begins now.
            client.policy.paid[0] = client.arrived
        await sleep_ms(0)
        try:
            gave_way = ticks_ms()
            for _ in client.steps(frame, self._hold):
                if ticks_diff(ticks_ms(), gave_way) >= _STEP_MS:
                    compat.feed()
                    await sleep_ms(0)
                    gave_way = ticks_ms()
            await sleep_ms(0)
            if self._held:
                reply, n = self._held
                link.send(reply, n)
                if reply[0] == wire.REPORT:
                    self.reports += 1
                self._held = None
        except MemoryError:  # not even for an ERROR: the host asks again
            gc.collect()

    def _confirm_update(self):
        """Confirm the package that runs, or restart into a new one.

        To be called once this program has said HELLO and its host has heard it. Raises EOFError
        where a board cannot be reset.
        """
        if not self.update:
            return
        self.update.confirm()
        if self.update.restart:
            self.board.reset()
            raise EOFError

    def _hold(self, reply, n):
        """Keep the answer, reply[:n], until it may be sent.

        One client has one answer to a frame, which stays in its buffer until the next.
        """
        self._held = reply, n
