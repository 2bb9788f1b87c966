"""What a run costs the privacy of devices: as planned, and by the rounds that a store has."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tern import wire
from tern.ledger import EPSILON, RHO
from ternhost.count.disclosures import Disclosures
from ternhost.count.members import Integers, distinct, integers
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

_BUDGET_SPENT = wire.error_name(wire.ERR_BUDGET)  # a reason of refusals


def costs(learner: Learner) -> list[int]:
    """Return what the whole run costs a device, for each class of devices.

    Classes differ in the epsilon of their reports. Costs are in millionths of what the devices'
    ledgers count: epsilon or rho.
    """
    return [design.release(learner.times).user_level for design in learner.designs]


def ledger_budget(learner: Learner, budget: int | None) -> int | None:
    """Convert a budget in micro-epsilon to what the learner's devices count in their ledgers.

    The result is in millionths of their measure: micro-epsilon, or the micro-rho that keeps this
    epsilon at the learner's delta. None: there is no budget.
    """
    if budget is None:
        return None
    return in_measure(budget, measure(learner), learner.delta)


def in_measure(budget: int, measure: int, delta: float) -> int:
    """Convert a budget in micro-epsilon to millionths of a measure, EPSILON or RHO (tern.ledger).

    For RHO, the result is the largest micro-rho that keeps this epsilon at `delta`.
    """
    if measure == RHO:
        return sums.rho_of(budget / MICRO, delta)
    return budget


def measure(learner: Learner) -> int:
    """Return what the ledgers of a learner's devices count: EPSILON or RHO (tern.ledger)."""
    measures = [design.policy.measure for design in learner.designs]
    return max(measures, default=EPSILON)  # RHO if any class of devices needs it


def accounts(learner: Learner, budget: int | None) -> list[PrivacyAccount]:
    """Return the planned privacy account of a device for the whole run, for each class of devices.

    The account says what the device's reports in the run cost, and checks that against its budget.
    Classes differ in the epsilon of their reports. budget: that of a device for life, in
    millionths of epsilon; None: no limit. Raises RefusedError if the run costs more than the
    budget.
    """
    budget = ledger_budget(learner, budget)  # in the measure of the ledgers, epsilon or rho
    accounts_by_class = []
    for design in learner.designs:  # the mechanism and the price of a report of each class
        release = design.release(learner.times)  # all reports of a device, with their price
        subject = _subject(learner, design)
        accounts_by_class.append(PrivacyAccount((release,), budget, subject, learner.delta))
    return accounts_by_class


def _subject(learner: Learner, design: ReportDesign) -> str:
    """Return whom or what the account of a class protects, as the subject of a sentence.

    For instance "each client of the class at epsilon 2 (30 %)". design: of the class's reports.
    """
    if learner.unit:
        return protected(learner.unit)
    if len(learner.designs) == 1:
        return "each client"
    epsilon = design.epsilon / MICRO
    percent = 100 * design.share
    return f"each client of the class at epsilon {epsilon:g} ({percent:.3g} %)"


def policies(learner: Learner, devices: Devices, budget: int | None) -> list[Policy]:
    """Return the policy of each device: the most that a report may cost it, and its whole budget.

    A device belongs to a class by its id; classes differ in the epsilon of their reports. devices:
    the ids of the devices. budget: of each, in millionths of epsilon; None: what the run costs.
    """
    budget = ledger_budget(learner, budget)  # in the measure of the ledgers, epsilon or rho
    policy_by_class = []
    for design, cost in zip(learner.designs, costs(learner), strict=True):
        budget_of_class = budget
        if not budget_of_class:
            budget_of_class = max(design.policy.budget, cost)  # enough for the run
        policy_by_class.append(replace(design.policy, budget=budget_of_class))
    shares = [design.share for design in learner.designs]
    classes = class_of(devices, shares, learner.options.seed)
    return [policy_by_class[index] for index in classes]


