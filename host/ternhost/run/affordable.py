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
    """What the devices of a run have left of their budgets, by groups of equal devices.

    Entry i of each array is of group i.
    """

    devices: _Floats  # how many; of a site also fractions of a device
    left: Integers  # of the budget of each of them, millionths of `measure`
    measure: Integers  # of their ledgers (tern.ledger)
    of_class: Integers  # the index of their class among the run's designs

    @classmethod
    def of(
        cls,
        learner: Learner,
        members: Integers,
        budgets: Sequence[BoardBudget],
        disclosures: Disclosures,
    ) -> Funds:
        """Gather what is known of the devices of a run.

        members: the devices of the run. budgets: as boards report them. disclosures: what the
        devices have disclosed before, by the rounds of the store.
        """
        shares = [design.share for design in learner.designs]
        device_ids = np.sort(members)
        left, measures = _left_by_device(device_ids, budgets, disclosures)
        is_known = left >= 0
        classes = class_of(device_ids[is_known], shares, learner.options.seed)

        # Devices whose ids are known are groups of one. Of other boards' devices only the number
        # is known: it is split by the shares of the classes.
        more_devices, more_left, more_measures, more_classes = [], [], [], []
        for device_count, budget in _budgets_without_ids(device_ids, budgets):
            for of_class, share in enumerate(shares):
                more_devices.append(device_count * share)
                more_left.append(budget.left)
                more_measures.append(budget.measure)
                more_classes.append(of_class)
        return cls(
            devices=np.append(np.ones(len(classes)), more_devices),
            left=np.append(left[is_known], integers(more_left)),
            measure=np.append(measures[is_known], integers(more_measures)),
            of_class=np.append(classes, integers(more_classes)),
        )

    @property
    def known(self) -> float:
        """The number of devices whose budget is known."""
        return float(self.devices.sum())

    def able(self, prices: Sequence[Sequence[int | None]]) -> npt.NDArray[np.bool_]:
        """Return for each group whether its devices can pay.

        prices: by class and by measure of the ledger, in millionths; None: a ledger of that
        measure never pays.
        """
        price_table = np.full((len(prices), len(MEASURES)), np.iinfo(np.int64).max)
        for of_class, prices_of_class in enumerate(prices):
            for measure, price in enumerate(prices_of_class):
                if price is not None:
                    price_table[of_class, measure] = price
        return np.asarray(self.left >= price_table[self.of_class, self.measure])

    def count(self, groups: npt.NDArray[np.bool_]) -> float:
        """Return the number of devices in the groups for which `groups` is true."""
        return float(self.devices[groups].sum())


def _left_by_device(
    device_ids: Integers, budgets: Sequence[BoardBudget], disclosures: Disclosures
) -> tuple[Integers, Integers]:
    """Return the budget that each device has left, and the measure of its ledger.

    device_ids: ascending. Amounts are in millionths; -1: not known.

    A board speaks for its first device. Each other device of the board is taken to have had the
    same budget, less what it has disclosed beyond the first one by the store. If two boards claim
    a device, the larger amount counts: one of them lies, and that must not stop a run.
    """
    left = np.full(len(device_ids), -1, np.int64)
    measures = np.zeros(len(device_ids), np.int64)
    boards, first_devices = [], []
    for budget in budgets:
        if budget.first is not None:
            boards.append(budget)
            first_devices.append(budget.first)
    if not boards:
        return left, measures

    members = Members(device_ids)
    paid, paid_by_firsts = {}, {}
    for measure in (EPSILON, RHO):
        paid[measure] = disclosures.prices(device_ids, measure)
        paid_by_firsts[measure] = disclosures.prices(integers(first_devices), measure)
    for number, budget in enumerate(boards):
        paid_by_first = paid_by_firsts[budget.measure][number]
        places = members.find(integers(budget.devices))
        places = places[places >= 0]  # those of the board's devices that are in `device_ids`

        paid_beyond_first = paid[budget.measure][places] - paid_by_first
        most = budget.left + budget.spent
        amounts = np.clip(budget.left - paid_beyond_first, 0, most)
        is_larger = amounts > left[places]
        left[places] = np.where(is_larger, amounts, left[places])
        measures[places] = np.where(is_larger, budget.measure, measures[places])
    return left, measures


