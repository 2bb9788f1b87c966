"""The round loop when memory, modules or time are short. test_rounds has its answers to every kind
of request.
"""

import time

import scratch
import small_board
from checks import modules, no_memory, raises, replaced, taken_by
from fake_link import Link
from small_board import EPSILON, THREE, TWO, ask, error_of, provision, put_fleet, round_frame, spent
from spec.cards import projection_card

from tern import bench, frames, supervisor, wire
from tern import gradient as gradient_module
from tern import policy as policy_module
from tern import report as report_module
from tern.card import CardError
from tern.client import Client
from tern.compat import MICROPYTHON


def test_each_card_is_certified_once():
    client = Client(provision(scratch.folder(), clients=5))
    cards = []
    certify = policy_module.certify

    def counted(card):
        cards.append(card)
        return certify(card)

    with replaced(policy_module, certify=counted):
        for device in range(7, 12):
            assert ask(client, round_frame(1, THREE, device=device))[0] == wire.REPORT
        client.answer(round_frame(2, TWO))
        for _ in range(2):  # the second time from the client's memory
            answer = ask(client, round_frame(3, small_board.LEAKING))
            assert error_of(answer) == (wire.ERR_NOT_CERTIFIED, EPSILON)
    assert len(cards) == 3


def test_a_full_heap_costs_nothing_before_the_draw_and_the_round_from_then_on():
    for owner, name, cost in (
        (report_module, "decode", 0),
        (report_module, "gather", 0),
        (gradient_module, "array", 0),
        (gradient_module, "Gradient", 0),
        (None, "draw", 4 * EPSILON),
    ):
        folder = scratch.folder()
        client = Client(provision(folder))
        frame = round_frame(1, THREE)
        with replaced(owner or client.report.answerers.gradients, **{name: no_memory}):
            assert error_of(ask(client, frame)) == (wire.ERR_FRAME, 0)
        assert spent(folder) == cost
        if cost:
            assert error_of(ask(client, frame)) == (wire.ERR_CHANGED_ROUND, 1)
            frame = round_frame(2, THREE)
        assert ask(client, frame)[0] == wire.REPORT
        assert spent(folder) == cost + 4 * EPSILON


def test_the_loop_goes_on_when_there_is_no_memory_even_for_an_error():
    folder = scratch.folder()
    board = provision(folder)
    frame = round_frame(1, THREE)

    class Forgetful(Link):
        def send(self, reply, n):
            super().send(reply, n)
            if len(self.sent) == 1:
                raise MemoryError

    good = report_module.decode, frames.encode_error

    def no_memory_once(*arguments):
        report_module.decode, frames.encode_error = good
        raise MemoryError

    link = Forgetful([None, frame, frame, frame])
    board.link = lambda: link
    with replaced(report_module, decode=no_memory), replaced(frames, encode_error=no_memory_once):
        supervisor.serve(board)
    assert len(link.sent) == 2 and link.sent[0] == link.sent[1] and link.sent[0][0] == wire.REPORT
    assert spent(folder) == 4 * EPSILON


def test_the_bench_times_every_case():
    if not MICROPYTHON:
        return  # there is no ticks_us
    client = Client(provision(scratch.folder()))
    plain = [("plain", card) for card in (TWO, THREE, small_board.WINDOW)]
    for case, card in [("sample", THREE), ("entropy", TWO)] + plain:
        units, times = bench.run(case, 3, card, client, time.ticks_us)
        assert units > 0 and len(times) == 3, case
    raises(CardError, bench.run, "sample", 3, b"no card", client, time.ticks_us)


def test_a_buffer_is_read_anew_for_each_request():
    client = Client(provision(scratch.folder()))
    frame = bytearray(round_frame(1, TWO))
    view = memoryview(frame)
    for request in (frame, view):  # the same object each time, as links pass it
        for _ in range(2):
            number = client.ledger.round + 1
            view[:] = round_frame(number, TWO)
            n = client.answer(request)
            assert client.reply[0] == wire.REPORT and frames.address(client.reply[:n]) == (
                7,
                number,
            )
        frame[10] ^= 1  # the tag is that of another question
        client.answer(request)
        assert client.reply[0] == wire.ERROR and client.reply[9] == wire.ERR_TAG


def test_a_report_leaves_little_garbage():
    for card, most in (THREE, 500), (projection_card(EPSILON), 700):  # the latter hashes once more
        board = provision(scratch.folder(), d=28)
        board.in_place = True
        client = Client(board)
        requests = [round_frame(number, card, d=28, k=1) for number in range(1, 29)]
        view = memoryview(bytearray(len(requests[0])))
        left = 0
        for i in range(len(requests)):
            view[:] = requests[i]
            garbage = taken_by(lambda: client.respond(view, lambda reply, n: None))  # noqa: B023
            assert client.reply[0] == wire.REPORT
            if i >= 4:
                left += garbage
        print("a report with a card of shape", card[0] & 15, "leaves", left // 24, "bytes")
        assert left <= 24 * most


def local_round(model, epochs):
    """A ROUND of local training."""
    return round_frame(1, THREE, k=1, model=wire.LOCAL + model, exponent=-12, local=(epochs, 1, 9))


def test_work_that_might_not_fit_the_slot_is_refused_at_no_cost_whatever_the_records():
    # 240 ms, 196/256 ms for each record of four features, and 1 ms for each batch; the records
    # present do not matter.
    cases = ((500, 16, 20), (500, 1, 170), (630, 1, 255), (241, 1, 1), (240, 1, 0), (0, 16, 255))
    for slot, bound, epochs in cases:
        for records in (1, 200):
            folder = scratch.folder()
            client = Client(provision(folder, records=records))
            put_fleet(folder, slot=slot, records=bound)
            if epochs < 255:
                assert error_of(ask(client, local_round(wire.SVM, epochs + 1))) == (
                    wire.ERR_SLOT,
                    0,
                )
                assert spent(folder) == 0
            if epochs:
                assert ask(client, local_round(wire.SVM, epochs))[0] == wire.REPORT
                assert spent(folder) == EPSILON


def test_a_board_without_a_models_module_refuses_the_model_and_pays_nothing():
    folder = scratch.folder()
    client = Client(provision(folder))
    local = local_round(wire.LINEAR, 1)
    classes = round_frame(
        2, THREE, k=1, model=wire.LOCAL_SOFTMAX, exponent=-12, classes=2, local=(1, 1, 9)
    )
    for module, model, frame in (
        ("inference", wire.SOFTMAX, round_frame(1, THREE, k=2, model=wire.SOFTMAX, classes=2)),
        ("local", wire.LOCAL + wire.LINEAR, local),
        ("local", wire.LOCAL_SOFTMAX, classes),
        ("softmax", wire.LOCAL_SOFTMAX, classes),
        (
            "softmax",
            wire.SOFTMAX_GRADIENT,
            round_frame(1, THREE, k=1, model=wire.SOFTMAX_GRADIENT, classes=2),
        ),
        ("collect", wire.VALUES, round_frame(1, THREE, k=1, model=wire.VALUES, exponent=0)),
    ):
        with modules({"tern." + module: object()}):  # nothing can be imported from it
            assert error_of(ask(client, frame)) == (wire.ERR_MODEL, model), module
        assert spent(folder) == 0
    assert ask(client, local)[0] == ask(client, classes)[0] == wire.REPORT
