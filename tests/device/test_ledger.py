"""The ledger: its images, and its content after the power fails or the disk is full, at every
point.
"""

import hashlib
import os
import struct

import flash_chip
import ledger_vectors
import scratch
import small_board
from checks import no_memory, raises, replaced, taken_by
from failing_disk import Disk, PowerCut, steps_of
from scratch import read, write
from small_board import EPSILON, THREE, ask, book_of, error_of, provision, round_frame, spent

from tern import ledger, storage, wire
from tern.client import Client
from tern.compat import MICROPYTHON
from tern.ledger import Ledger, LedgerError

QUESTION = bytes(range(32))
REPORT = bytes(range(18))
COST = 4 * EPSILON  # of a report of small_board, about four values
UNPAID = (0, ledger.IDLE)  # what is spent, and the state
PAID = (COST, ledger.ANSWERED)
NEEDS = {
    "test_power_cut_at_every_step_of_a_round": "endurance",
    "test_a_disk_failure_at_any_step_breaks_no_ledger": "endurance",
    "test_power_cut_at_every_write_of_littlefs": "endurance",
}


def test_ledger_vectors():
    folder = scratch.folder() + "/board"
    os.mkdir(folder)
    os.mkdir(folder + "/ledger")
    ledger_vectors.check(folder + "/ledger/00000007")


def test_nothing_is_paid_before_a_ledger_is_loaded():
    raises(LedgerError, Ledger().pay, 1, QUESTION, 1, REPORT)


def test_no_ledger_has_a_budget_or_a_round_out_of_bounds():
    path = scratch.folder() + "/ledger"
    for budget, last in ((0, 0), (-1, 0), (ledger.MAX_BUDGET + 1, 0), (1, -1), (1, 1 << 30)):
        raises(LedgerError, ledger.create, path, budget, last)


def test_a_ledger_of_another_version_is_refused_and_never_replaced():
    # TLG2 and TLG4 stand for an earlier and a later format, each with either kind of checksum.
    # Its budget is spent once: neither a round nor provisioning replaces it with a new ledger.
    folder = scratch.folder()
    client = Client(provision(folder))
    path = folder + "/" + storage.ledger_name(7)
    ask(client, round_frame(1, THREE))
    for magic in (b"TLG2", b"TLG4"):
        data = magic + read(path)[4:-4]  # without the magic and the checksum
        for check in (struct.pack("<I", ledger.crc32(data)), hashlib.sha256(data).digest()[:8]):
            write(path, data + check)
            assert "another version" in str(raises(LedgerError, Ledger().load, path))
            for number in (1, 2):
                assert error_of(ask(client, round_frame(number, THREE))) == (wire.ERR_LEDGER, 0)
            raises(LedgerError, ledger.create, path, ledger.MAX_BUDGET)
            assert read(path) == data + check


def test_payments_in_place_make_no_garbage():
    # The ledger, a board's file of spent privacy budget, is overwritten in place for each payment.
    # `ahead` is the number of reports paid for at once; `most` the bytes of garbage that a payment
    # may leave.
    path = scratch.folder() + "/ledger"
    ledger.create(path, ledger.MAX_BUDGET)
    book = Ledger(in_place=True)
    book.load(path)
    for ahead, most in ((1, 256), (100, 64)):
        used = []
        for number in range(book.round + 1, book.round + 6):
            used.append(taken_by(lambda: book.pay(number, QUESTION, 1000, REPORT, ahead)))  # noqa: B023
        print("bytes of garbage a payment, ahead %d: %s" % (ahead, used))
        assert max(used[2:]) <= most, used  # the first ones open the file and lay out the buffer
    book.close()


def fresh(folder, fuses=0):
    """Replace the only client's ledger with a new one, bound to a new counter if there are fuses."""
    path = folder + "/" + storage.ledger_name(7)
    try:
        os.remove(path + ".new")
    except OSError:
        pass
    os.remove(path)
    ledger.create(path, ledger.MAX_BUDGET, 0, int(fuses > 0))
    write(folder + ".count", bytes(fuses))
    return path


def test_power_cut_at_every_step_of_a_round():
    for fuses in (0, 8):
        assert cut_at_every_step_of_a_round(fuses) > 20


