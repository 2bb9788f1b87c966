"""The round loop, in the order of shared_specs/ledger.md: begin(), allow() and release() make a
report.

Only release() draws and pays: nothing of the report leaves the board before the ledger is durable.
"""

import gc
from array import array
from struct import pack_into, unpack_from

from tern import frames, storage, wire
from tern.card import CardError, certify, decode
from tern.compat import MICROPYTHON, const, ticks_diff
from tern.coordinates import choose, gather
from tern.entropy import EntropyError
from tern.frames import FrameError, difference
from tern.gradient import Answerer
from tern.ledger import Ledger, LedgerError
from tern.shapes import HIERARCHY, SUM, WINDOW
from tern.storage import StorageError, ledger_name, read_fleet, write_fleet

_mem_free = getattr(gc, "mem_free", int)  # CPython does not tell

REFUSALS = (FrameError, CardError, LedgerError, EntropyError, StorageError, OSError, MemoryError)

_ADDRESS_END = const(16)  # an address and a tag are in longer frames only

_HOLES = const(80)

_BASE_MS = const(240)  # of any report: modules, garbage, room on the flash
_MODULES_MS = const(50)  # of a report that needs many modules
_MANY = const(65535)


def work_ms(request, card, size, bound, recorder=None):
    """Return an upper bound, in ms, on the time of a report on a Pico (storage.md, Slot), from
    public values alone.

    size: bytes of packed symbols; bound: public upper bound on records per client, 0 for none.
    recorder: of a program.
    """
    batch = request.batch or wire.MAX_BATCH
    k = request.k
    model = request.model
    shape = card.shape
    work = _BASE_MS + (k >> 2) + (k * size >> 11)
    work += len(card.data) >> (3 if shape == HIERARCHY else 6)
    if shape > WINDOW:
        work += k
    if model == wire.SOFTMAX_GRADIENT:
        many = shape >= SUM
    else:
        many = model == wire.LOCAL_SOFTMAX or (model == wire.VALUES and shape > SUM)
    if many:
        work += _MODULES_MS
    bound = bound or _MANY
    passes = 1
    count = bound  # records of a pass
    if request.epochs:
        passes = request.epochs
        added = passes * (bound + bound // batch + 1)
    elif shape == SUM:
        added = bound
        work += card.body.work_ms(request, bound)
    else:
        added = count = 1 if model in wire.OF_ONE_RECORD else batch
    work += added * record_work(request) >> 8
    if recorder:
        work += recorder.work_ms(count, passes)
    return work


def record_work(request):
    """Return an upper bound, in ms / 256, on the time of one record."""
    if request.model == wire.CATEGORIES:
        return 20 * request.d + 128  # each feature by itself
    return request.classes * (request.d + 64) + (224 if request.classes > 1 else 128)


class Client:
    """Answers the frames of a host into `reply`, for all clients of `board`.

    A board without files still says hello.
    """

    # when the frame under way came (ms): set by the caller, before any work of it, for clients that
    # pause
    arrived: int

    def __init__(self, board):
        self.reply = bytearray(wire.MAX_FRAME)
        self.board = board
        self._clients = self._records = self._fleet_key = None
        self._recorder = (
            None  # whose records are used instead of those of records.bin, with a program
        )
        self._epoch = self._pause_ms = self._slot_ms = 0
        self._bound = self._unit = (
            0  # public upper bound on records per client; records of a protected run, 0: all
        )
        self._ahead = 1  # reports to pay for at once
        self._paid = []  # when the last ROUND came that each client paid for, if they must pause
        self._ledger = Ledger(board.in_place, board)
        self._loaded = wire.BOARD  # whose ledger it is
        self.round = frames.Round()  # the ROUND under way
        self._frame = self._asked = None  # the last ROUND, and the question in it
        self._question = bytearray(wire.KEY_BYTES)
        self._answer_key = frames.answer_key(memoryview(self._question))
        self._filler = None
        self._address = None  # device and round of the frame under way
        self._key = b""  # whose key signs an error, who it is, and to which round
        self._device = wire.BOARD
        self._number = 0
        self.answerer = self.records = None  # what computes its values, and from what
        self._cost, self._at_once = 0, 1  # what a report costs, millionths, and how many to pay for
        self._k = 0  # values in a report; 0: _form is none
        self._form = None  # see _decode()
        self._certified = None  # whether its card is, until it is known
        self._gradients = Answerer(self.round)
        self._answerers = {}  # by model, of those that are not gradients
        self._room(wire.MAX_DIMENSION)
        self.entropy = board.generator()
        if MICROPYTHON:
            gc.threshold(-1)  # see compat

    def _room(self, k):
        self._chosen = array("H", bytes(2 * k))
        self._inputs = array("h", bytes(2 * k))
        self._symbols = array("H", bytes(2 * k))

    def respond(self, frame, send):
        """Answer `frame` for each client that it asks, by send(reply, n); several reports go
        together in REPORTS.
        """
        if len(frame) and frame[0] == wire.MODEL:  # asks for no answer
            return
        if frames.is_for_fleet(frame):
            self._respond_all(frame, send)
        else:
            send(self.reply, self.answer(frame))
        self.settle()

    def settle(self):
        """Fill the holes of the heap, once, after the first report."""
        # Holes of one block make MicroPython search all of the heap for larger pieces: filling them
        # saves 1 ms.
        if self._filler or self.reply[0] != wire.REPORT:
            return
        gc.collect()
        for _ in range(_HOLES):
            self._filler = (self._filler,)

    def members(self, frame):
        """Return how many clients `frame`, a ROUND for the fleet, asks; 0 if its tag does not
        verify.
        """
        try:
            clients = self._open_clients()
            if self._fleet_key:
                frames.verify(self._fleet_key, frame)
                return clients.count
        except (
            StorageError,
            FrameError,
            MemoryError,
        ):  # the board answers, once, that it is an error
            pass
        return 0

    def _respond_all(self, frame, send):
        count = self.members(frame)
        if count > 1:
            try:
                from tern.many import respond  # a board of one client has no use for it
            except ImportError:
                count = 0
        if count > 1:
            respond(self, frame, self._clients.first, count, send)
        else:
            send(self.reply, self.answer(frame, self._clients.first if count else wire.BOARD))

    def answer(self, frame, member=wire.BOARD):
        """Write the answer to `frame` (memoryview; empty if damaged) into `reply`; return its
        length.

        member: the client that answers a frame with the fleet's tag, verified.
        """
        # MicroPython keeps more than 11 words of variables on the heap, and searches from the last
        # single block. So few functions have so many, and a single block, the address, comes first:
        # no search goes through earlier garbage.
        self.take(frame)
        return self._answer(frame, member)

    def _answer(self, frame, member):
        try:
            n = self.begin(frame, member)
            if not n:
                self.allow()
                n = self.release()
            return n
        except REFUSALS as error:
            return self.refuse(error)

    def take(self, frame):
        """Take the address of `frame`, before anything else is done about it."""
        self._key = b""
        self._device = wire.BOARD
        self._number = 0
        self._address = unpack_from("<II", frame, 1) if len(frame) > _ADDRESS_END else None

    def begin(self, frame, member=wire.BOARD):
        """Write the answer to the `frame` taken into `reply`; return its length, or 0 for a new
        report.

        Raises REFUSALS.
        """
        if self._address and frame[0] == wire.ROUND:
            return self._begin_round(frame, member)
        kind = frames.kind(frame)
        if kind == wire.HELLO_REQUEST:
            return self._hello(frames.decode_hello_request(frame))
        if kind == wire.FLEET_KEY:
            return self._take_fleet_key(frame)
        return self.other(frame)

    def other(self, frame):
        """Answer a frame of another type, as begin(); a subclass may know more types."""
        raise FrameError(wire.ERR_FRAME, "no question, or without an address")

    def refuse(self, error):
        """Write the ERROR that says `error`, one of REFUSALS, into `reply` and return its length."""
        code = wire.ERR_DATA  # of StorageError and OSError
        detail = 0
        if isinstance(error, FrameError):
            code = error.code
            detail = error.detail
        elif isinstance(error, CardError):
            code = wire.ERR_CARD
        elif isinstance(error, LedgerError):
            code = wire.ERR_LEDGER
        elif isinstance(error, EntropyError):
            code = wire.ERR_ENTROPY
        elif isinstance(error, MemoryError):  # to be asked again
            gc.collect()
            code = wire.ERR_FRAME
        return frames.encode_error(self.reply, self._key, self._device, self._number, code, detail)

    def _hello(self, nonce):
        first = count = budget = spent = measure = 0
        try:
            clients = self._open_clients()
            first = clients.first
            count = clients.count
            clients.find(first)
            ledger = self._load(first)
            budget = max(0, min(clients.budget, ledger.budget) - ledger.spent)
            spent = ledger.spent
            measure = ledger.measure
        except (StorageError, LedgerError, FrameError):
            pass
        board = self.board
        text = board.text()
        gc.collect()
        return frames.encode_hello(
            self.reply,
            nonce,
            first,
            count,
            budget,
            spent,
            self._epoch,
            self.free(),
            self._bound,
            board.exceptions,
            board.restarts,
            self.entropy.state,
            board.assessed,
            measure,
            self._unit,
            text,
        )

    def free(self):
        return _mem_free()

    def _take_fleet_key(self, frame):
        # The answer is a HELLO, which tells the epoch.
        device, epoch, key = frames.fields_of(frame, wire.FLEET_KEY, wire.FLEET_KEY_FIELDS)
        frames.check_length(frame, wire.FLEET_KEY_FIELDS, 0)
        clients = self._find(device)
        if device != clients.first:
            raise FrameError(wire.ERR_DEVICE, "not this board's first client", device)
        frames.verify(clients.key, frame)
        if self._fleet_key and epoch > self._epoch:
            path = self.board.directory + "/" + storage.FLEET
            write_fleet(path, frames.mask_fleet_key(clients.key, epoch, key), epoch)
            self._fleet_key = read_fleet(path)[0]
            self._epoch = epoch
        return self._hello(epoch)

    def _begin_round(self, frame, member):
        device, number = self._address
        self._number = number
        device = member or device
        client = self._clients
        if not client or client.device != device:
            client = self._find(device)
        if frame is not self._frame:  # a link's next one is the same view as a rule
            self._asked = memoryview(frame)[frames.QUESTION_AT : -wire.TAG_BYTES]
            self._frame = frame
        question = frames.question(client.key, client.address, self._asked)
        if not member and difference(frame, len(frame) - wire.TAG_BYTES, question, wire.TAG_BYTES):
            raise FrameError(wire.ERR_TAG, "tag does not verify")
        pack_into("32s", self._question, 0, question)
        self._key = self._answer_key
        self._device = device
        self.round.decode(frame, self._address)
        ledger = self._load(device)
        last = ledger.round
        if number < last:
            raise FrameError(wire.ERR_OLD_ROUND, "round is over", last)
        if number == last:
            if difference(self._question, 0, ledger.question, wire.KEY_BYTES):
                raise FrameError(wire.ERR_CHANGED_ROUND, "another question", last)
            last = len(ledger.report)
            memoryview(self.reply)[:last] = ledger.report
            return last
        request = self.round
        if number - last > (
            wire.FLEET_AHEAD if request.device == wire.FLEET else wire.CLIENT_AHEAD
        ):
            raise FrameError(wire.ERR_AHEAD, "too many rounds skipped", last)
        model = SUM - (request.card[0] & 15)
        if model + 1 >> 1:  # neither a sum, 0, nor a projection, -1
            model = request.model
        self.answerer = self._gradients if 0 < model <= wire.SVM else self._answerer(model)
        if request.k != self._k or request.card != self._form[0].data:
            self._decode(request.card, request.k)
        return 0

    def allow(self):
        """Raise one of REFUSALS if policy, slot, certificate, records, entropy, budget or pause
        forbid the report.
        """
        client = self._clients
        ledger = self._ledger
        card = self._form[0]
        cost = self.answerer.cost(card)
        if ledger.measure or card.shape == SUM:
            cost = self._answerer(0).price(ledger.measure, cost, card)
        self._cost = cost
        if cost > client.largest or (client.shapes and not client.shapes >> card.shape & 1):
            raise FrameError(wire.ERR_POLICY, "too dear, or not this shape", client.largest)
        if self._slot_ms:
            work = work_ms(self.round, card, self._form[1], self._bound, self._recorder)
            if work > self._slot_ms:
                raise FrameError(wire.ERR_SLOT, "too long for the slot")
        if self._certified is None:
            self._certified = certify(card)
        if not self._certified:
            raise FrameError(wire.ERR_NOT_CERTIFIED, "card does not keep its epsilon", card.epsilon)
        self.records = self.open_records(client)
        if self.entropy.state == wire.FAILED:
            raise EntropyError
        left = min(client.budget, ledger.budget) - ledger.spent
        if cost > left:
            raise FrameError(wire.ERR_BUDGET, "budget spent", max(0, left))
        if self._paid:
            rest = self._pause_ms - ticks_diff(
                self.arrived, self._paid[client.device - client.first]
            )
            if 0 < rest <= self._pause_ms:
                raise FrameError(wire.ERR_TOO_SOON, "the client pauses", (rest + 999) // 1000)
        self._at_once = min(self._ahead, left // cost)

    def release(self, values=None):
        """Draw the report, pay for it, and only then return its length. values: Q1.14; None:
        computed here.
        """
        k = self._k
        if k > len(self._symbols):
            self._room(k)
        symbols = self._symbols
        card, size, unsealed, sealed = self._form
        if values is None:
            values = self.answerer.values(self._clients, self.records, card)
        choose(self._question, self.round.values, k, self._chosen)
        gather(values, self._chosen, k, self._inputs)
        n = 0
        try:
            self.answerer.draw(card, self.entropy, self._inputs, symbols, k)
            self.entropy.end_report()
            n = frames.encode_report(
                self.reply,
                self._key,
                self._device,
                self._number,
                symbols,
                k,
                card.symbols,
                size,
                unsealed,
            )
        finally:  # that it came to nothing may tell of the data, too
            report = sealed if n else b""
            self._ledger.pay(self._number, self._question, self._cost, report, self._at_once)
            if self._paid:
                client = self._clients
                self._paid[client.device - client.first] = self.arrived
        return n

    def _decode(self, data, k):
        """Set _form: the Card, bytes of k packed symbols, and views of the report in `reply`,
        without and with tag.
        """
        self._k = 0
        self._certified = None
        card = decode(data)
        size = frames.packed_size(card.symbols, k)
        if size > wire.MAX_PACKED:
            raise CardError("too many symbols for one report")
        n = frames.REPORT_BYTES + size
        view = memoryview(self.reply)
        self._form = card, size, view[:n], view[: n + wire.TAG_BYTES]
        self._k = k

    def _answerer(self, model):
        """Return what answers for `model`, 0 for a sum, -1 for a projection: it has cost(),
        values() and draw().
        """
        if model not in self._answerers:
            try:  # loaded only when asked for
                if not model:
                    from tern.sums import Answerer
                elif model < 0:
                    from tern.projection import Answerer  # type: ignore[assignment]
                elif model == wire.SOFTMAX:
                    from tern.inference import Answerer  # type: ignore[assignment]
                elif model == wire.SOFTMAX_GRADIENT:
                    from tern.softmax import Answerer  # type: ignore[assignment]
                elif model in wire.COLLECTIONS:
                    from tern.collect import Answerer  # type: ignore[assignment]
                else:
                    from tern.local import Answerer  # type: ignore[assignment]
                self._answerers[model] = answerer = Answerer(self.round)
            except ImportError:  # not every board has it: tern deploy
                raise FrameError(wire.ERR_MODEL, "no module for this model here", self.round.model)
            answerer.unit = self._unit
            answerer.bound = self._bound
            answerer.question = self._question  # type: ignore[attr-defined]
        return self._answerers[model]

    def close(self):
        self._ledger.close()
        for file in (self._clients, self._records):
            if file:
                file.close()

    def _open_clients(self):
        if self._clients is None:
            self._fleet_key, pause, self._slot_ms, ahead, self._epoch, self._bound, self._unit = (
                read_fleet(self.board.directory + "/" + storage.FLEET)
            )
            clients = storage.Clients(self.board.directory + "/" + storage.CLIENTS, self._bound)
            self._pause_ms = 1000 * pause
            if clients.count == 1:
                self._ahead = ahead
            if pause:
                self._paid = [
                    self.arrived
                ] * clients.count  # nobody knows when the last debits were
            self._clients = clients  # last: without the policy above there are no clients
        return self._clients

    def _find(self, device):
        try:
            clients = self._open_clients()
            if clients.find(device):
                return clients
        except StorageError:
            pass
        raise FrameError(wire.ERR_DEVICE, "no such client", device)

    def open_records(self, client):
        """Return the records (as storage.Records) of `client`, whose `start` and `records` say
        which of them.
        """
        if self._records is None:
            self._records = storage.Records(self.board.directory + "/" + storage.RECORDS)
        records = self._records
        held = client.records or self._form[0].shape == SUM  # a sum may be of none
        if not held or client.start + client.records > records.count:
            raise StorageError("client without records")
        if self.round.d != records.d:
            raise FrameError(wire.ERR_DATA, "records of another dimension", records.d)
        return records

    def _load(self, device):
        ledger = self._ledger
        # Written over in place nobody else writes it; where it is ahead of what was released it
        # must not be read again.
        if device != self._loaded or not (ledger.path and (self.board.in_place or ledger.reserved)):
            ledger.load(self.board.directory + "/" + ledger_name(device))
            self._loaded = device
        return ledger
