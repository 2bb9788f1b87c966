"""The round loop when memory, modules or time are short. test_rounds has its answers to every kind
of request.
"""

import struct

import scratch
import small_board
from checks import modules, no_memory, replaced, taken_by
from fake_link import Link
from small_board import EPSILON, THREE, TWO, ask, error_of, provision, put_fleet, round_frame, spent
from spec.cards import laplace, projection_card

from tern import frames, ledger, storage, supervisor, wire
from tern import gradient as gradient_module
from tern import policy as policy_module
from tern import report as report_module
from tern.client import Client


class CountedCertificates(replaced):
    """A context manager that keeps the cards that are certified within it."""

    def __init__(self):
        certify = policy_module.certify
        self.cards = []

        def counted(card):
            self.cards.append(card)
            return certify(card)

        super().__init__(policy_module, certify=counted)


def test_a_card_is_certified_once_for_all_clients_of_a_board():
    client = Client(provision(scratch.folder(), clients=5))
    with CountedCertificates() as certificates:
        for device in range(7, 12):
            assert ask(client, round_frame(1, THREE, device=device))[0] == wire.REPORT
        assert ask(client, round_frame(2, TWO))[0] == wire.REPORT
    assert len(certificates.cards) == 2


def test_a_card_that_leaks_is_refused_from_memory_the_second_time():
    client = Client(provision(scratch.folder()))
    with CountedCertificates() as certificates:
        for _ in range(2):
            answer = ask(client, round_frame(3, small_board.LEAKING))
            assert error_of(answer) == (wire.ERR_NOT_CERTIFIED, EPSILON)
    assert len(certificates.cards) == 1


def in_place(board):
    """The board, whose ledger stays loaded from round to round, as on a real one."""
    board.in_place = True
    return board


def test_a_card_that_is_dearer_than_the_last_one_is_refused():
    folder = scratch.folder()
    client = Client(in_place(provision(folder, largest=EPSILON)))
    for number in (1, 2):
        assert ask(client, round_frame(number, THREE, k=1))[0] == wire.REPORT
        assert error_of(ask(client, round_frame(9, THREE, k=2))) == (wire.ERR_POLICY, EPSILON)
    assert spent(folder) == 2 * EPSILON


def test_what_one_client_may_report_is_checked_for_the_next_one():
    folder = scratch.folder()
    board = in_place(provision(folder, clients=2, largest=EPSILON))
    path = folder + "/" + storage.CLIENTS
    with open(path, "rb") as file:
        rows = bytearray(file.read())
    least = EPSILON - 1  # the largest cost of the second client
    struct.pack_into("<I", rows, storage.CLIENT_BYTES + 36, least)
    with open(path, "wb") as file:
        file.write(rows)
    client = Client(board)
    for number in (1, 2):
        assert ask(client, round_frame(number, THREE, k=1))[0] == wire.REPORT
        answer = ask(client, round_frame(number, THREE, device=8, k=1))
        assert error_of(answer, 8) == (wire.ERR_POLICY, least)


COST = 4 * EPSILON  # of a report about four values


def test_a_full_heap_before_the_draw_costs_nothing():
    # Until random bytes are drawn, nothing about the data can leave the board. If memory runs out
    # by then, the round is refused but not paid for from the privacy budget, and can be asked
    # again. Each row names a function that fails for want of memory.
    for owner, name in (
        (report_module, "decode"),
        (report_module, "gather"),
        (gradient_module, "array"),
        (gradient_module, "Gradient"),
    ):
        folder = scratch.folder()
        client = Client(provision(folder))
        frame = round_frame(1, THREE)

        with replaced(owner, **{name: no_memory}):
            assert error_of(ask(client, frame)) == (wire.ERR_FRAME, 0)
        assert spent(folder) == 0, name

        assert ask(client, frame)[0] == wire.REPORT
        assert spent(folder) == COST


def test_a_full_heap_at_the_draw_costs_the_round():
    """Random bytes may have been used: they are never drawn again for the same question."""
    # If memory runs out while noise is drawn, the round has been paid for and is closed; the next
    # number works.
    folder = scratch.folder()
    client = Client(provision(folder))
    frame = round_frame(1, THREE)
    with replaced(client.report.answerers.gradients, draw=no_memory):
        assert error_of(ask(client, frame)) == (wire.ERR_FRAME, 0)
    assert spent(folder) == COST

    assert error_of(ask(client, frame)) == (wire.ERR_CHANGED_ROUND, 1)  # round 1 is over
    assert ask(client, round_frame(2, THREE))[0] == wire.REPORT
    assert spent(folder) == 2 * COST


