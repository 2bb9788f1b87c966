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
    """The cost of the run to a device of each class, micro-epsilon."""
    return [design.release(learner.times).user_level for design in learner.designs]


def ledger_budget(learner: Learner, budget: int | None) -> int | None:
    """A budget as the devices' ledgers count it, in millionths of their measure.

    budget: micro-epsilon, at the learner's delta. None: there is none.
    """
    if budget is None:
        return None
    return in_measure(budget, measure(learner), learner.delta)


def in_measure(budget: int, measure: int, delta: float) -> int:
    """Micro-epsilon in millionths of a measure (tern.ledger). For rho, epsilon holds at `delta`."""
    if measure == RHO:
        return sums.rho_of(budget / MICRO, delta)
    return budget


def measure(learner: Learner) -> int:
    """The measure that the ledgers of a learner's devices count in (tern.ledger)."""
    return max((design.policy.measure for design in learner.designs), default=EPSILON)


def accounts(learner: Learner, budget: int | None) -> list[PrivacyAccount]:
    """The account of a device of each class. budget: micro-epsilon.

    Raises RefusedError beyond the budget.
    """
    budget = ledger_budget(learner, budget)
    planned = []
    for design in learner.designs:
        release = design.release(learner.times)
        who = _who(learner, design)
        planned.append(PrivacyAccount((release,), budget, who, learner.delta))
    return planned


def _who(learner: Learner, design: ReportDesign) -> str:
    """What an account is about, for people."""
    if learner.unit:
        return protected(learner.unit)
    if len(learner.designs) == 1:
        return "each client"
    epsilon, percent = design.epsilon / MICRO, 100 * design.share
    return f"each client of the class at epsilon {epsilon:g} ({percent:.3g} %)"


def policies(learner: Learner, devices: Devices, budget: int | None) -> list[Policy]:
    """The policy of each device: the epsilon of a report of its class, and its budget for life.

    budget: micro-epsilon; None: the cost of the run.
    """
    budget = ledger_budget(learner, budget)
    policy_by_class = []
    for design, cost in zip(learner.designs, costs(learner), strict=True):
        least = max(design.policy.budget, cost)
        policy_by_class.append(replace(design.policy, budget=budget or least))
    shares = [design.share for design in learner.designs]
    classes = class_of(devices, shares, learner.options.seed)
    return [policy_by_class[index] for index in classes]


def references(learner: Learner, devices: int = 0) -> dict[str, Any]:
    """What to compare a run with while it goes on, for JSON: its plan, and figures of the learner.

    devices: how many there are when it begins; 0: not known.
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
    """Whether a run of this store asks simulated clients.

    Their ids, from 1 on, are not those of devices.
    """
    stored = store.run(run)
    return stored is not None and bool(stored.asked.get("simulated"))


def earlier_disclosures(store: Store, run: str) -> Disclosures:
    """What accepted reports have disclosed of devices in other runs of this store.

    Reports that were lost may have disclosed more.
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
    """What the rounds of this store, or of one run, asked its devices to disclose.

    It counts whether a report arrived or not. simulated: of the store's simulated clients instead.
    """
    disclosures = Disclosures()
    for round_ in store.rounds(simulated):
        if run is not None and round_.run != run:
            continue
        for cohort in round_.cohorts:
            kind = ReportKind.of_question(decode_body(cohort.body))
            disclosures.add(kind, integers(cohort.devices))
    return disclosures


def _reporters(
    store: Store, round_: StoredRound, report_counts: Mapping[int, Sequence[int]]
) -> Iterator[tuple[StoredCohort, Integers]]:
    """Each cohort of a round with its devices that have reported, if there are any.

    report_counts: as `Store.counted_reports`. If an extension has collected the round, nobody here
    knows which devices have reported: all that were asked count, unless none can have.
    """
    for extension in store.extensions():
        may_have_reported = extension.may_have_reported(store, round_.number)
        if may_have_reported is None:
            continue
        if may_have_reported:
            for cohort in round_.cohorts:
                yield cohort, integers(cohort.devices)
        return

    reporters: Integers | None = None  # read if some devices of a cohort have not reported
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
    """The most that any of these accounts has cost a ledger of this measure, in millionths.

    A ledger in epsilon refuses reports that cost rho, so these cost it nothing.
    """
    most = 0
    for report_counts in accounts:
        cost = 0
        for kind, count in report_counts.items():
            if measure == RHO or not kind.gaussian:
                cost += count * kind.price(measure)
        most = max(most, cost)
    return most


def devices_that_reported(store: Store, run: str) -> Integers:
    """The devices that have reported in ended rounds of a run, ascending."""
    ended = {entry["round"] for entry in store.history(run)}
    report_counts = store.counted_reports()
    device_ids = [integers(())]
    for round_ in store.rounds(is_simulated(store, run)):
        if round_.number in ended:
            device_ids += [ids for _, ids in _reporters(store, round_, report_counts)]
    return np.unique(np.concatenate(device_ids))


def rounds_of_most_asked_device(
    store: Store, run: str, rounds: int, group: int, devices: int
) -> int:
    """How often a run asked the device that it asked most.

    Rounds in which every device had spent its budget do not count: nobody paid for them. If the
    store has no rounds of the run, the number follows from how many rounds there were, and from
    the size of a group.
    """
    stored_rounds = [round_ for round_ in store.rounds() if round_.run == run]
    if not stored_rounds:
        return most_turns(max(1, devices), group, rounds)

    spent_budgets: dict[int, int] = {}  # devices that refused for that, by round
    for entry in store.history(run):
        reasons = entry.get("reasons", {})
        spent_budgets[entry["round"]] = reasons.get(_BUDGET_SPENT, 0)
    times_asked: Counter[int] = Counter()
    for round_ in stored_rounds:
        device_count = sum(len(cohort.devices) for cohort in round_.cohorts)
        if spent_budgets.get(round_.number, 0) >= device_count:
            continue
        for cohort in round_.cohorts:
            times_asked.update(cohort.devices)
    return max(times_asked.values(), default=0)
