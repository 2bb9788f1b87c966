"""What devices have paid for that a store does not know: boards say what they have paid in their
life (wire.md, HELLO).

A store that was restored from a copy lacks the rounds since then, and no store knows the rounds of
another host.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tern.ledger import EPSILON, RHO
from ternhost.count.disclosures import Disclosures
from ternhost.count.members import Integers, integers
from ternhost.learn.base import Devices
from ternhost.privacy.accounting import MEASURES
from ternhost.privacy.base import MICRO
from ternhost.privacy.composing import ReportKind
from ternhost.reach.driver import BoardBudget, Left
from ternhost.run import costs
from ternhost.store.store import Store

_MOST_AMOUNTS = 16  # different ones; more are rounded up
_MOST_ROWS = 64  # kept with a run


@dataclass(frozen=True)
class Payment:
    """Devices, by the first and the last id, that have paid more than the store knows from accepted
    reports.

    amount: the difference, in millionths of the measure; paid: in their life, and asked: the most
    that all rounds of the store can have cost one of them, also where no report arrived.
    """

    first: int
    last: int
    measure: int
    amount: int
    paid: int
    asked: int

    @property
    def beyond_this_store(self) -> bool:
        """Whether no round of the store explains it."""
        return self.paid > self.asked


def unknown_payments(
    store: Store, budgets: Sequence[BoardBudget], disclosures: Disclosures
) -> list[Payment]:
    """The payments that boards speak of, beyond what accepted reports have disclosed."""
    found = [*_of_boards(budgets, disclosures), *_of_sites(budgets, disclosures)]
    if not found:
        return []
    asked = costs.asked_of(store)
    more = []
    for payment, devices in found:
        most = int(asked.prices(devices, payment.measure).max(initial=0))
        more.append(Payment(**{**asdict(payment), "asked": most}))
    return _joined(_rounded_up(more))


def _of_boards(
    budgets: Sequence[BoardBudget], disclosures: Disclosures
) -> Iterable[tuple[Payment, Integers]]:
    """Of each board that has paid more, the payment and the device that says so."""
    for measure in (EPSILON, RHO):
        boards = [
            each
            for each in budgets
            if each.first is not None and each.measure == measure and each.spent
        ]
        firsts = integers([board.first for board in boards if board.first is not None])
        for board, first, known in zip(
            boards, firsts, disclosures.prices(firsts, measure), strict=True
        ):
            if board.spent > known:
                ids = integers(board.devices)
                amount = board.spent - int(known)
                payment = Payment(int(ids[0]), int(ids[-1]), measure, amount, board.spent, 0)
                yield payment, integers((first,))


def _of_sites(
    budgets: Sequence[BoardBudget], disclosures: Disclosures
) -> Iterable[tuple[Payment, Integers]]:
    """Of each site with a board that has paid more than any of its devices by this store, the
    payment and them all.
    """
    most: dict[
        tuple[int, int], BoardBudget
    ] = {}  # by site and measure, what the board says that has paid most
    for budget in budgets:
        site = id(budget.devices), budget.measure
        if (
            budget.first is None
            and len(budget.devices)
            and budget.spent > (most[site].spent if site in most else 0)
        ):
            most[site] = budget
    for budget in most.values():
        ids = integers(budget.devices)
        known = int(disclosures.prices(ids, budget.measure).max())
        if budget.spent > known:
            amount = budget.spent - known
            yield (
                Payment(int(ids.min()), int(ids.max()), budget.measure, amount, budget.spent, 0),
                ids,
            )


def _rounded_up(found: Sequence[Payment]) -> list[Payment]:
    """The same with at most _MOST_AMOUNTS amounts of each measure: each one is a kind of report in
    an account.
    """
    larger: dict[tuple[int, int], int] = {}
    for measure in (EPSILON, RHO):
        amounts = sorted({each.amount for each in found if each.measure == measure})
        for part in np.array_split(
            np.array(amounts, np.int64), min(len(amounts), _MOST_AMOUNTS) or 1
        ):
            larger |= {(measure, amount): int(part[-1]) for amount in part.tolist()}
    return [
        Payment(**{**asdict(each), "amount": larger[each.measure, each.amount]}) for each in found
    ]


def _joined(found: Sequence[Payment]) -> list[Payment]:
    """The same in few rows, since a run keeps them: neighbours with one amount are one, and in the
    end all are.
    """
    rows: list[Payment] = []
    for each in sorted(found, key=lambda payment: (payment.measure, payment.first)):
        last = rows[-1] if rows else None
        if (
            last
            and (last.measure, last.amount) == (each.measure, each.amount)
            and last.last + 1 >= each.first
        ):
            rows[-1] = _together((last, each))
        else:
            rows.append(each)
    if len(rows) <= _MOST_ROWS:
        return rows
    of_measures = [[row for row in rows if row.measure == measure] for measure in (EPSILON, RHO)]
    return [_together(of_measure) for of_measure in of_measures if of_measure]


def _together(rows: Sequence[Payment]) -> Payment:
    worst = max(rows, key=lambda row: row.paid - row.asked)
    first, last = min(row.first for row in rows), max(row.last for row in rows)
    return Payment(
        first, last, worst.measure, max(row.amount for row in rows), worst.paid, worst.asked
    )


def with_payments(
    disclosures: Disclosures,
    rows: Iterable[Mapping[str, Any]],
    members: Sequence[int] | Devices,
    unit: int,
) -> Disclosures:
    """`disclosures` with these payments (`asdict`) of the members.

    Of such a report only the price is known. It is taken to protect `unit`, as the reports of the
    run do that asks.
    """
    ids = np.sort(integers(members))
    more = []
    for row in rows:
        payment = Payment(**row)
        start, end = np.searchsorted(ids, (payment.first, payment.last + 1))
        if end > start:
            report = ReportKind(payment.amount, gaussian=payment.measure == RHO, unit=unit)
            more.append((report, ids[start:end], 1))
    return disclosures.with_reports(more)


def warning(found: Sequence[Payment]) -> str:
    """What a person should know of payments that no round of the store explains; empty if there are
    none.
    """
    beyond = [payment for payment in found if payment.beyond_this_store]
    if not beyond:
        return ""
    worst = max(beyond, key=lambda payment: payment.paid - payment.asked)
    name = MEASURES[worst.measure]
    return (
        f"boards have paid for rounds that this store does not know: one says {name} {worst.paid / MICRO:.4g} in its "
        f"life, and the rounds of this store cost it {worst.asked / MICRO:.4g} at most. The store was restored from a "
        "copy, or another host asked the boards, or they lost power with reports paid in advance. What follows counts "
        "what the boards say, as payments for reports that protect what this run protects"
    )


def most_paid(store: Store) -> Left:
    """The most that a board of this store, or of its gateways, says that a device has paid in its
    life, by measure, in millionths: as of its last HELLO, with the reports since. None where none
    says it.
    """
    said = [(board.measure, board.paid) for board in store.boards() if board.paid is not None]
    for gateway in store.gateways():
        said += [(measure, spent) for measure, _, _, spent, _ in gateway.here.get("budgets", ())]
    epsilon, rho = (
        max((paid for of, paid in said if of == measure), default=None)
        for measure in (EPSILON, RHO)
    )
    return epsilon, rho
