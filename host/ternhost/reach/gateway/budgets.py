"""What the boards of a site say of their budgets, as the rows of a HERE (shared_specs/gateways.md)."""

from collections import Counter
from collections.abc import Sequence

from tern.ledger import EPSILON, RHO
from ternhost.count.members import Integers
from ternhost.reach.driver import BoardBudget
from ternhost.reach.gateway.messages import MOST_BUDGETS, BudgetRow


def rows_of(budgets: Sequence[BoardBudget]) -> list[BudgetRow]:
    """The rows that tell these budgets, at most MOST_BUDGETS.

    Where there are more different ones, neighbours become one row that says the least left and the most spent."""
    devices: Counter[tuple[int, int, int]] = Counter()
    for each in budgets:
        devices[each.measure, each.left, each.spent] += each.count
    rows = [(*said, count) for said, count in sorted(devices.items()) if count]
    if len(rows) <= MOST_BUDGETS:
        return rows
    found = []
    for measure in (EPSILON, RHO):
        of_measure = [row for row in rows if row[0] == measure]
        together = -(-2 * len(of_measure) // MOST_BUDGETS)  # each measure has half of the rows
        for start in range(0, len(of_measure), max(1, together)):
            found.append(_joined(of_measure[start : start + together]))
    return found


def _joined(rows: Sequence[BudgetRow]) -> BudgetRow:
    """One row for several of one measure."""
    measure = rows[0][0]
    left = min(row[1] for row in rows)
    spent = max(row[2] for row in rows)
    return measure, left, spent, sum(row[3] for row in rows)


def budgets_of(devices: Integers, rows: Sequence[BudgetRow]) -> list[BoardBudget]:
    """The budgets that the rows of a HERE with these devices tell."""
    return [BoardBudget(devices, count, measure, left, spent) for measure, left, spent, count in rows]
