"""Random histories of a client whose ledger counts rho: never over its budget, never two answers to
one round.
"""

import math
import random

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


def client_of(source, largest):
    """A folder, its client, how many reports it pays for at once, and its budget."""
    ahead, budget = source.choice((1, 1, 3)), source.choice((100_000, 2_000_000, 9_000_000))
    folder = scratch.folder()
    small_board.write_files(folder, measure=ledger.RHO, records=9, budget=budget, largest=largest)
    put_fleet(folder, ahead=ahead, epoch=0, unit=2)
    return folder, Client(Board(folder)), ahead, budget


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
    """One history, against a twin that knows only what left the board. `happened` collects what did
    in all histories.
    """
    folder, client, ahead, budget = client_of(source, source.choice((PRICE, 4 * PRICE)))
    released, asked = {}, [(0, None)]
    uncertain = cut = False  # a write may have been durable; the power is cut
    for event in source.choices(EVENTS, k=source.randrange(1, 9)):
        if event == "restart" or cut:
            client.close()
            client, cut = Client(Board(folder)), False
        number, (card, k, price, shift) = next_question(source, event, asked)
        fault = source.choice((None, None, PowerCut(), OSError(28)))
        fails_at = source.randrange(10) if fault else -1
        try:
            with Disk(fails_at, fault):
                answer = ask(client, round_frame(number, card, k=k, shift=shift))
        except PowerCut:
            uncertain = cut = True
        else:
            if answer[0] == wire.REPORT:
                happened.add("replayed" if number in released else "paid")
                assert released.setdefault(number, (answer, price)) == (answer, price)
            else:
                code, detail = error_of(answer)
                happened.add(code)
                uncertain |= code == wire.ERR_LEDGER
                assert code in REFUSED
                assert code != wire.ERR_LEDGER or fault
                assert code != wire.ERR_BUDGET or detail < price
        book = book_of(folder)
        paid = sum(price for _, price in released.values())
        assert paid <= book.spent <= budget
        assert book.spent == paid or uncertain or ahead > 1
    client.close()


def test_random_histories_are_paid_for(seed):
    """200 of them: 10,000 with --exhaustive."""
    source, happened = random.Random(seed), set()
    for _ in range(200):
        live(source, happened)
    assert happened == REFUSED | {"paid", "replayed"}


def test_a_ledger_in_rho_adds_up(seed):
    """200 histories of a client each, against a twin that keeps the account in the formulas of
    ledger.md.
    """
    draw = random.Random(seed)
    assert math.ceil(EPSILON * math.tanh(EPSILON / 2e6) - 1e-6) == PRICE
    for _ in range(200):
        folder, client, ahead, budget = client_of(draw, 4 * PRICE)
        real = durable = number = until = 0
        for _ in range(draw.randrange(1, 6)):
            if draw.randrange(5) == 0:
                client.close()
                client = Client(Board(folder))
                real, number, until = durable, max(number, until), 0
            card, k, price = draw.choice(QUESTIONS)
            number += draw.choice((1, 1, 2))
            answer = ask(client, round_frame(number, card, k=k))
            if price > budget - real:
                assert error_of(answer) == (wire.ERR_BUDGET, budget - real)
                number = book_of(folder).round if not until else number - 1
                continue
            assert answer[0] == wire.REPORT
            if number > until or real + price > durable:
                n = min(ahead, (budget - real) // price)
                until, durable = (number + n - 1 if n > 1 else 0), real + n * price
            real += price
            assert book_of(folder).spent == durable
        client.close()
