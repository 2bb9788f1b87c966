"""Random histories of a client whose ledger counts rho: never over its budget, never two answers to
one round.
"""

import errno
import math
import random
from dataclasses import dataclass

import pytest
import scratch
import small_board
from failing_disk import Disk, PowerCut
from small_board import (
    EPSILON,
    PURE_CARD,
    RHO_CARD,
    THREE,
    ask,
    book_of,
    error_of,
    put_fleet,
    round_frame,
)

from tern import ledger, wire
from tern.boards.emulated import Board
from tern.client import Client

pytestmark = [pytest.mark.slow, pytest.mark.sampled(1), pytest.mark.parametrize("seed", range(50))]
PRICE = 1_523_189  # of EPSILON: 2 tanh(1)
QUESTIONS = [(RHO_CARD, 5, 50_000), (PURE_CARD, 2, PRICE), (THREE, 1, PRICE), (THREE, 4, 4 * PRICE)]
REFUSED = {
    wire.ERR_OLD_ROUND,
    wire.ERR_CHANGED_ROUND,
    wire.ERR_BUDGET,
    wire.ERR_LEDGER,
    wire.ERR_POLICY,
}


@dataclass
class Customer:
    """A client whose ledger counts rho, and the files of its board."""

    folder: str
    client: Client
    ahead: int  # how many reports it pays for at once
    budget: int

    @classmethod
    def random(cls, source, largest):
        """A client with a random budget, none of whose reports may cost more than `largest`."""
        ahead, budget = source.choice((1, 1, 3)), source.choice((100_000, 2_000_000, 9_000_000))
        folder = scratch.folder()
        files = {"measure": ledger.RHO, "records": 9, "budget": budget, "largest": largest}
        small_board.write_files(folder, **files)
        put_fleet(folder, ahead=ahead, epoch=0, unit=2)
        return cls(folder, Client(Board(folder)), ahead, budget)

    def restart(self):
        self.client.close()
        self.client = Client(Board(self.folder))

    @property
    def book(self):
        """The ledger as its file has it."""
        return book_of(self.folder)


EVENTS = ("new", "new", "new", "again", "changed", "restart")


def next_question(source, event, asked):
    """The number of a round and its question: of a new round, an old one again, or another question
    of an old round.
    """
    number, question = source.choice(asked)
    if event != "again" or not number:
        last = max(asked)[0]
        number = last if event == "changed" and number else last + source.choice((1, 1, 2))
        question = *source.choice(QUESTIONS), source.randrange(100)
    asked.append((number, question))
    return number, question


def live(source, happened):
    """One history, against a twin that knows only what left the board.

    `happened` collects what did in all histories: "paid", "replayed" or the code of an error.
    """
    customer = Customer.random(source, largest=source.choice((PRICE, 4 * PRICE)))
    price_by_round, answer_by_round = {}, {}
    asked = [(0, None)]
    uncertain = cut = False  # a write may have been durable; the power is cut
    for event in source.choices(EVENTS, k=source.randrange(1, 9)):
        if event == "restart" or cut:
            customer.restart()
            cut = False
        number, (card, k, price, shift) = next_question(source, event, asked)
        fault = source.choice((None, None, PowerCut(), OSError(errno.ENOSPC)))
        fails_at = source.randrange(10) if fault else -1  # the number of a call of the disk
        try:
            with Disk(fails_at, fault):
                answer = ask(customer.client, round_frame(number, card, k=k, shift=shift))
        except PowerCut:
            uncertain = cut = True
        else:
            if answer[0] == wire.REPORT:
                happened.add("replayed" if number in answer_by_round else "paid")
                assert answer_by_round.setdefault(number, answer) == answer
                assert price_by_round.setdefault(number, price) == price
            else:
                code, detail = error_of(answer)
                happened.add(code)
                uncertain |= code == wire.ERR_LEDGER
                assert code in REFUSED
                assert code != wire.ERR_LEDGER or fault
                assert code != wire.ERR_BUDGET or detail < price, "the detail is what is left"
        paid, spent = sum(price_by_round.values()), customer.book.spent
        assert paid <= spent <= customer.budget
        assert spent == paid or uncertain or customer.ahead > 1
    customer.client.close()


def test_random_histories_are_paid_for(seed):
    """200 of them: 10,000 with --exhaustive."""
    source, happened = random.Random(seed), set()
    for _ in range(200):
        live(source, happened)
    assert happened == REFUSED | {"paid", "replayed"}


def test_a_ledger_in_rho_adds_up(seed):
    """A device writes what it has spent before it reports, and may pay for several reports at once
    (`ahead`) to save writes to its flash. Five questions at most, with restarts between, go to each
    of 200 devices and to a simple model of the formulas of ledger.md: answers and ledger files
    agree.
    """
    source = random.Random(seed)
    assert math.ceil(EPSILON * math.tanh(EPSILON / 2e6) - 1e-6) == PRICE
    for _ in range(200):
        customer = Customer.random(source, largest=4 * PRICE)
        # What its reports cost, and what the file says: up to round `paid_until`, it is paid.
        spent = durable = number = paid_until = 0
        for _ in range(source.randrange(1, 6)):
            # After a restart, the device goes on from its file: all that was paid counts as spent.
            if source.randrange(5) == 0:
                customer.restart()
                spent, number, paid_until = durable, max(number, paid_until), 0
            # A new round, sometimes with a number left out.
            card, k, price = source.choice(QUESTIONS)
            number += source.choice((1, 1, 2))
            answer = ask(customer.client, round_frame(number, card, k=k))
            left = customer.budget - spent
            if price > left:
                assert error_of(answer) == (wire.ERR_BUDGET, left)
                number = number - 1 if paid_until else customer.book.round
                continue
            # It reports. If this round was not paid in advance, it pays for some at once.
            assert answer[0] == wire.REPORT
            if number > paid_until or spent + price > durable:
                reports_ahead = min(customer.ahead, left // price)
                paid_until = number + reports_ahead - 1 if reports_ahead > 1 else 0
                durable = spent + reports_ahead * price
            spent += price
            assert customer.book.spent == durable
        customer.client.close()
