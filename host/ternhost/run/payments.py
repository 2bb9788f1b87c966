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

_MOST_AMOUNTS = 16  # distinct amounts of a measure: more would slow down accounting
_MOST_PAYMENTS = 64  # that the state of a run keeps: it is read at every start


@dataclass(frozen=True)
class Payment:
    """Budget that a span of devices has spent on reports of which this store knows nothing.

    An example: a board says that each of its devices 1 to 10 has spent an epsilon of 5 in its
    life, and the accepted reports in the store cost 3 of it. Then `paid` is 5, and `amount` is 2.
    Amounts are in millionths of the measure (epsilon or rho, tern.ledger).
    """

    first: int  # the smallest id of the devices
    last: int  # the largest id
    measure: int  # in which the devices' ledgers count
    amount: int  # what each device has spent beyond the accepted reports that the store has
    paid: int  # what one device has spent in its whole life
    asked: int  # the most that all rounds of the store can have cost one device, answered or not

    @property
    def beyond_this_store(self) -> bool:
        """Whether even unanswered rounds of the store cannot explain what was spent."""
        return self.paid > self.asked


@dataclass(frozen=True)
class _Claim:
    """A board's statement that its devices have spent more than the store knows of.

    Amounts are in millionths of the measure.
    """

    devices: Integers  # the ids of the devices that may have spent it
    # Those among them of which one has the ledger that the board read: its first device, or any
    # device of a site if the site does not say which one.
    sources: Integers
    measure: int  # in which the devices' ledgers count: EPSILON or RHO
    spent: int  # what that device has spent in its life, as the board says
    known: int  # what its accepted reports in the store have cost


def unknown_payments(
    store: Store, budgets: Sequence[BoardBudget], disclosures: Disclosures
) -> list[Payment]:
    """Return what devices have spent, by their boards, beyond what the store knows of.

    budgets: what boards say that their devices have spent and have left. disclosures: the devices'
    accepted reports in the store.
    """
    # What boards state that cannot be explained by accepted reports.
    claims = [*_claims_of_boards(budgets, disclosures), *_claims_of_sites(budgets, disclosures)]
    if not claims:
        return []

    # Beside each claim, note what the device would have spent had it answered every round that the
    # store has ever asked: a report may have been paid for and then lost on its way.
    asked = costs.asked_disclosures(store)
    payments = []
    for claim in claims:
        most_asked = asked.prices(claim.sources, claim.measure).max(initial=0)
        payment = Payment(
            first=int(claim.devices.min()),
            last=int(claim.devices.max()),
            measure=claim.measure,
            amount=claim.spent - claim.known,
            paid=claim.spent,
            asked=int(most_asked),
        )
        payments.append(payment)
    return _join(_round_up(payments))


def _claims_of_boards(budgets: Sequence[BoardBudget], disclosures: Disclosures) -> Iterator[_Claim]:
    """Yield a claim for each board whose first device has spent more than the store knows of.

    A board may have several devices. It states what the first one has spent, and we take the others
    to have spent the same.

    budgets: what boards say that devices have spent and have left. Those that do not say which
    device they are about are left out: `_claims_of_sites` takes them. disclosures: the devices'
    accepted reports in the store.
    """
    for measure in (EPSILON, RHO):  # what a ledger counts; prices are looked up separately for each
        boards = []
        first_devices = []
        for budget in budgets:
            if budget.first is not None and budget.measure == measure and budget.spent:
                boards.append(budget)
                first_devices.append(budget.first)
        # What the accepted reports of each of these devices have cost, in millionths.
        known_costs = disclosures.prices(integers(first_devices), measure).tolist()
        for board, first_device, known in zip(boards, first_devices, known_costs, strict=True):
            if board.spent > known:
                yield _Claim(
                    devices=integers(board.devices),
                    sources=integers((first_device,)),
                    measure=measure,
                    spent=board.spent,
                    known=known,
                )


