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


def client_of(draw, most):
    ahead, budget = draw.choice((1, 1, 3)), draw.choice((100_000, 2_000_000, 9_000_000))
    folder = scratch.folder()
    small_board.write_files(folder, measure=ledger.RHO, records=9, budget=budget, largest=most)
    put_fleet(folder, ahead=ahead, epoch=0, unit=2)
    return folder, Client(Board(folder)), ahead, budget


def live(draw, happened):
    """One history, against a twin that knows only what left the board. happened: what did in all of
    them.
    """
    folder, client, ahead, budget = client_of(draw, draw.choice((PRICE, 4 * PRICE)))
    released, asked, lost, cut = {}, [(0, None)], False, False
    for event in draw.choices(
        ("new", "new", "new", "again", "changed", "restart"), k=draw.randrange(1, 9)
    ):
        if event == "restart" or cut:
            client.close()
            client, cut = Client(Board(folder)), False
        number, question = draw.choice(asked)
        if event != "again" or not number:
            number = max(asked)[0] + (
                0 if event == "changed" and number else draw.choice((1, 1, 2))
            )
            question = *draw.choice(QUESTIONS), draw.randrange(100)
        asked.append((number, question))
        card, k, price, shift = question
        fault = draw.choice((None, None, PowerCut(), OSError(28)))
        try:
            with Disk(draw.randrange(10) if fault else -1, fault):
                answer = ask(client, round_frame(number, card, k=k, shift=shift))
            if answer[0] == wire.REPORT:
                happened.add("replayed" if number in released else "paid")
                assert released.setdefault(number, (answer, price)) == (answer, price), number
            else:
                code, detail = error_of(answer)
                happened.add(code)
                lost |= code == wire.ERR_LEDGER  # the write may have been durable
                assert code in (REFUSED if fault else REFUSED - {wire.ERR_LEDGER})
                assert code != wire.ERR_BUDGET or detail < price
        except PowerCut:
            lost = cut = True
        book, paid = book_of(folder), sum(price for _, price in released.values())
        assert paid <= book.spent <= budget
        assert book.spent == paid or lost or ahead > 1
    client.close()


def test_random_histories_are_paid_for(seed):
    """200 of them: 10,000 with --exhaustive."""
    draw, happened = random.Random(seed), set()
    for _ in range(200):
        live(draw, happened)
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
