"""The round loop where memory, modules or time are short. What it answers to every kind of request: test_rounds."""

import sys
from array import array

import scratch
import small_board
from checks import taken_by
from small_board import EPSILON, ask, error_of, key_of, provision, put_fleet, round_frame, spent

from tern import bench, frames, host_frames, supervisor, wire
from tern import client as client_module
from tern import gradient as gradient_module
from tern.card import CardError
from tern.client import Client
from tern.compat import MICROPYTHON


def test_certified_once_a_card():
    folder = scratch.folder()
    client = Client(provision(folder, clients=5))
    card = small_board.THREE
    calls = []
    real = client_module.certify

    def counted(card):
        calls.append(card)
        return real(card)

    client_module.certify = counted
    try:
        for device in range(7, 12):
            assert ask(client, round_frame(1, card, device=device))[0] == wire.REPORT
        client.answer(round_frame(2, small_board.TWO))
        for _ in range(2):  # the second time from what is remembered
            answer = ask(client, round_frame(3, small_board.LEAKING))
            assert error_of(answer) == (wire.ERR_NOT_CERTIFIED, EPSILON)
    finally:
        client_module.certify = real
    assert len(calls) == 3


def full(*arguments):
    raise MemoryError


def test_no_memory_costs_nothing_before_the_draw_and_the_round_from_then_on():
    for owner, name, cost in (
        (client_module, "decode", 0),
        (client_module, "gather", 0),
        (gradient_module, "array", 0),
        (gradient_module, "Gradient", 0),
        (None, "draw", 4 * EPSILON),
    ):
        folder = scratch.folder()
        client = Client(provision(folder))
        owner = owner or client._gradients
        frame = round_frame(1, small_board.THREE)
        good = getattr(owner, name)
        setattr(owner, name, full)
        try:
            assert error_of(ask(client, frame)) == (wire.ERR_FRAME, 0)
        finally:
            setattr(owner, name, good)
        assert spent(folder) == cost
        if cost:
            assert error_of(ask(client, frame)) == (wire.ERR_CHANGED_ROUND, 1)
            frame = round_frame(2, small_board.THREE)
        assert ask(client, frame)[0] == wire.REPORT
        assert spent(folder) == cost + 4 * EPSILON


def test_the_loop_goes_on_when_there_is_no_memory_even_for_an_error():
    folder = scratch.folder()
    board = provision(folder)
    frame = round_frame(1, small_board.THREE)
    given = [None, frame, frame, frame]
    sent = []
    lit = []

    class Link:
        console = False

        def receive(self, timeout_ms=-1):
            if not given:
                raise EOFError
            return given.pop(0)

        def close(self):
            pass

        def send(self, reply, n):
            sent.append(bytes(reply[:n]))
            if len(sent) == 1:
                raise MemoryError

    def without_memory(*arguments):
        client_module.decode, frames.encode_error = good
        raise MemoryError

    good = client_module.decode, frames.encode_error
    board.link = Link
    board.led = lit.append
    client_module.decode, frames.encode_error = full, without_memory
    try:
        supervisor.serve(board)
    finally:
        client_module.decode, frames.encode_error = good
    assert len(sent) == 2 and sent[0] == sent[1] and sent[0][0] == wire.REPORT
    assert not lit[-1] and spent(folder) == 4 * EPSILON


def test_the_bench_times_every_case():
    folder = scratch.folder()
    client = Client(provision(folder))
    if not MICROPYTHON:
        return  # there is no ticks_us
    cards = {"sample": small_board.THREE, "plain": small_board.WINDOW}
    for case in bench.CASES:
        units, times = bench.run(case, 3, cards.get(case, small_board.TWO), client)
        assert units > 0 and len(times) == 3, case
    try:
        bench.run("sample", 3, b"no card", client)
        raise AssertionError
    except CardError:
        pass
    assert spent(folder) == 0


def test_a_buffer_that_is_used_again_is_read_again():
    client = Client(provision(scratch.folder()))
    frame = bytearray(round_frame(1, small_board.TWO))
    view = memoryview(frame)
    for one in (frame, view):  # the very same object each time, as links have it
        for _ in range(2):
            number = client._ledger.round + 1
            view[:] = round_frame(number, small_board.TWO)
            n = client.answer(one)
            assert client.reply[0] == wire.REPORT and frames.address(client.reply[:n]) == (7, number)
        frame[10] ^= 1  # the tag is that of another question
        n = client.answer(one)
        assert client.reply[0] == wire.ERROR and client.reply[9] == wire.ERR_TAG


def test_a_report_leaves_little_garbage():
    board = provision(scratch.folder(), d=28)
    board.in_place = True
    client = Client(board)
    requests = [round_frame(number, small_board.THREE, d=28, k=1) for number in range(1, 29)]
    view = memoryview(bytearray(len(requests[0])))
    left = 0
    for i in range(len(requests)):
        view[:] = requests[i]
        garbage = taken_by(lambda: client.respond(view, lambda reply, n: None))
        assert client.reply[0] == wire.REPORT
        if i >= 4:
            left += garbage
    print("a report leaves", left // 24, "bytes")
    assert left <= 24 * 500


def special_round(model, k, local=(0, 0, 0)):
    """A ROUND of local training, or of what only some boards have a module for."""
    out = bytearray(wire.MAX_FRAME)
    classes = 2 if model == wire.SOFTMAX else 1
    exponent = 0 if model == wire.VALUES else -12
    card = small_board.THREE
    n = host_frames.encode_round(
        out,
        key_of(7),
        7,
        1,
        model,
        array("h", (1, 2, 3, 4) * classes),
        card,
        k,
        exponent,
        0,
        classes,
        0,
        local,
    )
    return memoryview(out)[:n]


def test_work_that_might_not_fit_the_slot_is_refused_for_nothing_whatever_the_records():
    # 240 ms and 196/256 a record of four features, one more for each batch; nothing depends on how many it holds.
    cases = ((500, 16, 20), (500, 1, 170), (630, 1, 255), (241, 1, 1), (240, 1, 0), (0, 16, 255))
    for slot, bound, epochs in cases:
        for records in (1, 200):
            folder = scratch.folder()
            client = Client(provision(folder, records=records))
            put_fleet(folder, slot=slot, records=bound)
            if epochs < 255:
                answer = ask(client, special_round(wire.LOCAL + wire.SVM, 1, (epochs + 1, 1, 9)))
                assert error_of(answer) == (wire.ERR_SLOT, 0)
                assert spent(folder) == 0
            if epochs:
                answer = ask(client, special_round(wire.LOCAL + wire.SVM, 1, (epochs, 1, 9)))
                assert answer[0] == wire.REPORT
                assert spent(folder) == EPSILON


def test_a_board_without_the_module_says_so_and_pays_nothing():
    folder = scratch.folder()
    client = Client(provision(folder))
    local = special_round(wire.LOCAL + wire.LINEAR, 1, (1, 1, 1))
    for module, model, frame in (
        ("inference", wire.SOFTMAX, special_round(wire.SOFTMAX, 2)),
        ("local", wire.LOCAL + wire.LINEAR, local),
        ("collect", wire.VALUES, special_round(wire.VALUES, 1)),
    ):
        name = "tern." + module
        kept = sys.modules.pop(name, None)
        sys.modules[name] = object()  # nothing can be imported from it
        try:
            assert error_of(ask(client, frame)) == (wire.ERR_MODEL, model), module
        finally:
            del sys.modules[name]
            if kept:
                sys.modules[name] = kept
        assert spent(folder) == 0
    assert ask(client, local)[0] == wire.REPORT