def _budgets_without_ids(
    device_ids: Integers, budgets: Sequence[BoardBudget]
) -> Iterator[tuple[float, BoardBudget]]:
    """Yield the budgets of boards whose devices are not named, each with how many devices have it.

    Of such a board only its site is known. The devices of the site that are in `device_ids` are
    taken to be spread evenly over its boards.
    """
    present: dict[int, int] = {}  # devices of `device_ids` at a site, by the id() of its devices
    for budget in budgets:
        if budget.first is not None or not len(budget.devices):
            continue
        site = id(budget.devices)
        if site not in present:
            present[site] = int(np.count_nonzero(np.isin(device_ids, budget.devices)))
        if present[site]:
            yield budget.count * present[site] / len(budget.devices), budget


# Before the first round


def require(
    run: Run,
    budgets: Sequence[BoardBudget],
    devices: int,
    members: Sequence[int] | Devices,
    disclosures: Disclosures,
    before: int,
) -> None:
    """Refuse a run that most devices cannot pay for, and warn if some cannot.

    budgets: as boards report them. devices: how many can be asked. members: those of the run.
    disclosures: what the members have disclosed before the run, by the store. before: the most
    that this has cost one of them, in millionths.

    Raises RefusedError if the run exceeds a named budget, or if fewer than half of the devices
    whose budget is known can pay for all of it. A served run has no end: it is refused only if no
    device can pay for a single report.
    """
    _require_named_budget(run.accounts, before)
    learner = run.algorithm
    if not learner.designs or not budgets:
        return
    funds = Funds.of(learner, integers(members), budgets, disclosures)
    if not funds.known:
        return
    if run.schedule is not None:
        nobody_can_pay = not funds.able(_prices(learner, 1)).any()
        if nobody_can_pay and funds.known >= devices:
            raise _refusal(run, funds, 1)
        return

    able_devices = funds.count(funds.able(_prices(learner, learner.times)))
    if able_devices < _LEAST_SHARE * funds.known:
        raise _refusal(run, funds, learner.times)
    if able_devices < funds.known:
        unable = round(funds.known - able_devices)
        known = counted(round(funds.known), "device")
        run.watcher.warn(
            f"{unable:,} of {known} whose budget is known cannot pay for the whole run"
            f"{_affordable_reports(run, funds)}: they refuse the rest"
        )


def _require_named_budget(accounts: Sequence[PrivacyAccount], before: int) -> None:
    """Raise RefusedError if a run, with what was spent before it, exceeds a budget of --budget."""
    for account in accounts:
        cost = before + account.user_level
        if account.budget is not None and cost > account.budget:
            measure = account.measure
            spent_before = f"with the {measure} of {before / MICRO:g} that was spent before"
            raise RefusedError(
                f"{spent_before}, this would cost a client {cost / MICRO:g}, "
                f"more than its budget of {account.budget / MICRO:g}",
                hint=f"ask fewer rounds or values, use a smaller {measure}, or raise --budget",
            )


def _prices(learner: Learner, times: int) -> list[list[int | None]]:
    """Return the price of `times` reports, in millionths, by class and measure of the ledger.

    None: a ledger of that measure cannot pay for them.
    """
    prices = []
    for of_class in range(len(learner.designs)):
        in_epsilon = _price(learner, of_class, EPSILON, times)
        in_rho = _price(learner, of_class, RHO, times)
        prices.append([in_epsilon, in_rho])
    return prices


def _price(learner: Learner, of_class: int, measure: int, times: int) -> int | None:
    """Return the price of `times` reports for a ledger of this measure; None: it cannot pay."""
    release = learner.designs[of_class].release(times)
    if release.gaussian and measure == EPSILON:
        return None  # a ledger in epsilon cannot pay for Gaussian noise
    return replace(release, measure=measure).user_level


