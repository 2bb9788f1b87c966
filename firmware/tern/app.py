"""tern beside a program of one's own: its records are asked about, and the model comes back to it.

No step holds the program's tasks for longer than the work of one record: connecting, slots and pauses are awaited, and
a report that takes long is computed record by record. What holds them all the same are single calls of MicroPython:
docs/guides/application.md lists them.
"""

import asyncio
import gc
from array import array

from tern import compat, wire
from tern.client import Client
from tern.compat import MICROPYTHON, const, ticks_diff, ticks_ms
from tern.frames import FrameError
from tern.gradient import Gradient, batch_size, turn
from tern.ledger import LedgerError
from tern.storage import StorageError

if MICROPYTHON:
    from asyncio import sleep_ms
else:

    def sleep_ms(ms):
        return asyncio.sleep(ms / 1000)


_TICK_MS = const(5)  # between two looks at the link
_LONGEST_S = const(300)  # pause after an exception
_WAIT_MS = const(200)  # of once(), at a time
_QUIET_MS = const(400)  # once() waits so long for a question that the broker has kept


class _Long(Exception):
    """What is asked for takes long to compute: that comes first, in steps, and then the question once more."""


class NoRecords:
    """In the place of too few records: one of zeros (storage.md, "Records of a program")."""

    def __init__(self, d):
        """d: features of a record."""
        self.d = d

    def read(self, _, row):
        """Write it into the array('h') `row`, d + 1 values."""
        for j in range(self.d + 1):
            row[j] = 0


class Live(Client):
    """A Client whose records are those of `recorder`; the parameters of questions, and models, go to `model`."""

    def __init__(self, board, recorder, model=None):
        """recorder: a Recorder, open; model: a Model, open, or None."""
        super().__init__(board)
        self._recorder = recorder
        self._model = model
        self._too_few = NoRecords(recorder.d)
        self._stepwise = False
        self._under_way = None  # the steps of what is asked for
        self._inner = None  # the answerer that makes them
        self._own = None  # buffers for gradients: Gradient, row, result
        self.draw = None

    def respond(self, frame, send):
        """As Client.respond(); a MODEL is taken."""
        if len(frame) and frame[0] == wire.MODEL:
            self._take_model(frame)
        else:
            super().respond(frame, send)

    def steps(self, frame, send):
        """Answer `frame` as respond() does: a generator, which gives way between two records."""
        self._stepwise = True
        self._under_way = None
        try:
            self.respond(frame, send)
        except _Long:
            yield from self._under_way
            self.respond(frame, send)
        finally:
            self._stepwise = False

    def _take_model(self, frame):
        if self._model:
            try:
                clients = self._open_clients()
                fleet = int.from_bytes(frame[1:5], "little") == wire.FLEET
                self._model.take_model(frame, self._fleet_key if fleet else clients.key)
            except (FrameError, LedgerError, StorageError, OSError, MemoryError):  # no model, or not for us
                pass

    def _take_fleet_key(self, frame):
        epoch = self._epoch
        n = super()._take_fleet_key(frame)
        if self._model and self._epoch != epoch:
            self._model.forget_round()
        return n

    def _report(self, client, question):
        if self._model:
            self._model.take_round(self._round)
        return super()._report(client, question)

    def _open_records(self, client):
        recorder = self._recorder
        if self._round.d != recorder.d:
            raise FrameError(wire.ERR_DATA, "records of another dimension", recorder.d)
        client.start = 0
        client.records = 1
        count = recorder.count
        if count < recorder.least:
            return self._too_few
        client.records = min(count, self._bound or count)
        client.start = count - client.records  # the newest
        return recorder

    # --- what takes long --------------------------------------------------------------------------------------------

    def _answerer(self, model):
        inner = self._inner = super()._answerer(model)
        return self if hasattr(inner, "steps") else inner

    def cost(self, card):
        """As that of an answerer."""
        self.draw = self._inner.draw
        return self._inner.cost(card)

    def values(self, client, records, card):
        """As those of an answerer."""
        if self._soon():
            return self._inner.values(client, records, card)
        self._first(self._inner.steps, client, records)
        return self._inner.result

    def _mean_gradient(self, client, records):
        if self._soon():
            return super()._mean_gradient(client, records)
        self._first(self._gradient_steps, client, records)
        return self._own[2]

    def _soon(self):
        request = self._round
        return not self._stepwise or (request.batch == 1 and not request.epochs)

    def _first(self, steps, client, records):
        if not self._under_way:
            self._under_way = steps(client, records)
            raise _Long

    def _gradient_steps(self, client, records):
        request = self._round
        d = request.d
        if not self._own or self._own[0].d != d:
            self._own = Gradient(d), array("h", bytes(2 * d + 2)), array("h", bytes(2 * d))
        gradient, row, result = self._own
        count = client.records
        batch = batch_size(request.batch, count)
        index = turn(request.round, batch, count)
        gradient.reset(request.range)
        for _ in range(batch):
            records.read(client.start + index, row)
            gradient.add(request.model, request.parameters, request.exponent, row)
            index = (index + 1) % count
            yield
        gradient.finish(result)


