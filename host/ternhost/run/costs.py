"""What a run costs the privacy of devices: as planned, and as counted from the rounds of a store."""

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
from ternhost.learn.base import Learner
from ternhost.learn.designs import ReportDesign, class_of
from ternhost.learn.devices import Devices, most_turns
from ternhost.privacy import sums
from ternhost.privacy.accounting import Policy, PrivacyAccount
from ternhost.privacy.base import MICRO
from ternhost.privacy.composing import ReportKind
from ternhost.privacy.units import protected
from ternhost.store.store import Store

_BUDGET_SPENT = wire.error_name(wire.ERR_BUDGET)


def costs(learner: Learner) -> list[int]:
    """Return what the run costs a device of each class, in millionths of its ledger's measure."""
    return [design.release(learner.times).user_level for design in learner.designs]


def ledger_budget(learner: Learner, budget: int | None) -> int | None:
    """Convert a budget to what the devices' ledgers count, in millionths of their measure.

    budget: micro-epsilon, at the learner's delta. None: there is none.
    """
    if budget is None:
        return None
    return in_measure(budget, measure(learner), learner.delta)


def in_measure(budget: int, measure: int, delta: float) -> int:
    """Convert micro-epsilon to millionths of a measure (tern.ledger).

    For rho, the result is the largest rho that is as private as this epsilon at `delta`.
    """
    if measure == RHO:
        return sums.rho_of(budget / MICRO, delta)
    return budget


def measure(learner: Learner) -> int:
    """Return the measure that the ledgers of a learner's devices count in (tern.ledger)."""
    return max((design.policy.measure for design in learner.designs), default=EPSILON)


def accounts(learner: Learner, budget: int | None) -> list[PrivacyAccount]:
    """Return the planned account of a device of each class, for the whole run.

    budget: micro-epsilon; None: no limit. Raises RefusedError if the run exceeds it.
    """
    budget = ledger_budget(learner, budget)
    accounts_by_class = []
    for design in learner.designs:
        release = design.release(learner.times)
        who = _subject(learner, design)
        accounts_by_class.append(PrivacyAccount((release,), budget, who, learner.delta))
    return accounts_by_class


def _subject(learner: Learner, design: ReportDesign) -> str:
    """Return whom or what the account of a class is about, as the subject of a sentence."""
    if learner.unit:
        return protected(learner.unit)
    if len(learner.designs) == 1:
        return "each client"
    epsilon, percent = design.epsilon / MICRO, 100 * design.share
    return f"each client of the class at epsilon {epsilon:g} ({percent:.3g} %)"


def policies(learner: Learner, devices: Devices, budget: int | None) -> list[Policy]:
    """Return the policy of each device: what it allows a report to cost, and its lifetime budget.

    budget: micro-epsilon; None: the cost of the run.
    """
    budget = ledger_budget(learner, budget)
    policy_by_class = []
    for design, cost in zip(learner.designs, costs(learner), strict=True):
        enough_for_run = max(design.policy.budget, cost)
        policy_by_class.append(replace(design.policy, budget=budget or enough_for_run))
    shares = [design.share for design in learner.designs]
    classes = class_of(devices, shares, learner.options.seed)
    return [policy_by_class[index] for index in classes]


def references(learner: Learner, devices: int = 0) -> dict[str, Any]:
    """Return what the progress of a run is compared with: its plan and the learner's references.

    For JSON. devices: how many there are when it begins; 0: not known.
    """
    classes = []
    for design, account in zip(learner.designs, accounts(learner, None), strict=True):
        summary = design.summary(learner.times)
        cost = {"mechanism": design.mechanism, **summary, "epsilon_run": account.epsilon}
        classes.append(cost)
    return {
        "clients": learner.clients,
        "rounds": learner.rounds,
        "reports": learner.reports,
        "classes": classes,
        **learner.references(),
        "devices": devices or None,
    }


# From the rounds of a store


def is_simulated(store: Store, run: str) -> bool:
    """Return whether a run of this store asks simulated clients.

    Their ids, from 1 on, are not those of devices.
    """
    stored = store.run(run)
    return stored is not None and bool(stored.asked.get("simulated"))


