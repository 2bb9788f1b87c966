"""Whether devices can pay for a run, and what they could pay for instead.

A run that most of its devices cannot pay for does not begin (docs/guides/runs.md): it would spend
what is left of their budgets, which are for life, for a result that never comes. What they have
left is known from their boards, which speak for their first devices, and from the rounds of the
store, which say how the other devices of a board differ from it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tern import wire
from tern.fixed import MAX_EPSILON
from tern.ledger import EPSILON, RHO
from ternhost.count.disclosures import Disclosures
from ternhost.count.members import Integers, Members, integers
from ternhost.errors import RefusedError, TernError
from ternhost.learn.base import ALGORITHMS, Learner
from ternhost.learn.designs import class_of
from ternhost.learn.devices import Devices
from ternhost.options import flag, names_of
from ternhost.privacy import sums
from ternhost.privacy.accounting import MEASURES, PrivacyAccount
from ternhost.privacy.base import MICRO
from ternhost.privacy.guarantee import rounded
from ternhost.reach.driver import BoardBudget
from ternhost.reach.refusals import REMEDIES, WHEN_SPENT
from ternhost.run import begin
from ternhost.text import counted

if TYPE_CHECKING:
    from ternhost.run.run import Run

# Of the devices whose budget is known: if fewer can pay for a run, it does not begin.
_LEAST_SHARE = 0.5
_LEAST_EPSILON = 1000  # micro-epsilon of a report that is worth asking for
_DIGITS = 3  # of a number that a message suggests

_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Funds:
    """What the devices of a run have left, an entry for each group of devices alike."""

    devices: _Floats  # how many; of a site also parts of devices
    left: Integers  # millionths
    measure: Integers  # of their ledgers
    of_class: Integers  # of the run's designs

    @classmethod
    def of(
        cls,
        learner: Learner,
        members: Integers,
        budgets: Sequence[BoardBudget],
        disclosures: Disclosures,
    ) -> Funds:
        """members: the devices of the run. disclosures: what they have disclosed before, by the store."""
        shares = [design.share for design in learner.designs]
        ids = np.sort(members)
        left, measure = _left_by_device(ids, budgets, disclosures)
        known = left >= 0
        classes = class_of(ids[known], shares, learner.options.seed)
        funds = cls(np.ones(len(classes)), left[known], measure[known], classes)

        more_devices, more_left, more_measures, more_classes = [], [], [], []
        for number, budget in _unnamed(ids, budgets):
            for of_class, share in enumerate(shares):
                more_devices.append(number * share)
                more_left.append(budget.left)
                more_measures.append(budget.measure)
                more_classes.append(of_class)
        return cls(
            np.append(funds.devices, more_devices),
            np.append(funds.left, integers(more_left)),
            np.append(funds.measure, integers(more_measures)),
            np.append(funds.of_class, integers(more_classes)),
        )

    @property
    def known(self) -> float:
        """The number of devices whose budget is known."""
        return float(self.devices.sum())

    def able(self, prices: Sequence[Sequence[int | None]]) -> npt.NDArray[np.bool_]:
        """Which of these can pay. prices: by class and measure; None: a ledger of that measure
        never pays.
        """
        table = np.full((len(prices), len(MEASURES)), np.iinfo(np.int64).max)
        for of_class, row in enumerate(prices):
            for measure, price in enumerate(row):
                if price is not None:
                    table[of_class, measure] = price
        return np.asarray(self.left >= table[self.of_class, self.measure])

    def count(self, which: npt.NDArray[np.bool_]) -> float:
        """The number of devices of these groups."""
        return float(self.devices[which].sum())


def _left_by_device(
    ids: Integers, budgets: Sequence[BoardBudget], disclosures: Disclosures
) -> tuple[Integers, npt.NDArray[np.int64]]:
    """What each of these devices (ascending) has left, millionths, and the measure of its ledger;
    -1: not known.

    A board speaks for its first device. Another one is taken to have had the same budget, less what
    it has told more than the first by the store. Where two boards claim a device, the larger amount
    counts: one of them lies, and none is to stop a run by that.
    """
    left, measures = np.full(len(ids), -1, np.int64), np.zeros(len(ids), np.int64)
    named = [budget for budget in budgets if budget.first is not None]
    if not named:
        return left, measures
    members = Members(ids)
    firsts = integers([budget.first for budget in named if budget.first is not None])
    paid = {measure: disclosures.prices(ids, measure) for measure in (EPSILON, RHO)}
    paid_by_firsts = {measure: disclosures.prices(firsts, measure) for measure in (EPSILON, RHO)}
    for i, budget in enumerate(named):
        at = members.find(integers(budget.devices))
        at = at[at >= 0]
        more = paid[budget.measure][at] - paid_by_firsts[budget.measure][i]
        amount = np.clip(budget.left - more, 0, budget.left + budget.spent)
        larger = amount > left[at]
        left[at] = np.where(larger, amount, left[at])
        measures[at] = np.where(larger, budget.measure, measures[at])
    return left, measures


def _unnamed(ids: Integers, budgets: Sequence[BoardBudget]) -> Iterator[tuple[float, BoardBudget]]:
    """Each budget of a board that is not named, and how many of these devices have it."""
    inside: dict[int, int] = {}  # by site, those of these devices that are there
    for budget in budgets:
        if budget.first is not None or not len(budget.devices):
            continue
        site = id(budget.devices)
        if site not in inside:
            inside[site] = int(np.count_nonzero(np.isin(ids, budget.devices)))
        if inside[site]:
            yield budget.count * inside[site] / len(budget.devices), budget


# Before the first round


def require(
    run: Run,
    budgets: Sequence[BoardBudget],
    devices: int,
    members: Sequence[int] | Devices,
    disclosures: Disclosures,
    before: int,
) -> None:
    """Warn where some devices cannot pay for the whole run.

    budgets: what boards say. devices: how many can be asked. members: those of the run. disclosures: what
    they have disclosed before it, by the store; before: what that cost, at most.

    Raises RefusedError where that exceeds a named budget, or where fewer than half of the devices
    whose budget is known can pay. A served run has no end: there, one device that may pay for a
    report is enough.
    """
    _require_named_budget(run.accounts, before)
    learner = run.algorithm
    if not learner.designs or not budgets:
        return
    funds = Funds.of(learner, integers(members), budgets, disclosures)
    if not funds.known:
        return
    if run.schedule is not None:
        nobody = not funds.able(_prices(learner, 1)).any()
        if nobody and funds.known >= devices:
            raise _refused(run, funds, 1)
        return
    able = funds.count(funds.able(_prices(learner, learner.times)))
    if able < _LEAST_SHARE * funds.known:
        raise _refused(run, funds, learner.times)
    if able < funds.known:
        unable = round(funds.known - able)
        run.watcher.warn(
            f"{unable:,} of {counted(round(funds.known), 'device')} whose budget is known cannot pay for the whole run"
            f"{_as_far_as(run, funds)}: they refuse the rest"
        )


def _require_named_budget(accounts: Sequence[PrivacyAccount], before: int) -> None:
    for account in accounts:
        cost = before + account.user_level
        if account.budget is not None and cost > account.budget:
            raise RefusedError(
                f"with the {account.measure} of {before / MICRO:g} that was spent before, this would cost a client "
                f"{cost / MICRO:g}, more than its budget of {account.budget / MICRO:g}",
                hint=f"ask fewer rounds or values, use a smaller {account.measure}, or raise --budget",
            )


def _prices(learner: Learner, times: int) -> list[list[int | None]]:
    """The price of so many reports, in millionths, by class and by the measure of the ledger."""
    prices = []
    for of_class in range(len(learner.designs)):
        in_epsilon = _price(learner, of_class, EPSILON, times)
        in_rho = _price(learner, of_class, RHO, times)
        prices.append([in_epsilon, in_rho])
    return prices


def _price(learner: Learner, of_class: int, measure: int, times: int) -> int | None:
    release = learner.designs[of_class].release(times)
    if release.gaussian and measure == EPSILON:
        return None  # a ledger in epsilon cannot pay for Gaussian noise
    return replace(release, measure=measure).user_level


# In words


@dataclass(frozen=True)
class _Unable:
    """The devices that cannot pay for so many reports (`times`), and the middle one of them."""

    count: int
    known: int  # devices whose budget is known
    alike: bool  # whether all of them have the same left
    times: int
    of_class: int
    measure: int  # of the middle one's ledger
    left: int
    price: int | None

    @classmethod
    def of(cls, learner: Learner, funds: Funds, times: int) -> _Unable:
        prices = _prices(learner, times)
        unable = ~funds.able(prices)
        place = _middle(funds, unable)
        of_class, measure = int(funds.of_class[place]), int(funds.measure[place])
        return cls(
            count=round(funds.count(unable)),
            known=round(funds.known),
            alike=len(np.unique(funds.left[unable])) == 1,
            times=times,
            of_class=of_class,
            measure=measure,
            left=int(funds.left[place]),
            price=prices[of_class][measure],
        )


def _refused(run: Run, funds: Funds, times: int) -> RefusedError:
    """The error for a run that too few devices can pay for."""
    learner = run.algorithm
    unable = _Unable.of(learner, funds, times)
    if unable.price is None:
        words, remedy = REMEDIES[wire.ERR_MEASURE]
        devices = counted(unable.known, "device")
        return RefusedError(f"{unable.count:,} of {devices} cannot pay: {words}", hint=remedy)

    text = _unaffordable(run, unable, unable.price)
    if run.schedule is not None:
        return RefusedError(text, hint=WHEN_SPENT)
    enough = _reports(learner, unable.of_class, unable.measure, unable.left)
    if enough is not None:
        text += f", enough for {enough} of its {counted(times, 'report')}"
    fitting = _that_fit(run, unable.left, unable.measure)
    hint = WHEN_SPENT
    if fitting:
        hint = f"to begin a run that fits, ask for {' or '.join(fitting)}; {hint}"
    return RefusedError(text, hint=hint)


def _unaffordable(run: Run, unable: _Unable, price: int) -> str:
    """What the run costs, and what its devices have left."""
    learner = run.algorithm
    subject = "this run" if run.schedule is None else "a report of this run"
    gaussian = learner.designs[unable.of_class].release(unable.times).gaussian
    cost = _cost(price, unable.measure, learner.delta, gaussian)
    left = _amount(unable.left, unable.measure, learner.delta)
    if unable.known == 1:
        return f"{subject} costs {cost}, and the device has {left} left"
    text = f"{subject} costs a device {cost}, and {unable.count:,} of the {unable.known:,} devices"
    text += " whose budget is known cannot pay that: "
    if unable.alike:
        return f"{text}they have {left} left"
    return f"{text}half of them have {left} left, or less"


def _middle(funds: Funds, which: npt.NDArray[np.bool_]) -> int:
    """The place of the device of these that has the median left."""
    places = np.flatnonzero(which)
    ascending = places[np.argsort(funds.left[places], kind="stable")]
    devices_up_to = np.cumsum(funds.devices[ascending])
    middle = int(np.searchsorted(devices_up_to, devices_up_to[-1] / 2))
    return int(ascending[min(middle, len(ascending) - 1)])


def _amount(millionths: int, measure: int, delta: float) -> str:
    """An amount of a ledger, for people, rounded down.

    "epsilon 2", or "rho 0.0243 (epsilon 0.999 at delta 1e-06)".
    """
    words = f"{MEASURES[measure]} {_rounded_down(millionths) / MICRO:g}"
    if measure == RHO and millionths:
        epsilon = _rounded_down(math.floor(sums.epsilon_of(millionths, delta) * MICRO))
        words += f" (epsilon {epsilon / MICRO:g} at delta {delta:g})"
    return words


def _cost(millionths: int, measure: int, delta: float, gaussian: bool) -> str:
    """A price, for people, rounded up.

    Only of Gaussian noise the epsilon of a rho is what the reports disclose.
    """
    unit = _unit_of_last_digit(millionths)
    rounded_up = -(-millionths // unit) * unit
    words = f"{MEASURES[measure]} {rounded_up / MICRO:g}"
    if measure == RHO and gaussian:
        words += f" (epsilon {rounded(sums.epsilon_of(millionths, delta))} at delta {delta:g})"
    return words


def _reports(learner: Learner, of_class: int, measure: int, left: int) -> int | None:
    """How many reports of the run a device can pay for.

    None if the reports do not cost the same, or there is only one.
    """
    if learner.times == 1 or learner.designs[of_class].release(1).total:
        return None
    price = _price(learner, of_class, measure, 1)
    return 0 if price is None else left // price


def _as_far_as(run: Run, funds: Funds) -> str:
    """How far devices get that cannot pay for the whole run: ", only for 3 to 4 of its 5 reports"."""
    learner = run.algorithm
    if learner.times == 1 or any(design.release(1).total for design in learner.designs):
        return ""
    unable = ~funds.able(_prices(learner, learner.times))
    affordable: list[int] = []  # reports
    for of_class, row in enumerate(_prices(learner, 1)):
        for measure, price in enumerate(row):
            alike = unable & (funds.of_class == of_class) & (funds.measure == measure)
            left = funds.left[alike]
            if not len(left):
                continue
            if price is None:
                affordable.append(0)
            else:
                affordable += [int(left.min()) // price, int(left.max()) // price]
    least, most = min(affordable), max(affordable)
    span = f"{least}" if least == most else f"{least} to {most}"
    return f", only for {span} of its {learner.times} reports"


# What would fit


def _that_fit(run: Run, left: int, measure: int) -> list[str]:
    """Options with which this run would cost no more than is `left`, as on the command line.

    Each was tried.
    """
    changes: dict[str, Any] = {}
    changes |= _fewer_reports(run, left, measure)
    changes |= _smaller_life(run, left, measure)
    changes |= _smaller_epsilon(run, left, measure)
    fitting = []
    for name, value in changes.items():
        if _fits(run, {name: value}, left, measure):
            fitting.append(f"{flag(name)} {value}")
    return fitting


def _fewer_reports(run: Run, left: int, measure: int) -> dict[str, int]:
    """The option with fewer reports or rounds, by its name; empty if the run has none."""
    learner, options = run.algorithm, run.options.learning
    reports = _reports(learner, 0, measure, left)
    if not reports:
        return {}
    name, number = learner.rounds_option, reports
    if getattr(options, "reports", None):
        name, number = "reports", reports * (learner.clients or 1)
    return {name: number} if name in names_of(type(options)) else {}


def _smaller_life(run: Run, left: int, measure: int) -> dict[str, str]:
    """The option --life for what is left in a ledger in rho; empty if the run has none."""
    if "life" not in names_of(type(run.options.learning)) or measure != RHO or not left:
        return {}
    epsilon = sums.epsilon_of(left, run.algorithm.delta)
    life = _rounded_down(math.floor(epsilon * MICRO))
    return {"life": f"{life / MICRO:g}"} if life >= _LEAST_EPSILON else {}


def _smaller_epsilon(run: Run, left: int, measure: int) -> dict[str, str]:
    """The option --epsilon for what is left; empty if the run's epsilon comes from elsewhere."""
    learner, options = run.algorithm, run.options.learning
    if "epsilon" not in names_of(type(options)):
        return {}
    if any(getattr(options, name, None) for name in ("epsilons", "card", "choices")):
        return {}
    epsilon = _rounded_down(_epsilon_of(left // learner.times, measure))
    return {"epsilon": f"{epsilon / MICRO:g}"} if epsilon >= _LEAST_EPSILON else {}


def _epsilon_of(amount: int, measure: int) -> int:
    """The largest micro-epsilon of a report that costs a ledger at most this amount."""
    if measure == EPSILON:
        return int(min(amount, MAX_EPSILON))
    return sums.pure_of(amount)


def _rounded_down(micro: int) -> int:
    unit = _unit_of_last_digit(micro)
    return micro // unit * unit


def _unit_of_last_digit(number: int) -> int:
    """The power of ten to which a number is rounded so that `_DIGITS` digits are left."""
    return int(10 ** max(0, len(str(number)) - _DIGITS))


def _fits(run: Run, change: Mapping[str, Any], left: int, measure: int) -> bool:
    """Whether the run with these options costs a device of each class at most this amount."""
    stored = run.store.run(run.files.name)
    assert stored is not None
    try:
        options = replace(run.options.learning, **change)
        population = begin.population(run.fleet, None, run.store, stored.asked["devices"])
        learner = ALGORITHMS.named(run.options.algorithm)(options, population)
    except TernError:
        return False
    for row in _prices(learner, learner.times):
        price = row[measure]
        if price is None or price > left:
            return False
    return True
