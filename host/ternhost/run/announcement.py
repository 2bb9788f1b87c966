"""What a run says of its cost: to a device, for its life, and toward the owner of the server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tern.ledger import EPSILON, RHO
from ternhost.count.disclosures import Disclosures
from ternhost.learn.base import Devices
from ternhost.learn.designs import ends
from ternhost.options import flag
from ternhost.privacy.accounting import MEASURES, PrivacyAccount
from ternhost.privacy.base import MICRO
from ternhost.reach.driver import BoardBudget, Driver, Left, least
from ternhost.run import affordable, costs, guarantees, payments, toward_server
from ternhost.run.guarantees import OfClass
from ternhost.run.status import Watcher

if TYPE_CHECKING:
    from ternhost.run.run import Run

_LEFT = "an epsilon of {:g} is left", "a rho of {:g} is left"  # by measure


def announce_costs(run: Run, driver: Driver, members: Sequence[int] | Devices, again: bool) -> None:
    """Say what a run costs, and keep it in the run's state. again: it was said before.

    Raises as `affordable.require`."""
    learner, options = run.algorithm, run.options
    measure = learner.designs[0].policy.measure if learner.designs else 0
    disclosures = (
        Disclosures()
        if run.fleet.provisions
        else costs.earlier_disclosures(run.store, run.files.name)
    )
    # Boards that are made for this run have spent nothing.
    budgets = () if run.fleet.provisions else driver.budgets
    if "payments" not in run.state:
        _look_for_payments(run, budgets, disclosures)
    disclosures = payments.with_payments(disclosures, run.state["payments"], members, learner.unit)
    before = costs.spent(disclosures.report_counts(of=members), measure)
    run.state["spent_before"] = before
    classes = guarantees.of_classes(learner, disclosures, members, float(options.delta))
    run.state["guarantees"] = [each.as_json() for each in classes]
    if again:
        return
    if options.reason:
        run.watcher.note(options.reason)
    words: dict[str, Any] = {
        "classes": classes,
        "endless": learner.rounds is None and not learner.once,
        "rounds": flag(learner.rounds_option),
    }
    note_costs(run.watcher, run.accounts, before, least(budgets), **words)
    affordable.require(run, budgets, len(driver.devices), members, disclosures, before)
    if run.fleet.by_gateways and not learner.unit:
        for line in toward_server.planned_words(learner, driver.sites, run.store, options):
            run.watcher.note(line)


def _look_for_payments(run: Run, budgets: Sequence[BoardBudget], disclosures: Disclosures) -> None:
    """Keep what boards have paid for that the store does not know, and warn of it."""
    found = payments.unknown_payments(run.store, budgets, disclosures)
    run.state["payments"] = [asdict(payment) for payment in found]
    if warning := payments.warning(found):
        run.watcher.warn(warning)


def disclosures_before(run: Run, members: Sequence[int] | Devices) -> Disclosures:
    """What the devices of a run have told before it: in other runs of its store, and by what their
    boards say.

    Boards that are made for a run are new devices.
    """
    if run.fleet.provisions:
        return Disclosures()
    disclosures = costs.earlier_disclosures(run.store, run.files.name)
    return payments.with_payments(
        disclosures, run.state.get("payments", ()), members, run.algorithm.unit
    )


def note_costs(
    watcher: Watcher,
    accounts: Sequence[PrivacyAccount],
    before: int,
    left: Left,
    classes: Sequence[OfClass],
    endless: bool,
    rounds: str = "--rounds",
) -> None:
    """Say, before the first question, what a run costs a device of each class. before, left: the
    most that a device has spent in the run's measure, and the least that a board reports as left,
    millionths. endless: the accounts are of a round. rounds: the option that sets how many there
    are.
    """
    asked = [account.releases[0] for account in accounts]
    # A ledger in epsilon refuses Gaussian noise, whatever is left.
    pays = RHO if any(each.gaussian for each in asked) else EPSILON
    amounts_left = [
        (i, amount) for i, amount in enumerate(left) if i >= pays and amount is not None
    ]
    shown = ends(accounts, lambda account: account.user_level)
    if len(shown) < len(accounts):
        watcher.note(
            f"there are {len(accounts)} classes of clients; these spend the least and the most:"
        )
    for account in shown:
        words = account.words("in every round") if endless else account.words()
        if account.releases[0].times > 1 and account.measure == MEASURES[EPSILON]:
            words += f" (one a round: {rounds} sets how many)"
        if before:
            words += f"; earlier runs cost up to {before / MICRO:g}"
            if account.budget is not None:
                words += f", of a budget of {account.budget / MICRO:g}"
        words += "".join(
            f"; the boards say that {_LEFT[i].format(amount / MICRO)}" for i, amount in amounts_left
        )
        watcher.note(words)
    lines = guarantees.words_of_reports(classes) if endless else guarantees.words_of(classes)
    for line in lines:
        watcher.note(line)
