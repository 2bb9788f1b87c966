"""Whether devices can pay for a run, and what they could pay for instead.

A run that most of its devices cannot pay for does not begin (docs/guides/runs.md). It would spend
what is left of their budgets, which are for life, on a result that never comes. Each board reports
what its first device has left. The rounds in the store tell how much more or less the other devices
of the board have spent.
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

# A run does not begin if fewer than this share of the devices whose budget is known can pay for it.
_LEAST_SHARE = 0.5
# In micro-epsilon: reports with a smaller epsilon are too noisy to be worth asking for.
_LEAST_EPSILON = 1000
_DIGITS = 3  # significant digits of the amounts in messages

_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Funds:
    """What the devices of a run have left of their lifetime privacy budgets.

    Devices with the same budget are a group. Entry i of each array is about group i.
    """

    devices: _Floats  # the number of devices; of a site, whose classes are unknown, fractions too
    left: Integers  # what each of them has left, in millionths of `measure`
    measure: Integers  # what their ledgers count: EPSILON or RHO (tern.ledger)
    of_class: Integers  # the index of their class of devices in `Learner.designs`

    @classmethod
    def of(
        cls,
        learner: Learner,
        members: Integers,
        budgets: Sequence[BoardBudget],
        disclosures: Disclosures,
    ) -> Funds:
        """Gather what the devices of a run have left of their privacy budgets, as far as known.

        Devices belong to classes, which differ in the epsilon and so in the price of a report. The
        class of a device follows from its id and the seed of the run.

        learner: the algorithm. It has a design of reports for each class. members: the ids of the
        devices. budgets: what each board says that its first device has spent and has left.
        disclosures: the devices' reports in earlier rounds of the store.
        """
        shares = [design.share for design in learner.designs]  # of each class among all devices
        device_ids = np.sort(members)
        left, measures = _left_by_device(device_ids, budgets, disclosures)
        is_known = left >= 0  # -1 stands for a device whose budget nobody has reported
        classes = class_of(device_ids[is_known], shares, learner.options.seed)

        # Some boards report a budget without the ids of their devices. Only the number of these
        # devices is known, and it is divided among the classes by their shares.
        more_devices, more_left, more_measures, more_classes = [], [], [], []
        for device_count, budget in _budgets_without_ids(device_ids, budgets):
            for of_class, share in enumerate(shares):
                more_devices.append(device_count * share)
                more_left.append(budget.left)
                more_measures.append(budget.measure)
                more_classes.append(of_class)
        # Each device whose id is known comes first, as a group of one device.
        return cls(
            devices=np.append(np.ones(len(classes)), more_devices),
            left=np.append(left[is_known], integers(more_left)),
            measure=np.append(measures[is_known], integers(more_measures)),
            of_class=np.append(classes, integers(more_classes)),
        )

    @property
    def known_devices(self) -> float:
        """The number of devices whose budget is known."""
        return float(self.devices.sum())

    def can_pay(self, prices: Sequence[Sequence[int | None]]) -> npt.NDArray[np.bool_]:
        """Return for each group of devices whether they can pay the price for their class.

        prices: `prices[c][m]` is the price for a device of class c whose ledger counts measure m
        (0 is epsilon, 1 is rho), in millionths; None: such a ledger cannot pay at all.
        """
        unaffordable = np.iinfo(np.int64).max  # more than any budget
        price_table = np.full((len(prices), len(MEASURES)), unaffordable)
        for of_class, prices_of_class in enumerate(prices):
            for measure, price in enumerate(prices_of_class):
                if price is not None:
                    price_table[of_class, measure] = price
        price_of_group = price_table[self.of_class, self.measure]
        return np.asarray(self.left >= price_of_group)

    def devices_in(self, groups: npt.NDArray[np.bool_]) -> float:
        """Return the number of devices in the groups at which this mask is true."""
        return float(self.devices[groups].sum())


def _left_by_device(
    device_ids: Integers, budgets: Sequence[BoardBudget], disclosures: Disclosures
) -> tuple[Integers, Integers]:
    """Return what each device has left of its budget (-1: not known), and in which measure.

    The measure is what its ledger counts: EPSILON or RHO.

    A board reports the ledger of its first device. Each other device of the board is taken to have
    had the same budget at first, so that it has left

        left of the first device - (spent by this device - spent by the first device),

    where the reports in the store tell what each has spent. If two boards claim the same device, at
    least one of them is wrong. The larger amount counts, so that a liar cannot stop a run.

    device_ids: in ascending order. budgets: what boards say that devices have spent and have left.
    disclosures: the devices' reports in the store. Amounts are in millionths.
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

    # What each device, and the first device of each board, has spent in either measure.
    members = Members(device_ids)
    spent, spent_by_firsts = {}, {}
    for measure in (EPSILON, RHO):
        spent[measure] = disclosures.prices(device_ids, measure)
        spent_by_firsts[measure] = disclosures.prices(integers(first_devices), measure)
    for number, board in enumerate(boards):
        spent_by_first = spent_by_firsts[board.measure][number]
        indices = members.find(integers(board.devices))
        indices = indices[indices >= 0]  # of the board's devices that are in `device_ids`

        spent_beyond_first = spent[board.measure][indices] - spent_by_first
        whole_budget = board.left + board.spent
        amounts = np.clip(board.left - spent_beyond_first, 0, whole_budget)
        is_larger = amounts > left[indices]  # than what another board said
        left[indices[is_larger]] = amounts[is_larger]
        measures[indices[is_larger]] = board.measure
    return left, measures


