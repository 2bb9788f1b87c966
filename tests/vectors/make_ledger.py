"""Write the vectors of ledger.md: good and hostile files, and the payments of a device with them.

    PYTHONPATH=tests python tests/vectors/make_ledger.py

Written from the text alone, without the device library, so that the two can disagree.
"""

from dataclasses import dataclass, replace

from parts import VECTORS, case, write
from spec.files import ledger_file
from spec.frames import sealed

LAST_ROUND = 2**30 - 1
ZERO = bytes(32)
QUESTION = bytes(range(1, 33))
OTHER = bytes(range(2, 34))
REPORT = b"\x82" + bytes(range(100, 117))  # 18 bytes, which no check reads
NEXT = b"\x82" + bytes(range(50, 70))
LONGEST = b"\x82" + bytes(i * 7 & 255 for i in range(272))


@dataclass(frozen=True)
class Book:
    """The fields of a file."""

    budget: int = 10**9
    spent: int = 0
    last: int = 0
    question: bytes = ZERO
    state: int = 0
    report: bytes = b""
    magic: bytes = b"TLG3"
    step: int = 0
    n: int | None = None  # another value of the length field
    measure: int = 0

    def image(self):
        fields = (
            self.budget,
            self.spent,
            self.last,
            self.question,
            self.state,
            self.report,
            self.step,
        )
        return ledger_file(self.magic, *fields, self.n, self.measure)


ANSWERED = Book(spent=2_000_000, last=9, question=QUESTION, state=1, report=REPORT)
RESERVED = Book(spent=2_000_000, last=9, state=2)


# --- Files
# ----------------------------------------------------------------------------------------------------


def files():
    tests, full = [], replace(ANSWERED, spent=10**9, last=LAST_ROUND, report=LONGEST)
    for comment, book in (
        ("fresh", Book()),
        ("fresh, rounds begin above 1000", Book(last=1000)),
        ("fresh, no round is left", Book(last=LAST_ROUND)),
        ("smallest budget", Book(budget=1)),
        ("answered", ANSWERED),
        ("all spent, last round, longest report", full),
        ("least spent, first round", replace(ANSWERED, spent=1, last=1)),
        ("reserved", RESERVED),
        ("fresh, in rho", Book(measure=1)),
        ("answered, in rho", replace(ANSWERED, measure=1)),
    ):
        tests.append(valid(comment, book, book.image()))
    tests.append(
        valid("written over a much longer one", RESERVED, RESERVED.image() + LONGEST + LONGEST)
    )
    tests.append(
        valid("written over a longer one", ANSWERED, ANSWERED.image() + bytes.fromhex("00ff") * 9)
    )
    good = ANSWERED.image()
    hostile = [
        ("last byte missing, which a device that loaded the file before has in RAM", good[:-1]),
        ("header alone", good[:54]),
        ("empty", b""),
        ("longest report, last byte missing", replace(ANSWERED, report=LONGEST).image()[:-1]),
        ("another magic", Book(magic=b"TLG4").image()),
        ("without a step", Book(magic=b"TLG2").image()),
        ("of protocol 1", Book(magic=b"TLG1").image()),
        (
            "of protocol 1, with its hash",
            sealed(b"", replace(ANSWERED, magic=b"TLG1").image()[:-4]),
        ),
        ("magic of protocol 0", Book(magic=b"TLG0").image()),
        ("budget above the limit", Book(budget=10**9 + 1).image()),
        ("budget 2**32 - 1", Book(budget=2**32 - 1).image()),
        ("more spent than the budget", replace(ANSWERED, budget=1_999_999).image()),
        ("last round 2**30", replace(ANSWERED, last=2**30).image()),
        ("idle, last round 2**30", Book(last=2**30).image()),
        ("state 3", replace(RESERVED, state=3).image()),
        ("reserved, but with a question", replace(RESERVED, question=QUESTION).image()),
        ("reserved, but nothing spent", replace(RESERVED, spent=0).image()),
        ("reserved, but no round", replace(RESERVED, last=0).image()),
        ("reserved, but with a report", replace(RESERVED, report=REPORT).image()),
        ("measure 2", Book(measure=2).image()),
        ("answered, measure 128", replace(ANSWERED, measure=128).image()),
        ("idle, but spent", Book(spent=1).image()),
        ("idle, but spent, with a last round", Book(spent=1, last=1).image()),
        ("idle, but with a question", Book(question=QUESTION).image()),
        ("idle, but with a report", Book(report=REPORT).image()),
        ("answered, but nothing spent", replace(ANSWERED, spent=0).image()),
        ("answered, but no round", replace(ANSWERED, last=0).image()),
        ("answered, but without a report", replace(ANSWERED, report=b"").image()),
        ("answered, report shorter than any", replace(ANSWERED, report=REPORT[:17]).image()),
        ("answered, report longer than any", replace(ANSWERED, report=LONGEST + b"\0").image()),
        ("length longer than the report", replace(ANSWERED, n=19).image()),
        ("length shorter than the report", replace(ANSWERED, n=17).image()),
        ("length 65535", replace(ANSWERED, n=65535).image()),
    ]
    for byte in range(0, len(good), 3):
        flipped = bytearray(good)
        flipped[byte] ^= 1 << byte % 8
        hostile.append((f"byte {byte}: bit {byte % 8} flipped", bytes(flipped)))
    return tests + [case(comment, "invalid", ["hostile"], ledger=data) for comment, data in hostile]