def cut_at_every_step_of_a_round(fuses=0):
    """Cut the power once or twice within a round, at every pair of steps; return how often.

    After each cut the device starts again and gets the round again. All its answers are one report,
    which is paid for once; before the write nothing is paid for.
    """
    folder = scratch.folder()
    client = Client(provision(folder, fuses=fuses))
    frame = round_frame(5, THREE)
    client.answer(frame)
    fresh(folder, fuses)
    steps = steps_of(lambda: client.answer(frame))
    assert steps >= 6, steps
    book = Ledger()
    cuts = 0
    for first in range(steps):
        for second in range(steps + 1):
            path = fresh(folder, fuses)
            released = []
            for cut in (first, second, -1, -1):
                with Disk(cut):
                    try:
                        released.append(ask(client, frame))
                    except PowerCut:
                        cuts += 1
                book.load(path)
                assert (book.spent, book.state) in (UNPAID, PAID)
                assert all(report == bytes(book.report) for report in released)
            assert len(released) >= 2 and released[0][0] == wire.REPORT
            assert all(report == released[0] for report in released), (first, second)
    assert cuts > steps * steps // 2
    return cuts


def test_a_round_cut_before_its_write_leaves_no_trace():
    # The ledger is a board's file of spent privacy budget; the power fails just before it is
    # written.
    # Nothing left the board: another question may take the number, and one report is paid for.
    folder = scratch.folder()
    board = provision(folder)
    path = folder + "/" + storage.ledger_name(7)
    before = read(path)
    with Disk(0):  # the power fails before step 0
        raises(PowerCut, Client(board).answer, round_frame(1, THREE))
    assert read(path) == before

    # Another question (other parameters: shift=1) takes the number.
    client = Client(board)
    report = ask(client, round_frame(1, THREE, shift=1))
    assert report[0] == wire.REPORT
    assert error_of(ask(client, round_frame(1, THREE))) == (wire.ERR_CHANGED_ROUND, 1)
    book = book_of(folder)
    assert book.spent == COST and bytes(book.report) == report


def test_a_payment_that_was_not_written_does_not_count():
    # The ledger, the file of spent privacy budget, is overwritten in place; memory runs out at its
    # checksum.
    # An exception in the middle of a payment leaves nothing in RAM that is sent later.
    folder = scratch.folder()
    board = provision(folder)
    board.in_place = True
    client = Client(board)
    report = ask(client, round_frame(1, THREE))

    with replaced(ledger, crc32=no_memory):
        assert error_of(ask(client, round_frame(2, THREE, shift=1))) == (wire.ERR_FRAME, 0)

    # The report of round 1 is still the stored one, and round 2 may be another question.
    assert ask(client, round_frame(1, THREE)) == report
    assert ask(client, round_frame(2, THREE))[0] == wire.REPORT
    assert spent(folder) == 2 * COST


def test_a_disk_failure_at_any_step_breaks_no_ledger():
    # The ledger is a board's file of spent privacy budget. Each step of writing it fails in turn,
    # once or from then on, with each error code: no report leaves, the ledger still loads, and
    # once the disk works again a report leaves and is paid for once.
    folder = scratch.folder()
    client = Client(provision(folder))
    frame = round_frame(1, THREE)
    client.answer(frame)
    fresh(folder)  # a new ledger
    steps = steps_of(lambda: client.answer(frame))
    book = Ledger()
    for code in (28, 30, 5):  # ENOSPC, EROFS, EIO
        for for_good in (False, True):
            for step in range(steps):
                path = fresh(folder)
                with Disk(step, OSError(code), for_good):
                    answer = ask(client, frame)
                assert error_of(answer) == (wire.ERR_LEDGER, 0), (code, for_good, step)
                book.load(path)
                assert (book.spent, book.state) in (UNPAID, PAID)
                answer = ask(client, frame)  # room again: one report, paid once
                book.load(path)
                assert answer[0] == wire.REPORT and book.spent == COST
                assert bytes(book.report) == answer == ask(client, frame)


def test_power_cut_at_every_write_of_littlefs():
    for in_place in (False, True):
        cut_at_every_write(in_place)


def cut_at_every_write(in_place):
    if not MICROPYTHON:
        return
    flash, start = flash_chip.Flash(bytearray(flash_chip.BYTES)), bytearray(flash_chip.BYTES)
    flash_chip.format(flash)
    board = provision("/flash")
    board.in_place = in_place
    Client(board).answer(round_frame(1, THREE))
    flash_chip.unmount()
    frame = round_frame(2, THREE)
    path = "/flash/" + storage.ledger_name(7)
    book = Ledger()
    states = set()

    def answered(client):
        try:
            return ask(client, frame)
        except OSError:
            return b""

    for cut, whole, answer in flash_chip.cut_at_every_write(
        flash, start, lambda: Client(board), answered
    ):
        released = [answer] if whole else []
        client = Client(board)
        book.load(path)
        states.add((book.round, book.state, book.spent // COST))
        released += [ask(client, frame), ask(client, frame)]
        assert all(report == released[0] for report in released), cut
        small_board.symbols_of(released[0], 4, 3)
        book.load(path)
        assert book.spent == 2 * COST
        client = None
    assert cut > 5, cut
    assert states == {(1, ledger.ANSWERED, 1), (2, ledger.ANSWERED, 2)}, states
    return cut
