"""tern beside a program: the same answers as a client of its own, in steps; records that nobody can count; once()."""

import asyncio
import struct
from array import array

import scratch
import small_board
from checks import raises
from known_board import HELLO_NAMES
from small_board import THREE, ask, error_of, key_of, provision, put_fleet, round_frame
from streams import Keyed

from tern import app, frames, host_frames, storage, wire
from tern.app import App, Live
from tern.client import Client
from tern.compat import ticks_diff, ticks_ms
from tern.ledger import LedgerError
from tern.recorder import Recorder

D = 4
MODELS = ((wire.LINEAR, 0), (wire.LOGISTIC, 1), (wire.LOGISTIC, 0), (wire.SVM, 7))


def recorder_of(board, rows, d=D, least=1):
    """A Recorder in the board's folder, with these rows."""
    recorder = Recorder(d, capacity=64, hold=4, least=least)
    recorder.open(board.directory)
    for row in rows:
        recorder.append(row, row[d])
    recorder.flush()
    return recorder


def live_on(board, rows, d=D, least=1, model=None):
    return Live(board, recorder_of(board, rows, d, least), model or Taken())


class Taken:
    """In the place of a Model: what it was given."""

    def __init__(self):
        self.rounds = []
        self.models = []
        self.forgotten = 0

    def open(self, directory):
        pass

    def take_round(self, request):
        self.rounds.append((request.round, list(request.parameters)))

    def take_model(self, frame, key):
        self.models.append((bytes(frame), key))

    def forget_round(self):
        self.forgotten += 1


def rows_of(board, d=D):
    """The rows in its records.bin."""
    records = storage.Records(board.directory + "/" + storage.RECORDS)
    found = []
    for i in range(records.count):
        row = array("h", bytes(2 * d + 2))
        records.read(i, row)
        found.append(row)
    records.close()
    return found


def in_steps(live, frame):
    """(answers, number of pauses) of `live` to `frame`, answered in steps."""
    answers = []
    pauses = 0
    for _ in live.steps(frame, lambda reply, n: answers.append(bytes(reply[:n]))):
        pauses += 1
    return answers, pauses


def generator_of(label):
    """A board's generator of known bytes, without end."""

    class Known(Keyed):
        state = wire.CTR_DRBG

        def end_report(self):
            pass

    return lambda: Known(b"app", label)


def test_it_answers_as_a_client_of_the_same_records():
    plain = provision(scratch.folder(), records=7)
    own = provision(scratch.folder(), records=1)
    recorder = recorder_of(own, rows_of(plain))
    for number, (model, batch) in enumerate(MODELS, 1):
        frame = round_frame(number, THREE, model=model, batch=batch)
        plain.generator = own.generator = generator_of(b"%d" % number)
        expected = ask(Client(plain), frame)
        assert expected[0] == wire.REPORT
        live = Live(own, recorder, Taken())
        answers, pauses = in_steps(live, frame)
        assert answers == [expected], (model, batch)
        assert pauses == min(batch or 7, 7) + 3  # a new card takes two, the model one
        assert ask(live, frame) == expected  # the stored one


def test_softmax_and_local_training_in_steps():
    for model, d in ((wire.SOFTMAX_GRADIENT, D), (wire.LOCAL + wire.LOGISTIC, D)):
        own = provision(scratch.folder())
        plain = provision(scratch.folder(), records=5)
        plain.generator = own.generator = generator_of(b"%d" % model)
        out = bytearray(wire.MAX_FRAME)
        if model == wire.SOFTMAX_GRADIENT:
            parameters, classes, more = array("h", range(3 * d)), 3, (0, (0, 0, 0))
        else:
            parameters, classes, more = array("h", range(d)), 1, (2, (2, 1, 1 << 20))
        n = host_frames.encode_round(
            out, key_of(7), 7, 1, model, parameters, THREE, 3, -14, 0, classes, *more
        )  # fmt: skip
        frame = memoryview(out)[:n]
        answers, pauses = in_steps(live_on(own, rows_of(plain)), frame)
        assert answers == [ask(Client(plain), frame)] and answers[0][0] == wire.REPORT
        assert pauses == 3 + (5 if model == wire.SOFTMAX_GRADIENT else 10)


def test_too_few_records_are_answered_as_one_of_zeros_and_paid_for():
    for count in (0, 3):
        zeros = provision(scratch.folder())
        own = provision(scratch.folder())
        with open(zeros.directory + "/" + storage.RECORDS, "r+b") as file:
            file.seek(storage.RECORDS_BYTES)
            file.write(bytes(2 * D + 2))
        frame = round_frame(1, THREE)
        zeros.generator = own.generator = generator_of(b"few")
        live = live_on(own, [array("h", (16384,) * (D + 1))] * count, least=4)
        answer = ask(live, frame)
        assert answer[0] == wire.REPORT and answer == ask(Client(zeros), frame)
        assert live._ledger.spent == 4 * small_board.EPSILON


def test_the_newest_records_count_as_far_as_everybody_may_know():
    own = provision(scratch.folder())
    put_fleet(own.directory, records=2)
    plain = provision(scratch.folder(), records=2)
    rows = rows_of(plain)
    plain.generator = own.generator = generator_of(b"newest")
    frame = round_frame(1, THREE)
    assert ask(live_on(own, [array("h", bytes(2 * D + 2))] * 9 + rows), frame) == ask(Client(plain), frame)


def test_hello_tells_nothing_of_how_many_there_are():
    for count in (0, 9, 60):
        board = provision(scratch.folder())
        live = live_on(board, [array("h", bytes(10))] * count)
        n = frames.encode_hello_request(live.reply, 5)
        told = struct.unpack_from(wire.HELLO_FIELDS, ask(live, memoryview(bytes(live.reply[:n]))), 1)
        assert told[HELLO_NAMES.index("heap")] == told[HELLO_NAMES.index("records")] == 0, count