def test_the_loop_goes_on_when_there_is_no_memory_even_for_an_error():
    # After the first report is sent the heap is full: decoding a card fails, and so does writing
    # the ERROR that should say so. The supervisor, the loop that serves a board, must go on and
    # later repeat the stored report.
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

    # Of three equal questions, the second found no memory; the third got the stored report.
    assert len(link.sent) == 2 and link.sent[0] == link.sent[1] and link.sent[0][0] == wire.REPORT
    assert spent(folder) == 4 * EPSILON  # four coordinates, once


def garbage_of_reports(card, count=24):
    """The mean number of bytes of garbage that a report leaves."""
    board = provision(scratch.folder(), d=28)
    board.in_place = True
    client = Client(board)
    requests = [round_frame(number, card, d=28, k=1) for number in range(1, count + 5)]
    view = memoryview(bytearray(len(requests[0])))
    total = 0
    for number, request in enumerate(requests):
        view[:] = request
        garbage = taken_by(lambda: client.respond(view, lambda reply, n: None))
        assert client.reply[0] == wire.REPORT
        if number >= len(requests) - count:  # the first ones make what is kept
            total += garbage
    return total // count


def test_a_report_leaves_little_garbage():
    assert garbage_of_reports(THREE) <= 500
    assert garbage_of_reports(projection_card(EPSILON)) <= 700  # it hashes once more


LOCAL_ROUND = {"k": 1, "model": wire.LOCAL + wire.LINEAR, "exponent": -12, "local": (1, 1, 9)}
LOCAL_CLASSES = dict(LOCAL_ROUND, model=wire.LOCAL_SOFTMAX, classes=2)
ONE_VALUE = {"k": 1, "model": wire.VALUES, "exponent": 0}
CLASSES = {"k": 1, "model": wire.SOFTMAX_GRADIENT, "classes": 2}
SUM_OF_CLASSES = dict(CLASSES, k=5)
VECTOR_CARD = projection_card(EPSILON, 2, 2)  # of four values
CLASSES_CARD = projection_card(EPSILON, 3)  # of 2 x 4 values

# A module, and a question that needs it.
OPTIONAL = (
    (
        "inference",
        laplace(EPSILON, 3, 1000, 125, -8, 8),
        {"k": 2, "model": wire.SOFTMAX, "classes": 2},
    ),
    ("local", THREE, LOCAL_ROUND),
    ("local", THREE, LOCAL_CLASSES),
    ("softmax", THREE, LOCAL_CLASSES),
    ("softmax", THREE, CLASSES),
    ("softmax", CLASSES_CARD, CLASSES),
    ("collect", THREE, ONE_VALUE),
    ("projection", VECTOR_CARD, {"k": 1}),
    ("sums", small_board.RHO_CARD, {"k": 5}),
    ("softmax", small_board.RHO_CARD, SUM_OF_CLASSES),
)


def test_a_board_without_a_module_refuses_what_needs_it_and_pays_nothing():
    # Small boards may leave out modules of tern. A ROUND that needs a missing one gets the error
    # "model not supported", is not paid for, and is answered once the module is there. Each row of
    # OPTIONAL: the module, and a card and ROUND fields that need it.
    for module, card, fields in OPTIONAL:
        folder = scratch.folder()
        is_sum = card == small_board.RHO_CARD
        board = provision(folder, measure=ledger.RHO if is_sum else ledger.EPSILON)
        put_fleet(folder, unit=2 if is_sum else 0)
        client = Client(board)
        frame = round_frame(1, card, **fields)
        model = fields.get("model", wire.LOGISTIC)
        with modules({"tern." + module: object()}):  # nothing can be imported from it
            assert error_of(ask(client, frame)) == (wire.ERR_MODEL, model), (module, fields)
        assert spent(folder) == 0
        assert ask(client, frame)[0] == wire.REPORT, (module, fields)


def test_a_card_that_fits_no_question_is_refused_whatever_modules_there_are():
    # A card is the table that noise is drawn from. One that cannot fit the ROUND is an error of
    # the card, not of a module that is not deployed.
    for module, card, fields in (
        ("projection", b"\x18" + VECTOR_CARD[1:], {"k": 1}),  # no such shape
        ("softmax", VECTOR_CARD, CLASSES),  # four values, for a vector of eight
    ):
        client = Client(provision(scratch.folder()))
        with modules({"tern." + module: object()}):
            assert error_of(ask(client, round_frame(1, card, **fields))) == (wire.ERR_CARD, 0)
