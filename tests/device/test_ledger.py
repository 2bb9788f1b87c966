"""The ledger: its images, and what is left of it when power fails or the disk is full, at every point."""

import os

import flash_chip
import scratch
import small_board
import vectors
from failing_disk import Disk, PowerCut, steps_of
from small_board import EPSILON, ask, error_of, provision, round_frame

from tern import host_frames, ledger, storage, wire
from tern.client import Client
from tern.compat import MICROPYTHON
from tern.ledger import Ledger, LedgerError

QUESTION = bytes(range(32))
NEEDS = {
    "test_power_cut_at_every_step_of_a_round": "endurance",
    "test_full_or_read_only_disk_at_every_step": "endurance",
    "test_power_cut_at_every_write_of_littlefs": "endurance",
}


def fails(function, *args):
    try:
        function(*args)
    except LedgerError:
        return
    raise AssertionError("accepted")


def write(path, data):
    with open(path, "wb") as file:
        file.write(data)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def test_ledger_vectors():
    path = scratch.folder() + "/ledger"
    book = Ledger()
    for case in vectors.load("ledger.json")["tests"]:
        write(path, bytes.fromhex(case["ledger"]))
        if case["result"] == "invalid":
            fails(book.load, path)
            continue
        book.load(path)
        assert (book.budget, book.spent, book.round) == (case["budget"], case["spent"], case["last"])
        assert (book.question, book.state) == (bytes.fromhex(case["mark"]), case["state"]), case["comment"]
        assert bytes(book.report) == bytes.fromhex(case["report"])


def test_a_round_from_budget_to_report():
    path = scratch.folder() + "/ledger"
    ledger.create(path, 10_000_000)
    fails(ledger.create, path, 10_000_000)
    book = Ledger()
    book.load(path)
    book.debit(3, QUESTION, 4_000_000)
    again = Ledger()
    again.load(path)
    assert (again.spent, again.round, again.question, again.state) == (4_000_000, 3, QUESTION, ledger.DEBITED)
    again.record(b"report" * 3)
    book.load(path)
    assert (book.spent, book.state, bytes(book.report)) == (4_000_000, ledger.REPORTED, b"report" * 3)
    assert len(read(path)) == 52 + 18 + 8


def test_refuses_what_would_break_the_account():
    path = scratch.folder() + "/ledger"
    ledger.create(path, 10_000_000)
    book = Ledger()
    book.load(path)
    image = read(path)
    for bad in (
        (1, QUESTION, 10_000_001),
        (1, QUESTION, 0),
        (1, QUESTION, -5),
        (0, QUESTION, 1),
        (1 << 30, QUESTION, 1),
    ):
        fails(book.debit, *bad)
    fails(book.record, bytes(18))
    assert read(path) == image
    book.debit(5, QUESTION, 10_000_000)
    fails(book.debit, 6, QUESTION, 1)
    fails(book.debit, 5, QUESTION, 1)
    fails(book.record, bytes(17))
    fails(book.record, bytes(274))
    book.record(bytes(18))
    fails(book.record, bytes(18))
    for budget in (0, -1, ledger.MAX_BUDGET + 1):
        fails(ledger.create, path + "2", budget)


def test_missing_ledger_and_folder():
    folder = scratch.folder()
    fails(Ledger().load, folder + "/none")
    fails(Ledger().load, folder)
    fails(ledger.create, folder + "/none/ledger", 1)
    fails(Ledger().debit, 1, QUESTION, 1)


def fresh(folder, book=None):
    """Put the ledger of the only client back to what `book` holds, or to a new one."""
    path = folder + "/" + storage.ledger_name(7)
    try:
        os.remove(path + ".new")
    except OSError:
        pass
    if book is None:
        os.remove(path)
        ledger.create(path, ledger.MAX_BUDGET)
    else:
        write(path, book)
    return path


def test_power_cut_at_every_step_of_a_round():
    assert cut_at_every_step_of_a_round() > 72


def cut_at_every_step_of_a_round():
    # Power fails once or twice within a round, at every pair of steps; each time the device starts again and is
    # asked again. Then the report is one, and paid for once.
    folder = scratch.folder()
    board = provision(folder)
    three = small_board.THREE
    frame = round_frame(5, three)
    client = Client(board)
    client.answer(frame)
    fresh(folder)
    steps = steps_of(lambda: client.answer(frame))
    assert steps >= 12, steps
    book = Ledger()
    cuts = 0
    for first in range(steps):
        for second in range(steps + 1):
            path = fresh(folder)
            released = []
            for cut in (first, second, -1, -1):
                with Disk(cut):
                    try:
                        released.append(ask(client, frame))
                    except PowerCut:
                        cuts += 1
                book.load(path)
                assert book.spent in (0, 4 * EPSILON)
                assert not released or book.spent == 4 * EPSILON
            assert len(released) >= 2 and released[0][0] == wire.REPORT
            assert all(report == released[0] for report in released), (first, second)
            assert book.state == ledger.REPORTED
    assert cuts > steps * steps // 2
    return cuts


