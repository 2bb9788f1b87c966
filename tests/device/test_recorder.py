"""The recorder: its records after calls in any order, and after the power fails or the disk is
full.
"""

import gc
import os
import sys
from array import array
from struct import pack

import flash_chip
import scratch
import small_board
from checks import raises, without_heap
from failing_disk import Disk
from flash_chip import unmount
from small_board import ask, provision, round_frame

from tern import ledger, recorder, wire
from tern.client import Client
from tern.compat import MICROPYTHON
from tern.ledger import Ledger, LedgerError
from tern.recorder import Recorder
from tern.storage import StorageError

NEEDS = {
    "test_records_stay_in_order_after_calls_in_any_order": "endurance",
    "test_the_recorder_goes_on_after_a_failure_at_any_step": "endurance",
    "test_power_cut_at_every_write_of_littlefs": "endurance",
    "test_a_full_flash_stops_neither_the_program_nor_its_ledgers": "endurance",
    "test_recording_erases_few_blocks": "endurance",
    "test_any_record_can_be_taken_between_calls_in_any_order": "endurance",
    "test_a_half_written_record_is_dropped": "endurance",
}
ENOSPC = 28
BLOCK = 4096


def record(i, d):
    return array("h", [(i * 31 + 7 * j) % 16385 - 8192 for j in range(d)]), i % 16384


def append(book, first, end):
    for i in range(first, end):
        book.append(*record(i, book.d))


def numbers(book):
    """The numbers of the recorder's records; checks each of them."""
    row = array("h", bytes(2 * book.d + 2))
    numbers = []
    for index in range(book.count):
        book.read(index, row)
        assert row[: book.d] == record(row[book.d], book.d)[0]
        numbers.append(row[book.d])
    return numbers


def opened(folder, *args, **options):
    book = Recorder(*args, least=1, **options)  # fewer than `least` read as zeros
    book.open(folder)
    return book


def sizes(folder):
    path = folder + "/" + recorder.SAMPLES
    return sorted([os.stat(path + "/" + name)[6] for name in os.listdir(path)])


def test_arguments_out_of_bounds_are_refused():
    for bad in (
        (0,),
        (129,),
        (4, 0),
        (4, 65536),
        (4, 8, 0),
        (4, 7, 8),
        (4, 8, 8, 0),
        (4, 8, 8, 9),
        (128, 256, 16),
    ):
        raises(ValueError, Recorder, *bad)
    book = Recorder(128, 256, 15)
    assert (book.d, book.least, book.count, book.flushes, book.lost) == (128, 15, 0, 0, 0)
    assert Recorder(1, 65535, 1, 65535).least == 65535


def test_a_recorder_writes_nothing_before_it_is_open():
    book = Recorder(2, 4, 2)
    book.append(*record(0, 2))
    raises(StorageError, book.append, *record(1, 2))
    raises(OSError, book.open, scratch.folder() + "/none")


def test_records_survive_a_restart():
    folder = scratch.folder()
    book = opened(folder, 13)
    assert numbers(book) == []
    append(book, 0, 20)
    assert (book.count, book.flushes, numbers(book)) == (16, 2, list(range(16)))
    assert opened(folder, 13).count == 16, "records in RAM are gone"
    book.flush()
    assert (book.count, book.flushes) == (20, 3)
    book.flush()
    assert book.flushes == 3, "nothing to write"
    append(book, 20, 21)
    book.close()
    assert sizes(folder) == [520, 520, 12 + 21 * 28], "each in a block of its own from the start"
    again = opened(folder, 13, capacity=8)
    assert numbers(again) == list(range(13, 21)), "the newest"
    append(book, 21, 29)  # a recorder that was closed goes on
    assert numbers(book) == list(range(29))
    book.close()