# In words


@dataclass(frozen=True)
class _Unable:
    """The devices that cannot pay for `times` reports.

    of_class, measure, left and price are those of the median device: half of the devices that
    cannot pay have as much left as it has, or less.
    """

    count: int
    known: int  # devices whose budget is known, also of those that can pay
    alike: bool  # whether all of them have the same amount left
    times: int
    of_class: int
    measure: int  # of its ledger
    left: int  # millionths
    price: int | None  # of the reports, millionths; None: its ledger cannot pay for any

    @classmethod
    def of(cls, learner: Learner, funds: Funds, times: int) -> _Unable:
        """Describe the devices of these funds that cannot pay; there must be some."""
        prices = _prices(learner, times)
        unable = ~funds.able(prices)
        median = _median_group(funds, unable)
        of_class = int(funds.of_class[median])
        measure = int(funds.measure[median])
        return cls(
            count=round(funds.count(unable)),
            known=round(funds.known),
            alike=len(np.unique(funds.left[unable])) == 1,
            times=times,
            of_class=of_class,
            measure=measure,
            left=int(funds.left[median]),
            price=prices[of_class][measure],
        )


def _refusal(run: Run, funds: Funds, times: int) -> RefusedError:
    """Return the error for a run of which too few devices can pay for `times` reports.

    Its hint names options with which the run would fit.
    """
    learner = run.algorithm
    unable = _Unable.of(learner, funds, times)
    if unable.price is None:
        words, remedy = REMEDIES[wire.ERR_MEASURE]
        devices = counted(unable.known, "device")
        return RefusedError(f"{unable.count:,} of {devices} cannot pay: {words}", hint=remedy)

    text = _unaffordable(run, unable, unable.price)
    if run.schedule is not None:
        return RefusedError(text, hint=WHEN_SPENT)
    enough = _reports_for(learner, unable.of_class, unable.measure, unable.left)
    if enough is not None:
        text += f", enough for {enough} of its {counted(times, 'report')}"
    fitting = _that_fit(run, unable.left, unable.measure)
    hint = WHEN_SPENT
    if fitting:
        hint = f"to begin a run that fits, ask for {' or '.join(fitting)}; {hint}"
    return RefusedError(text, hint=hint)


def _unaffordable(run: Run, unable: _Unable, price: int) -> str:
    """Say what the run costs a device, and what devices have left.

    price: of the median device that cannot pay, in millionths.
    """
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


def _median_group(funds: Funds, groups: npt.NDArray[np.bool_]) -> int:
    """Return the index of the group with the median device, by what devices have left.

    groups: which of the groups of `funds` to look at.
    """
    indices = np.flatnonzero(groups)
    ascending = indices[np.argsort(funds.left[indices], kind="stable")]
    devices_up_to = np.cumsum(funds.devices[ascending])
    middle = int(np.searchsorted(devices_up_to, devices_up_to[-1] / 2))
    return int(ascending[min(middle, len(ascending) - 1)])


def _amount(millionths: int, measure: int, delta: float) -> str:
    """Write an amount of a ledger for people, rounded down.

    For instance "epsilon 2", or "rho 0.0243 (epsilon 0.999 at delta 1e-06)".
    """
    words = f"{MEASURES[measure]} {_rounded_down(millionths) / MICRO:g}"
    if measure == RHO and millionths:
        epsilon = _rounded_down(math.floor(sums.epsilon_of(millionths, delta) * MICRO))
        words += f" (epsilon {epsilon / MICRO:g} at delta {delta:g})"
    return words