def references(learner: Learner, devices: int = 0) -> dict[str, Any]:
    """Return what the progress of a run is compared with, as a dict for JSON.

    That is its plan (how many clients, rounds and reports, and at which privacy cost), and figures
    of the algorithm, such as the accuracy of a model that is trained without privacy. devices: how
    many devices there are as the run begins; 0: not known.
    """
    classes = []  # the cost of the run for each class of devices
    for design, account in zip(learner.designs, accounts(learner, budget=None), strict=True):
        cost = {
            "mechanism": design.mechanism,
            **design.summary(learner.times),
            "epsilon_run": account.epsilon,
        }
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

    These have ids from 1 on, as devices do, but are other than the devices with these ids.
    """
    stored = store.run(run)
    return stored is not None and bool(stored.asked.get("simulated"))


def earlier_disclosures(store: Store, run: str) -> Disclosures:
    """Return the accepted reports that devices have made in the other runs of a store.

    run: the name of the run to leave out. Reports that were lost on their way are not included,
    although devices have paid for them.
    """
    other_rounds = [
        round_ for round_ in store.rounds(is_simulated(store, run)) if round_.run != run
    ]
    return _accepted(store, other_rounds)


def disclosures_of_devices(store: Store) -> Disclosures:
    """Return the accepted reports that devices have made in all runs of a store.

    As in `earlier_disclosures`, reports that were lost on their way are not included.
    """
    return _accepted(store, store.rounds(simulated=False))


def _accepted(store: Store, rounds: Iterable[StoredRound]) -> Disclosures:
    """Return the accepted reports of these rounds."""
    report_counts = store.counted_reports()
    disclosures = Disclosures()
    for round_ in rounds:
        for cohort, devices in _reporters(store, round_, report_counts):
            report = ReportKind.of_question(decode_body(cohort.body))
            disclosures.add(report, devices)
    return disclosures


def asked_disclosures(store: Store, simulated: bool = False, run: str | None = None) -> Disclosures:
    """Return the reports that the rounds of a store have asked for, whether they arrived or not.

    simulated: whether to return those of simulated clients instead of those of devices. run: the
    name of the run whose rounds count; None: all rounds.
    """
    disclosures = Disclosures()
    for round_ in store.rounds(simulated):
        if run is not None and round_.run != run:
            continue
        for cohort in round_.cohorts:  # its devices have the same question
            report = ReportKind.of_question(decode_body(cohort.body))
            disclosures.add(report, integers(cohort.devices))
    return disclosures


def _reporters(
    store: Store, round_: StoredRound, report_counts: Mapping[int, Sequence[int]]
) -> Iterator[tuple[StoredCohort, Integers]]:
    """Yield each cohort of a round (devices with the same question), and who of it has reported.

    The second result is the ids of these devices. Cohorts of which nobody has reported are left
    out.

    report_counts: by round, the number of reports of each cohort (`Store.counted_reports`).
    """
    # An extension may have collected the reports of the round in a way of its own, without
    # the store. Then nobody here knows which devices have reported: all may have, or none has.
    for extension in store.extensions():
        may_have_reported = extension.may_have_reported(store, round_.number)
        was_collected_by_it = may_have_reported is not None
        if not was_collected_by_it:
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
    """Return what the device that has spent most has spent, in millionths of the measure.

    accounts: for each device, how many reports of each kind it has made. measure: what the devices'
    ledgers count, EPSILON or RHO. A ledger that counts epsilon refuses reports with Gaussian noise,
    so a device with such a ledger has spent nothing on them.
    """
    most = 0
    for report_counts in accounts:
        spent_by_device = 0
        for report, count in report_counts.items():
            if measure == RHO or not report.gaussian:
                spent_by_device += count * report.price(measure)
        most = max(most, spent_by_device)
    return most


def devices_that_reported(store: Store, run: str) -> Integers:
    """Return the ids of the devices that have reported in a run's rounds that ended, ascending."""
    ended_rounds = {entry["round"] for entry in store.history(run)}
    report_counts = store.counted_reports()
    device_ids = []
    for round_ in store.rounds(is_simulated(store, run)):
        if round_.number in ended_rounds:
            for _cohort, ids in _reporters(store, round_, report_counts):
                device_ids.append(ids)
    return distinct(device_ids)


def rounds_of_most_asked_device(
    store: Store, run: str, rounds: int, group: int, devices: int
) -> int:
    """Return in how many rounds a run has asked the device that it has asked most often.

    Rounds in which every device had already spent its budget do not count: nobody paid for them.

    run: the name of the run. rounds, group, devices: only used if the store does not have the run's
    rounds; then the result is estimated from the number of rounds, and from how many of how many
    devices each round asked.
    """
    stored_rounds = [round_ for round_ in store.rounds() if round_.run == run]
    if not stored_rounds:
        return most_turns(max(1, devices), group, rounds)

    refused_as_spent: dict[int, int] = {}  # by round, how many refused since their budget was spent
    for entry in store.history(run):
        reasons = entry.get("reasons", {})
        refused_as_spent[entry["round"]] = reasons.get(_BUDGET_SPENT, 0)
    times_asked: Counter[int] = Counter()  # by device
    for round_ in stored_rounds:
        device_count = sum(len(cohort.devices) for cohort in round_.cohorts)
        if refused_as_spent.get(round_.number, 0) >= device_count:
            continue
        for cohort in round_.cohorts:
            times_asked.update(cohort.devices)
    return max(times_asked.values(), default=0)
