"""The recorder: its records after calls in any order, and after the power fails or the disk is full."""

import gc
import os
import sys
from array import array

import flash_chip
import scratch
import small_board
from checks import raises, without_heap
from failing_disk import Disk
from flash_chip import unmount
from small_board import ask, provision, round_frame

from tern import ledger, recorder, storage, wire
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
        (0,), (129,), (4, 0), (4, 65536), (4, 8, 0), (4, 7, 8), (4, 8, 8, 0), (4, 8, 8, 9), (128, 256, 16),
    ):  # fmt: skip
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
    assert sizes(folder) == [storage.RECORDS_BYTES + 21 * 28]
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
        assert max(segments) <= recorder.SEGMENT_MOST
        for size in segments:
            assert (size - storage.RECORDS_BYTES) % (hold * row) == 0
        rows_in_one = (max(segments) - storage.RECORDS_BYTES) // row
        assert len(segments) <= -(-capacity // rows_in_one) + 1
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
    # Compared with a list: flushed records stay in their order, records in RAM are lost at a restart.
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
                    if len(held) == hold:
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
    assert os.listdir(folder + "/" + recorder.SAMPLES) == []
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
        raises(StorageError, append, other, 0, 8)
    assert len(numbers(opened(folder, 28, 300))) == 300, "nothing is lost by that"
    path = folder + "/" + recorder.SAMPLES + "/2"
    data = scratch.read(path)
    for at in range(6):
        scratch.write(path, data[:at] + bytes((data[at] ^ 4,)) + data[at + 1 :])
        bad = Recorder(28)
        raises(StorageError, bad.open, folder)
        assert numbers(bad) == []
    bad.clear()
    append(bad, 0, 8)
    assert numbers(bad) == list(range(8))
    bad.close()


def test_a_half_written_record_is_dropped():
    folder = scratch.folder()
    ring(folder, 24, (4,))
    (name,) = os.listdir(folder + "/" + recorder.SAMPLES)
    path = folder + "/" + recorder.SAMPLES + "/" + name
    data = scratch.read(path)
    for n in range(len(data)):
        scratch.write(path, data[:n])
        book = opened(folder, 4)
        whole = max(0, n - storage.RECORDS_BYTES) // 10
        assert numbers(book) == list(range(whole)), n
        append(book, 500, 508)
        assert numbers(book) == list(range(whole)) + list(range(500, 508)), n
        book.close()
        end = storage.RECORDS_BYTES + 10 * whole
        assert sizes(folder)[0] == end + 80 or n >= end


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
    # On other file systems a record can also be half written: test_a_half_written_record_is_dropped.
    if MICROPYTHON:
        assert cut_at_every_write() > 100


def cut_at_every_write():
    # Records flushed, a report paid for, records flushed: after any cut, recorder and ledger are right.
    path = "/flash/ledger"
    cuts = 0
    flash, image = flash_chip.Flash(bytearray(flash_chip.BYTES)), bytearray(flash_chip.BYTES)
    for start in (0, 56):  # in the first file of a ring, and in its oldest, reused for the newest records
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
    # Other files fill it: old records make room for new ones, the program goes on, and ledgers are written.
    if not MICROPYTHON or sys.platform != "linux":  # small boards have no room for such a chip
        return
    gc.collect()
    flash = flash_chip.Chip(bytearray(12 * 4096))
    for start in (0, 24, 80):
        flash_chip.format(flash)
        try:
            board = provision("/flash")
            book = opened("/flash", *SMALL)
            append(book, 0, start)
            try:
                with open("/flash/junk", "wb") as file:
                    while True:
                        file.write(bytes(64))
                        file.flush()
            except OSError:
                pass
            append(book, start, start + 80)
            held = numbers(book)
            print("%d records before it was full: %d lost, %d held" % (start, book.lost, len(held)))
            assert len(held) >= min(8, start) and (book.lost or start == 80)
            if start == 80:  # the oldest make room for the new ones
                assert held == list(range(start + 80 - len(held), start + 80))
            client = Client(board)
            for number in (1, 2, 3):
                assert ask(client, round_frame(number, small_board.THREE))[0] == wire.REPORT
            os.remove("/flash/junk")
            append(book, start + 80, start + 128)
            assert numbers(book) == list(range(start + 96, start + 128))
            book.close()
        finally:
            unmount()


def test_recording_erases_few_blocks():
    if not MICROPYTHON or sys.platform != "linux":  # small boards have no room for such a chip
        return
    gc.collect()
    flash = flash_chip.Chip(bytearray(12 * 4096))
    for progsize in (256, 32):  # of a Pico, and of an ESP32
        for d in (13, 28):
            flash_chip.format(flash, progsize=progsize)
            book = opened("/flash", d, 64, 8)
            append(book, 0, 800)
            before = flash.erased
            append(book, 800, 2400)
            erased = flash.erased - before
            assert numbers(book) == list(range(2336, 2400))
            book.close()
            unmount()
            print("progsize %d, d %d: %d erasures for 1600 records" % (progsize, d, erased))
            assert erased <= 1600 * 15 // 100, (progsize, d, erased)
