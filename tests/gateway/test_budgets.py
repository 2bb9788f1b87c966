"""What the boards of a site say of their budgets reaches a host by the rows of a HERE."""

import random
from collections import Counter

import numpy as np
import pytest

from tern.ledger import EPSILON, RHO
from terngateway.budgets import budgets_of, rows_of
from terngateway.messages import MOST_BUDGETS
from ternhost.reach.driver import BoardBudget


def budget(i, measure=EPSILON, left=0, spent=0, unit=0):
    """What a board with the one device `i` says."""
    return BoardBudget(range(i, i + 1), 1, measure, left, spent, i, unit)


def test_boards_that_say_the_same_are_one_row():
    budgets = [budget(i, left=900, spent=100, unit=60) for i in range(1, 7)]
    assert rows_of(budgets) == [(EPSILON, 60, 900, 100, 6)]


@pytest.mark.parametrize("boards", [1, MOST_BUDGETS + 1, 5000])
def test_rows_of_many_budgets_tell_no_more_left_and_no_less_spent(boards):
    spents = 10 * np.arange(boards)
    lefts = 10**6 - spents
    budgets = []
    for device, (left, spent) in enumerate(zip(lefts, spents, strict=True), start=1):
        budgets.append(budget(device, left=int(left), spent=int(spent)))

    rows = rows_of(budgets)

    told_left, told_spent = [], []  # of each board
    for _, _, left, spent, count in rows:
        told_left += count * [left]
        told_spent += count * [spent]
    assert len(rows) <= MOST_BUDGETS
    assert len(told_left) == boards
    assert (np.sort(told_left) <= np.sort(lefts)).all()
    assert (np.sort(told_spent) >= np.sort(spents)).all()


def test_no_budget_for_life_is_told_as_a_smaller_one():
    draw = random.Random(1)
    budgets = []
    for device in range(1, 501):
        budgets.append(budget(device, left=draw.randrange(1000), spent=draw.randrange(1000)))

    lives = [left + spent for _, _, left, spent, _ in rows_of(budgets)]

    assert max(lives) >= max(each.left + each.spent for each in budgets)


def test_boards_that_protect_different_units_have_rows_of_their_own():
    devices = Counter()
    for _, unit, *_, count in rows_of([budget(i, RHO, left=i, unit=i % 2) for i in range(1, 501)]):
        devices[unit] += count
    assert devices == {0: 250, 1: 250}


def test_a_host_reads_the_rows_of_a_site():
    site = np.arange(1, 9)
    (read,) = budgets_of(site, [(RHO, 60, 9, 1, 8)])
    assert (read.count, read.measure, read.unit, read.left, read.spent) == (8, RHO, 60, 9, 1)
    assert read.devices is site
