"""The budgets that the boards of a site report, as rows of a HERE (shared_specs/gateways.md)."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from terngateway.messages import MOST_BUDGETS, BudgetRow
from ternhost.count.members import Integers
from ternhost.reach.driver import BoardBudget


def rows_of(budgets: Sequence[BoardBudget]) -> list[BudgetRow]:
    """Return these budgets as at most MOST_BUDGETS rows.

    Where there are more different budgets, similar ones share a row, which states the least that is
    left and the most that is spent.
    """
    rows = _distinct_rows(budgets)
    if len(rows) <= MOST_BUDGETS:
        return rows

    groups = _by_measure_and_unit(rows)
    if len(groups) > MOST_BUDGETS:  # then the rows leave out the units
        rows = [(measure, None, left, spent, count) for measure, _, left, spent, count in rows]
        groups = _by_measure_and_unit(rows)

    rows_per_group = MOST_BUDGETS // len(groups)
    merged = []
    for group in groups:
        rows_to_merge = -(-len(group) // rows_per_group)  # rounded up
        for start in range(0, len(group), rows_to_merge):
            merged.append(_merge(group[start : start + rows_to_merge]))
    return merged


def _distinct_rows(budgets: Iterable[BoardBudget]) -> list[BudgetRow]:
    """Return one row for each different budget, with the number of devices that have it."""
    devices: Counter[tuple[int, int | None, int, int]] = Counter()
    for budget in budgets:
        devices[budget.measure, budget.unit, budget.left, budget.spent] += budget.count

    rows: list[BudgetRow] = []
    for (measure, unit, left, spent), count in devices.items():
        if count:
            rows.append((measure, unit, left, spent, count))
    return rows


def _by_measure_and_unit(rows: Iterable[BudgetRow]) -> list[list[BudgetRow]]:
    """Group the rows by measure and unit, and sort each group by lifetime budget, then by the rest."""
    groups: defaultdict[tuple[int, int | None], list[BudgetRow]] = defaultdict(list)
    for row in rows:
        measure, unit, *_ = row
        groups[measure, unit].append(row)
    for group in groups.values():
        group.sort(key=_lifetime_and_left)
    return list(groups.values())


def _lifetime_and_left(row: BudgetRow) -> tuple[int, int]:
    """Return the lifetime budget of a row, and what is left of it."""
    _, _, left, spent, _ = row
    return left + spent, left


def _merge(rows: Sequence[BudgetRow]) -> BudgetRow:
    """Return one row for several rows of the same measure and unit.

    It states the least that is left, at least the most that is spent, and as lifetime budget (left
    and spent together) at least the largest one.
    """
    measure, unit, least_left, most_spent, devices = rows[0]
    largest_lifetime = least_left + most_spent
    for _, _, left, spent, count in rows[1:]:
        least_left = min(least_left, left)
        most_spent = max(most_spent, spent)
        largest_lifetime = max(largest_lifetime, left + spent)
        devices += count
    return measure, unit, least_left, max(most_spent, largest_lifetime - least_left), devices


def budgets_of(devices: Integers, rows: Sequence[BudgetRow]) -> list[BoardBudget]:
    """Return the budgets in the rows of a gateway's HERE. devices: all devices of that gateway."""
    return [
        BoardBudget(devices, count, measure, left, spent, unit=unit)
        for measure, unit, left, spent, count in rows
    ]
