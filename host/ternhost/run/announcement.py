"""What a run says of its cost to a device, and for its life, before the first round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tern.ledger import EPSILON, RHO
from ternhost.count.disclosures import Disclosures
from ternhost.extensions import EXTENSIONS
from ternhost.learn.designs import cheapest_and_dearest
from ternhost.learn.devices import Devices
from ternhost.options import flag
from ternhost.privacy.accounting import MEASURES, PrivacyAccount
from ternhost.privacy.base import MICRO
from ternhost.reach.driver import BoardBudget, Driver, Left, least
from ternhost.run import affordable, costs, guarantees, payments
from ternhost.run.guarantees import OfClass

if TYPE_CHECKING:
    from ternhost.run.run import Run

_LEFT = "an epsilon of {:g} is left", "a rho of {:g} is left"  # by measure


def announce_costs(run: Run, driver: Driver, members: Sequence[int] | Devices, again: bool) -> None:
    """Tell the watcher what a run costs, and save the guarantees in the run's state.

    members: the devices of the run. again: an earlier start has told it already; then only the
    state is set. Raises RefusedError if most devices cannot pay (`affordable.require`).
    """
    learner = run.algorithm
    # Boards that are made for this run have spent nothing.
    budgets = () if run.fleet.provisions else driver.budgets
    if run.state.payments is None:
        run.state.payments = _unknown_payments(run, budgets)
    disclosures = disclosures_before(run, members)
    measure = EPSILON
    if learner.designs:
        measure = learner.designs[0].policy.measure
    spent_before = costs.spent(disclosures.report_counts(of=members), measure)
    classes = guarantees.of_classes(learner, disclosures, members, float(run.options.delta))
    run.state.spent_before = spent_before
    run.state.guarantees = [each.as_json() for each in classes]
    if again:
        return

    if run.options.reason:
        run.watcher.note(run.options.reason)
    _note_costs(run, spent_before, least(budgets), classes)
    affordable.require(run, budgets, len(driver.devices), members, disclosures, spent_before)
    for extension in EXTENSIONS.available():
        for line in extension.before_first_round(run, driver):
            run.watcher.note(line)


def _unknown_payments(run: Run, budgets: Sequence[BoardBudget]) -> list[dict[str, Any]]:
    """Return the payments that boards report and the store does not know, and warn of them."""
    unknown = payments.unknown_payments(run.store, budgets, _earlier_disclosures(run))
    warning = payments.warning(unknown)
    if warning:
        run.watcher.warn(warning)
    return [asdict(payment) for payment in unknown]


def _earlier_disclosures(run: Run) -> Disclosures:
    """Return what devices have disclosed in other runs of the store."""
    if run.fleet.provisions:  # boards made for this run are new
        return Disclosures()
    return costs.earlier_disclosures(run.store, run.files.name)


def disclosures_before(run: Run, members: Sequence[int] | Devices) -> Disclosures:
    """Return what devices have disclosed before a run.

    That is in other runs of the store, and in what their boards have paid for elsewhere.
    """
    return payments.with_payments(
        _earlier_disclosures(run), run.state.payments or (), members, run.algorithm.unit
    )


def _note_costs(run: Run, spent_before: int, left: Left, classes: Sequence[OfClass]) -> None:
    """Tell the watcher what a run will cost a device of each class, and what it promises.

    spent_before: the most that a device has spent in the run's measure, in millionths. left: the
    least that a board reports as left of its budget.
    """
    learner, accounts, watcher = run.algorithm, run.accounts, run.watcher
    endless = learner.rounds is None and not learner.once  # the accounts are of a round
    shown = cheapest_and_dearest(accounts, lambda account: account.user_level)
    if len(shown) < len(accounts):
        classes_of_clients = f"there are {len(accounts)} classes of clients"
        watcher.note(f"{classes_of_clients}; these spend the least and the most:")
    for account in shown:
        sentence = account.words()
        if endless:
            sentence = account.words("in every round")
        if account.releases[0].times > 1 and account.measure == MEASURES[EPSILON]:
            sentence += f" (one a round: {flag(learner.rounds_option)} sets how many)"
        if spent_before:
            sentence += f"; earlier runs cost up to {spent_before / MICRO:g}"
            if account.budget is not None:
                sentence += f", of a budget of {account.budget / MICRO:g}"
        watcher.note(sentence + _left_words(accounts, left))
    lines = guarantees.words_of(classes)
    if endless:
        lines = guarantees.words_of_reports(classes)
    for line in lines:
        watcher.note(line)


def _left_words(accounts: Sequence[PrivacyAccount], left: Left) -> str:
    """Say what boards have left, in the measures that can pay for these accounts."""
    # A ledger in epsilon refuses Gaussian noise, whatever is left.
    gaussian = any(account.releases[0].gaussian for account in accounts)
    words = ""
    for measure in (EPSILON, RHO):
        amount = left[measure]
        if amount is not None and (measure == RHO or not gaussian):
            words += f"; the boards say that {_LEFT[measure].format(amount / MICRO)}"
    return words
