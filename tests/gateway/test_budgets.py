"""What the boards of a site say of their budgets reaches a host by the rows of a HERE."""

import numpy as np
import pytest

from tern.ledger import EPSILON, RHO
from terngateway.budgets import budgets_of, rows_of
from terngateway.messages import MOST_BUDGETS
from ternhost.reach.driver import BoardBudget


def test_boards_that_say_the_same_are_one_row():
    budgets = [BoardBudget(range(i, i + 2), 2, EPSILON, 900, 100, i, 60) for i in (1, 3, 5)]
    assert rows_of(budgets) == [(EPSILON, 60, 900, 100, 6)]


@pytest.mark.parametrize("measures", [(EPSILON,), (RHO,), (EPSILON, RHO)], ids=str)
@pytest.mark.parametrize("boards", [1, MOST_BUDGETS, MOST_BUDGETS + 1, 5000])
def test_more_different_budgets_than_rows_are_told_as_no_more_left_and_no_less_spent(
    boards, measures
):
    budgets = [
        BoardBudget(range(i, i + 1), 1, measures[i % len(measures)], 10 * i, 10**6 - 10 * i, i)
        for i in range(1, boards + 1)
    ]
    rows = rows_of(budgets)
    assert len(rows) <= MOST_BUDGETS
    assert sum(count for *_, count in rows) == boards
    for measure in measures:
        mine = sorted((each.left, each.spent) for each in budgets if each.measure == measure)
        told = sorted(
            (left, spent)
            for of, _, left, spent, count in rows
            if of == measure
            for _ in range(count)
        )
        assert all(
            left <= own[0] and spent >= own[1]
            for (left, spent), own in zip(told, mine, strict=True)
        )


def test_no_budget_for_life_is_told_as_a_smaller_one():
    budgets = [
        BoardBudget(range(i, i + 1), 1, EPSILON, 7919 * i % 1000, 104_729 * i % 1000, i, 0)
        for i in range(1, 501)
    ]
    largest = max(each.left + each.spent for each in budgets)
    assert max(left + spent for _, _, left, spent, _ in rows_of(budgets)) >= largest


def test_boards_that_protect_different_units_have_rows_of_their_own():
    budgets = [BoardBudget(range(i, i + 1), 1, RHO, i, 0, i, i % 2) for i in range(1, 501)]
    rows = rows_of(budgets)
    assert len(rows) <= MOST_BUDGETS
    assert {unit: sum(row[4] for row in rows if row[1] == unit) for unit in (0, 1)} == {
        0: 250,
        1: 250,
    }


def test_boards_of_more_units_than_there_are_rows_are_told_without_units():
    budgets = [
        BoardBudget(range(i, i + 1), 1, EPSILON, 100 + i, 0, i, i)
        for i in range(1, MOST_BUDGETS + 2)
    ]
    rows = rows_of(budgets)
    assert {unit for _, unit, *_ in rows} == {None}
    assert sum(count for *_, count in rows) == MOST_BUDGETS + 1


def test_a_host_reads_the_rows_of_a_site():
    site = np.arange(1, 9)
    (budget,) = budgets_of(site, [(RHO, 60, 9, 1, 8)])
    assert (budget.count, budget.measure, budget.unit) == (8, RHO, 60)
    assert (budget.left, budget.spent, budget.first) == (9, 1, None)
    assert budget.devices is site
