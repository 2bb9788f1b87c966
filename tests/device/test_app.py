"""tern in a program: it answers as a Client does, in steps, and does not reveal the number of
records.
"""

import asyncio
from array import array

import scratch
import small_board
from checks import replaced
from fake_link import Link
from small_board import THREE, ask, error_of, key_of, provision, put_fleet, round_frame
from streams import Keyed

from tern import app, frames, host_frames, storage, wire
from tern.app import App, Live
from tern.client import Client
from tern.compat import ticks_diff, ticks_ms
from tern.ledger import LedgerError
from tern.model import Model
from tern.recorder import Recorder

D = 4
TRAINING = {"k": 3, "batch": 2, "local": (2, 1, 1 << 20)}  # two epochs, rate 1, tau
# How often the seven records are read for a report, and the fields of its ROUND.
ROUNDS = (
    (7, {"model": wire.LINEAR}),
    (1, {"model": wire.LOGISTIC, "batch": 1}),
    (7, {"model": wire.LOGISTIC}),
    (7, {"model": wire.SVM, "batch": 7}),
    (7, {"model": wire.SOFTMAX_GRADIENT, "k": 3, "classes": 3}),
    (14, dict(TRAINING, model=wire.LOCAL + wire.LOGISTIC)),
    (14, dict(TRAINING, model=wire.LOCAL_SOFTMAX, classes=3)),
)


def recorder_of(board, rows, d=D, least=1):
    """A Recorder in the board's folder, with these rows."""
    recorder = Recorder(d, capacity=64, hold=4, least=least)
    recorder.open(board.directory)
    for row in rows:
        recorder.append(row, row[d])
    recorder.flush()
    return recorder


def live_on(board, rows, d=D, least=1, model=None, limits=None):
    recorder = recorder_of(board, rows, d, least)
    return Live(board, recorder, model or FakeModel(), limits=limits)


class FakeModel:
    """Stands in for a Model, and keeps the rounds and models that it gets."""

    def __init__(self):
        self.rounds = []
        self.models = []

    def open(self, directory):
        pass

    def take_round(self, request):
        self.rounds.append((request.round, list(request.parameters)))

    def take_model(self, frame, key):
        self.models.append((bytes(frame), key))


def rows_of(board):
    """The rows in its records.bin."""
    records = storage.Records(board.directory + "/" + storage.RECORDS)
    rows = [array("h", bytes(2 * D + 2)) for _ in range(records.count)]
    for i in range(records.count):
        records.read(i, rows[i])
    records.close()
    return rows


def in_steps(live, frame):
    """(answers, number of pauses) of `live` to `frame`, answered in steps."""
    answers = []
    pauses = 0
    for _ in live.steps(frame, lambda reply, n: answers.append(bytes(reply[:n]))):
        pauses += 1
    return answers, pauses


def generator_of(label):
    """A function that makes a board's generator: of known bytes, without end."""

    class Known(Keyed):
        state = wire.CTR_DRBG

        def end_report(self):
            pass

    return lambda: Known(b"app", label)


def test_a_program_answers_as_a_client_with_the_same_records():
    # A program of the user (Live) records its own rows; a Client reads a file of rows. With the
    # same rows, random bytes and ROUND, a host's question, both give the same REPORT byte for
    # byte. The pauses, at which other tasks run, depend on public facts alone: one for each row
    # that is read.
    client_board = provision(scratch.folder(), records=7)
    live_board = provision(scratch.folder(), records=1)
    recorder = recorder_of(live_board, rows_of(client_board))
    for number, (readings, fields) in enumerate(ROUNDS, 1):
        frame = round_frame(number, THREE, **fields)
        client_board.generator = live_board.generator = generator_of(b"%d" % number)
        expected = ask(Client(client_board), frame)
        assert expected[0] == wire.REPORT

        live = Live(live_board, recorder, FakeModel())
        answers, pauses = in_steps(live, frame)

        assert answers == [expected], fields
        assert pauses == readings + 3  # two for a new card, one for the model
        assert ask(live, frame) == expected  # the stored one