def _claims_of_sites(budgets: Sequence[BoardBudget], disclosures: Disclosures) -> Iterator[_Claim]:
    """Yield a claim for each site of which a board has spent more than the store knows of.

    A claim is the board's statement, beside what the accepted reports in the store have cost. A
    site may pass on the budgets of its boards without their devices' ids, so the claim is about all
    devices of the site. Of each site and measure, the board counts that has spent most, and the
    device of which the store knows most. budgets: what boards say that devices have spent and have
    left. disclosures: the devices' accepted reports in the store.
    """
    # All budgets of a site have the same array of devices, so its identity tells sites apart.
    most_spent: dict[tuple[int, int], BoardBudget] = {}  # by site and measure
    for budget in budgets:
        names_its_device = budget.first is not None
        if names_its_device or not len(budget.devices) or not budget.spent:
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
                sources=devices,
                measure=budget.measure,
                spent=budget.spent,
                known=known,
            )


def _round_up(payments: Sequence[Payment]) -> list[Payment]:
    """Round the amounts of payments up to few distinct ones: at most `_MOST_AMOUNTS` per measure.

    A payment is budget that devices have spent elsewhere. Accounting treats each distinct amount as
    one more kind of report, and its time grows with the number of kinds. A larger amount only makes
    the privacy loss larger, so rounding up is safe.
    """
    rounded: dict[tuple[int, int], int] = {}  # the rounded amount, by measure and amount
    for measure in (EPSILON, RHO):
        amounts = sorted({payment.amount for payment in payments if payment.measure == measure})
        if not amounts:
            continue
        part_count = min(len(amounts), _MOST_AMOUNTS)
        for part in np.array_split(np.array(amounts, np.int64), part_count):
            largest = int(part[-1])
            for amount in part.tolist():
                rounded[measure, amount] = largest

    result = []
    for payment in payments:
        amount = rounded[payment.measure, payment.amount]
        result.append(replace(payment, amount=amount))
    return result


def _join(payments: Sequence[Payment]) -> list[Payment]:
    """Join payments into at most `_MOST_PAYMENTS`, since the store keeps them with the run.

    A payment is budget that a span of devices has spent elsewhere. Payments of the same amount by
    neighbouring devices become one. If there are still too many, all payments of a measure become
    one, of the largest amount.
    """
    joined: list[Payment] = []
    for payment in sorted(payments, key=lambda payment: (payment.measure, payment.first)):
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
    """Return whether two payments are of the same amount, with no device between their devices.

    next_payment: begins with the same device or a later one.
    """
    if payment.measure != next_payment.measure or payment.amount != next_payment.amount:
        return False
    return payment.last + 1 >= next_payment.first


def _join_all(payments: Sequence[Payment]) -> Payment:
    """Return one payment that stands for several: by all their devices, of the largest amount.

    What was paid and asked is taken from the payment of which the store's rounds explain least.
    """
    least_explained = max(payments, key=lambda payment: payment.paid - payment.asked)
    first = min(payment.first for payment in payments)
    last = max(payment.last for payment in payments)
    amount = max(payment.amount for payment in payments)
    return replace(least_explained, first=first, last=last, amount=amount)


def with_payments(
    disclosures: Disclosures,
    rows: Iterable[Mapping[str, Any]],
    members: Sequence[int] | Devices,
    unit: int,
) -> Disclosures:
    """Return the disclosures, with one more report of each device for each of its payments.

    The store does not know for what the budget was spent (`Payment`). Accounting takes it to be one
    report of that price, which protects the same unit of data as the reports of this run.

    rows: the fields of payments, as the state of a run keeps them. members: the ids of the devices
    of the run; payments of others are left out. unit: what the reports of this run protect, in
    consecutive records; 0: the whole device.
    """
    device_ids = np.sort(integers(members))
    unknown_reports = []
    for row in rows:
        payment = Payment(**row)
        start = np.searchsorted(device_ids, payment.first)
        end = np.searchsorted(device_ids, payment.last + 1)
        payers = device_ids[start:end]  # the members from `first` to `last`
        if len(payers):
            report = ReportKind(payment.amount, gaussian=payment.measure == RHO, unit=unit)
            reports_of_each = 1
            unknown_reports.append((report, payers, reports_of_each))
    return disclosures.with_reports(unknown_reports)


def warning(payments: Sequence[Payment]) -> str:
    """Return a warning for people if rounds of this store cannot explain some payments.

    Return an empty text if they explain all.
    """
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
