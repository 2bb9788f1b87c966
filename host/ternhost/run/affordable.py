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

_LEAST_SHARE = (
    0.5  # of the devices whose budget is known: fewer that can pay for a run do not begin it
)
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
        parts = [
            (
                np.ones(np.count_nonzero(known)),
                left[known],
                measure[known],
                class_of(ids[known], shares, learner.options.seed),
            )
        ]
        for number, budget in _unnamed(ids, budgets):
            for i, share in enumerate(shares):
                row = np.array([budget.left]), np.array([budget.measure]), np.array([i])
                parts.append((np.array([number * share]), *row))
        devices, *others = (np.concatenate(column) for column in zip(*parts, strict=True))
        return cls(devices, *others)

    @property
    def known(self) -> float:
        """The number of devices whose budget is known."""
        return float(self.devices.sum())

    def able(self, prices: Sequence[Sequence[int | None]]) -> npt.NDArray[np.bool_]:
        """Which of these can pay. prices: by class and measure; None: a ledger of that measure
        never pays.
        """
        never = np.iinfo(np.int64).max
        table = np.array(
            [[never if price is None else price for price in row] for row in prices], np.int64
        )
        return np.asarray(self.left >= table[self.of_class, self.measure])


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
    inside: dict[int, int] = {}  # by site
    for budget in budgets:
        if budget.first is None and len(budget.devices):
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
    able = float(funds.devices[funds.able(_prices(learner, learner.times))].sum())
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
        if account.budget is not None and before + account.user_level > account.budget:
            raise RefusedError(
                f"with the {account.measure} of {before / MICRO:g} that was spent before, this would cost a client "
                f"{(before + account.user_level) / MICRO:g}, more than its budget of {account.budget / MICRO:g}",
                hint=f"ask fewer rounds or values, use a smaller {account.measure}, or raise --budget",
            )


def _prices(learner: Learner, times: int) -> list[list[int | None]]:
    """What so many reports cost a device, in millionths, by its class and the measure of its
    ledger.
    """
    return [
        [_price(learner, i, measure, times) for measure in (EPSILON, RHO)]
        for i in range(len(learner.designs))
    ]


def _price(learner: Learner, of_class: int, measure: int, times: int) -> int | None:
    release = learner.designs[of_class].release(times)
    if release.gaussian and measure == EPSILON:
        return None  # a ledger in epsilon cannot pay for Gaussian noise
    return replace(release, measure=measure).user_level


# In words


def _refused(run: Run, funds: Funds, times: int) -> RefusedError:
    """The error for a run that too few devices can pay for."""
    learner = run.algorithm
    prices = _prices(learner, times)
    able = funds.able(prices)
    unable, known = round(float(funds.devices[~able].sum())), round(funds.known)
    place = _middle(funds, ~able)
    of_class, measure, left = (
        int(each[place]) for each in (funds.of_class, funds.measure, funds.left)
    )
    price = prices[of_class][measure]
    if price is None:
        words, remedy = REMEDIES[wire.ERR_MEASURE]
        return RefusedError(
            f"{unable:,} of {counted(known, 'device')} cannot pay: {words}", hint=remedy
        )
    what = "a report of this run" if run.schedule is not None else "this run"
    gaussian = learner.designs[of_class].release(times).gaussian
    cost, has = (
        _cost(price, measure, learner.delta, gaussian),
        _amount(left, measure, learner.delta),
    )
    alike = len(np.unique(funds.left[~able])) == 1
    if known == 1:
        text = f"{what} costs {cost}, and the device has {has} left"
    else:
        text = f"{what} costs a device {cost}, and {unable:,} of the {known:,} devices whose budget is known cannot "
        text += "pay that: "
        text += f"they have {has} left" if alike else f"half of them have {has} left, or less"
    if run.schedule is None and (enough := _reports(learner, of_class, measure, left)) is not None:
        text += f", enough for {enough} of its {counted(times, 'report')}"
    fitting = [] if run.schedule is not None else _that_fit(run, left, measure)
    possible = f"to begin a run that fits, ask for {' or '.join(fitting)}; " if fitting else ""
    return RefusedError(text, hint=possible + WHEN_SPENT)


def _middle(funds: Funds, which: npt.NDArray[np.bool_]) -> int:
    """The place of the device of these that has the median left."""
    places = np.flatnonzero(which)
    places = places[np.argsort(funds.left[places], kind="stable")]
    half = funds.devices[places].sum() / 2
    reached = int(np.searchsorted(np.cumsum(funds.devices[places]), half))
    return int(places[min(reached, len(places) - 1)])