def test_a_program_has_one_node_and_its_board_one_device():
    node = app_on(Link())
    raises(RuntimeError, App, node.board, Recorder(D), Taken())
    raises(storage.StorageError, live_on, provision(scratch.folder(), clients=2), [])


def test_a_round_of_before_brings_no_model():
    model = Taken()
    live = live_on(provision(scratch.folder()), [array("h", bytes(10))] * 5, model=model)
    in_steps(live, round_frame(40, THREE))
    in_steps(live, round_frame(1, THREE, shift=3))  # replayed
    assert [number for number, _ in model.rounds] == [40]


def test_records_of_another_dimension_are_refused_as_everybody_may_know():
    live = live_on(provision(scratch.folder()), [], d=9)
    assert error_of(ask(live, round_frame(1, THREE))) == (wire.ERR_DATA, 9)


def test_a_refusal_computes_nothing():
    live = live_on(provision(scratch.folder(), budget=1), [array("h", bytes(10))] * 5)
    for card, code, steps in ((THREE, wire.ERR_BUDGET, 2), (THREE[:-1], wire.ERR_CARD, 1)):
        frame = small_board.asked[0] = round_frame(1, card)
        (answer,), pauses = in_steps(live, frame)
        assert error_of(answer)[0] == code and pauses == steps


def test_a_model_that_cannot_be_kept_keeps_no_report_back():
    class Full(Taken):
        def take_round(self, request):
            raise LedgerError("no room")

    live = live_on(provision(scratch.folder()), [array("h", bytes(10))] * 5, model=Full())
    (answer,), _ = in_steps(live, round_frame(1, THREE))
    assert answer[0] == wire.REPORT


def test_the_model_gets_what_is_verified():
    model = Taken()
    own = provision(scratch.folder())
    live = live_on(own, [array("h", bytes(10))] * 5, model=model)
    frame = round_frame(3, THREE, shift=5)
    damaged = bytearray(frame)
    damaged[-1] ^= 1
    in_steps(live, memoryview(damaged))
    assert model.rounds == []
    in_steps(live, frame)
    assert model.rounds[-1] == (3, [5, 105, 205, 305])
    out = bytearray(wire.MAX_FRAME)
    for device, key in ((7, key_of(7)), (wire.FLEET, None)):
        n = host_frames.encode_model(
            out, key or bytes(32), device, 3, wire.LOGISTIC, array("h", range(D)), -14
        )
        assert in_steps(live, memoryview(out)[:n]) == ([], 0)  # asks for no answer
        assert model.models[-1] == (bytes(memoryview(out)[:n]), key)


class Link:
    """Gives what it is given, one frame a call; then nothing, or what is an exception."""

    console = False

    def __init__(self, *given):
        self.given = list(given)
        self.sent = []
        self.admitted = []
        self.closed = self.left = 0

    def receive(self, timeout_ms=-1):
        if not self.given:
            return None
        one = self.given.pop(0)
        if isinstance(one, type):
            raise one("the records are 1, 2 and 3")
        return one

    def send(self, reply, n):
        self.sent.append(bytes(reply[:n]))
        return True

    def admit(self, kind):
        self.admitted.append(kind)

    def waiting(self):
        return 0

    def disconnect(self):
        self.left += 1

    def close(self):
        self.closed += 1


def app_on(link):
    board = provision(scratch.folder())
    board.link = lambda: link
    recorder_of(board, [array("h", bytes(10))] * 5).close()
    return App(board, Recorder(D, capacity=64, hold=4), Taken())


def test_beside_other_tasks():
    link = Link(None, round_frame(1, THREE), None, OSError, EOFError)
    node = app_on(link)
    ticks = []
    fed = []

    class Watchdog:
        def feed(self):
            fed.append(1)

    async def other():
        while True:
            if len(ticks) < 99:
                ticks.append(node.reports)
            await app.sleep_ms(0)

    async def main():
        task = asyncio.create_task(other())
        await node.run(Watchdog())
        task.cancel()

    before = app.compat.feed
    try:
        asyncio.run(main())
    finally:
        app.compat.feed = before
    assert len(link.sent) == 1 and link.sent[0][0] == wire.REPORT
    assert ticks.count(0) >= 6  # between the records, too
    assert node.reports == 1 and isinstance(node.error, OSError) and node.board.last_error == "OSError"
    assert link.closed == 2 and link.admitted == [wire.MODEL, wire.UPDATE] * 2 and len(fed) > 5


def test_once():
    link = Link(round_frame(1, THREE))
    node = app_on(link)
    assert node.once(3000)
    assert link.sent[0][0] == wire.REPORT and link.left == link.closed == 1
    link.given.append(round_frame(1, THREE))
    assert node.once(3000)  # answered again, as after a lost acknowledgement
    assert link.sent[1] == link.sent[0]
    assert not node.once(600)  # nothing is asked
    link.given.append(OSError)
    before = link.left
    assert not node.once(600) and isinstance(node.error, OSError)
    assert link.left == before + 1  # the radio is off then, too
    flood = Link()
    flood.receive = lambda timeout_ms: b"\x04 what no model is"
    node.board.link = lambda: flood
    start = ticks_ms()
    assert not node.once(300)  # who talks without end keeps no board awake
    assert ticks_diff(ticks_ms(), start) < 3000
    node.board.link = lambda: link
    start = ticks_ms()
    assert not node.once(700)  # nothing is heard at all: it takes its time, and no more
    assert 600 <= ticks_diff(ticks_ms(), start) < 3000
