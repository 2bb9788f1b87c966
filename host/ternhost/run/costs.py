"""The cost of a run to the devices' privacy: planned, told before it starts, counted from the
rounds of its store.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tern import wire
from tern.ledger import EPSILON, RHO
from ternhost.count.disclosures import Disclosures
from ternhost.count.members import Integers, integers
from ternhost.count.questions import decode_body
from ternhost.count.rounds import StoredCohort, StoredRound
from ternhost.learn.base import Devices, Learner, most_turns
from ternhost.learn.designs import class_of
from ternhost.privacy import sums
from ternhost.privacy.accounting import Policy, PrivacyAccount
from ternhost.privacy.base import MICRO
from ternhost.privacy.composing import ReportKind
from ternhost.privacy.units import protected
from ternhost.store.store import Store

_SPENT = wire.error_name(wire.ERR_BUDGET)


def costs(learner: Learner) -> list[int]:
    """The cost of the run to a device of each class, micro-epsilon."""
    return [design.release(learner.times).user_level for design in learner.designs]


def ledger_budget(learner: Learner, budget: int | None) -> int | None:
    """A budget of so many micro-epsilon, at the learner's delta, in millionths of what the ledgers
    of its devices count; None: there is none.
    """
    return None if budget is None else in_measure(budget, measure(learner), learner.delta)


def in_measure(budget: int, measure: int, delta: float) -> int:
    """So many micro-epsilon, at delta where the measure is rho, in millionths of the measure
    (tern.ledger).
    """
    return sums.rho_of(budget / MICRO, delta) if measure == RHO else budget


def measure(learner: Learner) -> int:
    """What the ledgers of its devices count, as in tern.ledger."""
    return max((design.policy.measure for design in learner.designs), default=EPSILON)


def accounts(learner: Learner, budget: int | None) -> list[PrivacyAccount]:
    """The account of a device of each class. budget: micro-epsilon.

    Raises RefusedError beyond the budget.
    """
    budget = ledger_budget(learner, budget)
    who = "each client" + " of the class at epsilon {:g} ({:.3g} %)" * (len(learner.designs) > 1)
    if learner.unit:
        who = protected(learner.unit)
    return [
        PrivacyAccount(
            (each.release(learner.times),),
            budget,
            who.format(each.epsilon / MICRO, 100 * each.share),
            learner.delta,
        )
        for each in learner.designs
    ]


def policies(learner: Learner, devices: Devices, budget: int | None) -> list[Policy]:
    """The policy of each device: its class's epsilon in one report, and `budget`, micro-epsilon
    (None: the cost of the run).
    """
    designs = learner.designs
    budget = ledger_budget(learner, budget)
    of_classes = [
        replace(design.policy, budget=budget or max(design.policy.budget, cost))
        for design, cost in zip(designs, costs(learner), strict=True)
    ]
    return [
        of_classes[i]
        for i in class_of(devices, [each.share for each in designs], learner.options.seed)
    ]


def references(learner: Learner, devices: int = 0) -> dict[str, Any]:
    """The figures to compare a run with while it goes on, for JSON: its plan, and the learner's
    references. devices: that there are when it begins; 0: not known.
    """
    classes = [
        {
            "mechanism": design.mechanism,
            **design.summary(learner.times),
            "epsilon_run": account.epsilon,
        }
        for design, account in zip(learner.designs, accounts(learner, None), strict=True)
    ]
    plan = {"clients": learner.clients, "rounds": learner.rounds, "reports": learner.reports}
    return {**plan, "classes": classes, **learner.references(), "devices": devices or None}


def is_simulated(store: Store, run: str) -> bool:
    """Whether a run of this store asks simulated clients.

    Their ids, from 1 on, are not those of devices.
    """
    stored = store.run(run)
    return stored is not None and bool(stored.asked.get("simulated"))


def earlier_disclosures(store: Store, run: str) -> Disclosures:
    """What devices have told in other runs of this store, by accepted reports: lost ones may have
    told more.
    """
    counted = store.counted_reports()
    disclosures = Disclosures()
    for other in store.rounds(is_simulated(store, run)):
        if other.run != run:
            for cohort, ids in _reported(store, other, counted):
                disclosures.add(ReportKind.of_question(decode_body(cohort.body)), ids)
    return disclosures


def asked_of(store: Store, simulated: bool = False, run: str | None = None) -> Disclosures:
    """What the devices of this store were asked to tell in all of its rounds, or in those of a run,
    whether a report arrived or not. simulated: its simulated clients instead.
    """
    asked = Disclosures()
    for round_ in store.rounds(simulated):
        if run is None or round_.run == run:
            for cohort in round_.cohorts:
                asked.add(
                    ReportKind.of_question(decode_body(cohort.body)), integers(cohort.devices)
                )
    return asked


def _reported(
    store: Store, round_: StoredRound, counted: Mapping[int, Sequence[int]]
) -> Iterator[tuple[StoredCohort, Integers]]:
    """Each cohort of a round, and its devices that have reported, if there are any. counted: as
    `counted_reports`.

    A host does not know which devices of a gateway have reported: all that it asked count, unless
    none has.
    """
    if store.by_gateways(round_.number):
        if not store.all_answered_without_reports(round_.number):
            yield from ((cohort, integers(cohort.devices)) for cohort in round_.cohorts)
        return
    reporters: Integers | None = None
    of_cohorts = counted.get(round_.number, [0] * len(round_.cohorts))
    for cohort, reports in zip(round_.cohorts, of_cohorts, strict=True):
        ids = integers(cohort.devices)
        if reports < len(ids):
            reporters = integers(store.reporters(round_.number)) if reporters is None else reporters
            ids = ids[np.isin(ids, reporters)]
        if len(ids):
            yield cohort, ids


def spent(accounts: Iterable[Mapping[ReportKind, int]], measure: int) -> int:
    """The most that any of these has cost a ledger of this measure, millionths.

    One in epsilon refuses what costs rho.
    """
    prices = (
        sum(
            n * each.price(measure)
            for each, n in account.items()
            if measure == RHO or not each.gaussian
        )
        for account in accounts
    )
    return max(prices, default=0)


def heard(store: Store, run: str) -> Integers:
    """The devices that have reported in ended rounds of a run."""
    ended = {entry["round"] for entry in store.history(run)}
    counted = store.counted_reports()
    found = [integers(())]
    for round_ in store.rounds(is_simulated(store, run)):
        if round_.number in ended:
            found += [ids for _, ids in _reported(store, round_, counted)]
    return np.unique(np.concatenate(found))


def most_asked(store: Store, run: str, rounds: int, group: int, devices: int) -> int:
    """The largest number of rounds of a run that asked the same device, without those that nobody
    paid for since every budget was spent: by the store, or, where it lacks the run's rounds, by
    their number and the size of a group.
    """
    of_run = [each for each in store.rounds() if each.run == run]
    if not of_run:
        return most_turns(max(1, devices), group, rounds)
    refusals = {
        entry["round"]: entry.get("reasons", {}).get(_SPENT, 0) for entry in store.history(run)
    }
    times: Counter[int] = Counter()
    for each in of_run:
        if refusals.get(each.number, 0) < sum(len(cohort.devices) for cohort in each.cohorts):
            for cohort in each.cohorts:
                times.update(cohort.devices)
    return max(times.values(), default=0)
