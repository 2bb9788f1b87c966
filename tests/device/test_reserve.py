"""A ledger that pays for several reports at once: what it saves, and what a power cut then costs."""

import flash_chip
import scratch
import small_board
from failing_disk import Disk, PowerCut, steps_of
from small_board import EPSILON, ask, error_of, provision, put_fleet, round_frame

from tern import ledger, storage, wire
from tern.client import Client
from tern.compat import MICROPYTHON
from tern.ledger import Ledger

NEEDS = {"test_wear_of_littlefs": "endurance"}
AHEAD = 4
COST = 4 * EPSILON  # of a report of small_board
_DATA = bytearray(8 * 4096)  # made here, while the heap is in one piece


def reserving(folder, budget=ledger.MAX_BUDGET, clients=1):
    """A board whose client pays for AHEAD reports at once."""
    board = provision(folder, budget=budget, clients=clients)
    put_fleet(folder, ahead=AHEAD, epoch=0)
    return board


def book_of(folder, device=7):
    book = Ledger()
    book.load(folder + "/" + storage.ledger_name(device))
    return book


def test_several_rounds_with_one_write():
    folder = scratch.folder()
    client = Client(reserving(folder))
    three = small_board.THREE
    writes = []
    for number in range(1, 2 * AHEAD + 1):
        frame = round_frame(number, three)
        writes.append(steps_of(lambda frame=frame: client.answer(frame)))
        assert client.reply[0] == wire.REPORT
        report = ask(client, frame)
        assert report == ask(client, frame), "the same request, the same bytes"
        book = book_of(folder)
        assert (book.spent, book.round) == (
            ((number - 1) // AHEAD + 1) * AHEAD * COST,
            -(-number // AHEAD) * AHEAD,
        )
        assert error_of(ask(client, round_frame(number, three, shift=1))) == (wire.ERR_CHANGED_ROUND, number)
        assert (
            error_of(ask(client, round_frame(number - 1, three)))[0] == wire.ERR_OLD_ROUND
            if number > 1
            else True
        )
    assert [bool(steps) for steps in writes] == [True, False, False, False] * 2, writes


def test_power_cut_at_every_step_of_several_rounds():
    assert cut_at_every_step_of_several_rounds() > 8


def cut_at_every_step_of_several_rounds():
    # Power fails at each step of AHEAD + 2 rounds; the device starts again, and is asked every round again, twice.
    # Whatever it released, before or after, is one report a round, and all of them together are paid for.
    three = small_board.THREE
    frames_of = [round_frame(number, three) for number in range(1, AHEAD + 3)]

    def rounds(client, released):
        for frame in frames_of:
            answer = ask(client, frame)
            if answer[0] == wire.REPORT:
                released.append(answer)

    folder = scratch.folder()
    client = Client(reserving(folder))
    steps = steps_of(lambda: rounds(client, []))
    assert steps >= 8, steps
    for cut in range(steps + 1):
        folder = scratch.folder()
        board = reserving(folder)
        released = []
        with Disk(cut):
            try:
                rounds(Client(board), released)
            except PowerCut:
                pass
        book = book_of(folder)
        assert book.spent >= len(released) * COST
        for _ in range(2):
            rounds(Client(board), released)
        by_round = {}
        for report in released:
            by_round.setdefault(report[5:9], set()).add(report)
        assert all(len(reports) == 1 for reports in by_round.values()), cut
        assert book_of(folder).spent >= len(by_round) * COST
    return steps + 1


def test_a_disk_that_fails_refuses_and_the_reserve_is_read_again():
    folder = scratch.folder()
    board = reserving(folder)
    client = Client(board)
    three = small_board.THREE
    assert ask(client, round_frame(1, three))[0] == wire.REPORT
    with Disk(0, OSError(28)):
        for number in (2, 3, 4):
            assert ask(client, round_frame(number, three))[0] == wire.REPORT, "nothing is to be written"
    with Disk(0, OSError(28), for_good=True):
        assert error_of(ask(client, round_frame(5, three))) == (wire.ERR_LEDGER, 0)
    assert ask(client, round_frame(5, three))[0] == wire.REPORT
    assert book_of(folder).spent == 2 * AHEAD * COST


def test_wear_of_littlefs():
    # Blocks erased for 100 rounds, as a measure of wear: what ledger.md says of ten years rests on it.
    if not MICROPYTHON:
        return
    erased = {}
    for in_place in (False, True):
        for ahead in (1, 24):
            flash = flash_chip.Chip(_DATA)
            flash_chip.format(flash)
            board = provision("/flash")
            board.in_place = in_place
            put_fleet("/flash", ahead=ahead, epoch=0)
            client = Client(board)
            three = small_board.TWO
            before = flash.erased
            for number in range(1, 101):
                client.answer(round_frame(number, three))
                assert client.reply[0] == wire.REPORT
            erased[in_place, ahead] = flash.erased - before
            flash_chip.unmount()
    print("blocks erased in 100 rounds (in place, ahead):", erased)
    assert erased[True, 24] * 10 < erased[True, 1] < erased[False, 1]
    assert erased[False, 24] * 10 < erased[False, 1]