def test_power_cut_never_gives_budget_back():
    # In the second of two rounds: whatever the step, what the first one cost stays spent, and the report is whole.
    folder = scratch.folder()
    client = Client(provision(folder))
    three = small_board.THREE
    path = folder + "/" + storage.ledger_name(7)
    client.answer(round_frame(1, three))
    before = read(path)
    frame = round_frame(2, three)
    steps = steps_of(lambda: client.answer(frame))
    book = Ledger()
    for step in range(steps):
        fresh(folder, before)
        with Disk(step):
            try:
                client.answer(frame)
                raise AssertionError("not cut")
            except PowerCut:
                pass
        book.load(path)
        assert (book.round, book.state, book.spent) in (
            (1, ledger.REPORTED, 4 * EPSILON),
            (2, ledger.DEBITED, 8 * EPSILON),
            (2, ledger.REPORTED, 8 * EPSILON),
        )


def test_full_or_read_only_disk_at_every_step():
    folder = scratch.folder()
    client = Client(provision(folder))
    three = small_board.THREE
    frame = round_frame(1, three)
    client.answer(frame)
    fresh(folder)
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
                assert book.state != ledger.IDLE or book.spent == 0
                answer = ask(client, frame)  # room again: one report, paid once
                book.load(path)
                assert answer[0] == wire.REPORT and book.spent == 4 * EPSILON
                assert bytes(book.report) == answer == ask(client, frame)


def test_a_damaged_ledger_refuses_every_round():
    folder = scratch.folder()
    client = Client(provision(folder))
    three = small_board.THREE
    path = folder + "/" + storage.ledger_name(7)
    client.answer(round_frame(1, three))
    good = read(path)
    for at in range(len(good)):
        bad = bytearray(good)
        bad[at] ^= 0x10
        write(path, bad)
        assert error_of(ask(client, round_frame(2, three))) == (wire.ERR_LEDGER, 0), at
    os.remove(path)
    assert error_of(ask(client, round_frame(2, three))) == (wire.ERR_LEDGER, 0)


def test_power_cut_at_every_write_of_littlefs():
    for in_place in (False, True):
        cut_at_every_write(in_place)


def cut_at_every_write(in_place):
    if not MICROPYTHON:
        return
    import vfs

    image = bytearray(flash_chip.BYTES)
    start = bytearray(flash_chip.BYTES)
    flash = flash_chip.Flash(image)
    vfs.VfsLfs2.mkfs(flash)
    vfs.mount(vfs.VfsLfs2(flash), "/flash")
    board = provision("/flash")
    board.in_place = in_place
    client = Client(board)
    three = small_board.THREE
    client.answer(round_frame(1, three))
    vfs.umount("/flash")
    start[:] = image
    frame = round_frame(2, three)
    path = "/flash/" + storage.ledger_name(7)
    book = Ledger()
    states = set()
    cut = 0
    whole = False
    while not whole:
        cut += 1
        image[:] = start
        flash.left = 1 << 20
        vfs.mount(vfs.VfsLfs2(flash), "/flash")
        client = Client(board)
        flash.left = cut
        released = []
        try:
            answer = ask(client, frame)
        except OSError:
            answer = b""
        whole = flash.alive()
        if whole:
            released.append(answer)
        flash.left = 0
        try:
            vfs.umount("/flash")
        except OSError:
            pass
        flash.left = 1 << 20  # power is back: the file system as it stands on the chip
        vfs.mount(vfs.VfsLfs2(flash), "/flash")
        client = Client(board)
        book.load(path)
        states.add((book.round, book.state, book.spent // EPSILON))
        released.append(ask(client, frame))
        released.append(ask(client, frame))
        assert all(report == released[0] for report in released), cut
        host_frames.decode_report(released[0], small_board.key_of(7), 4, 3, [0] * 4)
        book.load(path)
        assert book.spent == 8 * EPSILON
        vfs.umount("/flash")
    assert cut > 20, cut
    assert states == {(1, ledger.REPORTED, 4), (2, ledger.DEBITED, 8), (2, ledger.REPORTED, 8)}, states
    return cut
