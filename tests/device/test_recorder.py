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
from failing_disk import Disk, steps_of
from flash_chip import unmount
from small_board import ask, provision, round_frame
from streams import Words

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
    "test_a_half_written_record_is_dropped": "endurance",
}
ENOSPC, EIO = 28, 5
LARGE = (60, 80, 8)  # d, capacity, hold: four segments of 32 records
SMALL = (28, 32, 8)  # two segments of 32 records


def features(number, d):
    """The features of the record whose label is `number`."""
    return array("h", [(number * 31 + 7 * j) % 16385 - 8192 for j in range(d)])


def append(book, first, end):
    for number in range(first, end):
        book.append(features(number, book.d), number % 16384)


def numbers(book):
    """The numbers of the recorder's records; checks each of them."""
    d = book.d
    row = array("h", bytes(2 * d + 2))
    found = []
    for index in range(book.count):
        book.read(index, row)
        assert row[:d] == features(row[d], d)
        found.append(row[d])
    return found


def recorder_on(folder, *sizes):
    # With fewer than `least` records a recorder reads zeros.
    book = Recorder(*sizes, least=1)
    book.open(folder)
    return book


def fill_folder(folder, end, sizes):
    """Leave a folder with the records 0 .. end - 1."""
    book = recorder_on(folder, *sizes)
    append(book, 0, end)
    book.close()


def path_of(folder, name):
    return folder + "/" + recorder.SAMPLES + "/" + name


def file_sizes(folder):
    path = path_of(folder, "")
    return sorted([os.stat(path + name)[6] for name in os.listdir(path)])


def test_arguments_out_of_bounds_are_refused():
    # d: features of a record; capacity: records that are kept; hold: records that wait in RAM and
    # are written at once; least: with fewer records than this, a report is computed from zeros.
    for sizes in (  # d, capacity, hold, least
        (0,),
        (129,),
        (4, 0),
        (4, 65536),
        (4, 8, 0),
        (4, 7, 8),  # fewer than are written at once
        (4, 8, 8, 0),
        (4, 8, 8, 9),  # more than are kept
        (128, 256, 16),  # 15 records of 128 features fill a block
    ):
        raises(ValueError, Recorder, *sizes)
    assert Recorder(128, 256, 15).least == 15
    assert Recorder(1, 65535, 1, 65535).least == 65535


def test_a_recorder_writes_nothing_before_it_is_open():
    book = Recorder(2, 4, 2)
    append(book, 0, 1)
    raises(StorageError, append, book, 1, 2)
    raises(OSError, book.open, scratch.folder() + "/none")


def test_flushed_records_survive_a_restart_and_those_in_ram_do_not():
    # A Recorder keeps records in RAM until 8 can be written to flash at once, as flash wears with
    # each write. Records have numbers from 0 on; the 13 is the number of features.
    folder = scratch.folder()
    book = recorder_on(folder, 13)
    append(book, 0, 20)
    assert numbers(book) == list(range(16)), "8 are written at once"
    assert numbers(recorder_on(folder, 13)) == list(range(16))
    book.flush()
    assert numbers(recorder_on(folder, 13)) == list(range(20))
    book.close()


def test_a_flush_without_new_records_writes_nothing():
    book = recorder_on(scratch.folder(), 13)
    append(book, 0, 3)
    book.flush()
    book.flush()
    assert book.flushes == 1
    book.close()


def test_a_recorder_that_was_closed_goes_on():
    book = recorder_on(scratch.folder(), 13)
    append(book, 0, 20)
    book.close()
    append(book, 20, 28)
    assert numbers(book) == list(range(28))
    book.close()


