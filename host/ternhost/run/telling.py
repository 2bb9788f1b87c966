"""What a run says of its cost: to a device, for its life, and toward the owner of the server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tern.ledger import EPSILON, RHO
from ternhost.count.telling import Account, Told, most
from ternhost.learn.base import Devices, Learner
from ternhost.learn.designs import by_class, ends
from ternhost.options import flag
from ternhost.privacy.accounting import MEASURES
from ternhost.privacy.accounting import Account as Planned
from ternhost.privacy.base import MICRO
from ternhost.reach.driver import BoardBudget, Driver, Left, least
from ternhost.run import affordable, costs, payments, toward_server
from ternhost.run.status import Watcher

if TYPE_CHECKING:
    from ternhost.run.run import Run

_LEFT = "an epsilon of {:g} is left", "a rho of {:g} is left"  # by measure
_LESS = 0.995  # of the pure epsilon: so much is worth a second number


def before_first_round(run: Run, driver: Driver, members: Sequence[int] | Devices, again: bool) -> None:
    """Say what a run costs, and keep it in the run's state. again: it was said before.

    Raises as `affordable.require`."""
    learner, options = run.algorithm, run.options
    measure = learner.designs[0].policy.measure if learner.designs else 0
    told = Told() if run.fleet.provisions else costs.told_before(run.store, run.files.name)
    # Boards that are made for this run have spent nothing.
    budgets = () if run.fleet.provisions else driver.budgets
    if "payments" not in run.state:
        _look_for_payments(run, budgets, told)
    told = payments.with_payments(told, run.state["payments"], members)
    before = costs.spent(told.accounts(of=members), measure)
    run.state["spent_before"] = before
    run.state["lives"] = lives(learner, told, members, float(options.delta))
    if again:
        return
    if options.reason:
        run.watcher.note(options.reason)
    words: dict[str, Any] = {
        "lives": run.state["lives"],
        "endless": learner.rounds is None and not learner.once,
        "rounds": flag(learner.rounds_option),
    }
    tell(run.watcher, run.accounts, before, least(budgets), **words)
    affordable.require(run, budgets, len(driver.devices), members, told, before)
    if run.fleet.by_gateways and not learner.unit:
        for line in toward_server.planned_words(learner, driver.sites, run.store, options):
            run.watcher.note(line)


def _look_for_payments(run: Run, budgets: Sequence[BoardBudget], told: Told) -> None:
    """Keep what boards have paid for that the store does not know, and warn of it."""
    found = payments.unknown_payments(run.store, budgets, told)
    run.state["payments"] = [asdict(payment) for payment in found]
    if warning := payments.warning(found):
        run.watcher.warn(warning)


def told_before(run: Run, members: Sequence[int] | Devices) -> Told:
    """What the devices of a run have told before it: in other runs of its store, and by what their boards say.

    Boards that are made for a run are new devices."""
    if run.fleet.provisions:
        return Told()
    told = costs.told_before(run.store, run.files.name)
    return payments.with_payments(told, run.state.get("payments", ()), members)


def lives(
    learner: Learner, told: Told, members: Sequence[int] | Devices, delta: float
) -> list[dict[str, Any]]:
    """For JSON, of each class of devices: what the run tells of a device, and what its life has told by then, at most.
    told: before the run. Pure epsilons, and the least that is proved at `delta`."""
    designs, before = learner.designs, dict[int, list[Account]]()
    for i, _, devices in by_class(designs, members, learner.options.seed) if told else ():
        before[i] = told.accounts(of=devices)
    return [
        {"share": design.share, "delta": delta, "run": _epsilons([{}], design.told(learner.times), delta),
         "life": _epsilons(before.get(i) or [{}], design.told(learner.times), delta)}
        for i, design in enumerate(designs)
    ]  # fmt: skip


def _epsilons(accounts: Sequence[Account], run: Account, delta: float) -> dict[str, Any]:
    found = most((Counter(account) + Counter(run) for account in accounts), delta)
    return {"pure": found.pure, "zcdp": found.zcdp, "exact": found.exact, "epsilon": found.epsilon}


def life_words(life: Mapping[str, Any]) -> str:
    """One of `lives`: "this run: epsilon 4 (pure); for life so far 36 pure, 11.2 at delta 1e-06"."""
    run, whole = ({**life[which], "delta": life["delta"]} for which in ("run", "life"))
    text = "this run: epsilon " + (
        "{epsilon:.4g} at delta {delta:g}" if run["pure"] is None else "{pure:g} (pure)"
    )
    words = "{epsilon:.4g} at delta {delta:g}"
    if whole["pure"] is not None:
        words = "{pure:g} pure" + f", {words}" * (whole["epsilon"] < _LESS * whole["pure"])
    return f"{text.format_map(run)}; for life so far {words.format_map(whole)}"


def lives_words(lives: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line for each class, or for those that tell least and most."""
    shown = ends(lives, lambda each: float(each["life"]["epsilon"]))
    several = len(lives) > 1
    return [f"{100 * each['share']:.3g} % of the devices, " * several + life_words(each) for each in shown]


def tell(watcher: Watcher, accounts: Sequence[Planned], before: int, left: Left, lives: Sequence[Mapping[str, Any]],
         endless: bool, rounds: str = "--rounds") -> None:  # fmt: skip
    """Say, before the first question, what a run costs a device of each class. before, left: the most that a device has
    spent in the run's measure, and the least that a board reports as left, millionths. endless: the accounts are of a
    round. rounds: the option that sets how many there are."""
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
    for words in () if endless else lives_words(lives):
        watcher.note(words)