def valid(comment, book, data):
    names = ("budget", "spent", "last", "question", "state", "measure", "report")
    fields = {name: getattr(book, name) for name in names}
    return case(comment, "valid", ledger=data, **fields)


# --- Counters
# -------------------------------------------------------------------------------------------------


def counters():
    """A bound ledger and the fuses of its chip, two digits a step; then a payment."""
    idle, spent = Book(step=3), replace(ANSWERED, step=3)
    for comment, book, fuses in (
        ("new", replace(idle, step=1), "000000"),
        ("new, on a chip that counted before", idle, "11110000"),
        ("new, on a chip that gave up its last step", idle, "11100000"),
        ("new, cut after its first fuse", idle, "11111000"),
        ("new, cut before its payment was written", idle, "1111111000"),
        ("new, but not the next step", idle, "110000"),
        ("new, but the step is used", idle, "1111111100"),
        ("new, but the chip has no such step", idle, "1111"),
        ("the last one", spent, "11111100"),
        ("the last one, but for two steps given up", spent, "111111101000"),
        ("cut before its second fuse", spent, "11111000"),
        ("cut before its second fuse, the step before given up", spent, "11101000"),
        ("the last step is done", spent, "111111"),
        ("the last step is given up", spent, "11111110"),
        ("reserved, the last one", replace(RESERVED, step=3), "11111100"),
        ("reserved, cut before its second fuse", replace(RESERVED, step=3), "11111000"),
        ("restored", spent, "1111111100"),
        ("restored, the step after it given up, the next done", spent, "1111111011"),
        ("restored, a step that was given up", spent, "1111101100"),
        ("restored, a step that was given up, as the last one was", spent, "1111101000"),
        ("of another chip, paid for", spent, "11110000"),
        ("of another chip, far beyond", replace(spent, step=65535), "11111100"),
        ("a later fuse is burnt", spent, "1111110001"),
        ("a fuse without the one before", spent, "1111110100"),
        ("no fuses", spent, ""),
    ):
        yield counter(comment, book, [fuses[at : at + 2] for at in range(0, len(fuses), 2)])


def counter(comment, book, steps):
    fields = {"ledger": book.image(), "fuses": "".join(steps)}
    free = [*steps, "00"]
    begun = free.index(next(step for step in free if step[0] == "0"))
    done = max((step for step in range(1, begun + 1) if steps[step - 1] == "11"), default=0)
    new = book.state == 0 and book.step == begun + 1 <= len(steps)
    cut = new or book.step == begun > done
    if set(steps[begun:]) - {"00"} or not (cut or book.step == done):
        return case(comment, "invalid", ["hostile"], **fields)
    if cut:
        steps[book.step - 1] = "11"
    fields["loaded"], file = "".join(steps), b""
    if (begun := begun + new) < len(steps):
        steps[begun] = "11"
        paid = Book(book.budget, book.spent + 5, book.last + 1, QUESTION, 1, REPORT, step=begun + 1)
        file = paid.image()
    return case(comment, "valid", **fields, file=file, paid="".join(steps))