def test_new_records_replace_the_oldest_in_a_ring_of_files_with_a_block_each():
    # A Recorder keeps the newest `capacity` records of a program in flash, in a ring of files
    # (segments), each in one block of 4096 bytes. It writes `hold` records at once; what is older
    # than `capacity` is gone, and the number of files never grows.
    for d, capacity, hold in ((13, 100, 8), (65, 24, 24), (128, 20, 15), (4, 10, 1)):
        folder = scratch.folder()
        book = recorder_on(folder, d, capacity, hold)
        total = 4 * capacity + 300 // d * hold  # the ring is filled several times
        append(book, 0, total)
        flushed = total // hold * hold  # the others are still in RAM
        assert numbers(book) == list(range(flushed - capacity, flushed))
        record_bytes = 2 * d + 2
        in_a_file = min(capacity + hold - 1, (4096 - 12) // record_bytes) // hold * hold
        sizes = file_sizes(folder)
        # As many files as the capacity needs, rounded up, and the one that is written.
        assert len(sizes) == -(-capacity // in_a_file) + 1
        # LittleFS keeps files of up to 512 bytes within their folder.
        assert sizes[0] >= 520 and sizes[-1] <= recorder.SEGMENT_MOST
        book.close()
        scratch.remove(folder)


class Walk:
    """A recorder beside a list of the records that it must have."""

    def __init__(self, sizes):
        self.folder = scratch.folder()
        self.sizes = sizes
        self.book = recorder_on(self.folder, *sizes)
        self.flushed = []
        self.held = []  # those in RAM
        self.next = 0

    def append(self, count):
        for _ in range(count):
            before = self.book.flushes
            append(self.book, self.next, self.next + 1)
            self.held.append(self.next)
            self.next += 1
            if self.book.flushes != before:
                self._keep()

    def _keep(self):
        self.flushed += self.held
        self.held = []

    def flush(self):
        self.book.flush()
        self._keep()

    def close(self):
        self.book.close()
        self._keep()

    def power_off(self):
        with Disk(0, OSError(EIO), for_good=True, module=recorder):
            self.book.close()
        self.book = recorder_on(self.folder, *self.sizes)
        self.held = []

    def clear(self):
        self.book.clear()
        self.flushed = []
        self.held = []

    def lose_a_write(self):
        self.close()
        with Disk(0, OSError(EIO), for_good=True, module=recorder):
            append(self.book, 0, self.sizes[2])
            self.book.flush()

    def check(self, start):
        """Check all records from the one at `start` on."""
        d, capacity, _ = self.sizes
        expected = self.flushed[-capacity:]
        assert self.book.count == len(expected)
        row = array("h", bytes(2 * d + 2))
        for index in range(start % (len(expected) or 1), len(expected)):
            assert self.book.take(index, row) >= 0
            assert row[d] == expected[index]
            assert row[:d] == features(row[d], d)


def test_records_stay_in_order_after_calls_in_any_order():
    # A random walk: appended records, flushes, restarts, power cuts, failed writes and clearing,
    # in any order. Walk.check() compares the recorder with a plain list of the records that it
    # must hold. sizes: features, capacity, and records written at once.
    words = Words(12345)
    for sizes in ((1, 5, 1), (65, 40, 7), (128, 70, 8)):
        walk = Walk(sizes)
        for _ in range(25):
            action = words.below(9)
            if action < 4:
                walk.append(words.below(40))
            elif action == 4:
                walk.flush()
            elif action == 5:
                walk.close()
            elif action == 6:
                walk.power_off()
            elif action == 7:
                walk.lose_a_write()
            elif words.below(4) == 0:
                walk.clear()
            walk.check(words.below(100))
        walk.close()
        scratch.remove(walk.folder)


class Counted:
    """Stands in for an array: counts how often an item is read."""

    def __init__(self, items):
        self._items = items
        self.reads = 0

    def __getitem__(self, i):
        self.reads += 1
        return self._items[i]


def test_to_take_a_record_is_as_much_work_in_any_segment():
    # `reads` counts the looks at the list of segments (files of records) while all 120 records are
    # taken in order.
    # Else the time of a report would tell how many records there are.
    book = recorder_on(scratch.folder(), 128, 120, 8)
    append(book, 0, 120)
    row = array("h", bytes(258))
    book._rows = rows = Counted(book._rows)
    for index in range(book.count):
        book.take(index, row)
    segments = 120 // 8 + 1  # 8 records each, and the one that is written
    assert rows.reads <= 2 * book.count + 2 * segments
    book.close()


def test_appending_and_taking_allocate_nothing():
    # A program appends records between samples of a sensor, and a report takes all of them:
    # neither may use the heap. 98 more records fit in RAM before the next write.
    book = recorder_on(scratch.folder(), 13, 256, 100)
    append(book, 0, 101)
    row = features(1, 13)
    taken = array("h", bytes(28))
    book.take(0, taken)

    def calls():
        for index in range(98):
            book.append(row, 1)
            book.take(index, taken)

    without_heap(calls)
    book.close()


def test_an_index_whose_record_has_gone_reads_a_later_one():
    # While a report is computed, the program may append records, which replace the oldest, or
    # clear all. An index that was counted before then still gives one of the newest 24 records
    # (376 to 399), never a mixture of two.
    book = recorder_on(scratch.folder(), 28, 24, 8)
    row = array("h", bytes(58))
    append(book, 0, 400)
    for index in (23, 24, 29, 65535):
        book.read(index, row)
        assert 376 <= row[28] < 400 and row[:28] == features(row[28], 28)
    book.clear()
    book.read(3, row)
    assert not any(row), "without records it is zeros"
    book.close()


def test_records_of_another_dimension_are_refused_and_kept():
    # A program that was changed to record 27 or 29 features finds records of 28: it must not
    # delete or misread them. What it appends is counted as lost.
    folder = scratch.folder()
    fill_folder(folder, 304, (28, 300, 8))  # features, capacity, records written at once
    for d in (27, 29):
        other = Recorder(d)
        raises(StorageError, other.open, folder)
        append(other, 0, 8)
        assert (other.lost, other.count) == (8, 0)
    assert recorder_on(folder, 28, 300).count == 300


def test_a_damaged_header_is_refused_until_all_is_cleared():
    # Records are kept in files with a header. If bits of one have changed in flash, the recorder
    # does not guess, but refuses to open, until the program clears all.
    folder = scratch.folder()
    fill_folder(folder, 304, (28, 300, 8))
    path = path_of(folder, "2")
    header = scratch.read(path)
    # Bits of the magic, of d, and of a number that leaves no later one.
    for at, bits in ((0, 4), (3, 4), (4, 4), (5, 4), (9, 0xFF)):
        scratch.write(path, header[:at] + bytes((header[at] ^ bits,)) + header[at + 1 :])
        book = Recorder(28)
        raises(StorageError, book.open, folder)
        assert book.count == 0
    book.clear()
    append(book, 0, 8)
    assert numbers(book) == list(range(8))
    book.close()


def test_segments_of_other_names_or_without_a_later_number_are_refused():
    # Each file of records (a segment) has a hexadecimal name and a number that grows. Other names
    # are not the recorder's, and with a number near the largest (1 << 30) no later segment could
    # follow.
    folder = scratch.folder()
    recorder_on(folder, 4, 20, 4).close()

    def put(name, number, rows=3):
        header = pack(recorder.SEGMENT_HEADER, b"TRS2", 4, number, rows)
        scratch.write(path_of(folder, name), header + bytes(600))

    for name, number in (
        ("01", 3),
        ("1F", 3),
        ("x", 3),
        ("123456789", 3),
        ("1", (1 << 30) - 1),
        ("1", 1 << 31),
        ("1", (1 << 32) - 1),
    ):
        put(name, number)
        raises(StorageError, Recorder(4, 20, 4).open, folder)
        os.remove(path_of(folder, name))

    # The last number that is allowed.
    put("ffffffff", (1 << 30) - 2, 20)
    book = recorder_on(folder, 4, 20, 4)
    append(book, 0, 4)
    assert (book.count, book.lost) == (20, 4), "it starts, and there is no larger number"


def test_a_half_written_record_is_dropped():
    # A power cut may leave a file of records cut at any byte, and the next one empty. Whole
    # records stay, the broken one is dropped, and new ones follow. A record has 10 bytes: four
    # features and a label.
    folder = scratch.folder()
    fill_folder(folder, 24, (4,))
    data = scratch.read(path_of(folder, "0"))
    for n in range(recorder.SEGMENT_BYTES + 250):
        scratch.write(path_of(folder, "0"), data[:n])
        scratch.write(path_of(folder, "1"), b"")
        book = recorder_on(folder, 4)
        whole = list(range(min(24, max(0, n - recorder.SEGMENT_BYTES) // 10)))
        assert numbers(book) == whole, n
        append(book, 500, 508)
        assert numbers(book) == whole + list(range(500, 508)), n
        book.close()


def test_a_recorder_that_could_not_be_cleared_counts_what_is_lost_until_it_can_write():
    # Flash fails for good in a clear(): the records that come in this time are lost, and counted.
    # Once it works, those from before are still there, and new ones are kept.
    book = recorder_on(scratch.folder(), 4)
    append(book, 0, 16)
    with Disk(0, OSError(EIO), for_good=True, module=recorder):
        raises(OSError, book.clear)
        append(book, 100, 108)
        assert book.lost == 8
    append(book, 200, 208)
    assert numbers(book) == list(range(16)) + list(range(200, 208))
    book.close()


def test_a_recorder_that_was_half_cleared_goes_on():
    # Flash fails once, in the middle of a clear(). The next 8 records are lost, after which the
    # recorder writes again.
    book = recorder_on(scratch.folder(), 4)
    append(book, 0, 16)
    with Disk(0, OSError(EIO), module=recorder):
        raises(OSError, book.clear)
    append(book, 300, 308)  # while the segment that grows is not known
    append(book, 400, 408)
    assert book.lost == 8
    assert numbers(book)[16:] == list(range(400, 408))
    book.close()


def test_records_that_the_flash_does_not_return_are_zeros():
    # A read that fails is counted as a loss for the program, and a later one works again.
    # Whoever asks would else learn from the ERROR that there are enough of them.
    book = recorder_on(scratch.folder(), 4)
    append(book, 0, 16)
    row = array("h", bytes(10))
    book.read(3, row)

    class Broken:
        def seek(self, _):
            raise OSError(EIO)

        def close(self):
            pass

    book._file = Broken()
    book.read(3, row)
    assert not any(row) and book.lost == 1
    book.read(3, row)
    assert row[4] == 3
    book.close()


def test_a_patient_recorder_writes_when_it_is_tended_or_full():
    # To write flash takes time, which a program may want to choose: a `patient` recorder keeps
    # records in RAM until the program calls tend() while at least `hold`, 8, wait, or until they
    # fill a segment (a file of records).
    book = recorder_on(scratch.folder(), 13, 300, 8)
    book.patient = True
    append(book, 0, 20)
    assert book.count == 0
    book.tend()
    assert book.count == 20
    append(book, 20, 27)
    book.tend()
    assert book.count == 20, "fewer than `hold` wait"
    append(book, 27, 144)  # 144 records of 28 bytes fill a segment
    assert (numbers(book), book.flushes) == (list(range(144)), 2)
    book.close()


def test_the_recorder_goes_on_after_a_failure_at_any_step():
    # LARGE: 80 records of 60 features are kept, and written 8 at once. The flash fails at each
    # step in turn of writing 32 records, to a new recorder and to a full one.
    # The program goes on, counts the lost records, and keeps the others in their order.
    def record(book, start):
        # They fill a segment, begin a new one, and reuse the file of the oldest.
        for first in range(start, start + 32, 8):
            append(book, first, first + 8)

    def prepared(start):
        folder = scratch.folder()
        fill_folder(folder, start, LARGE)
        return folder

    for start in (0, 160):
        book = recorder_on(prepared(start), *LARGE)
        steps = steps_of(lambda book=book, start=start: record(book, start), recorder)
        book.close()
        for step in range(steps):
            code = (ENOSPC, EIO)[step % 2]
            folder = prepared(start)
            book = recorder_on(folder, *LARGE)
            with Disk(step, OSError(code), module=recorder):
                record(book, start)
            held = numbers(book)
            assert held == sorted(set(held))  # in order, none twice
            # 80 is the capacity: none is missing without being counted.
            assert book.count + book.lost >= min(80, start + 32), (start, step)
            append(book, start + 32, start + 128)
            newest = list(range(start + 48, start + 128))
            assert numbers(book) == newest
            book.close()
            assert numbers(recorder_on(folder, *LARGE)) == newest
            scratch.remove(folder)


def test_power_cut_at_every_write_of_littlefs():
    # On other file systems a record can also be half written:
    # test_a_half_written_record_is_dropped.
    if MICROPYTHON:
        assert cut_at_every_write() > 100


def cut_at_every_write():
    """Return the number of cuts. Records are flushed, a report is paid for, and records are flushed:
    after any cut, recorder and ledger are right.
    """
    path = "/flash/ledger"
    cuts = 0
    flash = flash_chip.Flash(bytearray(flash_chip.BYTES))
    image = bytearray(flash_chip.BYTES)
    # In the first file of a ring, and in its oldest, which is reused for the newest records.
    for start in (0, 56):
        flash_chip.format(flash)
        ledger.create(path, ledger.MAX_BUDGET)
        pay(path, 1)
        fill_folder("/flash", start, SMALL)
        unmount()

        def work(book, start=start):
            end = start
            paid = 1
            append(book, start, start + 8)
            if flash.alive():
                end += 8
                try:
                    pay(path, 2)
                except LedgerError:
                    pass
            if flash.alive():
                paid = 2
                append(book, start + 8, start + 16)
            return end, paid

        steps = flash_chip.cut_at_every_write(
            flash, image, lambda: recorder_on("/flash", *SMALL), work
        )
        for cut, whole, (least, paid) in steps:
            least += 8 * whole
            book = recorder_on("/flash", *SMALL)
            held = numbers(book)
            end = held[-1] + 1 if held else 0
            assert least <= end <= least + 8, (start, cut, end)
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
    """Pay for rounds up to this one, 1 each."""
    account = Ledger(in_place=True)
    account.load(path)
    account.pay(number, bytes(range(32)), number - account.spent, bytes(18))
    account.close()


def fill_flash():
    try:
        with open("/flash/junk", "wb") as file:
            while True:
                file.write(bytes(64))
                file.flush()
    except OSError:
        pass


def has_room_for_a_chip():
    return MICROPYTHON and sys.platform == "linux"


def test_a_full_flash_stops_neither_the_program_nor_its_ledgers():
    # A ledger is the file of the privacy budget that a client has spent. SMALL: 32 records are
    # kept, and written 8 at once. `start` records are in flash before.
    # Other files fill it: new records are lost, those in flash stay, and ledgers are written.
    if not has_room_for_a_chip():
        return
    flash = flash_chip.chip(16)
    for start in (0, 24, 80):
        gc.collect()
        flash_chip.format(flash)
        try:
            board = provision("/flash")
            book = recorder_on("/flash", *SMALL)
            append(book, 0, start)
            # The recorder has reserved its room: 8 more records take none.
            free = os.statvfs("/flash")[3]  # blocks
            append(book, start, start + 8)
            assert os.statvfs("/flash")[3] == free, "records do not change the room of the files"

            # No room is left: some records are lost, and those held are the newest before.
            fill_flash()
            append(book, start + 8, start + 80)
            held = numbers(book)
            kept = start + 80 - book.lost
            assert held[: min(8, kept)] == list(range(max(0, kept - 32), kept))[:8], held

            # The client still writes its ledger and answers.
            book = None
            gc.collect()
            client = Client(board)
            for number in (1, 2, 3):
                assert ask(client, round_frame(number, small_board.THREE))[0] == wire.REPORT

            # With room again, new records are kept: the newest 32.
            client = None
            gc.collect()
            os.remove("/flash/junk")
            book = recorder_on("/flash", *SMALL)
            append(book, start + 80, start + 128)
            assert numbers(book) == list(range(start + 96, start + 128))
            book.close()
        finally:
            unmount()


def test_a_flash_without_room_for_the_ring_is_refused_before_the_first_record():
    # A simulated flash chip of 7 blocks is too small for the files that 32 records need; the
    # recorder must say so at once, not after days, and leave no file.
    if not has_room_for_a_chip():
        return
    flash_chip.format(flash_chip.chip(7))
    try:
        raises(StorageError, recorder_on, "/flash", *SMALL)
        assert file_sizes("/flash") == []
    finally:
        unmount()