def earlier_disclosures(store: Store, run: str) -> Disclosures:
    """Return what accepted reports have disclosed of devices in the other runs of a store.

    run: the name of the run to leave out. Reports that were lost may have disclosed more.
    """
    report_counts = store.counted_reports()
    disclosures = Disclosures()
    for round_ in store.rounds(is_simulated(store, run)):
        if round_.run == run:
            continue
        for cohort, devices in _reporters(store, round_, report_counts):
            disclosures.add(ReportKind.of_question(decode_body(cohort.body)), devices)
    return disclosures


def asked_disclosures(store: Store, simulated: bool = False, run: str | None = None) -> Disclosures:
    """Return what the rounds of a store asked its devices to disclose.

    A report counts whether it arrived or not. simulated: return that of the store's simulated
    clients instead. run: only the rounds of this run.
    """
    disclosures = Disclosures()
    for round_ in store.rounds(simulated):
        if run is not None and round_.run != run:
            continue
        for cohort in round_.cohorts:
            report = ReportKind.of_question(decode_body(cohort.body))
            disclosures.add(report, integers(cohort.devices))
    return disclosures


def _reporters(
    store: Store, round_: StoredRound, report_counts: Mapping[int, Sequence[int]]
) -> Iterator[tuple[StoredCohort, Integers]]:
    """Yield each cohort of a round with those of its devices that have reported.

    report_counts: by round, the number of reports of each cohort (`Store.counted_reports`). If an
    extension has collected the round, nobody here knows which devices have reported: all that
    were asked are taken to have, unless none can have.
    """
    for extension in store.extensions():
        may_have_reported = extension.may_have_reported(store, round_.number)
        if may_have_reported is None:
            continue
        if may_have_reported:
            for cohort in round_.cohorts:
                yield cohort, integers(cohort.devices)
        return

    reporters: Integers | None = None  # read only if some devices of a cohort have not reported
    no_reports = [0] * len(round_.cohorts)
    counts = report_counts.get(round_.number, no_reports)
    for cohort, count in zip(round_.cohorts, counts, strict=True):
        devices = integers(cohort.devices)
        if count < len(devices):
            if reporters is None:
                reporters = integers(store.reporters(round_.number))
            devices = devices[np.isin(devices, reporters)]
        if len(devices):
            yield cohort, devices


def spent(accounts: Iterable[Mapping[ReportKind, int]], measure: int) -> int:
    """Return the most that any of these accounts has cost a ledger, in millionths of its measure.

    accounts: for each device, how many reports of each kind it has made. A ledger in epsilon
    refuses Gaussian noise, which costs rho, so such reports cost it nothing.
    """
    most = 0
    for report_counts in accounts:
        cost = 0
        for report, count in report_counts.items():
            if measure == RHO or not report.gaussian:
                cost += count * report.price(measure)
        most = max(most, cost)
    return most


def devices_that_reported(store: Store, run: str) -> Integers:
    """Return the devices that have reported in ended rounds of a run, ascending."""
    ended_rounds = {entry["round"] for entry in store.history(run)}
    report_counts = store.counted_reports()
    device_ids = [integers(())]
    for round_ in store.rounds(is_simulated(store, run)):
        if round_.number in ended_rounds:
            for _cohort, ids in _reporters(store, round_, report_counts):
                device_ids.append(ids)
    return np.unique(np.concatenate(device_ids))


def rounds_of_most_asked_device(
    store: Store, run: str, rounds: int, group: int, devices: int
) -> int:
    """Return how often a run asked the device that it asked most.

    Rounds in which every device had spent its budget do not count: nobody paid for them. If the
    store has no rounds of the run, the number follows from how many `rounds` there were, in each
    of which a `group` of all `devices` was asked.
    """
    stored_rounds = [round_ for round_ in store.rounds() if round_.run == run]
    if not stored_rounds:
        return most_turns(max(1, devices), group, rounds)

    devices_without_budget: dict[int, int] = {}  # how many refused for that, by round
    for entry in store.history(run):
        reasons = entry.get("reasons", {})
        devices_without_budget[entry["round"]] = reasons.get(_BUDGET_SPENT, 0)
    times_asked: Counter[int] = Counter()
    for round_ in stored_rounds:
        device_count = sum(len(cohort.devices) for cohort in round_.cohorts)
        if devices_without_budget.get(round_.number, 0) >= device_count:
            continue
        for cohort in round_.cohorts:
            times_asked.update(cohort.devices)
    return max(times_asked.values(), default=0)
