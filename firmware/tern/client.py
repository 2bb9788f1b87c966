"""The round loop: a round frame in, a report or an error frame out, in the order of shared_specs/ledger.md.

One Client serves every client of its board, one at a time: a real board has one, an emulated board thousands.
"""

import gc
from array import array

from tern import frames, wire
from tern.card import CardError, certify, decode
from tern.compat import const, ticks_diff, ticks_ms
from tern.coordinates import choose, gather
from tern.entropy import EntropyError
from tern.frames import FrameError
from tern.gradient import Gradient
from tern.ledger import DEBITED, REPORTED, Ledger, LedgerError
from tern.sampler import sample, sample_categories
from tern.storage import CLIENTS, FLEET, RECORDS, Clients, Records, StorageError, ledger_name, read_fleet

_mem_free = getattr(gc, "mem_free", int)  # CPython does not tell

# With a slot, a record of d features in local training counts as (d + 64) / 64 ms: over twice its time on a Pico.
_LOCAL_SCALE = const(64)


class Client:
    """Answers frames. `board` says where the files are (directory), what it is (text) and where randomness comes from.

    `reply` is the buffer of the answers. The files are opened when first needed: a board without them says hello, and
    refuses rounds.
    """

    def __init__(self, board):
        self.reply = bytearray(wire.MAX_FRAME)
        self.board = board
        self._clients = None
        self._records = None
        self._fleet_key = None
        self._pause_ms = 0
        self._slot_ms = 0
        self._ahead = 1  # reports to pay for at once
        self._paid = []  # when each client paid last, if they must pause
        self._ledger = Ledger(board.in_place)
        self._loaded = wire.BOARD  # whose ledger it is
        self._round = frames.Round()
        self._speaker = (b"", wire.BOARD, 0)  # whose key signs an error: key, device, round
        self._card = None
        self._certified = False
        self._packed = (0, 0, 0)
        self._gradient = None
        self._row = self._mean = None
        self._answerers = {}  # by model, of those that are not gradients
        self._chosen = array("H", (0 for _ in range(wire.MAX_DIMENSION)))
        self._inputs = array("h", (0 for _ in range(wire.MAX_DIMENSION)))
        self._symbols = array("H", (0 for _ in range(wire.MAX_DIMENSION)))
        self.entropy = board.generator()

    def answers(self, frame):
        """Answer `frame` for every client here that it asks: yield, of one after the other, what `answer` returns."""
        members = range(wire.BOARD, wire.BOARD + 1)
        try:
            if frames.is_for_fleet(frame):
                clients = self._open_clients()
                if self._fleet_key:
                    frames.verify(self._fleet_key, frame)
                    members = range(clients.first, clients.first + clients.count)
        except (StorageError, FrameError, MemoryError):  # the board answers, once, that it is an error
            pass
        for member in members:
            yield self._answer(frame, member)

    def answer(self, frame):
        """Write the answer to `frame` (memoryview; empty: a damaged one) into `reply` and return its length."""
        return self._answer(frame, wire.BOARD)

    def _answer(self, frame, member):
        # member: the client whose answer is wanted to a frame that carries the fleet's tag, verified.
        self._speaker = (b"", wire.BOARD, 0)
        detail = 0
        try:
            kind = frames.kind(frame)
            if kind == wire.ROUND:
                return self._answer_round(frame, member)
            if kind == wire.HELLO_REQUEST:
                return self._hello(frames.decode_hello_request(frame))
            if kind == wire.BENCH_REQUEST:
                return self._bench(frame)
            code = wire.ERR_FRAME
        except FrameError as error:
            code = error.code
            detail = error.detail
        except CardError:
            code = wire.ERR_CARD
        except LedgerError:
            code = wire.ERR_LEDGER
        except EntropyError:
            code = wire.ERR_ENTROPY
        except (StorageError, OSError):
            code = wire.ERR_DATA
        except MemoryError:  # to be asked again: what is paid for is paid for
            gc.collect()
            code = wire.ERR_FRAME
        key, device, number = self._speaker
        return frames.encode_error(self.reply, key, device, number, code, detail)

    def _hello(self, nonce):
        first = count = budget = 0
        try:
            clients = self._open_clients()
            first = clients.first
            count = clients.count
            clients.find(first)
            budget = self._left(clients, self._load(first))
        except (StorageError, LedgerError):
            pass
        text = self.board.text()
        gc.collect()
        return frames.encode_hello(
            self.reply, nonce, first, count, budget, _mem_free(), self.entropy.state, text
        )

    def _bench(self, frame):
        try:
            from tern.bench import answer  # loaded only when asked for
        except ImportError:  # not every board has it: tern deploy
            raise FrameError(wire.ERR_FRAME, "no bench here")
        return answer(frame, self)

    def _answer_round(self, frame, member):
        device, number = frames.address(frame)
        self._speaker = (b"", wire.BOARD, number)
        try:
            clients = self._open_clients()
            found = clients.find(member or device)
        except StorageError:
            found = False
        if not found:
            raise FrameError(wire.ERR_DEVICE, "no such client", device)
        self._speaker = (clients.key, clients.device, number)
        if not member:
            frames.verify(clients.key, frame)
        self._round.decode(frame)
        return self._report(clients)

    def _report(self, client):
        request = self._round
        ledger = self._load(client.device)
        if request.round < ledger.round:
            raise FrameError(wire.ERR_OLD_ROUND, "round is over", ledger.round)
        if request.device == wire.FLEET and request.round > ledger.round + wire.FLEET_AHEAD:
            raise FrameError(
                wire.ERR_AHEAD, "only the client's own key may skip so many rounds", ledger.round
            )
        if request.round == ledger.round:
            if not frames.same(request.question, ledger.question):
                raise FrameError(wire.ERR_CHANGED_ROUND, "another round of the same number", ledger.round)
            if ledger.state == REPORTED:
                n = len(ledger.report)
                self.reply[:n] = ledger.report
                return n
        answerer = self._answerer(request.model) if request.model > wire.SVM else None
        card = self._certify(request.card)
        cost = request.k * card.epsilon
        values = self._mean_gradient
        if answerer:
            cost = answerer.cost(card)
            values = answerer.values
        if request.local and self._slot_ms:
            most = self._slot_ms * _LOCAL_SCALE // (request.d + _LOCAL_SCALE)
            if request.local[0] * client.records > most:
                raise FrameError(wire.ERR_SLOT, "local training might not fit the slot", most)
        if client.shapes and not client.shapes >> card.shape & 1:
            raise FrameError(wire.ERR_POLICY, "shape of card that the device does not allow", client.largest)
        records = self._open_records(client)
        if self.entropy.state == wire.FAILED:
            raise EntropyError
        if request.round != ledger.round or ledger.state != DEBITED:
            if cost > client.largest:
                raise FrameError(wire.ERR_POLICY, "more than the device allows in one report", client.largest)
            left = self._left(client, ledger)
            if cost > left:
                raise FrameError(wire.ERR_BUDGET, "budget spent", left)
            self._check_pause(client)
            ledger.debit(request.round, request.question, cost, self._ahead)
            if self._paid:
                self._paid[client.device - client.first] = ticks_ms()
        n = self._sample(client, values(client, records, card), card)
        self.entropy.end_report()
        ledger.record(memoryview(self.reply)[:n])
        return n

    def _certify(self, data):
        """Return the Card, certified; the one certified last is known by its bytes."""
        if self._card is None or self._card.data != data:
            self._card = None
            card = decode(data)
            self._certified = certify(card)
            self._card = card
        if not self._certified:
            raise FrameError(wire.ERR_NOT_CERTIFIED, "card does not keep its epsilon", self._card.epsilon)
        return self._card

    def _answerer(self, model):
        """Return what answers for `model`: it has cost(card), and values() like _mean_gradient."""
        if model not in self._answerers:
            try:  # loaded only when asked for
                if model == wire.SOFTMAX:
                    from tern.inference import Answerer
                elif model >= wire.VALUES:
                    from tern.collect import Answerer  # type: ignore[assignment]
                else:
                    from tern.local import Answerer  # type: ignore[assignment]
            except ImportError:  # not every board has it: tern deploy
                raise FrameError(wire.ERR_MODEL, "no module for this model here", model)
            self._answerers[model] = Answerer(self._round)
        return self._answerers[model]

    def _sample(self, client, values, card):
        """Draw the report of the current round, of these values, into `reply`; return its length."""
        request = self._round
        k = request.k
        choose(client.key, request.round, request.values, k, self._chosen)
        gather(values, self._chosen, k, self._inputs)
        draw = sample_categories if request.model == wire.CATEGORIES else sample
        draw(card, self.entropy, self._inputs, self._symbols, k)
        if self._packed[:2] != (card.symbols, k):
            self._packed = (card.symbols, k, frames.packed_size(card.symbols, k))
        size = self._packed[2]
        return frames.encode_report(
            self.reply, client.key, client.device, request.round, self._symbols, k, card.symbols, size
        )

    def _mean_gradient(self, client, records, _):
        """Return the clipped mean gradient. A batch of some records only moves on round by round."""
        request = self._round
        d = request.d
        if self._gradient is None or self._gradient.d != d:
            self._row = array("h", (0 for _ in range(d + 1)))
            self._mean = array("h", (0 for _ in range(d)))
            self._gradient = Gradient(d)
        gradient = self._gradient
        count = client.records
        batch = min(request.batch or count, count, wire.MAX_BATCH)
        index = (request.round - 1) % count * batch % count
        gradient.reset()
        for _ in range(batch):
            records.read(client.start + index, self._row)
            gradient.add(request.model, request.parameters, request.exponent, self._row)
            index = (index + 1) % count
        gradient.finish(self._mean)
        return self._mean

    # --- files ------------------------------------------------------------------------------------------------------

    def _open_clients(self):
        if self._clients is None:
            self._fleet_key, pause, self._slot_ms, ahead = read_fleet(self.board.directory + "/" + FLEET)
            clients = Clients(self.board.directory + "/" + CLIENTS)
            self._pause_ms = 1000 * pause
            if clients.count == 1:
                self._ahead = ahead
            if pause:
                now = ticks_ms()  # nobody knows when the last debits were: the pauses begin now
                self._paid = [now] * clients.count
            self._clients = clients  # last: without the policy above there are no clients
        return self._clients

    def _check_pause(self, client):
        if self._paid:
            left = self._pause_ms - ticks_diff(ticks_ms(), self._paid[client.device - client.first])
            if 0 < left <= self._pause_ms:
                raise FrameError(wire.ERR_TOO_SOON, "the client pauses", (left + 999) // 1000)

    def _open_records(self, client):
        if self._records is None:
            self._records = Records(self.board.directory + "/" + RECORDS)
        records = self._records
        if self._round.features != records.d:
            raise FrameError(wire.ERR_DATA, "records of another dimension", records.d)
        if not client.records or client.start + client.records > records.count:
            raise StorageError("client without records")
        return records

    def _load(self, device):
        ledger = self._ledger
        # Written over in place nobody else writes it; where it is ahead of what was released it must not be read again.
        if device != self._loaded or not (ledger.path and (self.board.in_place or ledger.reserved)):
            ledger.load(self.board.directory + "/" + ledger_name(device))
            self._loaded = device
        return ledger

    def _left(self, client, ledger):
        return max(0, min(client.budget, ledger.budget) - ledger.spent)


def serve(board):
    """Answer the host until the other end of the board's link has gone."""
    link = board.link()
    client = Client(board)
    if link.console:
        board.begin()
    try:
        while True:
            try:
                frame = link.receive()
                if frame is None:
                    continue
                board.led(True)
                for n in client.answers(frame):
                    if client.reply[0] == wire.HELLO:
                        link.restart_credit()
                    link.send(client.reply, n)
            except MemoryError:  # not even for an ERROR: the host asks again
                gc.collect()
            board.led(False)
    except EOFError:
        pass
    finally:
        if link.console:
            board.end()
