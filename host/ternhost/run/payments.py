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

_MOST_AMOUNTS = 16  # different amounts of a measure; more are rounded up
_MOST_PAYMENTS = 64  # kept with a run; more are joined


@dataclass(frozen=True)
class Payment:
    """What devices have paid beyond what the store knows from accepted reports.

    Amounts are in millionths of the measure.
    """

    first: int  # the devices from this one
    last: int  # to this one
    measure: int  # of their ledgers (tern.ledger)
    amount: int  # that each has paid, and that the store does not know
    paid: int  # by a device in its life
    asked: int  # the most that all rounds of the store can have cost one, also without a report

    @property
    def beyond_this_store(self) -> bool:
        """Whether no round of the store explains it."""
        return self.paid > self.asked


@dataclass(frozen=True)
class _Claim:
    """What a board reports as paid by `devices`, and what the store knows of it, in millionths."""

    devices: Integers
    speakers: Integers  # those among them whose ledger the board has read
    measure: int
    paid: int
    known: int


def unknown_payments(
    store: Store, budgets: Sequence[BoardBudget], disclosures: Disclosures
) -> list[Payment]:
    """Return the payments that boards report beyond what the store knows.

    disclosures: what the devices have disclosed by their accepted reports in the store.
    """
    claims = [*_claims_of_boards(budgets, disclosures), *_claims_of_sites(budgets, disclosures)]
    if not claims:
        return []
    asked = costs.asked_disclosures(store)
    payments = []
    for claim in claims:
        most_asked = asked.prices(claim.speakers, claim.measure).max(initial=0)
        payments.append(
            Payment(
                first=int(claim.devices.min()),
                last=int(claim.devices.max()),
                measure=claim.measure,
                amount=claim.paid - claim.known,
                paid=claim.paid,
                asked=int(most_asked),
            )
        )
    return _join(_round_up(payments))


def _claims_of_boards(budgets: Sequence[BoardBudget], disclosures: Disclosures) -> Iterator[_Claim]:
    """Yield the claim of each board whose first device has paid more than the store knows."""
    for measure in (EPSILON, RHO):
        first_devices, boards = [], []
        for budget in budgets:
            if budget.first is not None and budget.measure == measure and budget.spent:
                first_devices.append(budget.first)
                boards.append(budget)
        known_prices = disclosures.prices(integers(first_devices), measure).tolist()
        for first, board, known in zip(first_devices, boards, known_prices, strict=True):
            if board.spent > known:
                yield _Claim(
                    devices=integers(board.devices),
                    speakers=integers((first,)),
                    measure=measure,
                    paid=board.spent,
                    known=known,
                )


def _claims_of_sites(budgets: Sequence[BoardBudget], disclosures: Disclosures) -> Iterator[_Claim]:
    """Yield a claim for each site where a board has paid more than the store knows of any device.

    Nobody here knows which devices of the site are on that board, so the claim is about all.
    """
    most_spent: dict[tuple[int, int], BoardBudget] = {}  # by id() of the site's devices, measure
    for budget in budgets:
        if budget.first is not None or not len(budget.devices) or not budget.spent:
            continue
        key = id(budget.devices), budget.measure
        if key not in most_spent or budget.spent > most_spent[key].spent:
            most_spent[key] = budget
    for budget in most_spent.values():
        devices = integers(budget.devices)
        known = int(disclosures.prices(devices, budget.measure).max())
        if budget.spent > known:
            yield _Claim(
                devices=devices,
                speakers=devices,
                measure=budget.measure,
                paid=budget.spent,
                known=known,
            )


def _round_up(payments: Sequence[Payment]) -> list[Payment]:
    """Round amounts up, so that there are at most `_MOST_AMOUNTS` different ones of a measure.

    Each different amount is one more kind of report for accounts to compose.
    """
    rounded: dict[tuple[int, int], int] = {}  # by measure and amount
    for measure in (EPSILON, RHO):
        amounts = sorted({each.amount for each in payments if each.measure == measure})
        if not amounts:
            continue
        parts = np.array_split(np.array(amounts, np.int64), min(len(amounts), _MOST_AMOUNTS))
        for part in parts:
            largest = int(part[-1])
            for amount in part.tolist():
                rounded[measure, amount] = largest
    return [replace(each, amount=rounded[each.measure, each.amount]) for each in payments]


def _join(payments: Sequence[Payment]) -> list[Payment]:
    """Join payments, since a run keeps them and reads them at every start.

    Payments of the same amount by neighbouring devices become one. If there are still too many,
    all payments of a measure become one.
    """
    joined: list[Payment] = []
    for payment in sorted(payments, key=lambda each: (each.measure, each.first)):
        if joined and _are_neighbours(joined[-1], payment):
            joined[-1] = _join_all((joined[-1], payment))
        else:
            joined.append(payment)
    if len(joined) <= _MOST_PAYMENTS:
        return joined

    one_per_measure = []
    for measure in (EPSILON, RHO):
        of_measure = [payment for payment in joined if payment.measure == measure]
        if of_measure:
            one_per_measure.append(_join_all(of_measure))
    return one_per_measure


def _are_neighbours(payment: Payment, next_payment: Payment) -> bool:
    """Return whether payments are of the same amount, and no device lies between theirs."""
    if payment.measure != next_payment.measure or payment.amount != next_payment.amount:
        return False
    return payment.last + 1 >= next_payment.first


def _join_all(payments: Sequence[Payment]) -> Payment:
    """Return one payment for several: of all their devices, with the largest amount.

    The rest is that of the payment which the rounds of the store explain least.
    """
    worst = max(payments, key=lambda payment: payment.paid - payment.asked)
    return replace(
        worst,
        first=min(payment.first for payment in payments),
        last=max(payment.last for payment in payments),
        amount=max(payment.amount for payment in payments),
    )


def with_payments(
    disclosures: Disclosures,
    rows: Iterable[Mapping[str, Any]],
    members: Sequence[int] | Devices,
    unit: int,
) -> Disclosures:
    """Return the disclosures together with payments of the members, each as one more report.

    rows: payments as dicts, from the state of a run. unit: what the reports of this run protect.
    Of an unknown report only the price is known; it is taken to protect the same.
    """
    device_ids = np.sort(integers(members))
    unknown_reports = []
    for row in rows:
        payment = Payment(**row)
        start, end = np.searchsorted(device_ids, (payment.first, payment.last + 1))
        if end > start:
            report = ReportKind(payment.amount, gaussian=payment.measure == RHO, unit=unit)
            unknown_reports.append((report, device_ids[start:end], 1))
    return disclosures.with_reports(unknown_reports)


def warning(payments: Sequence[Payment]) -> str:
    """Write the warning of payments that no round of the store explains; empty without any."""
    beyond = [payment for payment in payments if payment.beyond_this_store]
    if not beyond:
        return ""
    worst = max(beyond, key=lambda payment: payment.paid - payment.asked)
    paid = f"{MEASURES[worst.measure]} {worst.paid / MICRO:.4g}"
    return (
        f"boards have paid for rounds that this store does not know: one says {paid} in its life, "
        f"and the rounds of this store cost it {worst.asked / MICRO:.4g} at most. The store was "
        "restored from a copy, or another host asked the boards, or they lost power with reports "
        "paid in advance. What follows counts what the boards say, as payments for reports that "
        "protect what this run protects"
    )