class App:
    """The node of a program: run() beside its tasks, or once() between two sleeps."""

    def __init__(self, board, recorder, model=None):
        """board: a tern.boards.Base, such as this_board(); recorder: a Recorder; model: a Model, or None for no use.

        Opens both in the board's directory. Raises StorageError where what is there does not fit.
        """
        recorder.open(board.directory)
        if model:
            model.open(board.directory)
        self.board = board
        self.recorder = recorder
        self.model = model
        self.reports = 0  # that were sent since the start, and
        self.refusals = 0  # errors
        self.error = None  # the last exception
        self._client = Live(board, recorder, model)  # now, before the program's tasks run
        self._link = None
        self._pause_s = 1

    async def run(self, watchdog=None):
        """Answer the host beside other tasks, for ever; on a computer until the other end of the port has gone.

        watchdog: a machine.WDT, fed as long as this makes progress. An exception is kept in `error`, and after a pause,
        each time a longer one, all begins afresh.
        """
        if watchdog:
            compat.feed = watchdog.feed
        while True:
            try:
                await self._serve()
            except EOFError:
                return
            except Exception as error:
                self._caught(error)
            finally:
                self._close()
            for _ in range(self._pause_s):
                compat.feed()
                await sleep_ms(1000)
            self._pause_s = min(2 * self._pause_s, _LONGEST_S)

    async def _serve(self):
        link = self._open()
        while True:
            compat.feed()
            frame = link.receive(0)
            if frame is None:
                await sleep_ms(_TICK_MS)
                continue
            self.board.led(True)
            try:
                for _ in self._client.steps(frame, self._send):
                    compat.feed()
                    await sleep_ms(0)
                self._pause_s = 1
            except MemoryError:  # not even for an ERROR: the host asks again
                gc.collect()
            self.board.led(False)

    def once(self, timeout_ms=5000):
        """Connect, answer what is asked, take the model, take leave; return within about `timeout_ms`.

        Returns whether a report was sent and acknowledged. Raises nothing: a board that sleeps next must not stay
        awake; `error` is the last exception. For links over a broker: shared_specs/mqtt.md, "Boards that sleep".
        """
        start = heard = ticks_ms()
        before = self.reports
        link = None
        try:
            link = self._open()
            while (left := timeout_ms - ticks_diff(ticks_ms(), start)) > 0:
                compat.feed()
                frame = link.receive(min(left, _WAIT_MS))
                if frame is not None:
                    self._client.respond(frame, self._send)
                    heard = ticks_ms()
                elif link.opened and not link.waiting() and ticks_diff(ticks_ms(), heard) > _QUIET_MS:
                    break
            delivered = self.reports > before and not link.waiting()
            link.disconnect()
        except Exception as error:
            self._caught(error)
            delivered = False
        finally:
            self._close()
        return delivered

    def _open(self):
        board = self.board
        gc.collect()
        self._link = link = board.link()
        if self.model:
            link.admit(wire.MODEL)
        if link.console:
            board.begin()
        self._client = self._client or Live(board, self.recorder, self.model)
        return link

    def _send(self, reply, n):
        kind = reply[0]
        if kind == wire.REPORT:
            self.reports += 1
        elif kind == wire.ERROR:
            self.refusals += 1
        return self._link.send(reply, n)

    def _caught(self, error):
        gc.collect()
        self.error = error
        self.board.exceptions += 1
        self.board.last_error = type(error).__name__[:32]

    def _close(self):
        if self._client:
            self._client.close()
            self._client = None
        if self._link:
            if self._link.console:
                self.board.end()
            self._link.close()
            self._link = None
