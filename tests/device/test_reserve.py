"""A ledger that pays for several reports at once: how much wear that saves, and how much a power
cut then costs.
"""

import flash_chip
import scratch
from failing_disk import Disk, PowerCut, steps_of
from small_board import (
    EPSILON,
    THREE,
    TWO,
    ask,
    book_of,
    error_of,
    provision,
    put_fleet,
    round_frame,
)

from tern import ledger, wire
from tern.client import Client
from tern.compat import MICROPYTHON
from tern.sums import rho

NEEDS = {"test_paying_ahead_erases_fewer_blocks": "endurance"}
AHEAD = 4
COSTS = 4 * EPSILON, 4 * rho(EPSILON)  # of a report of small_board, by the ledger's measure
COST = COSTS[0]


def reserving(folder, budget=ledger.MAX_BUDGET, clients=1, measure=0):
    """A board whose client pays for AHEAD reports at once."""
    board = provision(folder, budget=budget, clients=clients, measure=measure)
    put_fleet(folder, ahead=AHEAD, epoch=0)
    return board


def test_power_cut_at_every_step_of_several_rounds():
    for measure in (ledger.EPSILON, ledger.RHO):
        assert cut_at_every_step_of_several_rounds(measure) > 8


def cut_at_every_step_of_several_rounds(measure=ledger.EPSILON):
    """Cut the power at each step of AHEAD + 2 rounds; return how often.

    The device starts again, and gets every round again, twice. All that it releases, before and
    after, is one report per round, and all of these reports are paid for.
    """
    frames = [round_frame(number, THREE) for number in range(1, AHEAD + 3)]

    def rounds(client, released):
        for frame in frames:
            answer = ask(client, frame)
            if answer[0] == wire.REPORT:
                released.append(answer)

    client = Client(reserving(scratch.folder(), measure=measure))
    steps = steps_of(lambda: rounds(client, []))
    assert steps >= 8, steps
    for cut in range(steps + 1):
        folder = scratch.folder()
        board = reserving(folder, measure=measure)
        released = []
        with Disk(cut):
            try:
                rounds(Client(board), released)
            except PowerCut:
                pass
        assert book_of(folder).spent >= len(released) * COSTS[measure]
        for _ in range(2):
            rounds(Client(board), released)
        by_round = {}
        for report in released:
            by_round.setdefault(report[5:9], set()).add(report)
        assert all(len(reports) == 1 for reports in by_round.values()), cut
        assert book_of(folder).spent >= len(by_round) * COSTS[measure]
    return steps + 1


def test_a_round_is_refused_while_the_disk_fails_and_paid_for_afterwards():
    # To spare flash, a client pays for AHEAD = 4 reports from its privacy budget with a single
    # write. Three more rounds need no write, so that they are answered with a disk that fails; the
    # fifth has to write, and is refused until the disk works.
    folder = scratch.folder()
    client = Client(reserving(folder))
    assert ask(client, round_frame(1, THREE))[0] == wire.REPORT
    with Disk(0, OSError(28)):  # no space left
        for number in (2, 3, 4):
            assert ask(client, round_frame(number, THREE))[0] == wire.REPORT, "needs no write"
    with Disk(0, OSError(28), for_good=True):
        assert error_of(ask(client, round_frame(5, THREE))) == (wire.ERR_LEDGER, 0)
    assert ask(client, round_frame(5, THREE))[0] == wire.REPORT
    assert book_of(folder).spent == 2 * AHEAD * COST  # two payments


def test_paying_ahead_erases_fewer_blocks():
    # `ahead` reports are paid for with one write of the ledger, the file of spent privacy budget,
    # either in place or as a new file. With 24 at once, flash wears less than a tenth as fast.
    # Wear is measured in blocks erased for 100 rounds; the ten years in ledger.md follow from it.
    if not MICROPYTHON:
        return
    flash = flash_chip.chip(8)
    erased = {}
    for in_place in (False, True):
        for ahead in (1, 24):
            erased[in_place, ahead] = blocks_erased(flash, in_place, ahead)
    print("blocks erased in 100 rounds (in place, ahead):", erased)
    assert erased[True, 24] * 10 < erased[True, 1] < erased[False, 1]
    assert erased[False, 24] * 10 < erased[False, 1]


def blocks_erased(flash, in_place, ahead):
    """Return how many blocks of a flash chip 100 rounds of a new board erase.

    flash: the chip, which loses its content. in_place: whether the ledger is overwritten in place.
    ahead: reports that one write pays for.
    """
    flash_chip.format(flash)
    board = provision("/flash")
    board.in_place = in_place
    put_fleet("/flash", ahead=ahead, epoch=0)
    client = Client(board)
    before = flash.erased
    for number in range(1, 101):
        client.answer(round_frame(number, TWO))
        assert client.reply[0] == wire.REPORT
    flash_chip.unmount()
    return flash.erased - before