def test_the_slot_must_have_room_for_finding_records_in_segments():
    # A slot is the fixed time (ms) after which a board answers. One too short for the worst case
    # is refused before any work. Records lie in segments, which are files; to open each takes time
    # too.
    # 240 ms, and 196/256 ms for each of 64 records and of 4 batches, and once more.
    without_segments = 240 + ((64 + 4 + 1) * (D + 64 + 128) >> 8)
    segments = 2  # of 64 records each, so that 64 records may lie in both
    needed = without_segments + segments * 5 + segments  # ms: 5 to open one, 1 to search it
    training = {"k": 1, "model": wire.LOCAL + wire.SVM, "exponent": -12, "local": (1, 1, 9)}
    for slot in (needed - 1, needed):
        board = provision(scratch.folder())
        put_fleet(board.directory, slot=slot, records=64)
        recorder = Recorder(D, capacity=64, hold=32)
        recorder.open(board.directory)
        live = Live(board, recorder, FakeModel())
        answer = ask(live, round_frame(1, THREE, batch=16, **training))
        if slot == needed:
            assert answer[0] == wire.REPORT
        else:
            assert error_of(answer) == (wire.ERR_SLOT, 0)


def test_too_few_records_count_as_one_of_zeros_and_the_report_is_paid_for():
    # A refusal would tell the host that there are few records. So with fewer than `least` of them,
    # the board answers from a single record of zeros, and pays for the report from its privacy
    # budget as always.
    for count in (0, 3):
        zeros = provision(scratch.folder())
        live_board = provision(scratch.folder())
        with open(zeros.directory + "/" + storage.RECORDS, "r+b") as file:
            file.seek(storage.RECORDS_BYTES)
            file.write(bytes(2 * D + 2))  # D features and a label, of 16 bits
        frame = round_frame(1, THREE)
        zeros.generator = live_board.generator = generator_of(b"few")
        live = live_on(live_board, [array("h", (16384,) * (D + 1))] * count, least=4)

        answer = ask(live, frame)

        assert answer[0] == wire.REPORT and answer == ask(Client(zeros), frame)
        assert live.ledger.spent == 4 * small_board.EPSILON  # one for each coordinate


def test_the_newest_records_count_up_to_the_public_bound():
    # The fleet's file bounds how many records of a device count, here 2: of nine rows of zeros and
    # then two others, the answer uses the last two alone, as a Client does that holds just these.
    live_board = provision(scratch.folder())
    put_fleet(live_board.directory, records=2)
    client_board = provision(scratch.folder(), records=2)
    client_board.generator = live_board.generator = generator_of(b"newest")
    frame = round_frame(1, THREE)
    live = live_on(live_board, [array("h", bytes(2 * D + 2))] * 9 + rows_of(client_board))

    assert ask(live, frame) == ask(Client(client_board), frame)


def test_hello_does_not_reveal_the_number_of_records():
    for count in (0, 9, 60):
        live = live_with_records(count)
        n = frames.encode_hello_request(live.reply, 5)
        hello = host_frames.Hello(ask(live, memoryview(bytes(live.reply[:n]))))
        assert hello.heap == hello.records == 0, count


def live_with_records(count=5, model=None, limits=None, **options):
    """A Live on a new board whose recorder holds this number of records of zeros."""
    board = provision(scratch.folder(), **options)
    return live_on(board, [array("h", bytes(10))] * count, model=model, limits=limits)


def test_an_earlier_round_does_not_change_the_model():
    model = FakeModel()
    live = live_with_records(model=model)
    in_steps(live, round_frame(40, THREE))
    in_steps(live, round_frame(1, THREE, shift=3))  # replayed
    assert [number for number, _ in model.rounds] == [40]


def test_records_of_another_dimension_are_refused():
    live = live_on(provision(scratch.folder()), [], d=9)
    assert error_of(ask(live, round_frame(1, THREE))) == (wire.ERR_DATA, 9)


def test_a_refusal_computes_nothing():
    live = live_with_records(budget=1)
    for card, code, steps in ((THREE, wire.ERR_BUDGET, 2), (THREE[:-1], wire.ERR_CARD, 1)):
        frame = small_board.asked[0] = round_frame(1, card)
        (answer,), pauses = in_steps(live, frame)
        assert error_of(answer)[0] == code and pauses == steps


