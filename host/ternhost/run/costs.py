"""The cost of a run to the devices' privacy: planned, told before it starts, counted from the rounds of its store."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tern import wire
from tern.ledger import EPSILON, RHO
from ternhost.count.members import integers
from ternhost.count.questions import decode_body
from ternhost.count.telling import Told, most
from ternhost.errors import RefusedError
from ternhost.learn.base import Devices, Learner, most_turns
from ternhost.learn.designs import class_of, ends
from ternhost.privacy.accounting import MEASURES, Account, Policy
from ternhost.privacy.base import MICRO
from ternhost.privacy.composing import Report
from ternhost.privacy.units import protected
from ternhost.reach.driver import Left
from ternhost.reach.refusals import NEW_BUDGET
from ternhost.run.status import Watcher
from ternhost.store.store import Store

_LEFT = "an epsilon of {:g} is left", "a rho of {:g} is left"  # by measure
_SPENT = wire.error_name(wire.ERR_BUDGET)


def costs(learner: Learner) -> list[int]:
    """The cost of the run to a device of each class, micro-epsilon."""
    return [design.release(learner.times).user_level for design in learner.designs]


def accounts(learner: Learner, budget: int | None) -> list[Account]:
    """The account of a device of each class. Raises RefusedError beyond the budget."""
    who = "each client" + " of the class at epsilon {:g} ({:.3g} %)" * (len(learner.designs) > 1)
    if learner.unit:
        who = f"what is protected, {protected(learner.unit)},"
    return [
        Account((each.release(learner.times),), budget,
                who.format(each.epsilon / MICRO, 100 * each.share), learner.delta)
        for each in learner.designs
    ]  # fmt: skip


def policies(learner: Learner, devices: Devices, budget: int | None) -> list[Policy]:
    """The policy of each device: its class's epsilon in one report, and `budget` (None: the cost of the run)."""
    designs = learner.designs
    of_classes = [
        replace(design.policy, budget=budget or max(design.policy.budget, cost))
        for design, cost in zip(designs, costs(learner), strict=True)
    ]
    return [of_classes[i] for i in class_of(devices, [each.share for each in designs], learner.options.seed)]


def references(learner: Learner, devices: int = 0) -> dict[str, Any]:
    """The figures to compare a run with while it goes on, for JSON: its plan, and the learner's references. devices:
    that there are when it begins; 0: not known."""
    classes = [
        {"mechanism": design.mechanism, **design.summary(learner.times), "epsilon_run": account.epsilon}
        for design, account in zip(learner.designs, accounts(learner, None), strict=True)
    ]
    plan = {"clients": learner.clients, "rounds": learner.rounds, "reports": learner.reports}
    return {**plan, "classes": classes, **learner.references(), "devices": devices or None}


def lives(learner: Learner, before: Sequence[Told], delta: float) -> list[dict[str, Any]]:
    """For JSON, of each class of devices: what the run tells of a device, and what its life has told by then, at most;
    before: what devices of the class had told. Pure epsilons, and the least that is proved at `delta`."""
    return [
        {"share": design.share, "delta": delta, "run": _epsilons([{}], design.told(learner.times), delta),
         "life": _epsilons(told.accounts() or [{}], design.told(learner.times), delta)}
        for design, told in zip(learner.designs, before, strict=True)
    ]  # fmt: skip


def _epsilons(
    accounts: Sequence[Mapping[Report, int]], run: Mapping[Report, int], delta: float
) -> dict[str, Any]:
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


_LESS = 0.995  # of the pure epsilon: so much is worth a second number


def tell(watcher: Watcher, accounts: Sequence[Account], before: int, left: Left, lives: Sequence[Mapping[str, Any]],
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
    for words in () if endless else lives_words(lives):
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


def told_before(store: Store, run: str) -> Told:
    """What devices have told in other runs of this store, by accepted reports: lost ones may have told more. In rounds
    by gateways every device counts as having answered."""
    told = Told()
    for other in [each for each in store.rounds() if each.run != run]:
        reporters = None if store.by_gateways(other.number) else store.reporters(other.number)
        for cohort in other.cohorts:
            ids = integers(cohort.devices)
            told.add(
                Report.asked(decode_body(cohort.body)),
                ids if reporters is None else ids[np.isin(ids, reporters)],
            )
    return told


def spent(accounts: Iterable[Mapping[Report, int]], measure: int) -> int:
    """The most that any of these has cost a ledger of this measure, millionths. One in epsilon refuses what costs
    rho."""

    def price(report: Report) -> int:
        return report.rho if measure == RHO else 0 if report.gaussian else report.cost

    return max((sum(n * price(each) for each, n in account.items()) for account in accounts), default=0)


def heard(store: Store, run: str) -> npt.NDArray[np.int64]:
    """The devices that have reported in ended rounds of a run. By gateways every device counts as having reported."""
    ended = {entry["round"] for entry in store.history(run)}
    ids = [np.empty(0, np.int64)]
    for each in [each for each in store.rounds() if each.number in ended]:
        if store.by_gateways(each.number):
            ids += [integers(cohort.devices) for cohort in each.cohorts]
        else:
            ids.append(integers(store.reporters(each.number)))
    return np.unique(np.concatenate(ids))


def most_asked(store: Store, run: str, rounds: int, group: int, devices: int) -> int:
    """The largest number of rounds of a run that asked the same device, without those that nobody paid for since every
    budget was spent: by the store, or, where it lacks the run's rounds, by their number and the size of a group."""
    of_run = [each for each in store.rounds() if each.run == run]
    if not of_run:
        return most_turns(max(1, devices), group, rounds)
    refusals = {entry["round"]: entry.get("reasons", {}).get(_SPENT, 0) for entry in store.history(run)}
    times: Counter[int] = Counter()
    for each in of_run:
        if refusals.get(each.number, 0) < sum(len(cohort.devices) for cohort in each.cohorts):
            for cohort in each.cohorts:
                times.update(cohort.devices)
    return max(times.values(), default=0)
