"""What a run says of its cost to a device, and for its life, before the first round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from tern.ledger import EPSILON, RHO
from ternhost.count.disclosures import Disclosures
from ternhost.count.members import distinct
from ternhost.extensions import EXTENSIONS
from ternhost.learn.designs import cheapest_and_dearest
from ternhost.learn.devices import Devices
from ternhost.options import flag, names_of
from ternhost.privacy.accounting import MEASURES, PrivacyAccount
from ternhost.privacy.base import MICRO
from ternhost.reach.driver import BoardBudget, Driver, Left, least
from ternhost.run import affordable, costs, guarantees, payments
from ternhost.run.guarantees import ClassGuarantees

if TYPE_CHECKING:
    from ternhost.run.run import Run

# By measure: index 0 is EPSILON, 1 is RHO.
_LEFT = "an epsilon of {:g} is left", "a rho of {:g} is left"


def announce_costs(run: Run, driver: Driver, members: Sequence[int] | Devices, again: bool) -> None:
    """Tell the user what a run costs its devices in privacy, before its first round.

    The guarantees, and what was spent before the run, are saved in the run's state.

    driver: the connection to the fleet; it knows what boards have left of their budgets. members:
    the ids of the run's devices. again: whether the user has been told at an earlier start of the
    run; then only the state is set. Raises RefusedError if most devices cannot pay for the run
    (`affordable.require`).
    """
    learner = run.algorithm
    budgets: Sequence[BoardBudget] = ()
    if not run.fleet.provisions:  # boards that are made for this run have spent nothing
        budgets = driver.budgets

    # What the devices have disclosed before: to this host, and for what their boards have paid
    # without this host's knowledge.
    if run.state.payments is None:
        run.state.payments = _unknown_payments(run, budgets)
    disclosures = disclosures_before(run, members)
    classes = _set_guarantees(run, disclosures, members)
    spent_before = run.state.spent_before
    if again:
        return

    if run.options.reason:
        run.watcher.note(run.options.reason)
    for line in learner.notes:
        run.watcher.note(line)
    _note_costs(run, spent_before, least(budgets), classes)
    affordable.require(
        run,
        budgets=budgets,
        devices=len(driver.devices),
        members=members,
        disclosures=disclosures,
        before=spent_before,
    )
    for extension in EXTENSIONS.available():
        for line in extension.before_first_round(run, driver):
            run.watcher.note(line)


def _set_guarantees(
    run: Run, disclosures: Disclosures, members: Sequence[int] | Devices
) -> list[ClassGuarantees]:
    """Set in the state of a run what was spent before it, and what is guaranteed; return the latter.

    disclosures: the reports that devices have made before the run. members: the run's devices.
    """
    learner = run.algorithm
    measure = EPSILON
    if learner.designs:  # the measure in which the ledgers of the first class of devices count
        measure = learner.designs[0].policy.measure
    run.state.spent_before = costs.spent(disclosures.report_counts(of=members), measure)
    classes = guarantees.of_classes(learner, disclosures, members, float(run.options.delta))
    run.state.guarantees = [each.as_json() for each in classes]
    return list(classes)


def count_restored(run: Run, driver: Driver, members: Sequence[int] | Devices, warns: bool) -> None:
    """Count again what the devices of a run have spent, after its store was restored from a copy.

    Boards say what they have paid in their life. What the rounds of the store do not explain, they
    have paid for rounds that the copy does not know. The guarantees of the run count it, too. What
    was counted before stays for boards that do not say it now.

    driver: the connection to the fleet. members: the ids of the run's devices. warns: whether to
    warn the user that rounds of the store do not explain what was spent.
    """
    budgets = driver.budgets
    known = costs.disclosures_of_devices(run.store)
    unknown = payments.unknown_payments(run.store, budgets, known)
    warning = payments.warning(unknown)
    if warning and warns:
        run.watcher.warn(warning)
    told_by_now = distinct(budget.devices for budget in budgets)
    rows = [asdict(payment) for payment in unknown]
    for row in run.state.payments or ():
        is_told_anew = np.any((told_by_now >= row["first"]) & (told_by_now <= row["last"]))
        if not is_told_anew:
            rows.append(row)
    run.state.payments = rows
    _set_guarantees(run, disclosures_before(run, members), members)


def _unknown_payments(run: Run, budgets: Sequence[BoardBudget]) -> list[dict[str, Any]]:
    """Return the budget that boards have spent on reports that the store does not know.

    The result has the fields of each `Payment`, as dicts for JSON. The user is warned if rounds of
    the store cannot explain it, even by reports that were lost on their way. budgets: what boards
    say that they have spent and have left.
    """
    unknown = payments.unknown_payments(run.store, budgets, _earlier_disclosures(run))
    warning = payments.warning(unknown)
    if warning:
        run.watcher.warn(warning)
    return [asdict(payment) for payment in unknown]


def _earlier_disclosures(run: Run) -> Disclosures:
    """Return the reports that devices have made in other runs of the store."""
    if run.fleet.provisions:  # the boards are made for this run, and have made none
        return Disclosures()
    return costs.earlier_disclosures(run.store, run.files.name)


def disclosures_before(run: Run, members: Sequence[int] | Devices) -> Disclosures:
    """Return the reports that devices have made before a run, as far as they are known.

    These are their reports in other runs of the store, and one more report for what their boards
    have spent elsewhere, which nobody here knows. members: the ids of the run's devices.
    """
    unknown_payments = run.state.payments or ()
    return payments.with_payments(
        _earlier_disclosures(run), rows=unknown_payments, members=members, unit=run.algorithm.unit
    )


def _note_costs(
    run: Run, spent_before: int, left: Left, classes: Sequence[ClassGuarantees]
) -> None:
    """Tell the user what a run will cost the devices of each class, and what it guarantees them.

    Devices of a class make reports at the same epsilon. If there are many classes, only the ones
    with the smallest and the largest cost are described.

    spent_before: the most that a device has spent before, in millionths of the run's measure
    (epsilon or rho). left: a pair of the smallest budgets that boards have left, in epsilon and in
    rho. classes: the guarantees.
    """
    learner, accounts, watcher = run.algorithm, run.accounts, run.watcher
    # Nobody knows how many rounds there will be, so the accounts are of one round.
    is_endless = learner.rounds is None and not learner.once
    shown = cheapest_and_dearest(accounts, lambda account: account.user_level)
    if len(shown) < len(accounts):
        classes_of_clients = f"there are {len(accounts)} classes of clients"
        watcher.note(f"{classes_of_clients}; these spend the least and the most:")
    for account in shown:
        sentence = _cost_sentence(run, account, spent_before, is_endless)
        watcher.note(sentence + _left_words(accounts, left))
    lines = guarantees.words_of(classes)
    if is_endless:
        lines = guarantees.words_of_reports(classes)
    for line in lines:
        watcher.note(line)


def _cost_sentence(run: Run, account: PrivacyAccount, spent_before: int, is_endless: bool) -> str:
    """Say what a run costs a device of one class, and what earlier runs have cost.

    For instance "each client: 5 reports of one value, each at epsilon 1; earlier runs cost up to
    2, of a budget of 10".

    account: the planned privacy account of the class, for the whole run. spent_before: the most
    that a device has spent before, in millionths. is_endless: whether the run has no planned end,
    so that the account is of one round.
    """
    sentence = account.words()
    if is_endless:
        sentence = account.words("in every round")
    has_several_reports = account.releases[0].times > 1
    if has_several_reports and account.measure == MEASURES[EPSILON]:
        rounds_option = run.algorithm.rounds_option
        how_many = f"one a round: {flag(rounds_option)} sets how many"
        names = names_of(type(run.options.learning))
        is_own_option = rounds_option in names
        is_served = run.schedule is not None  # then --rounds is an option of the schedule
        if not is_own_option and not is_served and "reports" in names:
            # This learner divides --reports into rounds of its own.
            how_many = "--reports sets how many all devices send"
        sentence += f" ({how_many})"
    if spent_before:
        sentence += f"; earlier runs cost up to {spent_before / MICRO:g}"
        if account.budget is not None:
            sentence += f", of a budget of {account.budget / MICRO:g}"
    return sentence


def _left_words(accounts: Sequence[PrivacyAccount], left: Left) -> str:
    """Say what boards have left of their budgets, in the measures that can pay for the run.

    For instance "; the boards say that an epsilon of 3 is left". The text continues a sentence; it
    may be empty.

    accounts: the planned privacy accounts of the run. left: the smallest budgets that boards have
    left, in epsilon (index 0) and in rho (index 1), in millionths; None: no board has a budget in
    that measure.
    """
    has_gaussian_noise = any(account.releases[0].gaussian for account in accounts)
    words = ""
    for measure in (EPSILON, RHO):
        amount = left[measure]
        can_pay = measure == RHO or not has_gaussian_noise  # epsilon has no price for such noise
        if amount is not None and can_pay:
            words += f"; the boards say that {_LEFT[measure].format(amount / MICRO)}"
    return words