def test_a_report_is_sent_although_the_model_cannot_be_stored():
    class Full(FakeModel):
        def take_round(self, request):
            raise LedgerError("no room")

    (answer,), _ = in_steps(live_with_records(model=Full()), round_frame(1, THREE))
    assert answer[0] == wire.REPORT


def test_the_model_gets_verified_rounds_only():
    # A ROUND carries the parameters of the current model. A frame whose tag is wrong (its last
    # byte is changed) must not reach the model of the program.
    model = FakeModel()
    live = live_with_records(model=model)
    frame = round_frame(3, THREE, shift=5)
    damaged = bytearray(frame)
    damaged[-1] ^= 1

    in_steps(live, memoryview(damaged))
    assert model.rounds == []

    in_steps(live, frame)
    assert model.rounds == [(3, [5, 105, 205, 305])]  # a parameter is 100 j + shift


def test_a_model_for_the_client_or_the_fleet_has_no_answer():
    # A MODEL frame brings the trained parameters, sealed with the key of one device or sent to the
    # whole fleet. The program's model takes it, and nothing is sent back.
    model = FakeModel()
    live = live_with_records(model=model)
    out = bytearray(wire.MAX_FRAME)
    for device, key in ((7, key_of(7)), (wire.FLEET, None)):
        seal, parameters = key or bytes(32), array("h", range(D))
        n = host_frames.encode_model(out, seal, device, 3, wire.LOGISTIC, parameters, -14)
        frame = memoryview(out)[:n]
        assert in_steps(live, frame) == ([], 0)  # no answer and no pause
        assert model.models[-1] == (bytes(frame), key)


def limits_frame(key=bytes(32)):
    """A MODEL frame with limits, for the whole fleet."""
    out = bytearray(wire.MAX_FRAME)
    n = host_frames.encode_model(
        out, key, wire.FLEET, 3, wire.LIMITS, array("h", range(D)), wire.LIMITS_EXPONENT
    )
    return bytes(out[:n])


def test_limits_go_to_the_limits_of_a_program_and_not_to_its_model():
    model, limits = FakeModel(), FakeModel()
    live = live_with_records(model=model, limits=limits)
    frame = limits_frame()
    assert in_steps(live, memoryview(frame)) == ([], 0)
    assert limits.models == [(frame, None)]
    assert model.models == []


def test_a_program_without_limits_ignores_them():
    model = FakeModel()
    live = live_with_records(model=model)
    assert in_steps(live, memoryview(limits_frame())) == ([], 0)
    assert model.models == []


def test_a_model_of_a_kind_that_nobody_knows_is_ignored():
    # As an older library does with limits: its program keeps the model that it has.
    folder = scratch.folder()
    model = Model()
    model.open(folder)
    live = live_with_records(model=model)
    out = bytearray(wire.MAX_FRAME)
    n = host_frames.encode_model(out, key_of(7), 7, 3, wire.LOGISTIC, array("h", (1, 2, 3, 4)), -14)
    in_steps(live, memoryview(out)[:n])
    assert model.ready and model.round == 3

    out[9] = 200  # the kind
    out[5] = 9  # a later round
    n = frames.seal(key_of(7), out, n - wire.TAG_BYTES)
    assert in_steps(live, memoryview(out)[:n]) == ([], 0)
    assert model.round == 3 and model.kind == wire.LOGISTIC


def link_with(*given):
    """A link that receives nothing once it has received these."""
    return Link(given, end=None)


def app_on(link):
    board = provision(scratch.folder())
    board.link = lambda: link
    recorder_of(board, [array("h", bytes(10))] * 5).close()
    return App(board, Recorder(D, capacity=64, hold=4), FakeModel())


