"""What devices have paid for that a store does not know.

Boards say what they have paid in their life (wire.md, HELLO). A store that was restored from a copy
lacks the rounds since then, and no store knows the rounds of another host.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tern.ledger import EPSILON, RHO
from ternhost.count.disclosures import Disclosures
from ternhost.count.members import Integers, integers
from ternhost.learn.devices import Devices
from ternhost.privacy.accounting import MEASURES
from ternhost.privacy.base import MICRO
from ternhost.privacy.composing import ReportKind
from ternhost.reach.driver import BoardBudget
from ternhost.run import costs
from ternhost.store.store import Store

_MOST_AMOUNTS = 16  # different ones; more are rounded up
_MOST_ROWS = 64  # kept with a run


@dataclass(frozen=True)
class Payment:
    """What devices have paid beyond what the store knows from accepted reports.

    Amounts are in millionths of the measure.
    """

    first: int  # device
    last: int
    measure: int  # of tern.ledger
    amount: int  # that the store does not know
    paid: int  # in the life of a device
    asked: int  # the most that all rounds of the store can have cost one, also without a report

    @property
    def beyond_this_store(self) -> bool:
        """Whether no round of the store explains it."""
        return self.paid > self.asked


@dataclass(frozen=True)
class _Claim:
    """What a board says that `devices` have paid, and what the store knows of it, in millionths."""

    devices: Integers
    speakers: Integers  # those among them of whom the board says it
    measure: int
    paid: int
    known: int


def unknown_payments(
    store: Store, budgets: Sequence[BoardBudget], disclosures: Disclosures
) -> list[Payment]:
    """The payments that boards report, beyond what accepted reports have disclosed."""
    claims = [*_claims_of_boards(budgets, disclosures), *_claims_of_sites(budgets, disclosures)]
    if not claims:
        return []
    asked = costs.asked_disclosures(store)
    payments = []
    for claim in claims:
        payments.append(
            Payment(
                first=int(claim.devices.min()),
                last=int(claim.devices.max()),
                measure=claim.measure,
                amount=claim.paid - claim.known,
                paid=claim.paid,
                asked=int(asked.prices(claim.speakers, claim.measure).max(initial=0)),
            )
        )
    return _joined(_rounded_up(payments))


def _claims_of_boards(budgets: Sequence[BoardBudget], disclosures: Disclosures) -> Iterator[_Claim]:
    """Of each board that has paid more than the store knows. It speaks of its first device."""
    for measure in (EPSILON, RHO):
        firsts, boards = [], []
        for budget in budgets:
            if budget.first is not None and budget.measure == measure and budget.spent:
                firsts.append(budget.first)
                boards.append(budget)
        known = disclosures.prices(integers(firsts), measure).tolist()
        for first, board, price in zip(firsts, boards, known, strict=True):
            if board.spent > price:
                devices = integers(board.devices)
                yield _Claim(devices, integers((first,)), measure, board.spent, price)


def _claims_of_sites(budgets: Sequence[BoardBudget], disclosures: Disclosures) -> Iterator[_Claim]:
    """Of each site with a board that has paid more than the store knows of any of its devices.

    Nobody here knows which devices of the site are on that board.
    """
    most_spent: dict[tuple[int, int], BoardBudget] = {}  # by site and measure
    for budget in budgets:
        if budget.first is not None or not len(budget.devices) or not budget.spent:
            continue
        site = id(budget.devices), budget.measure
        if site not in most_spent or budget.spent > most_spent[site].spent:
            most_spent[site] = budget
    for budget in most_spent.values():
        devices = integers(budget.devices)
        known = int(disclosures.prices(devices, budget.measure).max())
        if budget.spent > known:
            yield _Claim(devices, devices, budget.measure, budget.spent, known)


def _rounded_up(payments: Sequence[Payment]) -> list[Payment]:
    """The same with at most _MOST_AMOUNTS amounts of each measure.

    Each amount is a kind of report in an account.
    """
    rounded: dict[tuple[int, int], int] = {}  # by measure and amount
    for measure in (EPSILON, RHO):
        amounts = sorted({each.amount for each in payments if each.measure == measure})
        if not amounts:
            continue
        parts = np.array_split(np.array(amounts, np.int64), min(len(amounts), _MOST_AMOUNTS))
        for part in parts:
            for amount in part.tolist():
                rounded[measure, amount] = int(part[-1])
    return [replace(each, amount=rounded[each.measure, each.amount]) for each in payments]


def _joined(payments: Sequence[Payment]) -> list[Payment]:
    """The same in few rows, since a run keeps them.

    Neighbours with one amount become a row. If there are still too many, all of a measure do.
    """
    rows: list[Payment] = []
    for payment in sorted(payments, key=lambda each: (each.measure, each.first)):
        if rows and _are_neighbours(rows[-1], payment):
            rows[-1] = _together((rows[-1], payment))
        else:
            rows.append(payment)
    if len(rows) <= _MOST_ROWS:
        return rows
    joined = []
    for measure in (EPSILON, RHO):
        of_measure = [row for row in rows if row.measure == measure]
        if of_measure:
            joined.append(_together(of_measure))
    return joined


def _are_neighbours(one: Payment, next_one: Payment) -> bool:
    same = (one.measure, one.amount) == (next_one.measure, next_one.amount)
    return same and one.last + 1 >= next_one.first


def _together(rows: Sequence[Payment]) -> Payment:
    """One row for several, which says the worst of them."""
    worst = max(rows, key=lambda row: row.paid - row.asked)
    return replace(
        worst,
        first=min(row.first for row in rows),
        last=max(row.last for row in rows),
        amount=max(row.amount for row in rows),
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


def warning(payments: Sequence[Payment]) -> str:
    """What to tell people of payments that no round of the store explains; empty without any."""
    beyond = [payment for payment in payments if payment.beyond_this_store]
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
