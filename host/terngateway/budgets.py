"""What the boards of a site say of their budgets, as the rows of a HERE (shared_specs/gateways.md)."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from terngateway.messages import MOST_BUDGETS, BudgetRow
from ternhost.count.members import Integers
from ternhost.reach.driver import BoardBudget


def rows_of(budgets: Sequence[BoardBudget]) -> list[BudgetRow]:
    """The rows that tell these budgets, at most MOST_BUDGETS.

    Where there are more different ones, similar ones become one row, which says the least left and
    the most spent.
    """
    rows = _counted(budgets)
    if len(rows) <= MOST_BUDGETS:
        return rows
    groups = _by_kind(rows)
    if len(groups) > MOST_BUDGETS:
        groups = _by_kind(
            (measure, None, left, spent, count) for measure, _, left, spent, count in rows
        )
    most = MOST_BUDGETS // len(groups)
    found = []
    for group in groups:
        together = -(-len(group) // most)
        for start in range(0, len(group), together):
            found.append(_joined(group[start : start + together]))
    return found


def _counted(budgets: Iterable[BoardBudget]) -> list[BudgetRow]:
    """A row for each different budget."""
    devices: Counter[tuple[int, int | None, int, int]] = Counter()
    for each in budgets:
        devices[each.measure, each.unit, each.left, each.spent] += each.count
    return [(*said, count) for said, count in devices.items() if count]


def _by_kind(rows: Iterable[BudgetRow]) -> list[list[BudgetRow]]:
    """The rows of each measure and unit, those of equal budgets for life beside each other."""
    groups: defaultdict[tuple[int, int | None], list[BudgetRow]] = defaultdict(list)
    for row in rows:
        measure, unit, *_ = row
        groups[measure, unit].append(row)
    for group in groups.values():
        group.sort(key=_whole_and_left)
    return list(groups.values())


def _whole_and_left(row: BudgetRow) -> tuple[int, int]:
    _, _, left, spent, _ = row
    return left + spent, left


def _joined(rows: Sequence[BudgetRow]) -> BudgetRow:
    """One row for several of one measure and unit.

    Its whole budget, left and spent, is none of the smaller ones.
    """
    measure, unit, *_ = rows[0]
    left = min(row[2] for row in rows)
    spent = max(row[3] for row in rows)
    whole = max(row[2] + row[3] for row in rows)
    return measure, unit, left, max(spent, whole - left), sum(row[4] for row in rows)


def budgets_of(devices: Integers, rows: Sequence[BudgetRow]) -> list[BoardBudget]:
    """The budgets that the rows of a HERE with these devices tell."""
    return [
        BoardBudget(devices, count, measure, left, spent, unit=unit)
        for measure, unit, left, spent, count in rows
    ]
