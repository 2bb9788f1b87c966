"""What a run says of its cost: to a device, for its life, and toward the owner of the server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tern.ledger import EPSILON, RHO
from ternhost.count.telling import Told
from ternhost.errors import RefusedError
from ternhost.learn.base import Devices
from ternhost.learn.designs import ends
from ternhost.options import flag
from ternhost.privacy.accounting import MEASURES
from ternhost.privacy.accounting import Account as Planned
from ternhost.privacy.base import MICRO
from ternhost.reach.driver import NOT_TOLD, Driver, Left
from ternhost.reach.refusals import NEW_BUDGET
from ternhost.run import costs, guarantees, toward_server
from ternhost.run.guarantees import OfClass
from ternhost.run.status import Watcher

if TYPE_CHECKING:
    from ternhost.run.run import Run

_LEFT = "an epsilon of {:g} is left", "a rho of {:g} is left"  # by measure


def before_first_round(run: Run, driver: Driver, members: Sequence[int] | Devices, again: bool) -> None:
    """Say what a run costs, and keep it in the run's state. again: it was said before. Raises as `tell`."""
    learner, options = run.algorithm, run.options
    made = run.fleet.simulated or run.fleet.provisions  # for this run: they have spent nothing
    measure = learner.designs[0].policy.measure if learner.designs else 0
    told = told_before(run)
    before = costs.spent(told.accounts(of=members), measure)
    run.state["spent_before"] = before
    classes = guarantees.of_classes(learner, told, members, float(options.delta))
    run.state["guarantees"] = [each.as_json() for each in classes]
    if again:
        return
    if options.reason:
        run.watcher.note(options.reason)
    left = NOT_TOLD if made else driver.budget_left
    words: dict[str, Any] = {
        "classes": classes,
        "endless": learner.rounds is None and not learner.once,
        "alone": len(driver.devices) == 1,
        "rounds": flag(learner.rounds_option),
    }
    tell(run.watcher, run.accounts, before, left, **words)
    if run.fleet.by_gateways and not learner.unit:
        for line in toward_server.planned_words(learner, driver.sites, run.store, options):
            run.watcher.note(line)


def told_before(run: Run) -> Told:
    """What the devices of a run have told in other runs of its store."""
    made = run.fleet.simulated or run.fleet.provisions
    return Told() if made else costs.told_before(run.store, run.files.name)


def tell(watcher: Watcher, accounts: Sequence[Planned], before: int, left: Left, classes: Sequence[OfClass],
         endless: bool, alone: bool, rounds: str = "--rounds") -> None:  # fmt: skip
    """Say, before the first question, what a run costs a device of each class. before, left: the most that a device has
    spent in the run's measure, and the least that a board reports as left, millionths. endless: the accounts are of a
    round. alone: there is one device. rounds: the option that sets how many there are. Raises RefusedError where a
    named budget, or the only device's, does not cover the run."""
    asked = [account.releases[0] for account in accounts]
    # A ledger in epsilon refuses Gaussian noise, whatever is left.
    pays = RHO if any(each.gaussian for each in asked) else EPSILON
    told = [(i, amount) for i, amount in enumerate(left) if i >= pays and amount is not None]
    shown = ends(accounts, lambda account: account.user_level)
    if len(shown) < len(accounts):
        watcher.note(f"there are {len(accounts)} classes of clients; these spend the least and the most:")
    for account in shown:
        words = account.words("in every round") if endless else account.words()
        if account.releases[0].times > 1 and account.measure == MEASURES[EPSILON]:
            words += f" (one a round: {rounds} sets how many)"
        if before:
            words += f"; earlier runs cost up to {before / MICRO:g}"
            if account.budget is not None:
                words += f", of a budget of {account.budget / MICRO:g}"
        words += "".join(f"; the boards say that {_LEFT[i].format(amount / MICRO)}" for i, amount in told)
        watcher.note(words)
        if account.budget is not None and before + account.user_level > account.budget:
            raise RefusedError(
                f"with the {account.measure} of {before / MICRO:g} that was spent before, this would cost a client "
                f"{(before + account.user_level) / MICRO:g}, more than its budget of {account.budget / MICRO:g}",
                hint=f"ask fewer rounds or values, use a smaller {account.measure}, or raise --budget",
            )
    for words in () if endless else guarantees.words_of(classes):
        watcher.note(words)
    for measure, amount in told if asked else ():
        release = min((replace(each, measure=measure) for each in asked), key=lambda each: each.user_level)
        if amount >= release.user_level:
            continue
        enough = amount * release.times // release.user_level
        words = f"a board says that {_LEFT[measure].format(amount / MICRO)}"
        if release.times > 1:
            words += f", enough for {enough} of its {release.times} rounds"
        elif alone:
            words += f", and a report costs {release.user_level / MICRO:g}"
        if alone:
            raise RefusedError(words, (f"ask for {rounds} {enough}; or: " if enough else "") + NEW_BUDGET)
        watcher.warn(f"{words}: it will refuse the rest")
