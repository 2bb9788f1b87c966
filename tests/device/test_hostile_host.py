"""A host that has the key and lies in every field: the device answers every frame, and stays within
its budget.
"""

import gc
import struct

import scratch
from small_board import (
    EPSILON,
    LEAKING,
    THREE,
    TWO,
    WINDOW,
    answer_key,
    ask,
    key_of,
    largest_card,
    provision,
)
from spec.cards import laplace, window
from streams import Words

from tern import frames, host_frames, ledger, storage, wire
from tern.client import Client

NEEDS = "endurance"
BUDGET = 100_000_000
LAPLACE = laplace(EPSILON, 3, 1000, 125, -8, 8)
GRR = window(EPSILON, 5, 1, 600_000_000)
LHP = bytes.fromhex(
    "153f420f00056726cd0c34f39ad912e8b3010005000100c023fb0d12d06703000500010096123d0f12b81b050005000100675e921012a0cf"
    "060005000100d283fa1112888308000500010068b1741311e8b301000002ff016a9bc8219664371e11d06703000002ff01c7628e23399d71"
    "1c11b81b05000002ff01dc934e25246cb11a11a0cf06000002ff012d8f0627d370f91811888308000002ff011ae7b328e6184c17"
)  # shipped: lhp-1
CARDS = (LHP, THREE, TWO, WINDOW, GRR, LEAKING, LAPLACE, largest_card(), b"", b"\x11")
HEADER = "<BIIBBbBHHBBBIH"  # of a ROUND: what stands before its parameters
EDGES = (0, 1, 2, 3, 4, 28, 31, 32, 33, 128, 129, 255, 256, 1024, 1025, 32767, 32768, 65535)


def lie(out, draws, number, d):
    """Write a ROUND without a tag, some of whose fields may be wrong; return its length in bytes.

    out: bytearray or memoryview of wire.MAX_FRAME bytes. draws: Words, or an object with its
    methods. number: of the round. d: features of a record.
    """
    model = draws.one_of((1, 2, 3, 4, 4, 5, 6, 7, 8, 9, 10, 11, draws.below(256)))
    features = draws.one_of((d, d, d, d, draws.one_of(EDGES)))
    k = draws.one_of((1, features, draws.one_of(EDGES)))
    classes = 1
    if model in wire.OF_CLASSES and draws.below(8):
        classes = draws.one_of((2, 3, 5, 8))
        k = draws.one_of((1, classes))
    of_categories = model == wire.CATEGORIES or (model == wire.SOFTMAX and k == 1)
    card = GRR if of_categories and draws.below(2) else draws.one_of(CARDS)
    features = min(features, (wire.MAX_FRAME - 64 - len(card)) // 2 // classes)
    exponent = draws.one_of((-16, -14, -12, draws.below(256) - 128))
    batch = draws.one_of((0, 1, draws.one_of(EDGES)))
    local = (0, 0, 0)
    range_ = draws.one_of((0, 0, 0, 5, draws.below(14)))
    if model in wire.TRAININGS:
        local = (draws.below(4), draws.below(19), draws.one_of((0, 1, 100, 1 << 23, 9000000)))
        range_ = draws.one_of((0, 0, 0, 1))
    if model in wire.OF_ONE_RECORD and draws.below(8):
        batch = 0
        exponent = exponent if model == wire.SOFTMAX else 0
        range_ = draws.below(2) if model == wire.CATEGORIES else 0
    fields = (7, number, model, range_, exponent, classes, features, k, batch & 255) + local
    struct.pack_into(HEADER, out, 0, wire.ROUND, *fields, len(card))
    start = struct.calcsize(HEADER)
    size = 2 * features * classes
    if model in wire.COLLECTIONS:
        size = (features + 7) // 8
    end = start + size
    for i in range(start, end):
        out[i] = draws.one_of((0, 127, 128, 255, draws.below(256)))
    if model in wire.COLLECTIONS and size and features % 8 and draws.below(8):
        out[end - 1] &= (1 << features % 8) - 1
    memoryview(out)[end : end + len(card)] = card
    n = end + len(card)
    kind = draws.below(12)
    if kind == 0:
        return 1 + draws.below(n - 1)
    if kind == 1:
        at = 1 + draws.below(n - 1)
        out[at] ^= 1 << draws.below(8)
    return n


def test_every_lie_is_answered_and_the_budget_holds():
    draws = Words(2)
    reports = set()
    errors = set()
    out = memoryview(bytearray(wire.MAX_FRAME))  # for all frames, as on a board
    for d, records in ((1, 1), (4, 3), (28, 2), (128, 1)):
        tell_lies(out, draws, d, records, reports, errors)
    assert reports >= {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, reports
    for code in (
        wire.ERR_FRAME,
        wire.ERR_CARD,
        wire.ERR_NOT_CERTIFIED,
        wire.ERR_POLICY,
        wire.ERR_DATA,
        wire.ERR_OLD_ROUND,
        wire.ERR_CHANGED_ROUND,
        wire.ERR_BUDGET,
    ):
        assert code in errors, code


def tell_lies(out, draws, d, records, reports, errors):
    """Ask a new client 500 times with fields that may be wrong; check its answers and its ledger.

    out: memoryview for the frames. draws: Words. d: features of a record. records: of the client.
    reports: set to which the models of the answered requests are added. errors: set to which the
    codes of the refusals are added.
    """
    folder = scratch.folder()
    client = Client(provision(folder, d=d, records=records, largest=10_000_000, budget=BUDGET))
    book = ledger.Ledger()
    answered_round = 0  # the latest; a board has no room for all answers
    answered = b""
    for _ in range(500):
        book.load(folder + "/" + storage.ledger_name(7))
        spent = book.spent
        number = max(1, book.round + draws.one_of((-1, 0, 1, 1, 1, 2, 1000)))
        if hasattr(gc, "mem_free"):  # a small heap
            gc.collect()
        n = frames.seal(key_of(7), out, lie(out, draws, number, d))
        frame = out[:n]
        answer = ask(client, frame)
        book.load(folder + "/" + storage.ledger_name(7))
        assert spent <= book.spent <= BUDGET
        device, number = frames.address(answer)
        if answer[0] == wire.REPORT:
            frames.verify(answer_key(), answer)
            if number == answered_round:
                assert answer == answered and book.spent == spent
            else:
                assert number > answered_round and book.spent > spent
            answered_round = number
            answered = answer
            reports.add(frame[9])
        else:
            code = host_frames.decode_error(answer, answer_key() if device else b"")[2]
            assert code not in (wire.ERR_LEDGER, wire.ERR_ENTROPY)
            errors.add(code)