def test_a_node_answers_beside_other_tasks_and_opens_its_link_again():
    # node.run() is a task of asyncio. While it reads records it lets other tasks run and feeds the
    # watchdog, a timer that resets a board that hangs; when the link fails it opens the link
    # again.
    link = link_with(None, round_frame(1, THREE), None, OSError, EOFError)
    node = app_on(link)
    reports_so_far = []  # at each turn of the other task
    fed = []

    class Watchdog:
        def feed(self):
            fed.append(1)

    # The other task notes at each of its turns how many reports there are.
    async def other():
        while True:
            if len(reports_so_far) < 99:
                reports_so_far.append(node.reports)
            await app.sleep_ms(0)

    async def main():
        task = asyncio.create_task(other())
        await node.run(Watchdog())
        task.cancel()

    clock = app.ticks_ms
    looks = []

    def slow():  # 3 ms more at each look, as if a record took that long
        looks.append(1)
        return clock() + 3 * len(looks)

    with replaced(app.compat, feed=app.compat.feed):  # run() replaces it
        with replaced(app, ticks_ms=slow):
            asyncio.run(main())

    assert [answer[0] for answer in link.sent] == [wire.REPORT]
    assert reports_so_far.count(0) >= 6  # also between the records
    assert node.reports == 1
    assert isinstance(node.error, OSError) and node.board.last_error == "OSError"
    # OSError and EOFError ended two connections, each of which admitted two kinds of frames.
    assert link.closed == 2 and link.admitted == [wire.MODEL, wire.UPDATE] * 2
    assert len(fed) > 5
    scratch.remove(node.board.directory)  # small boards have no room for many


class Public(Link):
    """A link with a slot; `moments` (ms): of its looks, at each of which it receives."""

    slot = 500
    busy = False
    last = 0

    def until(self, step, timeout_ms):
        return self.moments.pop(0)

    def send(self, reply, n):
        self.busy = False
        return super().send(reply, n)


def test_pauses_count_from_public_moments_alone_and_begin_anew_after_an_exception():
    # A client refuses a ROUND for `pause` seconds after its start and after each report. These
    # seconds count from the moments of the slot, which everyone knows, not from when the work
    # ended, which depends on the data. `moments` holds one such time (ms) for each frame.
    frame = round_frame(1, THREE)
    link = Public([frame, frame, OSError, frame, frame, frame])
    link.moments = [70_000, 129_001, 130_000, 200_000, 259_999, 260_000, 270_000]
    node = app_on(link)
    put_fleet(node.board.directory, pause=60)
    node._client = None  # which has no pause yet
    small_board.asked[0] = frame

    asyncio.run(node.run())

    # 60 s of pause left at 70 s, 1 s at 129.001 s; the same anew after the OSError at 130 s.
    assert [error_of(reply) for reply in link.sent[:4]] == [
        (wire.ERR_TOO_SOON, s) for s in (60, 1, 60, 1)
    ]
    assert [reply[0] for reply in link.sent[4:]] == [wire.REPORT]
    scratch.remove(node.board.directory)


def test_once_answers_one_round_and_leaves():
    # once(limit_ms) is for a board that sleeps between rounds: it connects, answers one round and
    # disconnects. Asked the same round again, it sends the stored report, as new random bytes
    # would cost more privacy.
    link = link_with(round_frame(1, THREE))
    node = app_on(link)
    assert node.once(3000)
    assert link.sent[0][0] == wire.REPORT and link.left == link.closed == 1

    link.given.append(round_frame(1, THREE))
    assert node.once(3000)  # answered again, as after a lost acknowledgement
    assert link.sent[1] == link.sent[0]


def test_once_switches_the_radio_off_after_an_error_of_the_link():
    link = link_with(OSError)
    node = app_on(link)
    assert not node.once(600)
    assert isinstance(node.error, OSError) and link.left == 1


def test_once_ends_in_time_whatever_comes():
    # A silent host, or one that sends frames of no use without end, must not keep a board awake
    # that runs on a battery.
    silent = link_with()
    flood = link_with()
    flood.receive = lambda timeout_ms: b"\x04 no MODEL"
    node = app_on(silent)
    # least_ms: a board waits for a silent host almost to the limit.
    for link, limit_ms, least_ms in ((silent, 700, 600), (flood, 300, 0)):
        node.board.link = lambda link=link: link
        start = ticks_ms()
        assert not node.once(limit_ms)
        assert least_ms <= ticks_diff(ticks_ms(), start) < 3000
