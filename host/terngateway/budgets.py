"""The budgets that the boards of a site report, as rows of a HERE (shared_specs/gateways.md)."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from terngateway.messages import MOST_BUDGETS, BudgetRow
from ternhost.count.members import Integers
from ternhost.reach.driver import BoardBudget


def rows_of(budgets: Sequence[BoardBudget]) -> list[BudgetRow]:
    """Return these budgets as at most MOST_BUDGETS rows for a message.

    Each different budget gets a row, with the number of devices that have it. If that were too
    many rows, similar budgets share one, which states the least that is left and the most that is
    spent.
    """
    rows = _distinct_rows(budgets)
    if len(rows) <= MOST_BUDGETS:
        return rows

    groups = _by_measure_and_unit(rows)
    if len(groups) > MOST_BUDGETS:  # then the rows leave out the units
        rows_without_unit = [row._replace(unit=None) for row in rows]
        groups = _by_measure_and_unit(rows_without_unit)

    # Each group gets the same number of rows.
    rows_per_group = MOST_BUDGETS // len(groups)
    merged = []
    for group in groups:
        rows_to_merge = -(-len(group) // rows_per_group)  # the division, rounded up
        for start in range(0, len(group), rows_to_merge):
            merged.append(_merge(group[start : start + rows_to_merge]))
    return merged


def _distinct_rows(budgets: Iterable[BoardBudget]) -> list[BudgetRow]:
    """Return one row for each different budget, with the number of devices that have it."""
    devices_by_budget: Counter[tuple[int, int | None, int, int]] = Counter()
    for budget in budgets:
        key = (budget.measure, budget.unit, budget.left, budget.spent)
        devices_by_budget[key] += budget.count

    rows = []
    for (measure, unit, left, spent), devices in devices_by_budget.items():
        if devices:
            rows.append(BudgetRow(measure, unit, left, spent, devices))
    return rows


def _by_measure_and_unit(rows: Iterable[BudgetRow]) -> list[list[BudgetRow]]:
    """Group the rows by measure and unit, since only budgets that share both can be merged.

    Each group is sorted by lifetime budget, and then by what is left of it, so that similar
    budgets are neighbours.
    """
    groups: defaultdict[tuple[int, int | None], list[BudgetRow]] = defaultdict(list)
    for row in rows:
        groups[row.measure, row.unit].append(row)
    for group in groups.values():
        group.sort(key=_lifetime_and_left)
    return list(groups.values())


def _lifetime_and_left(row: BudgetRow) -> tuple[int, int]:
    """Return the lifetime budget of a row, and what is left of it."""
    return row.left + row.spent, row.left


def _merge(rows: Sequence[BudgetRow]) -> BudgetRow:
    """Return one row that stands for several rows of the same measure and unit.

    It is never better than one of them: it states the least that is left, at least the most that is
    spent, and a lifetime budget (left and spent together) that is at least the largest one.
    """
    least_left = min(row.left for row in rows)
    most_spent = max(row.spent for row in rows)
    largest_lifetime = max(row.left + row.spent for row in rows)
    return BudgetRow(
        measure=rows[0].measure,
        unit=rows[0].unit,
        left=least_left,
        spent=max(most_spent, largest_lifetime - least_left),
        devices=sum(row.devices for row in rows),
    )


def budgets_of(devices: Integers, rows: Iterable[Sequence[Any]]) -> list[BoardBudget]:
    """Return the budgets that a gateway has reported.

    devices: the ids of all devices of that gateway, since a row does not say whose budget it is.
    rows: the fields of BudgetRow, as a message or the store has them.
    """
    budgets = []
    for row in rows:
        budget = BudgetRow(*row)
        board_budget = BoardBudget(
            devices, budget.devices, budget.measure, budget.left, budget.spent, unit=budget.unit
        )
        budgets.append(board_budget)
    return budgets