# --- Transitions
# ----------------------------------------------------------------------------------------------


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
            return "again" if book.state == 1 and book.question == question else "changed"
        if not 1 <= cost <= book.budget - book.spent or number > LAST_ROUND:
            return "refused"
        if report and not 18 <= len(report) <= 273:
            return "refused"
        kept = {"budget": book.budget, "measure": book.measure}
        self.book = Book(
            spent=book.spent + cost, last=number, question=question, state=1, report=report, **kept
        )
        if not report:  # its draw failed
            self.book = Book(spent=book.spent + cost, last=number, state=2, **kept)
        if number <= self.until and self.book.spent <= self.paid:
            return "paid"
        n = min(ahead, (book.budget - book.spent) // cost, LAST_ROUND - number + 1)
        if n > 1:
            self.until, self.paid = number + n - 1, book.spent + n * cost
            self.file = Book(spent=self.paid, last=self.until, state=2, **kept)
        else:
            self.until = self.paid = 0
            self.file = self.book
        return "paid"


def pay(number, cost=5, question=QUESTION, report=REPORT, ahead=None):
    """An event. ahead: None for the `ahead` of the transition."""
    return number, question, cost, report, ahead


RESTART = None


def transition(comment, book, payments, ahead=1):
    device = Device(book)
    events = []
    for payment in payments:
        if payment is RESTART:
            device.start()
            events.append({"restart": True})
            continue
        number, question, cost, report, reserved = payment
        reserved = reserved or ahead
        before = device.file
        answer = device.ask(number, question, cost, report, reserved)
        kept = device.book.report if answer == "again" else report
        event = {"round": number, "question": question.hex(), "cost": cost, "report": kept.hex()}
        event |= {"ahead": reserved, "answer": answer, "spent": device.book.spent}
        events.append({**event, "file": "" if device.file is before else device.file.image().hex()})
    return case(comment, "valid", ledger=book.image(), events=events)


def transitions():
    small, late = Book(budget=10), replace(ANSWERED, last=LAST_ROUND - 2)
    comment = "a report, again, after a restart, another question"
    yield transition(comment, Book(), [pay(1), pay(1), RESTART, pay(1), pay(1, question=OTHER)])
    payments = [
        pay(9),
        pay(10, report=NEXT),
        pay(9),
        pay(10, question=OTHER),
        pay(11),
        RESTART,
        pay(10),
        pay(11),
    ]
    yield transition("rounds in a row, then one that is over", ANSWERED, payments)
    payments = [pay(10, report=b""), pay(10), RESTART, pay(10), pay(11)]
    payments += [pay(12, report=b"", ahead=5), pay(12), pay(13), pay(13)]
    comment = "a draw that came to nothing is paid for, and its round is over"
    yield transition(comment, ANSWERED, payments)
    payments = [pay(500), pay(499), pay(LAST_ROUND), pay(LAST_ROUND)]
    yield transition("rounds may be skipped", ANSWERED, payments)
    payments = [pay(2**30), pay(LAST_ROUND), pay(2**30), RESTART, pay(LAST_ROUND)]
    yield transition("the last round there is", replace(ANSWERED, last=LAST_ROUND - 1), payments)
    payments = [pay(999), pay(1000), pay(1000, question=ZERO), pay(1001), RESTART, pay(1001)]
    yield transition("fresh, rounds begin above 1000", Book(last=1000), payments)
    payments = [pay(1, 11), pay(1, 10), pay(2, 1), pay(1, 10)]
    yield transition("the budget to the last micro-epsilon", small, payments)
    yield transition("a budget that all counts", Book(budget=10**9), [pay(1, 10**9), pay(2, 1)])
    payments = [pay(1, 0), pay(1, 5, report=REPORT[:17]), pay(1, 5, report=LONGEST + b"\0")]
    payments += [pay(1, 10, report=LONGEST), RESTART, pay(1, 10, report=LONGEST)]
    yield transition("a report that is refused costs nothing", small, payments)
    payments = [pay(1, report=LONGEST), pay(2, report=NEXT), pay(3), RESTART, pay(3)]
    yield transition("a shorter report after a longer one", Book(), payments)
    payments = [
        pay(1),
        pay(1),
        RESTART,
        pay(2, report=b""),
        pay(3, ahead=3),
        pay(4),
        RESTART,
        pay(6),
        pay(7),
    ]
    yield transition("a ledger in rho stays one", Book(budget=37, measure=1), payments)
    payments = [pay(8), pay(9), pay(9, question=ZERO), pay(10), pay(10)]
    yield transition("reserved: all its rounds are over", RESERVED, payments)
    payments = [pay(1), pay(1), pay(1, question=OTHER), pay(2, question=OTHER, report=NEXT), pay(1)]
    payments += [pay(2, question=OTHER), pay(3), pay(4)]
    yield transition("three paid ahead: a write for three reports", Book(), payments, ahead=3)
    payments = [pay(10), RESTART, pay(10), pay(11), pay(12), pay(12, question=ZERO), pay(13)]
    yield transition("paid ahead, then the power fails", Book(), payments, ahead=3)
    comment = "rounds beyond those reserved: what was not used comes back"
    yield transition(comment, Book(), [pay(1), pay(100), pay(101, 7), RESTART, pay(103)], ahead=3)
    comment = "dearer than what is reserved, within its rounds"
    yield transition(comment, Book(), [pay(1), pay(2, 11), pay(4, 11)], ahead=3)
    yield transition(
        "as dear as all that is reserved", Book(), [pay(1), pay(2, 10), pay(3, 1)], ahead=3
    )
    comment = "cheaper reports do not stretch a reservation"
    yield transition(comment, Book(), [pay(1), pay(2, 1), pay(3, 1)], ahead=2)
    payments = [pay(1, 3), pay(2, 3), pay(3, 3), pay(4, 2), pay(4, 1), RESTART, pay(4, 1)]
    yield transition("no more is reserved than the budget pays for", small, payments, ahead=8)
    payments = [pay(1, 6), RESTART, pay(1, 6), pay(2, 2), pay(3, 2)]
    yield transition("the budget pays for one: nothing is reserved", small, payments, ahead=8)
    payments = [pay(1, ahead=4), pay(9, 25, ahead=4), pay(10), pay(11), RESTART, pay(11)]
    yield transition("a write for one ends what is reserved", Book(budget=40), payments)
    payments = [pay(LAST_ROUND - 1), pay(LAST_ROUND)]
    yield transition("no round beyond the last is reserved", late, payments, ahead=1000)
    payments = [pay(LAST_ROUND), RESTART, pay(LAST_ROUND)]
    yield transition("the last round alone", late, payments, ahead=1000)
    yield transition(
        "the dearest report, paid ahead", Book(), [pay(1, 10**9), pay(2, 1)], ahead=1000
    )
    payments = [pay(1, 10**6), pay(2, 10**9), pay(2, 999 * 10**6), pay(3, 1)]
    yield transition("a thousand of the dearest", Book(), payments, ahead=1000)


def main():
    write(
        VECTORS / "ledger.json",
        "ledger.md. files: a file, and what a device that loads it has in RAM; an invalid one means refusal. "
        "transitions: each event is asked of the device in turn. answer: paid (this report was paid for and may be "
        "sent), again (the report is the one kept), old, changed, refused (neither file nor account changes). spent: "
        "what was really spent, afterwards. file: what the file begins with afterwards; empty: it is as before. "
        "restart: the power fails, and the file is loaded. counters: a ledger that is bound to these fuses, two digits "
        "a step (begun, done); the fuses once it is loaded; and the file and the fuses once 5 are paid for the report "
        "of the next round (no file: no step and no budget are left)",
        files=files(),
        transitions=transitions(),
        counters=counters(),
    )


if __name__ == "__main__":
    main()
