"""What a board writes between two reports, so that no report waits while flash is erased."""

import flash_chip
import scratch
from checks import no_memory, replaced
from failing_disk import Disk
from scratch import read
from small_board import EPSILON, THREE, ask, book_of, provision, put_fleet, round_frame

from tern import ledger, storage, wire
from tern.client import Client
from tern.compat import MICROPYTHON
from tern.ledger import Ledger, LedgerError

COST = 4 * EPSILON  # of a report of small_board, about four values
NEEDS = {"test_power_cut_at_every_write_between_two_reports": "endurance"}


class Erasing:
    """A clock that shows 5 ms for each write that fills a block: one of `period`."""

    def __init__(self, period):
        self.period = period
        self.writes = 0
        self.now = 0
        self._begun = False

    def __call__(self):
        # A write looks at the clock before and after.
        self._begun = not self._begun
        if not self._begun:
            self.writes += 1
            if self.writes % self.period == 0:
                self.now += 5
        return self.now


def in_place(folder, **options):
    """Return a client of a board in `folder` that writes its ledger in place."""
    board = provision(folder, **options)
    board.in_place = True
    return Client(board)


def test_between_two_reports_a_board_writes_only_what_would_be_slow():
    # Every seventh write fills a block of the flash. The first call finds this out with the writes
    # of two blocks; then the slow write is made in advance, and no report waits for one.
    client = in_place(scratch.folder())
    clock = Erasing(7)
    slow = 0
    with replaced(ledger, ticks_ms=clock):
        for number in range(1, 41):
            before = clock.now
            assert ask(client, round_frame(number, THREE))[0] == wire.REPORT
            if number > 1:
                slow += clock.now - before
            client.tend()
            if number == 1:
                assert clock.writes == 14
    client.close()
    assert slow == 0
    assert clock.writes == 14 + 39 + 39 // 6  # one more in each block


def test_a_board_stops_looking_for_the_end_of_a_block():
    # The flash has no block that fills, or only one within the 40 writes after the first report.
    for period in (1000, 35):
        client = in_place(scratch.folder())
        clock = Erasing(period)
        with replaced(ledger, ticks_ms=clock):
            for number in (1, 2, 3):
                ask(client, round_frame(number, THREE))
                client.tend()
        client.close()
        assert clock.writes == 3 + 40


def test_what_is_written_between_two_reports_is_what_the_ledger_has():
    # Whether the last round was answered or its draw failed, and whether or not fuses count the
    # writes: the file stays as it is, and no fuse burns.
    for fuses in (0, 64):
        folder = scratch.folder()
        client = in_place(folder, fuses=fuses)
        path = folder + "/" + storage.ledger_name(7)
        with replaced(ledger, ticks_ms=Erasing(6)):
            for number in range(1, 9):
                fails = number & 1
                draw = no_memory if fails else client.report.draw
                with replaced(client.report, draw=draw):
                    answer = ask(client, round_frame(number, THREE))
                assert answer[0] == (wire.ERROR if fails else wire.REPORT)
                before = read(path), fuses and read(folder + ".count")
                client.tend()
                assert (read(path), fuses and read(folder + ".count")) == before
        client.close()
        book = book_of(folder)
        assert (book.round, book.spent) == (8, 8 * COST)


def test_a_board_that_has_paid_in_advance_or_has_a_slot_writes_nothing_between_two_reports():
    for options in ({"ahead": 4}, {"slot": 10_000, "records": 1}):
        folder = scratch.folder()
        client = in_place(folder)
        put_fleet(folder, **options)
        clock = Erasing(7)
        with replaced(ledger, ticks_ms=clock):
            assert ask(client, round_frame(1, THREE))[0] == wire.REPORT
            client.tend()
        client.close()
        assert clock.writes == 1, options


def test_a_disk_that_fails_between_two_reports_costs_nothing():
    for step in range(8):
        folder = scratch.folder()
        client = in_place(folder)
        frame = round_frame(1, THREE)
        with replaced(ledger, ticks_ms=Erasing(7)), Disk(-1, OSError(28)) as disk:
            report = ask(client, frame)
            disk.left = step
            client.tend()
            assert disk.failed
        assert ask(client, frame) == report
        assert ask(client, round_frame(2, THREE))[0] == wire.REPORT
        client.close()
        assert book_of(folder).spent == 2 * COST


def test_power_cut_at_every_write_between_two_reports():
    # On LittleFS, each cut leaves the ledger that was written before the report left.
    if MICROPYTHON:
        cut_between_two_reports()


def cut_between_two_reports():
    """Cut the power at every write of Ledger.tend(); return how often.

    The blocks of the flash are short, so that some of the writes erase one.
    """
    flash, start = flash_chip.Flash(bytearray(flash_chip.BYTES)), bytearray(flash_chip.BYTES)
    flash_chip.format(flash)
    client = in_place("/flash")
    report = ask(client, round_frame(1, THREE))
    client.ledger.close()
    flash_chip.unmount()
    path = "/flash/" + storage.ledger_name(7)
    clock = Erasing(6)

    def prepared():
        """Return a ledger that was written in place already, as after a report."""
        book = Ledger(in_place=True)
        book.load(path)
        book._write(path, book._whole)
        return book

    def tended(book):
        try:
            book.tend()
        except (LedgerError, OSError):
            pass

    book = Ledger()
    with replaced(ledger, ticks_ms=clock):
        for cut, _, _ in flash_chip.cut_at_every_write(flash, start, prepared, tended):
            book.load(path)
            assert (book.round, book.state, book.spent) == (1, ledger.ANSWERED, COST), cut
            assert bytes(book.report) == report, cut
    assert cut > 40, cut
    return cut
