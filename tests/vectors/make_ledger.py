"""Compute the expected results of shared_specs/vectors/ledger.json, for the inputs in it.

    PYTHONPATH=tests python tests/vectors/make_ledger.py

Written from the text of ledger.md alone, without the device library, so that the two can disagree.
A file that must be refused is an input itself.
"""

import struct
from dataclasses import dataclass, replace

from parts import VECTORS, computed, write
from spec.files import ledger_file

LAST_ROUND = 2**30 - 1
IDLE, ANSWERED, RESERVED = range(3)  # states
# What is paid from a counter's ledger: 5 for the report of the next round.
COST = 5
QUESTION = bytes(range(1, 33))
REPORT = b"\x82" + bytes(range(100, 117))  # 18 bytes, which no check reads


@dataclass(frozen=True)
class Book:
    """The fields of a file."""

    budget: int
    spent: int = 0
    last: int = 0
    question: bytes = bytes(32)
    state: int = IDLE
    measure: int = 0
    report: bytes = b""
    step: int = 0

    def image(self):
        return ledger_file(**vars(self))


def book_of(digits):
    """The Book in a file of these hexadecimal digits."""
    file = bytes.fromhex(digits)
    fields = struct.unpack_from("<III32sBBHH", file, 4)
    *head, length, step = fields
    return Book(*head, report=file[54 : 54 + length], step=step)


def fields_of_file(case):
    if case["result"] == "invalid":
        return {}
    fields = dict(vars(book_of(case["ledger"])))
    del fields["step"]
    return fields


# --- Counters


def counter(case):
    """What becomes of a bound ledger and the fuses of its chip, two digits a step; then it pays."""
    book, digits = book_of(case["ledger"]), case["fuses"]
    steps = [digits[at : at + 2] for at in range(0, len(digits), 2)]
    free = [*steps, "00"]
    begun = free.index(next(step for step in free if step[0] == "0"))
    done = max((step for step in range(1, begun + 1) if steps[step - 1] == "11"), default=0)
    new = book.state == IDLE and book.step == begun + 1 <= len(steps)
    cut = new or book.step == begun > done
    if set(steps[begun:]) - {"00"} or not (cut or book.step == done):
        return {"result": "invalid"}

    if cut:
        steps[book.step - 1] = "11"
    loaded, file = "".join(steps), b""
    begun += new
    if begun < len(steps):
        steps[begun] = "11"
        paid = Book(book.budget, book.spent + COST, book.last + 1, QUESTION, ANSWERED)
        file = replace(paid, report=REPORT, step=begun + 1).image()
    return {"loaded": loaded, "file": file, "paid": "".join(steps)}


# --- Transitions


class Device:
    """A device by the tables of ledger.md, with its file and its account in RAM."""

    def __init__(self, book):
        self.file = book
        self.start()

    def start(self):
        self.book = self.file
        self.until = self.paid = 0

    def ask(self, number, question, cost, report, ahead):
        book = self.book
        if number < book.last:
            return "old"
        if number == book.last:
            is_same = book.state == ANSWERED and book.question == question
            return "again" if is_same else "changed"
        if not 1 <= cost <= book.budget - book.spent or number > LAST_ROUND:
            return "refused"
        if report and not 18 <= len(report) <= 273:
            return "refused"

        fresh = Book(book.budget, measure=book.measure)
        paid = replace(fresh, spent=book.spent + cost, last=number)
        if report:
            self.book = replace(paid, question=question, state=ANSWERED, report=report)
        else:  # its draw failed
            self.book = replace(paid, state=RESERVED)
        if number <= self.until and self.book.spent <= self.paid:
            return "paid"
        n = min(ahead, (book.budget - book.spent) // cost, LAST_ROUND - number + 1)
        if n > 1:
            self.until, self.paid = number + n - 1, book.spent + n * cost
            self.file = replace(fresh, spent=self.paid, last=self.until, state=RESERVED)
        else:
            self.until = self.paid = 0
            self.file = self.book
        return "paid"


def transition(case):
    device = Device(book_of(case["ledger"]))
    return {"events": [answered(device, event) for event in case["events"]]}


def answered(device, event):
    """The event with the device's answer, what it has then spent, and its file if that is new."""
    if "restart" in event:
        device.start()
        return event
    before = device.file
    question, report = (bytes.fromhex(event[name]) for name in ("question", "report"))
    answer = device.ask(event["round"], question, event["cost"], report, event["ahead"])
    kept = device.book.report if answer == "again" else report
    file = b"" if device.file is before else device.file.image()
    results = {"answer": answer, "spent": device.book.spent, "file": file.hex()}
    return event | {"report": kept.hex()} | results


def main():
    vectors = computed(
        "ledger.json", files=fields_of_file, transitions=transition, counters=counter
    )
    write(VECTORS / "ledger.json", **vectors)


if __name__ == "__main__":
    main()