def _budgets_without_ids(
    device_ids: Integers, budgets: Sequence[BoardBudget]
) -> Iterator[tuple[float, BoardBudget]]:
    """Yield each budget that was reported without a device id, after how many devices have it.

    A site (a place with several boards) may pass on the budgets of its boards without saying which
    board has which. Then `budget.devices` are all devices of the site, of which `budget.count` have
    this budget. Those that are in `device_ids` are taken to be spread evenly over the site's
    boards, so the number of devices that is yielded may be a fraction.
    """
    # All budgets of a site have the same array of devices, so its identity tells sites apart.
    present: dict[int, int] = {}  # by site, how many of its devices are in `device_ids`
    for budget in budgets:
        names_its_device = budget.first is not None
        if names_its_device or not len(budget.devices):
            continue
        site = id(budget.devices)
        if site not in present:
            present[site] = int(np.count_nonzero(np.isin(device_ids, budget.devices)))
        if present[site] > 0:
            share_present = present[site] / len(budget.devices)
            yield budget.count * share_present, budget


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

    Each device has a privacy budget for life, from which it pays for every report. This raises
    RefusedError if the run exceeds a budget that the user named with --budget, or if fewer than
    half of the devices whose budget is known can pay for all of it. A run that serves a fleet
    has no end, so it is refused only if no device can pay for even one report.

    budgets: what boards say that their devices have left. devices: how many devices can be asked.
    members: the ids of the run's devices. disclosures: their reports in the store from before this
    run. before: the most that those have cost one device, in millionths.
    """
    _require_named_budget(run.accounts, before)
    learner = run.algorithm
    reports_are_free = not learner.designs  # there is no noise, and so no privacy to pay for
    if reports_are_free or not budgets:
        return
    funds = Funds.of(learner, integers(members), budgets, disclosures)  # what devices have left
    if not funds.known_devices:
        return

    is_endless = run.schedule is not None  # it serves the fleet as long as this program runs
    if is_endless:
        nobody_can_pay = not funds.can_pay(_prices(learner, times=1)).any()
        all_are_known = funds.known_devices >= devices
        if nobody_can_pay and all_are_known:
            raise _refusal(run, funds, times=1)
        return

    able_devices = funds.devices_in(funds.can_pay(_prices(learner, learner.times)))
    if able_devices < _LEAST_SHARE * funds.known_devices:
        raise _refusal(run, funds, learner.times)
    if able_devices < funds.known_devices:
        unable = round(funds.known_devices - able_devices)
        known = counted(round(funds.known_devices), "device")
        run.watcher.warn(
            f"{unable:,} of {known} whose budget is known cannot pay for the whole run"
            f"{_affordable_reports(run, funds)}: they refuse the rest"
        )


def _require_named_budget(accounts: Sequence[PrivacyAccount], before: int) -> None:
    """Raise RefusedError if a run, with what was spent before it, exceeds the option --budget.

    accounts: the planned privacy account of each class of devices: what its reports in the run will
    cost, and the budget that the user named (None: no budget). before: the most that a device has
    spent before the run, in millionths.
    """
    for account in accounts:
        cost = before + account.user_level  # of all reports of a device in the run
        if account.budget is not None and cost > account.budget:
            measure = account.measure
            spent_before = f"with the {measure} of {before / MICRO:g} that was spent before"
            raise RefusedError(
                f"{spent_before}, this would cost a client {cost / MICRO:g}, "
                f"more than its budget of {account.budget / MICRO:g}",
                hint=f"use fewer rounds or values, use a smaller {measure}, or raise --budget",
            )


def _prices(learner: Learner, times: int) -> list[list[int | None]]:
    """Return what `times` reports cost a device, by its class and by what its ledger counts.

    A ledger, which keeps the privacy budget of a device, counts either epsilon (pure differential
    privacy) or rho (zero-concentrated differential privacy). So the result has a pair for each
    class of devices: the price in epsilon and the price in rho, both in millionths. None: such a
    ledger cannot pay for these reports.
    """
    prices = []
    for of_class in range(len(learner.designs)):
        in_epsilon = _price(learner, of_class, EPSILON, times)
        in_rho = _price(learner, of_class, RHO, times)
        prices.append([in_epsilon, in_rho])
    return prices


def _price(learner: Learner, of_class: int, measure: int, times: int) -> int | None:
    """Return what `times` reports cost a device whose ledger counts this measure, in millionths.

    of_class: the index of the device's class. measure: EPSILON or RHO. Return None if the ledger
    cannot pay for them: Gaussian noise has no finite price in epsilon.
    """
    release = learner.designs[of_class].release(times)  # the reports, with their prices
    if release.gaussian and measure == EPSILON:
        return None
    release_in_measure = replace(release, measure=measure)
    return release_in_measure.user_level  # the price of all reports together


# In words


@dataclass(frozen=True)
class _Unable:
    """The devices that cannot pay for a number of reports, and the median one among them.

    Half of the devices that cannot pay have as much left as the median one, or less. Amounts are in
    millionths.
    """

    reports: int  # for which they cannot pay
    count: int  # the number of devices that cannot pay
    devices_with_known_budget: int  # whether they can pay or not
    all_have_the_same_left: bool  # whether all that cannot pay have the same amount left

    # About the median one.
    class_of_median: int  # the index of its class of devices
    measure: int  # what its ledger counts, EPSILON or RHO
    left: int  # what remains of its budget
    price: int | None  # of the reports; None: its ledger cannot pay for any such report

    @classmethod
    def of(cls, learner: Learner, funds: Funds, times: int) -> _Unable:
        """Describe the devices that cannot pay for `times` reports each, for an error message.

        The message names their number, and as an example what the median one of them has left.

        funds: what devices have left of their privacy budgets, by groups of devices that have the
        same amount, measure and class. At least one of the groups must be unable to pay.
        """
        prices = _prices(learner, times)
        unable = ~funds.can_pay(prices)  # a mask of groups
        median = _median_group(funds, unable)  # the index of the example's group
        of_class = int(funds.of_class[median])  # devices of a class have reports of the same price
        measure = int(funds.measure[median])  # whether their ledgers count epsilon or rho
        distinct_amounts = np.unique(funds.left[unable])
        return cls(
            reports=times,
            count=round(funds.devices_in(unable)),
            devices_with_known_budget=round(funds.known_devices),
            all_have_the_same_left=len(distinct_amounts) == 1,
            class_of_median=of_class,
            measure=measure,
            left=int(funds.left[median]),
            price=prices[of_class][measure],
        )


def _refusal(run: Run, funds: Funds, times: int) -> RefusedError:
    """Return the error for a run of which too few devices can pay for `times` reports.

    Its text says what the run costs and what devices have left of their privacy budgets, such as
    "this run costs a device epsilon 5, and 8 of the 9 devices whose budget is known cannot pay
    that: half of them have epsilon 2 left, or less". Its hint names options with which the run
    would cost no more than that.

    funds: what the devices have left.
    """
    learner = run.algorithm
    unable = _Unable.of(learner, funds, times)  # those that cannot pay, and a typical one of them
    if unable.price is None:  # their ledgers count epsilon, in which the noise has no price
        reason, remedy = REMEDIES[wire.ERR_MEASURE]
        devices = counted(unable.devices_with_known_budget, "device")
        return RefusedError(f"{unable.count:,} of {devices} cannot pay: {reason}", hint=remedy)

    text = _unaffordable(run, unable, unable.price)
    is_endless = run.schedule is not None  # then fewer reports or rounds cannot be asked for
    if is_endless:
        return RefusedError(text, hint=WHEN_SPENT)
    enough = _reports_for(learner, unable.class_of_median, unable.measure, unable.left)
    if enough is not None:
        text += f", enough for {enough} of its {counted(times, 'report')}"
    hint = WHEN_SPENT
    fitting = _fitting_options(run, unable.left, unable.measure)
    if fitting:
        hint = f"for a run that fits, use {' or '.join(fitting)}; {hint}"
    return RefusedError(text, hint=hint)


def _unaffordable(run: Run, unable: _Unable, price: int) -> str:
    """Say for people what the run costs a device, and what devices have left.

    For instance "this run costs a device epsilon 5, and 8 of the 9 devices whose budget is known
    cannot pay that: half of them have epsilon 2 left, or less".

    unable: the devices that cannot pay, and the median one among them, which is the example. price:
    what the run, or a report of a run without an end, costs the median one, in millionths.
    """
    learner = run.algorithm
    is_endless = run.schedule is not None
    subject = "a report of this run" if is_endless else "this run"
    design = learner.designs[unable.class_of_median]
    noise_is_gaussian = design.release(unable.reports).gaussian
    cost = _cost(price, unable.measure, learner.delta, noise_is_gaussian)
    left = _amount(unable.left, unable.measure, learner.delta)
    if unable.devices_with_known_budget == 1:
        return f"{subject} costs {cost}, and the device has {left} left"

    known = f"{unable.devices_with_known_budget:,} devices whose budget is known"
    text = f"{subject} costs a device {cost}, and {unable.count:,} of the {known} cannot pay that: "
    if unable.all_have_the_same_left:
        return f"{text}they have {left} left"
    return f"{text}half of them have {left} left, or less"


def _median_group(funds: Funds, groups: npt.NDArray[np.bool_]) -> int:
    """Return the index of the group that has the median device, by what devices have left.

    groups: a mask of the groups of `funds` whose devices count.
    """
    indices = np.flatnonzero(groups)
    ascending = indices[np.argsort(funds.left[indices], kind="stable")]
    devices_up_to = np.cumsum(funds.devices[ascending])
    half_of_devices = devices_up_to[-1] / 2
    middle = int(np.searchsorted(devices_up_to, half_of_devices))
    last = len(ascending) - 1
    return int(ascending[min(middle, last)])


def _amount(millionths: int, measure: int, delta: float) -> str:
    """Write an amount of a budget for people, rounded down: nobody is promised too much.

    For instance "epsilon 2", or "rho 0.0243 (epsilon 0.999 at delta 1e-06)". measure: EPSILON or
    RHO. delta: at which a rho is converted to an epsilon.
    """
    words = f"{MEASURES[measure]} {_rounded_down(millionths) / MICRO:g}"
    if measure == RHO and millionths:
        epsilon = _micro_epsilon(millionths, delta)
        words += f" (epsilon {epsilon / MICRO:g} at delta {delta:g})"
    return words


def _micro_epsilon(micro_rho: int, delta: float) -> int:
    """Return the micro-epsilon, rounded down, that a rho keeps at `delta`."""
    return _rounded_down(math.floor(sums.epsilon_of(micro_rho, delta) * MICRO))


def _cost(millionths: int, measure: int, delta: float, gaussian: bool) -> str:
    """Write a price for people, rounded up: nobody is told too little.

    measure: EPSILON or RHO. gaussian: whether the reports have Gaussian noise. Only then a rho is
    what they disclose, and the epsilon that it keeps at `delta` is added.
    """
    unit = _unit_of_last_digit(millionths)
    rounded_up = -(-millionths // unit) * unit  # the negations turn rounding down into rounding up
    words = f"{MEASURES[measure]} {rounded_up / MICRO:g}"
    if measure == RHO and gaussian:
        words += f" (epsilon {rounded(sums.epsilon_of(millionths, delta))} at delta {delta:g})"
    return words


def _reports_for(learner: Learner, of_class: int, measure: int, left: int) -> int | None:
    """Return how many of a run's reports a device can pay for with the rest of its budget.

    Return None where the question makes no sense: the run has only one report, or a device pays for
    all its reports together.

    of_class: the index of the device's class, which decides the price of its reports. measure: what
    its ledger counts, EPSILON or RHO. left: the rest of its budget, in millionths of the measure.
    """
    if learner.times == 1 or _is_paid_as_a_whole(learner, of_class):
        return None
    price = _price(learner, of_class, measure, times=1)
    if price is None:  # its ledger cannot pay for reports with this noise at all
        return 0
    return left // price


def _is_paid_as_a_whole(learner: Learner, of_class: int) -> bool:
    """Return whether devices of a class pay for all reports together, not for each one.

    of_class: the index of the class.
    """
    release = learner.designs[of_class].release(1)
    return release.total > 0  # the price of all reports; 0: each report has a price of its own


def _affordable_reports(run: Run, funds: Funds) -> str:
    """Say how many reports those devices can pay for that cannot pay for the whole run.

    For instance ", only for 3 to 4 of its 5 reports". Return an empty text if a device makes only
    one report in the run, or pays for all of them together.

    funds: what the devices have left of their privacy budgets, by groups of equal devices.
    """
    learner = run.algorithm
    classes = range(len(learner.designs))
    if learner.times == 1 or any(_is_paid_as_a_whole(learner, index) for index in classes):
        return ""
    unable = ~funds.can_pay(_prices(learner, learner.times))  # a mask of groups

    # The smallest and largest number of reports, for each class of devices (which decides the
    # price) and measure (whether their ledgers count epsilon or rho).
    report_counts: list[int] = []
    for of_class, prices_of_class in enumerate(_prices(learner, times=1)):
        for measure, price in enumerate(prices_of_class):
            has_this_price = (funds.of_class == of_class) & (funds.measure == measure)
            left = funds.left[unable & has_this_price]  # in millionths, as the price is
            if not len(left):
                continue
            if price is None:  # these ledgers cannot pay for any report
                report_counts.append(0)
            else:
                report_counts.append(int(left.min()) // price)
                report_counts.append(int(left.max()) // price)
    fewest, most = min(report_counts), max(report_counts)
    span = f"{fewest}"
    if most > fewest:
        span += f" to {most}"
    return f", only for {span} of its {learner.times} reports"


# What would fit


def _fitting_options(run: Run, left: int, measure: int) -> list[str]:
    """Return options with which this run would cost no more than `left`, for the command line.

    For instance ["--rounds 3", "--epsilon 0.5"]; each of them alone is enough. To check that, a
    learner is made with it.

    left: what a device has left of its budget, in millionths. measure: of what: EPSILON or RHO.
    """
    changes: dict[str, Any] = {}  # the new value of each option, by its name
    changes |= _fewer_reports(run, left, measure)
    changes |= _smaller_run_epsilon(run, left, measure)
    changes |= _smaller_epsilon(run, left, measure)
    fitting = []
    for name, value in changes.items():
        if _fits(run, {name: value}, left, measure):
            fitting.append(f"{flag(name)} {value}")
    return fitting


def _fewer_reports(run: Run, left: int, measure: int) -> dict[str, int]:
    """Return the option of the number of reports or rounds, with as many as `left` pays for.

    The result has the option's name and value. It is empty if the run has no such option, or `left`
    does not pay for a report. left: of a device's budget, in millionths of the measure (EPSILON or
    RHO).
    """
    learner, options = run.algorithm, run.options.learning
    # The price for the first class of devices is used; `_fits` checks the other classes later.
    reports = _reports_for(learner, of_class=0, measure=measure, left=left)
    if not reports:
        return {}
    # The user may have given the number of reports of all clients together, with --reports.
    counts_all_reports = bool(getattr(options, "reports", None))
    if counts_all_reports:
        clients = learner.clients or 1
        return {"reports": reports * clients}
    if learner.rounds_option not in names_of(type(options)):
        return {}
    return {learner.rounds_option: reports}


def _smaller_run_epsilon(run: Run, left: int, measure: int) -> dict[str, str]:
    """Return the option `run_epsilon`, with what `left` of a budget allows.

    The result has the option's name and value. It is empty if the run has no such option, if the
    ledger does not count rho, or if too little is left. left: of a device's budget, in millionths
    of the measure (EPSILON or RHO).
    """
    has_option = "run_epsilon" in names_of(type(run.options.learning))
    if not has_option or measure != RHO or not left:
        return {}
    epsilon = _micro_epsilon(left, run.algorithm.delta)
    if epsilon < _LEAST_EPSILON:
        return {}
    return {"run_epsilon": f"{epsilon / MICRO:g}"}


def _smaller_epsilon(run: Run, left: int, measure: int) -> dict[str, str]:
    """Return the option `epsilon` of a report, with what `left` pays for in every round.

    The result has the option's name and value. It is empty if another option decides the run's
    epsilon, or too little is left. left: of a device's budget, in millionths of the measure
    (EPSILON or RHO).
    """
    learner, options = run.algorithm, run.options.learning
    if "epsilon" not in names_of(type(options)):
        return {}
    other_ways = ("epsilons", "card")  # options that decide epsilon instead
    if any(getattr(options, name, None) for name in other_ways):
        return {}
    left_for_report = left // learner.times
    epsilon = _rounded_down(_epsilon_of(left_for_report, measure))
    if epsilon < _LEAST_EPSILON:
        return {}
    return {"epsilon": f"{epsilon / MICRO:g}"}


def _epsilon_of(amount: int, measure: int) -> int:
    """Return the largest micro-epsilon of a report that costs a ledger at most this amount."""
    if measure == EPSILON:
        return int(min(amount, MAX_EPSILON))
    return sums.pure_of(amount)


def _rounded_down(micro: int) -> int:
    """Round a number of millionths down to `_DIGITS` significant digits."""
    unit = _unit_of_last_digit(micro)
    return micro // unit * unit


def _unit_of_last_digit(number: int) -> int:
    """Return the power of ten to whose multiples a number is rounded to keep `_DIGITS` digits."""
    digits_to_drop = max(0, len(str(number)) - _DIGITS)
    return int(10**digits_to_drop)


def _fits(run: Run, change: Mapping[str, Any], left: int, measure: int) -> bool:
    """Return whether the run, with some options changed, would cost no device more than `left`.

    Options with which no learner (the algorithm with its options) can be made do not fit.

    change: the new values of the options, by name. left: what a device has left of its budget, in
    millionths of the measure (EPSILON or RHO).
    """
    stored = run.store.run(run.files.name)  # the run's settings, with its number of devices
    assert stored is not None
    try:
        learning = replace(run.options.learning, **change)
        clients = begin.population(
            run.fleet, schedule=None, store=run.store, devices=stored.asked["devices"]
        )
        learner = ALGORITHMS.named(run.options.algorithm)(learning, clients)
    except TernError:
        return False
    for prices_of_class in _prices(learner, learner.times):
        price = prices_of_class[measure]
        if price is None or price > left:
            return False
    return True