def _cost(millionths: int, measure: int, delta: float, gaussian: bool) -> str:
    """Write a price for people, rounded up.

    The epsilon of a rho is added only for Gaussian noise: there it is what the reports disclose.
    """
    unit = _unit_of_last_digit(millionths)
    rounded_up = -(-millionths // unit) * unit
    words = f"{MEASURES[measure]} {rounded_up / MICRO:g}"
    if measure == RHO and gaussian:
        words += f" (epsilon {rounded(sums.epsilon_of(millionths, delta))} at delta {delta:g})"
    return words


def _reports_for(learner: Learner, of_class: int, measure: int, left: int) -> int | None:
    """Return how many reports of the run a device with `left` millionths can pay for.

    None if the reports do not cost the same, or there is only one.
    """
    if learner.times == 1 or learner.designs[of_class].release(1).total:
        return None
    price = _price(learner, of_class, measure, 1)
    return 0 if price is None else left // price


def _affordable_reports(run: Run, funds: Funds) -> str:
    """Say how many reports the devices can pay for that cannot pay for the whole run.

    For instance ", only for 3 to 4 of its 5 reports"; empty if the reports do not cost the same.
    """
    learner = run.algorithm
    if learner.times == 1 or any(design.release(1).total for design in learner.designs):
        return ""
    unable = ~funds.able(_prices(learner, learner.times))
    report_counts: list[int] = []  # the least and the most of each class and measure
    for of_class, prices_of_class in enumerate(_prices(learner, 1)):
        for measure, price in enumerate(prices_of_class):
            is_here = unable & (funds.of_class == of_class) & (funds.measure == measure)
            left = funds.left[is_here]
            if not len(left):
                continue
            if price is None:
                report_counts.append(0)
            else:
                report_counts += [int(left.min()) // price, int(left.max()) // price]
    least, most = min(report_counts), max(report_counts)
    span = f"{least}"
    if most > least:
        span += f" to {most}"
    return f", only for {span} of its {learner.times} reports"


# What would fit


def _that_fit(run: Run, left: int, measure: int) -> list[str]:
    """Return options with which this run would cost no more than `left`, as on the command line.

    Each option alone is enough: a learner was made with it, and its price looked at.
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
    """Return the option for as many reports or rounds as `left` pays for, by its name.

    Empty if the run has no such option, or `left` does not pay for a report.
    """
    learner, options = run.algorithm, run.options.learning
    reports = _reports_for(learner, 0, measure, left)
    if not reports:
        return {}
    if getattr(options, "reports", None):  # it counts the reports of all clients
        return {"reports": reports * (learner.clients or 1)}
    if learner.rounds_option not in names_of(type(options)):
        return {}
    return {learner.rounds_option: reports}


def _smaller_life(run: Run, left: int, measure: int) -> dict[str, str]:
    """Return the option `life` for what is left in a ledger in rho, by its name.

    Empty if the run has no such option, or too little is left.
    """
    if "life" not in names_of(type(run.options.learning)) or measure != RHO or not left:
        return {}
    epsilon = sums.epsilon_of(left, run.algorithm.delta)
    life = _rounded_down(math.floor(epsilon * MICRO))
    if life < _LEAST_EPSILON:
        return {}
    return {"life": f"{life / MICRO:g}"}


def _smaller_epsilon(run: Run, left: int, measure: int) -> dict[str, str]:
    """Return the option `epsilon` of a report that `left` pays for in every round, by its name.

    Empty if the run's epsilon comes from another option, or too little is left.
    """
    learner, options = run.algorithm, run.options.learning
    if "epsilon" not in names_of(type(options)):
        return {}
    if any(getattr(options, name, None) for name in ("epsilons", "card", "choices")):
        return {}
    epsilon = _rounded_down(_epsilon_of(left // learner.times, measure))
    if epsilon < _LEAST_EPSILON:
        return {}
    return {"epsilon": f"{epsilon / MICRO:g}"}


def _epsilon_of(amount: int, measure: int) -> int:
    """Return the largest micro-epsilon of a report that costs a ledger at most this amount."""
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
    """Return whether the run with changed options would cost no class of devices more than `left`.

    change: the values of the options that change, by name.
    """
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
