"""The round loop: a client's answer to each frame, in the order of shared_specs/ledger.md.

begin(), allow() and release() make a report. Only release() draws and pays: nothing of the report
leaves the board before the ledger, the account of the privacy loss, is durable.
"""

import gc

from tern import frames, storage, wire
from tern.card import CardError
from tern.compat import MICROPYTHON, const
from tern.entropy import EntropyError
from tern.frames import FrameError, difference, is_for_fleet
from tern.ledger import Ledger, LedgerError
from tern.policy import Policy
from tern.report import Report
from tern.session import Session
from tern.shapes import SUM
from tern.storage import StorageError, ledger_name, read_fleet, write_fleet

_mem_free = getattr(gc, "mem_free", int)  # CPython does not tell

REFUSALS = (FrameError, CardError, LedgerError, EntropyError, StorageError, OSError, MemoryError)

_HOLES = const(80)  # single blocks of the heap that settle() fills
_COLLECT = const(250)  # answers after which garbage is collected


class Client:
    """Answers the frames of a host into `reply`, for all clients of `board`.

    A client is a device id with a key and a budget; a board may have several. Without its files it
    can still say hello.

    clients: the storage.Clients, None until they are open; the client that was found last is the
    one that answers. records: those of the report under way. arrived: when the frame under way came
    (ms); the caller sets it before any work on the frame, for clients that pause. filler: blocks
    that fill the holes of the heap; None until settle() has done it.
    """

    def __init__(self, board):
        """board: see tern.boards. Opens no file yet."""
        self.board = board
        self.reply = bytearray(wire.MAX_FRAME)
        self.arrived = 0
        self.clients = self.records = None
        self.policy = Policy()
        self.session = Session()
        self.ledger = Ledger(board.in_place, board)
        self.report = Report(self.session, self.policy, self.reply)
        self.entropy = board.generator()
        self._ledger_of = wire.BOARD  # the client whose ledger it is
        self._records = None  # records.bin
        self.filler = None
        self._answers = 0  # since garbage was collected
        if MICROPYTHON:
            gc.threshold(-1)  # see compat

    def respond(self, frame, send):
        """Answer `frame` for each client that it is for.

        send: a function that takes a reply and its length. The reports of several clients go
        together in frames REPORTS.
        """
        n = len(frame)
        if n and frame[0] == wire.MODEL:  # asks for no answer
            return
        # Of all ids, few have 255 as their highest byte; most frames need no further look.
        if n > 4 and frame[4] == 255 and is_for_fleet(frame):
            self._respond_all(frame, send)
        else:
            send(self.reply, self.answer(frame))
        if self.filler is None:
            self.settle()

    def settle(self):
        """Collect garbage and fill the holes of the heap, if the last answer was a report.

        It takes 11 ms on a Pico. Call it after each answer until one was a report, and later between
        answers, so that it delays none.
        MicroPython looks for memory from the first free block on. Holes of one block make it search
        all of the heap for larger pieces: filling them saves 1 ms for each report.
        """
        if self.reply[0] != wire.REPORT:
            return
        self.filler = None
        gc.collect()
        # A chain of tuples of one item, each a block.
        for _ in range(_HOLES):
            self.filler = (self.filler,)

    def tend(self):
        """Do now what would delay a later report; to be called once an answer is sent.

        A board with a slot does nothing here: its answers leave at fixed times.
        """
        if self.policy.slot_ms:
            return
        self._answers += 1
        if self._answers > _COLLECT:
            self._answers = 0
            self.settle()
        try:
            self.ledger.tend()
        except LedgerError:  # the next report loads it again, or refuses
            pass

    def members(self, frame):
        """Return for how many clients a ROUND for the fleet is: all of the board, or none.

        It is for none if its tag does not verify, or if the board has no fleet's key.
        """
        try:
            clients = self.open_clients()
            fleet_key = self.policy.fleet_key
            if fleet_key:
                frames.verify(fleet_key, frame)
                return clients.count
        except (StorageError, FrameError, MemoryError):
            pass  # the board answers once, with the error
        return 0

    def _respond_all(self, frame, send):
        """Answer `frame`, a ROUND for the fleet, for each client of the board."""
        count = self.members(frame)
        if count > 1:
            try:
                from tern.many import respond  # a board of one client has no use for it
            except ImportError:
                count = 0
        if count > 1:
            respond(self, frame, self.clients.first, count, send)
        else:
            send(self.reply, self.answer(frame, self.clients.first if count else wire.BOARD))

    def answer(self, frame, member=wire.BOARD):
        """Write the answer to `frame` into `reply`; return its length.

        frame: a memoryview; empty if it was damaged. member: the client that answers a frame whose
        tag, of the fleet's key, members() has verified; BOARD for other frames.
        """
        # MicroPython keeps more than 11 words of variables on the heap, and searches from the last
        # single block: so few functions have so many.
        self.session.take(frame)
        try:
            n = self.begin(frame, member)
            if not n:
                self.allow()
                n = self.release()
            return n
        except REFUSALS as error:
            return self.refuse(error)

    def begin(self, frame, member=wire.BOARD):
        """Begin the answer to the frame that session.take() has taken.

        Returns the length of the answer in `reply`; or 0 for a new report, which allow() and
        release() make. Raises REFUSALS.
        """
        session = self.session
        address = session.address
        if not address or frame[0] != wire.ROUND:
            return self._begin_other(frame)
        number = address[1]
        session.number = number
        device = member or address[0]
        client = self.clients
        if client is None or client.device != device:
            client = self.find(device)
        session.open(frame, client, member)
        last_round = self.load_ledger(device).round
        ahead = number - last_round
        if ahead <= 0:
            return self._repeat(number, last_round)
        # A ROUND far ahead would use up the numbers of all rounds before it.
        if ahead > wire.FLEET_AHEAD and (
            ahead > wire.CLIENT_AHEAD or session.round.device == wire.FLEET
        ):
            raise FrameError(wire.ERR_AHEAD, "too many rounds skipped", last_round)
        self.report.prepare()
        return 0

    def _begin_other(self, frame):
        """Answer a frame that is no ROUND, as begin()."""
        kind = frames.kind(frame)
        if kind == wire.HELLO_REQUEST:
            return self.hello(frames.decode_hello_request(frame))
        if kind == wire.FLEET_KEY:
            return self._take_fleet_key(frame)
        return self.other(frame)

    def other(self, frame):
        """Answer a frame of another type, as begin(); a subclass may know more types."""
        raise FrameError(wire.ERR_FRAME, "no question, or without an address")

    def refuse(self, error):
        """Write the ERROR for `error`, one of REFUSALS, into `reply`; return its length."""
        # This is the code of StorageError and OSError.
        code = wire.ERR_DATA
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
        session = self.session
        return frames.encode_error(
            self.reply, session.key, session.device, session.number, code, detail
        )

    def hello(self, nonce):
        """Write a HELLO with the `nonce` of its request into `reply`; return its length.

        Budget and spending are those of the first client; 0 without clients, or without its ledger.
        """
        first = count = budget = spent = measure = 0
        try:
            clients = self.open_clients()
            first = clients.first
            count = clients.count
            clients.find(first)
            ledger = self.load_ledger(first)
            budget = max(0, min(clients.budget, ledger.budget) - ledger.spent)
            spent = ledger.spent
            measure = ledger.measure
        except (StorageError, LedgerError, FrameError):
            pass
        board = self.board
        policy = self.policy
        text = board.text()
        gc.collect()  # so that the free heap is what is really free
        # The parameters are the fields of a HELLO in their order.
        return frames.encode_hello(
            self.reply,
            nonce,
            first,
            count,
            budget,
            spent,
            policy.epoch,
            self.free(),
            policy.bound,
            board.exceptions,
            board.restarts,
            self.entropy.state,
            board.assessed,
            measure,
            policy.unit,
            text,
        )

    def free(self):
        """Return the bytes of heap that a HELLO states."""
        return _mem_free()

    def _take_fleet_key(self, frame):
        """Take another key of the fleet, of a later epoch; return the length of the HELLO that
        answers.

        The frame has a tag under the key of the board's first client, which also hides the new key.
        A key of an earlier epoch is ignored, so that no old frame brings it back. Raises
        FrameError.
        """
        device, epoch, key = frames.fields_of(frame, wire.FLEET_KEY, wire.FLEET_KEY_FIELDS)
        frames.check_length(frame, wire.FLEET_KEY_FIELDS, 0)
        clients = self.find(device)
        if device != clients.first:
            raise FrameError(wire.ERR_DEVICE, "not this board's first client", device)
        frames.verify(clients.key, frame)
        policy = self.policy
        if policy.fleet_key and epoch > policy.epoch:
            path = self.board.directory + "/" + storage.FLEET
            write_fleet(path, frames.mask_fleet_key(clients.key, epoch, key), epoch)
            policy.fleet_key = read_fleet(path)[0]
            policy.epoch = epoch
        return self.hello(epoch)

    def _repeat(self, number, last):
        """Write the report of the last round, which is paid for, into `reply` again.

        So an answer that got lost costs nothing more. Returns its length. number: the round that is
        asked for; last: the last one in the ledger. Raises FrameError if it is an older round, or
        if the question is another one.
        """
        if number < last:
            raise FrameError(wire.ERR_OLD_ROUND, "round is over", last)
        ledger = self.ledger
        if difference(self.session.question, 0, ledger.question, wire.KEY_BYTES):
            raise FrameError(wire.ERR_CHANGED_ROUND, "another question", last)
        n = len(ledger.report)
        memoryview(self.reply)[:n] = ledger.report
        return n

    def allow(self):
        """Raise one of REFUSALS unless the client may give this report.

        Checked are its price, policy, slot and certificate, then records and entropy, then budget
        and pause.
        """
        client = self.clients
        policy = self.policy
        if not self.report.is_checked:
            self._check_report(client)
        self.records = self.open_records(client)
        if self.entropy.state == wire.FAILED:
            raise EntropyError
        policy.check_client(client, self.ledger, self.arrived)

    def _check_report(self, client):
        """Check what stays the same from round to round: price, policy, slot and certificate.

        Raises FrameError.
        """
        policy = self.policy
        report = self.report
        card = report.card
        policy.cost = report.answerer.cost(card)
        measure = self.ledger.measure
        if measure or card.shape == SUM:
            policy.cost = report.price(measure, policy.cost)
        policy.check_card(client, report, self.session.round)
        report.is_checked = True

    def release(self, values=None):
        """Draw the report, pay for it, and only then return its length.

        values: those of the client, array('h') in Q1.14; None to compute them here. Raises
        REFUSALS.
        """
        report = self.report
        session = self.session
        policy = self.policy
        if values is None:
            values = report.answerer.values(self.clients, self.records, report.card)
        report.choose(values)
        sealed = b""
        try:
            report.draw(self.entropy)
            sealed = report.sealed
        finally:  # pay even if the draw failed: a failure can depend on the data
            self.ledger.pay(session.number, session.question, policy.cost, sealed, policy.at_once)
            if policy.paid:
                policy.paid[session.device - self.clients.first] = self.arrived
        return report.length

    def close(self):
        """Close all files; on a device they stay open for ever."""
        self.ledger.close()
        for file in (self.clients, self._records):
            if file:
                file.close()

    def open_clients(self):
        """Return the storage.Clients of the board, with the policy read. Raises StorageError."""
        if self.clients is None:
            policy = self.policy
            policy.read(self.board.directory + "/" + storage.FLEET)
            clients = storage.Clients(self.board.directory + "/" + storage.CLIENTS, policy.bound)
            policy.begin(clients.count, self.arrived)
            self.clients = clients  # last: without the policy above there are no clients
        return self.clients

    def find(self, device):
        """Return the clients with `device` as the current one. Raises FrameError."""
        try:
            clients = self.open_clients()
            if clients.find(device):
                return clients
        except StorageError:
            pass
        raise FrameError(wire.ERR_DEVICE, "no such client", device)

    def open_records(self, client):
        """Return the storage.Records; `start` and `records` of `client` say which are its own.

        Raises StorageError without records, FrameError if they have another dimension.
        """
        if self._records is None:
            self._records = storage.Records(self.board.directory + "/" + storage.RECORDS)
        records = self._records
        may_answer = client.records or self.report.card.shape == SUM  # a sum may be of none
        if not may_answer or client.start + client.records > records.count:
            raise StorageError("client without records")
        if self.session.round.d != records.d:
            raise FrameError(wire.ERR_DATA, "records of another dimension", records.d)
        return records

    def load_ledger(self, device):
        """Return the ledger of `device`. Raises LedgerError and FrameError."""
        ledger = self.ledger
        # Cached if this process is the only writer. Never reload a ledger with reserved rounds.
        cached = ledger.path and (self.board.in_place or ledger.reserved())
        if device != self._ledger_of or not cached:
            self.report.is_checked = False  # for another client, or by another measure
            ledger.load(self.board.directory + "/" + ledger_name(device))
            self._ledger_of = device
        return ledger