def test_new_records_replace_the_oldest():
    for d, capacity, hold in ((13, 100, 8), (28, 64, 8), (65, 24, 24), (128, 20, 15), (4, 10, 1)):
        folder = scratch.folder()
        book = opened(folder, d, capacity, hold)
        total = 4 * capacity + 300 // d * hold
        for i in range(total):
            append(book, i, i + 1)
            durable = (i + 1) // hold * hold
            assert book.count == min(durable, capacity)
        durable = total // hold * hold
        assert numbers(book) == list(range(durable - book.count, durable))
        segments = sizes(folder)
        row = 2 * d + 2
        assert 520 <= min(segments) <= max(segments) <= recorder.SEGMENT_MOST
        rows_in_one = min(capacity + hold - 1, (4096 - 12) // row) // hold * hold
        assert len(segments) == -(-capacity // rows_in_one) + 1
        book.close()
        scratch.remove(folder)


def test_a_smaller_capacity_keeps_the_newest_records_only():
    folder = scratch.folder()
    book = opened(folder, 13, 600, 8)
    append(book, 0, 600)
    book.close()
    book = opened(folder, 13, 64, 8)
    assert book.count == 64 and len(sizes(folder)) <= 3
    assert numbers(book) == list(range(536, 600))
    book.close()


def test_records_stay_in_order_after_calls_in_any_order():
    # Compared with a list: flushed records stay in their order, records in RAM are lost at a
    # restart.
    seed = 12345
    for d, capacity, hold in ((1, 5, 1), (13, 60, 8), (65, 40, 7)):
        folder = scratch.folder()
        book = opened(folder, d, capacity, hold)
        flushed = []
        held = []
        following = 0
        for _ in range(80):
            seed = (seed * 1103 + 12345) & 0xFFFFF
            action = (seed >> 8) % 8
            if action < 4:
                for _ in range((seed >> 12) % 40):
                    append(book, following, following + 1)
                    held.append(following)
                    following += 1
                    if not book._held:  # also where a segment is full
                        flushed += held
                        held = []
            elif action == 4:
                book.flush()
                flushed += held
                held = []
            elif action == 5:
                book.close()
                flushed += held
                held = []
            elif action == 6:  # power off
                book._shut()
                held = []
                capacity = max(hold, capacity + seed % 9 - 4)
                book = opened(folder, d, capacity, hold)
                flushed = flushed[-book._total :] if book._total else []
            elif seed % 5 == 0:
                book.clear()
                flushed = []
                held = []
            assert book.count == min(len(flushed), capacity)
            assert numbers(book) == flushed[-capacity:]
        assert book.lost == 0
        book.close()
        scratch.remove(folder)


def test_any_record_can_be_taken_between_calls_in_any_order():
    # As many as fill several segments, so that whichever was taken last may have gone. Compared
    # with a list.
    seed = 4321
    for d, capacity, hold in ((128, 70, 8), (65, 100, 7)):
        folder = scratch.folder()
        book = opened(folder, d, capacity, hold)
        row = array("h", bytes(2 * d + 2))
        flushed = []
        following = 0
        for _ in range(300):
            seed = (seed * 1103 + 12345) & 0xFFFFF
            action = (seed >> 8) % 8
            if action < 3:
                for _ in range(hold):
                    append(book, following, following + 1)
                    following += 1
                book.flush()
                flushed = (flushed + list(range(following - hold, following)))[-capacity:]
            elif action == 3:
                book.close()
            elif action == 4:
                book.close()
                book = opened(folder, d, capacity, hold)
            elif action == 5 and seed % 7 == 0:
                book.clear()
                flushed = []
            elif action == 6:  # the records of a write are lost
                book.close()
                with Disk(0, OSError(5), module=recorder):
                    for _ in range(hold):
                        append(book, 0, 1)
            elif flushed:
                index = (seed >> 11) % len(flushed)
                for i in range(index, min(index + seed % 20, len(flushed))):
                    assert book.take(i, row) >= 0
                    assert row[d] == flushed[i], (d, i)
        book.close()
        scratch.remove(folder)


class Counted:
    """Stands in for an array: counts how often an item is read."""

    def __init__(self, items):
        self._items = items
        self.reads = 0

    def __getitem__(self, i):
        self.reads += 1
        return self._items[i]


def test_to_take_a_record_is_as_much_work_in_any_segment():
    # What it needs once it did for each older segment: a report took the longer, the more records
    # there were.
    folder = scratch.folder()
    ring(folder, 120, (128, 120, 8))
    book = opened(folder, 128, 120, 8)
    row = array("h", bytes(258))
    book._rows = rows = Counted(book._rows)
    for index in range(book.count):
        book.take(index, row)
    assert book.count == 120
    segments = 120 // 8 + 1
    assert rows.reads <= 2 * book.count + 2 * segments, rows.reads
    book.close()


def test_taking_a_record_of_the_same_segment_allocates_nothing():
    book = opened(scratch.folder(), 13, hold=100)
    append(book, 0, 100)
    row = array("h", bytes(28))
    book.take(0, row)

    def takes():
        for index in range(100):
            book.take(index, row)

    without_heap(takes)
    assert row[13] == 99
    book.close()


def test_appending_allocates_nothing():
    book = opened(scratch.folder(), 13, hold=100)
    row, label = record(1, 13)
    append(book, 0, 1)

    def appends():
        for _ in range(98):
            book.append(row, label)

    without_heap(appends)
    book.flush()
    assert book.count == 99


def test_records_can_be_read_while_new_ones_replace_the_oldest():
    folder = scratch.folder()
    book = opened(folder, 28, 24, 8)
    row = array("h", bytes(58))
    last = 0
    for i in range(0, 400, 8):
        append(book, i, i + 8)
        count = book.count
        for index in (0, count // 2, count - 1, count + 5, 65535):
            book.read(index, row)
            assert row[:28] == record(row[28], 28)[0] and i + 8 - 24 <= row[28] < i + 8
        book.read(count - 1, row)
        assert row[28] > last or not i
        last = row[28]
    book.clear()
    book.read(3, row)
    assert row == array("h", bytes(58)), "zeros"
    append(book, 0, 8)
    assert numbers(book) == list(range(8))
    book.close()


def test_records_of_another_dimension_or_with_a_damaged_header_are_refused():
    folder = scratch.folder()
    book = opened(folder, 28, 300, 8)
    append(book, 0, 304)
    book.close()
    for d in (27, 29):
        other = Recorder(d)
        raises(StorageError, other.open, folder)
        assert numbers(other) == []
        append(other, 0, 8)
        assert (other.lost, numbers(other)) == (8, [])
    assert len(numbers(opened(folder, 28, 300))) == 300, "nothing is lost by that"
    path = folder + "/" + recorder.SAMPLES + "/2"
    data = scratch.read(path)
    for at in (0, 1, 2, 3, 4, 5, 9):  # magic, d, and a number that leaves no later one
        scratch.write(
            path, data[:at] + bytes((data[at] ^ (4 if at < 9 else 0xFF),)) + data[at + 1 :]
        )
        bad = Recorder(28)
        raises(StorageError, bad.open, folder)
        assert numbers(bad) == []
    bad.clear()
    append(bad, 0, 8)
    assert numbers(bad) == list(range(8))
    bad.close()


def test_segments_of_other_names_or_without_a_larger_number_are_refused():
    folder = scratch.folder()
    opened(folder, 4, 20, 4).close()
    path = folder + "/" + recorder.SAMPLES + "/"

    def put(name, number, rows=3):
        scratch.write(
            path + name, pack(recorder.SEGMENT_HEADER, b"TRS2", 4, number, rows) + bytes(600)
        )

    others = [(name, 3) for name in ("01", "1F", "x", "123456789")]
    for name, number in others + [("1", n) for n in ((1 << 30) - 1, 1 << 31, (1 << 32) - 1)]:
        put(name, number)
        raises(StorageError, Recorder(4, 20, 4).open, folder)
        os.remove(path + name)
    put("ffffffff", (1 << 30) - 2, 20)
    book = opened(folder, 4, 20, 4)
    append(book, 0, 4)
    assert (book.count, book.lost) == (20, 4), "there is no larger number"
    book.close()
    assert opened(folder, 4, 20, 4).count == 20, "and it starts all the same"


def test_a_half_written_record_is_dropped():
    folder = scratch.folder()
    ring(folder, 24, (4,))
    path = folder + "/" + recorder.SAMPLES + "/"
    data = scratch.read(path + "0")
    for n in range(recorder.SEGMENT_BYTES + 300):
        scratch.write(path + "0", data[:n])
        scratch.write(path + "1", b"")
        book = opened(folder, 4)
        whole = min(24, max(0, n - recorder.SEGMENT_BYTES) // 10)
        assert numbers(book) == list(range(whole)), n
        append(book, 500, 508)
        assert numbers(book) == list(range(whole)) + list(range(500, 508)), n
        book.close()


def test_a_recorder_that_could_not_be_cleared_counts_what_is_lost_until_it_can_write():
    folder = scratch.folder()
    book = opened(folder, 4)
    append(book, 0, 16)
    with Disk(0, OSError(5), for_good=True, module=recorder):
        raises(OSError, book.clear)
        append(book, 100, 108)
        assert book.lost == 8
    append(book, 200, 208)
    assert numbers(book) == list(range(16)) + list(range(200, 208)) and book.lost == 8
    with Disk(0, OSError(5), module=recorder):
        raises(OSError, book.clear)
    append(book, 300, 308)  # while the segment that grows is not known
    assert numbers(book) == list(range(16)) + list(range(200, 208)) and book.lost == 16
    append(book, 400, 408)
    assert numbers(book)[16:] == list(range(200, 208)) + list(range(400, 408)) and book.lost == 16
    book.close()


def test_records_that_the_flash_does_not_return_are_zeros():
    # Whoever asks would else learn from the ERROR that there are enough of them.
    folder = scratch.folder()
    book = opened(folder, 4)
    append(book, 0, 16)
    row = array("h", bytes(10))
    book.read(3, row)
    assert row[4] == 3

    class Broken:
        def seek(self, _):
            raise OSError(5)

        def close(self):
            pass

    book._file = Broken()
    book.read(3, row)
    assert row == array("h", bytes(10)) and book.lost == 1
    book.read(3, row)
    assert row[4] == 3 and book.lost == 1
    book.close()


def test_a_patient_recorder_writes_when_it_is_tended_or_full():
    book = opened(scratch.folder(), 13, 300, 8)
    book.patient = True
    append(book, 0, 20)
    assert (book.count, book.flushes) == (0, 0)
    book.tend()
    assert (numbers(book), book.flushes) == (list(range(20)), 1)
    append(book, 20, 27)
    book.tend()
    assert book.count == 20
    append(book, 27, 144)
    assert (numbers(book), book.flushes) == (list(range(144)), 2)
    book.close()


LARGE = (60, 80, 8)  # d, capacity, hold: four segments of 32 records
SMALL = (28, 32, 8)  # two segments of 32 records


def scenario(book, first):
    # 32 records: they fill a segment, begin a new one, and reuse the file of the oldest.
    for i in range(first, first + 32, 8):
        append(book, i, i + 8)


def ring(folder, end, options):
    """A recorder of records 0 .. end - 1, closed."""
    book = opened(folder, *options)
    append(book, 0, end)
    book.close()


def test_the_recorder_goes_on_after_a_failure_at_any_step():
    # The program goes on, counts the lost records, and keeps the others in their order.
    for code in (ENOSPC, 5):
        for start in (0, 160):
            folder = scratch.folder()
            ring(folder, start, LARGE)
            book = opened(folder, *LARGE)
            with Disk(1 << 20, module=recorder) as disk:
                scenario(book, start)
            steps = (1 << 20) - disk.left
            book.close()
            for step in range(steps):
                scratch.remove(folder)
                os.mkdir(folder)
                ring(folder, start, LARGE)
                book = opened(folder, *LARGE)
                with Disk(step, OSError(code), module=recorder):
                    scenario(book, start)
                assert book.lost or code == ENOSPC
                held = numbers(book)
                assert len(set(held)) == len(held) and held == sorted(held)
                assert book.count + book.lost >= min(80, start + 32), (code, start, step)
                append(book, start + 32, start + 128)
                assert numbers(book) == list(range(start + 48, start + 128))
                book.close()
                again = opened(folder, *LARGE)
                assert numbers(again) == list(range(start + 48, start + 128))
                again.close()
            scratch.remove(folder)


def test_power_cut_at_every_write_of_littlefs():
    # On other file systems a record can also be half written:
    # test_a_half_written_record_is_dropped.
    if MICROPYTHON:
        assert cut_at_every_write() > 100


def cut_at_every_write():
    # Records flushed, a report paid for, records flushed: after any cut, recorder and ledger are
    # right.
    path = "/flash/ledger"
    cuts = 0
    flash, image = flash_chip.Flash(bytearray(flash_chip.BYTES)), bytearray(flash_chip.BYTES)
    for start in (
        0,
        56,
    ):  # in the first file of a ring, and in its oldest, reused for the newest records
        flash_chip.format(flash)
        ledger.create(path, ledger.MAX_BUDGET)
        pay(path, 1)
        ring("/flash", start, SMALL)
        unmount()

        def work(book, start=start):
            done = start
            paid = 1
            append(book, start, start + 8)
            if flash.alive():
                done += 8
                try:
                    pay(path, 2)
                except LedgerError:
                    pass
            if flash.alive():
                paid = 2
                append(book, start + 8, start + 16)
            return done, paid

        steps = flash_chip.cut_at_every_write(flash, image, lambda: opened("/flash", *SMALL), work)
        for cut, whole, (done, paid) in steps:
            done += 8 * whole
            book = opened("/flash", *SMALL)
            held = numbers(book)
            end = held[-1] + 1 if held else 0
            assert done <= end <= done + 8, (start, cut, end, done)
            assert held == list(range(max(0, end - 32), end)), (start, cut)
            account = Ledger()
            account.load(path)
            assert paid <= account.round <= paid + 1 and account.spent == account.round
            append(book, end, end + 8)
            assert numbers(book)[-8:] == list(range(end, end + 8)) and book.lost == 0
            pay(path, 3)
            book.close()
            cuts += 1
    return cuts


def pay(path, number):
    account = Ledger(in_place=True)
    account.load(path)
    account.pay(number, bytes(range(32)), number - account.spent, bytes(18))
    account.close()


def test_a_full_flash_stops_neither_the_program_nor_its_ledgers():
    # Other files fill it: new records are lost, those in flash stay, the program goes on, and
    # ledgers are written.
    if not MICROPYTHON or sys.platform != "linux":  # small boards have no room for such a chip
        return
    gc.collect()
    flash_chip.format(flash_chip.chip(7))
    raises(StorageError, opened, "/flash", *SMALL)  # before the first record
    assert sizes("/flash") == []
    unmount()
    gc.collect()
    flash = flash_chip.chip(16)
    for start in (0, 24, 80):
        gc.collect()
        flash_chip.format(flash)
        try:
            board = provision("/flash")
            book = opened("/flash", *SMALL)
            append(book, 0, start)
            free = os.statvfs("/flash")[3]
            append(book, start, start + 8)
            assert os.statvfs("/flash")[3] == free, (
                "whatever is in them, the files take the same room"
            )
            try:
                with open("/flash/junk", "wb") as file:
                    while True:
                        file.write(bytes(64))
                        file.flush()
            except OSError:
                pass
            append(book, start + 8, start + 80)
            held = numbers(book)
            kept = start + 80 - book.lost
            print("%d records before it was full: %d lost, %d held" % (start, book.lost, len(held)))
            assert held[: min(8, kept)] == list(range(max(0, kept - 32), kept))[:8], held
            book = None
            gc.collect()
            client = Client(board)
            for number in (1, 2, 3):
                assert ask(client, round_frame(number, small_board.THREE))[0] == wire.REPORT
            client = None
            gc.collect()
            os.remove("/flash/junk")
            book = opened("/flash", *SMALL)
            append(book, start + 80, start + 128)
            assert numbers(book) == list(range(start + 96, start + 128))
            book.close()
        finally:
            unmount()


def test_recording_erases_few_blocks():
    if not MICROPYTHON or sys.platform != "linux":  # small boards have no room for such a chip
        return
    gc.collect()
    flash = flash_chip.chip(16)
    for progsize in (256, 32):  # of a Pico, and of an ESP32
        for d in (13, 28):
            erased = erasures(flash, progsize, d)
            print("progsize %d, d %d: %d erasures for 1600 records" % (progsize, d, erased))
            assert erased <= 1600 * 15 // 100, (progsize, d, erased)
            gc.collect()


def erasures(flash, progsize, d):
    """How many blocks 1600 records erase; no two recorders fit the heap."""
    flash_chip.format(flash, progsize=progsize)
    gc.collect()
    book = opened("/flash", d, 64, 8)
    append(book, 0, 800)
    before = flash.erased
    append(book, 800, 2400)
    assert numbers(book) == list(range(2336, 2400))
    book.close()
    unmount()
    return flash.erased - before
