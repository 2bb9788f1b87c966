"""The round loop: what a client answers to every kind of request, and what it costs in budget and heap."""

import gc
import os
import struct
from array import array

import scratch
import small_board
from small_board import EPSILON, ask, error_of, key_of, provision, round_frame, spent, symbols_of
from spec.cards import T, two_levels

from tern import bench, frames, host_frames, ledger, storage, supervisor, wire
from tern import client as client_module
from tern import gradient as gradient_module
from tern.card import CardError
from tern.client import Client
from tern.compat import MICROPYTHON
from tern.entropy import FAILED, Generator
from tern.gradient import Gradient

NEEDS = {"test_many_clients_keep_their_own_accounts": "time"}


def nearly_exact_card():
    """Two levels at epsilon 20: at -1 and 1 the symbol is wrong three times in 2**30."""
    return two_levels(20_000_000, T - 3, 3)


def test_the_report_is_the_gradient_of_the_chosen_coordinates():
    # Linear model, parameters 0, label -1, features +-1: the gradient is the features. So the symbols are known.
    folder = scratch.folder()
    d = 28
    board = provision(folder, d=d, largest=1_000_000_000)
    features = [16384 if (j * j + j // 3) % 2 else -16384 for j in range(d)]
    with open(folder + "/" + storage.RECORDS, "wb") as file:
        file.write(struct.pack(storage.RECORDS_HEADER, storage.MAGIC, d, 1))
        file.write(struct.pack("<%dh" % (d + 1), *(features + [-16384])))
    client = Client(board)
    card = nearly_exact_card()
    for number, k in ((1, 1), (2, 2), (3, 5), (4, 28)):
        frame = bytearray(wire.MAX_FRAME)
        zero = array("h", (0 for _ in range(d)))
        n = host_frames.encode_round(frame, key_of(7), 7, number, wire.LINEAR, zero, card, k, -12)
        chosen = array("H", (0 for _ in range(k)))
        question = host_frames.question_of(key_of(7), 7, memoryview(frame)[:n])
        client_module.choose(question, d, k, chosen)
        answer = ask(client, memoryview(frame)[:n])
        assert symbols_of(answer, k, 2) == [1 if features[c] > 0 else 0 for c in chosen]
    assert spent(folder) == 36 * 20_000_000


def test_hello():
    folder = scratch.folder()
    board = provision(folder, clients=3, budget=5 * EPSILON)
    client = Client(board)
    out = bytearray(64)
    request = bytes(out[: frames.encode_hello_request(out, 77)])
    hello = host_frames.Hello(ask(client, request))
    assert (hello.nonce, hello.version, hello.schema) == (77, wire.VERSION, wire.SCHEMA)
    assert (hello.first, hello.clients, hello.budget) == (7, 3, 5 * EPSILON)
    assert hello.entropy != FAILED and hello.text == board.text()
    client.answer(round_frame(1, small_board.THREE, k=2))
    assert host_frames.Hello(ask(client, request)).budget == 3 * EPSILON
    empty = host_frames.Hello(ask(Client(type(board)(scratch.folder())), request))
    assert (empty.clients, empty.budget) == (0, 0)


def test_a_repeated_round_gets_the_same_bytes_and_costs_nothing():
    folder = scratch.folder()
    board = provision(folder)
    client = Client(board)
    card = small_board.THREE
    first = ask(client, round_frame(3, card))
    for _ in range(5):
        assert ask(client, round_frame(3, card)) == first
    assert ask(Client(board), round_frame(3, card)) == first  # after a restart, too
    assert spent(folder) == 4 * EPSILON
    assert error_of(ask(client, round_frame(3, card, shift=1))) == (wire.ERR_CHANGED_ROUND, 3)
    assert error_of(ask(client, round_frame(2, card))) == (wire.ERR_OLD_ROUND, 3)
    assert ask(client, round_frame(4, card))[0] == wire.REPORT
    assert error_of(ask(client, round_frame(3, card))) == (wire.ERR_OLD_ROUND, 4)
    assert spent(folder) == 8 * EPSILON


def test_budget_is_spent_to_the_last_and_no_further():
    folder = scratch.folder()
    client = Client(provision(folder, budget=9 * EPSILON + 1))
    card = small_board.THREE
    for number, k in ((1, 4), (2, 4), (3, 1)):
        assert ask(client, round_frame(number, card, k=k))[0] == wire.REPORT
    for k in (1, 4):
        assert error_of(ask(client, round_frame(10, card, k=k))) == (wire.ERR_BUDGET, 1)
    assert spent(folder) == 9 * EPSILON
    assert ask(client, round_frame(number, card, k=1))[0] == wire.REPORT  # the last one again, for nothing
    # the smaller of the ledger's budget and the policy's counts
    folder = scratch.folder()
    board = provision(folder, budget=EPSILON)
    os.remove(folder + "/" + storage.ledger_name(7))
    ledger.create(folder + "/" + storage.ledger_name(7), 100 * EPSILON)
    assert error_of(ask(Client(board), round_frame(1, card))) == (wire.ERR_BUDGET, EPSILON)


def test_policy_bounds_what_one_report_costs():
    folder = scratch.folder()
    client = Client(provision(folder, largest=3 * EPSILON))
    card = small_board.THREE
    assert error_of(ask(client, round_frame(1, card, k=4))) == (wire.ERR_POLICY, 3 * EPSILON)
    assert spent(folder) == 0
    assert ask(client, round_frame(1, card, k=3))[0] == wire.REPORT


def test_bad_cards_cost_nothing():
    folder = scratch.folder()
    client = Client(provision(folder))
    good = small_board.THREE
    leaking = small_board.LEAKING
    for _ in range(2):  # the second time from what is remembered
        assert error_of(ask(client, round_frame(1, leaking))) == (wire.ERR_NOT_CERTIFIED, EPSILON)
    assert error_of(ask(client, round_frame(1, good[:-1]))) == (wire.ERR_CARD, 0)
    assert ask(client, round_frame(1, good))[0] == wire.REPORT
    assert error_of(ask(client, round_frame(2, leaking))) == (wire.ERR_NOT_CERTIFIED, EPSILON)
    assert spent(folder) == 4 * EPSILON


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
    finally:
        client_module.certify = real
    assert len(calls) == 2


def test_frames_that_nobody_may_obey():
    folder = scratch.folder()
    client = Client(provision(folder, clients=2))
    card = small_board.THREE
    good = round_frame(1, card)
    assert error_of(ask(client, round_frame(1, card, key=key_of(8))), 0) == (wire.ERR_TAG, 0)
    for bit in range(8 * 9, 8 * len(good), 5):
        bad = bytearray(good)
        bad[bit >> 3] ^= 1 << (bit & 7)
        assert error_of(ask(client, memoryview(bad)), 0) == (wire.ERR_TAG, 0)
    assert error_of(ask(client, round_frame(1, card, device=9)), 0) == (wire.ERR_DEVICE, 9)
    assert error_of(ask(client, round_frame(1, card, device=6)), 0) == (wire.ERR_DEVICE, 6)
    for junk in (
        b"",
        b"\x02",
        bytes(9),
        bytes(100),
        b"\x02" + bytes(15),
        b"\x82" + bytes(40),
        b"\xff" * 2560,
    ):
        assert error_of(ask(client, memoryview(junk)), 0)[0] in (wire.ERR_FRAME, wire.ERR_DEVICE)
    out = bytearray(64)
    n = frames.encode_error(out, key_of(7), 7, 1, 1)
    assert error_of(ask(client, memoryview(out)[:n]), 0) == (wire.ERR_FRAME, 0)
    assert spent(folder) == spent(folder, 8) == 0
    assert ask(client, good)[0] == wire.REPORT


def test_records_missing_or_of_another_dimension():
    folder = scratch.folder()
    board = provision(folder)
    card = small_board.THREE
    assert error_of(ask(Client(board), round_frame(1, card, d=5))) == (wire.ERR_DATA, 4)
    path = folder + "/" + storage.RECORDS
    with open(path, "rb") as file:
        good = file.read()
    for bad in (b"", good[:-1], good + b"\0", b"TRD2" + good[4:], good[:6] + b"\2" + good[7:]):
        with open(path, "wb") as file:
            file.write(bad)
        assert error_of(ask(Client(board), round_frame(1, card))) == (wire.ERR_DATA, 0)
    os.remove(path)
    assert error_of(ask(Client(board), round_frame(1, card))) == (wire.ERR_DATA, 0)
    assert spent(folder) == 0


def test_damaged_clients_file():
    folder = scratch.folder()
    board = provision(folder, clients=2)
    card = small_board.THREE
    path = folder + "/" + storage.CLIENTS
    with open(path, "rb") as file:
        good = file.read()
    for bad in (b"", good[:-1], good + b"\0", good[:52] + good[:52], good[:-1] + b"\1", bytes(104)):
        with open(path, "wb") as file:
            file.write(bad)
        assert error_of(ask(Client(board), round_frame(1, card, device=8)), 0) == (wire.ERR_DEVICE, 8)
    assert spent(folder, 8) == 0


def test_failed_entropy_refuses_before_it_costs():
    folder = scratch.folder()
    board = provision(folder)
    client = Client(board)
    client.entropy.fail()
    card = small_board.THREE
    for number in (1, 2):
        assert error_of(ask(client, round_frame(number, card))) == (wire.ERR_ENTROPY, 0)
    assert spent(folder) == 0
    client = Client(board)
    assert ask(client, round_frame(1, card))[0] == wire.REPORT

    # failed during the draw: paid, and over
    class Failing(Generator):
        def refill(self):
            self.fail()
            super().refill()

    board.generator = Failing
    client = Client(board)
    assert error_of(ask(client, round_frame(2, card))) == (wire.ERR_ENTROPY, 0)
    assert error_of(ask(client, round_frame(2, card))) == (wire.ERR_CHANGED_ROUND, 2)
    assert error_of(ask(client, round_frame(3, card))) == (wire.ERR_ENTROPY, 0)
    assert spent(folder) == 8 * EPSILON
    del board.generator
    assert error_of(ask(Client(board), round_frame(2, card))) == (wire.ERR_CHANGED_ROUND, 2)
    assert ask(Client(board), round_frame(3, card))[0] == wire.REPORT
    assert spent(folder) == 12 * EPSILON


def test_no_memory_costs_nothing_before_the_draw_and_the_round_from_then_on():
    folder = scratch.folder()
    client = Client(provision(folder))
    frame = round_frame(1, small_board.THREE)

    def full(*arguments):
        raise MemoryError

    gradients = client._gradients
    for owner, name, cost in (
        (client_module, "decode", 0),
        (client_module, "gather", 0),
        (gradients, "draw", 4 * EPSILON),
    ):
        good = getattr(owner, name)
        setattr(owner, name, full)
        try:
            assert error_of(ask(client, frame)) == (wire.ERR_FRAME, 0)
        finally:
            setattr(owner, name, good)
        assert spent(folder) == cost
    assert error_of(ask(client, frame)) == (wire.ERR_CHANGED_ROUND, 1)
    assert ask(client, round_frame(2, small_board.THREE))[0] == wire.REPORT
    assert spent(folder) == 8 * EPSILON


def test_no_memory_leaves_nothing_half_made():
    def full(*arguments):
        raise MemoryError

    for name in ("array", "Gradient"):
        folder = scratch.folder()
        client = Client(provision(folder))
        frame = round_frame(1, small_board.THREE)
        good = getattr(gradient_module, name)
        try:
            setattr(gradient_module, name, full)
            assert error_of(ask(client, frame)) == (wire.ERR_FRAME, 0)
        finally:
            setattr(gradient_module, name, good)
        assert ask(client, frame)[0] == wire.REPORT
        assert spent(folder) == 4 * EPSILON


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

    def full(*arguments):
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


def accounts(clients):
    folder = scratch.folder()
    client = Client(provision(folder, clients=clients, records=2))
    card = small_board.THREE
    reports = {}
    for turn in range(3):
        for device in range(7, 7 + clients):
            if turn and device % 3:
                continue
            reports[turn, device] = ask(client, round_frame(1 + turn, card, device=device))
            assert len(symbols_of(reports[turn, device], 4, 3, device)) == 4
    for device in range(7, 7 + clients):
        assert spent(folder, device) == (4 if device % 3 else 12) * EPSILON
        last = 0 if device % 3 else 2
        assert ask(client, round_frame(1 + last, card, device=device)) == reports[last, device]


def test_clients_keep_their_own_accounts():
    accounts(9)


def test_many_clients_keep_their_own_accounts():
    accounts(40)


def test_a_batch_goes_round_all_records():
    folder = scratch.folder()
    count = 5
    client = Client(provision(folder, clients=2, records=count))
    card = small_board.THREE
    rows = []
    with open(folder + "/" + storage.RECORDS, "rb") as file:
        file.read(storage.RECORDS_BYTES)
        for _ in range(2 * count):
            rows.append(array("h", file.read(2 * 5)))
    parameters = array("h", (0, 100, 200, 300))
    at = {7: 0, 8: 0}
    for number in range(1, 9):
        for device, start in ((7, 0), (8, count)):
            assert ask(client, round_frame(number, card, device=device, batch=2))[0] == wire.REPORT
            gradient = Gradient(4)
            for _ in range(2):
                gradient.add(wire.LOGISTIC, parameters, -14, rows[start + at[device]])
                at[device] = (at[device] + 1) % count
            mean = array("h", (0, 0, 0, 0))
            gradient.finish(mean)
            assert mean == client._gradients.result, (number, device)


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
    if not MICROPYTHON:
        return
    board = provision(scratch.folder(), d=28)
    board.in_place = True
    client = Client(board)
    requests = [round_frame(number, small_board.THREE, d=28, k=1) for number in range(1, 29)]
    view = memoryview(bytearray(len(requests[0])))
    left = 0
    for i in range(len(requests)):
        view[:] = requests[i]
        gc.collect()
        gc.disable()
        before = gc.mem_alloc()
        client.respond(view, lambda reply, n: None)
        after = gc.mem_alloc()
        gc.enable()
        assert client.reply[0] == wire.REPORT
        if i >= 4:
            left += after - before
    print("a report leaves", left // 24, "bytes")
    assert left <= 24 * 500