def _amount(millionths: int, measure: int, delta: float) -> str:
    """An amount of a ledger, for people, rounded down: "epsilon 2", or "rho 0.0243 (epsilon 0.999
    at delta 1e-06)".
    """
    words = f"{MEASURES[measure]} {_rounded_down(millionths) / MICRO:g}"
    if measure == RHO and millionths:
        epsilon = _rounded_down(math.floor(sums.epsilon_of(millionths, delta) * MICRO))
        words += f" (epsilon {epsilon / MICRO:g} at delta {delta:g})"
    return words


def _cost(millionths: int, measure: int, delta: float, gaussian: bool) -> str:
    """The same of a price, rounded up.

    Only of Gaussian noise the epsilon of a rho is what the reports tell.
    """
    unit = int(10 ** max(0, len(str(millionths)) - _DIGITS))
    words = f"{MEASURES[measure]} {-(-millionths // unit) * unit / MICRO:g}"
    if measure == RHO and gaussian:
        words += f" (epsilon {rounded(sums.epsilon_of(millionths, delta))} at delta {delta:g})"
    return words


def _reports(learner: Learner, of_class: int, measure: int, left: int) -> int | None:
    """How many reports of the run a device can pay for; None where they do not cost the same, or
    there is one.
    """
    if learner.times == 1 or learner.designs[of_class].release(1).total:
        return None
    each = _price(learner, of_class, measure, 1)
    return 0 if each is None else left // each


def _as_far_as(run: Run, funds: Funds) -> str:
    """How far the devices get that cannot pay for the whole run: ", only for 3 to 4 of its 5
    reports".
    """
    learner = run.algorithm
    if learner.times == 1 or any(design.release(1).total for design in learner.designs):
        return ""
    unable = ~funds.able(_prices(learner, learner.times))
    found = set[int]()
    for i, row in enumerate(_prices(learner, 1)):
        for measure, price in enumerate(row):
            left = funds.left[unable & (funds.of_class == i) & (funds.measure == measure)]
            if len(left):
                found |= {
                    0 if price is None else int(amount) // price
                    for amount in (left.min(), left.max())
                }
    least, most = min(found), max(found)
    span = f"{least}" if least == most else f"{least} to {most}"
    return f", only for {span} of its {learner.times} reports"


# What would fit


def _that_fit(run: Run, left: int, measure: int) -> list[str]:
    """Options with which this run would cost no more than is `left`, as on the command line; each
    was tried.
    """
    return [
        words for words, change in _changes(run, left, measure) if _fits(run, change, left, measure)
    ]


def _changes(run: Run, left: int, measure: int) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Options that may fit, in words and as they are."""
    learner, options = run.algorithm, run.options.learning
    names = names_of(type(options))
    reports = _reports(learner, 0, measure, left)
    if reports:
        name = learner.rounds_option
        number = reports
        if getattr(options, "reports", None):
            name = "reports"
            number = reports * (learner.clients or 1)
        if name in names:
            yield f"{flag(name)} {number}", {name: number}
    if "life" in names and measure == RHO:
        life = (
            _rounded_down(math.floor(sums.epsilon_of(left, learner.delta) * MICRO)) if left else 0
        )
        if life >= _LEAST_EPSILON:
            yield f"--life {life / MICRO:g}", {"life": f"{life / MICRO:g}"}
    chosen = (
        getattr(options, "epsilons", None)
        or getattr(options, "card", None)
        or getattr(options, "choices", None)
    )
    if "epsilon" in names and not chosen:
        epsilon = _rounded_down(_epsilon_of(left // learner.times, measure))
        if epsilon >= _LEAST_EPSILON:
            yield f"--epsilon {epsilon / MICRO:g}", {"epsilon": f"{epsilon / MICRO:g}"}


def _epsilon_of(amount: int, measure: int) -> int:
    """The largest micro-epsilon of a report that costs a ledger of this measure at most this
    amount.
    """
    return int(min(amount, MAX_EPSILON)) if measure == EPSILON else sums.pure_of(amount)


def _rounded_down(micro: int) -> int:
    unit = int(10 ** max(0, len(str(micro)) - _DIGITS))
    return micro // unit * unit


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
    prices = [_price(learner, i, measure, learner.times) for i in range(len(learner.designs))]
    return all(price is not None and price <= left for price in prices)
