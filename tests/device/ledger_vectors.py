"""Checks ledgers against the vectors of ledger.md."""

import vectors
from scratch import read, write

from tern import ledger
from tern.frames import FrameError

QUESTION = "0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20"
REPORT = "826465666768696a6b6c6d6e6f7071727374"


def check(path):
    """Check the cases of ledger.json. path: of the file that ledgers use."""
    # one for all cases: what an earlier file left in RAM must not help a later one
    book = ledger.Ledger()
    for case in vectors.cases("ledger.json", "files"):
        check_file(book, path, case)
    for case in vectors.cases("ledger.json", "transitions"):
        check_transition(path, case)
    for case in vectors.cases("ledger.json", "counters"):
        check_counter(path, case)


def check_file(book, path, case):
    """Check that a file loads with the fields of the case, or that it is refused."""
    data = bytes.fromhex(case["ledger"])
    write(path, data)
    try:
        book.load(path)
    except ledger.LedgerError:
        assert case["result"] == "invalid", case["comment"]
        return
    comment = case["comment"]
    assert case["result"] == "valid", comment
    assert (book.budget, book.spent, book.round) == (case["budget"], case["spent"], case["last"]), (
        comment
    )
    assert (book.state, book.measure) == (case["state"], case["measure"]), comment
    assert book.question == bytes.fromhex(case["question"]), comment
    assert bytes(book.report) == bytes.fromhex(case["report"]), comment
    assert read(path) == data, comment  # loading writes nothing


class Fuses:
    """A board with these fuses, and the fuses."""

    def __init__(self, digits):
        self.burnt = fuses_of(digits)
        self.count = len(digits)

    def fuses(self):
        return self

    def is_burnt(self, n):
        return self.burnt[n]

    def burn(self, n):
        self.burnt[n] = 1


def check_counter(path, case):
    """Check a ledger that is bound to fuses: loading it, then paying from it."""
    write(path, bytes.fromhex(case["ledger"]))
    fuses = Fuses(case["fuses"])
    book = ledger.Ledger(board=fuses)
    try:
        book.load(path)
    except (ledger.LedgerError, FrameError):
        assert case["result"] == "invalid", case["comment"]
        assert fuses.burnt == fuses_of(case["fuses"]), case["comment"]
        return
    assert case["result"] == "valid" and fuses.burnt == fuses_of(case["loaded"]), case["comment"]
    assert (book.spent == book.budget) == (not case["file"]), case["comment"]
    event = {"round": book.round + 1, "question": QUESTION, "cost": 5, "report": REPORT, "ahead": 1}
    assert ask(book, event) == ("paid" if case["file"] else "refused"), case["comment"]
    assert read(path) == bytes.fromhex(case["file"] or case["ledger"]), case["comment"]
    assert fuses.burnt == fuses_of(case["paid"]), case["comment"]


def fuses_of(digits):
    """Return the fuses of a text of 0 and 1, a byte each."""
    return bytearray([int(digit) for digit in digits])


def check_transition(path, case):
    """Check the events of a case, one after the other: the answer, the fields and the file.

    Both ways to write a ledger are checked.
    """
    for in_place in (False, True):
        file = bytes.fromhex(case["ledger"])
        write(path, file)
        book = ledger.Ledger(in_place)
        book.load(path)
        for i, event in enumerate(case["events"]):
            where = (case["comment"], in_place, i)
            if "restart" in event:
                book.close()
                book = ledger.Ledger(in_place)
                book.load(path)
                continue
            assert ask(book, event) == event["answer"], where
            assert book.spent == event["spent"], where
            if event["answer"] in ("paid", "again"):
                expected = bytes.fromhex(event["report"]), event["round"]
                assert (bytes(book.report), book.round) == expected, where
            file = bytes.fromhex(event["file"]) or file
            content = read(path)
            assert content[: len(file)] == file and (in_place or len(content) == len(file)), where
        book.close()


def ask(book, event):
    """Return the outcome of an event of a case: paid, again, old, changed or refused."""
    number, question = event["round"], bytes.fromhex(event["question"])
    if number < book.round:
        return "old"
    if number == book.round:
        return "again" if book.state == ledger.ANSWERED and book.question == question else "changed"
    try:
        book.pay(number, question, event["cost"], bytes.fromhex(event["report"]), event["ahead"])
    except ledger.LedgerError:
        return "refused"
    return "paid"
