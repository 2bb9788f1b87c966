"""Plans: how many devices a good model needs, what a fleet can learn, how exact a statistic is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ternhost.api import arguments
from ternhost.api import data as records
from ternhost.api.frames import frame
from ternhost.api.json_object import JsonObject
from ternhost.errors import UsageError
from ternhost.learn.designs import BudgetOptions
from ternhost.learn.models.learning import ModelOptions
from ternhost.learn.sums import fedsum
from ternhost.options import Number, Option, OptionGroup, options_of, shown
from ternhost.planning import (
    existing_plan,
    one_report,
    pictures,
    side_by_side,
    statistic_options,
    statistic_plan,
    years,
)
from ternhost.planning.existing import Existing
from ternhost.planning.years import RoundsForYears
from ternhost.privacy.units import name_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from ternhost.api.data import AnyData

_GOAL = Option("goal", "", type=float)
# What a plan for new devices takes of a learner.
_RECORDS = ("by", "time", "held_out")
_FROM_LEARNER = ("data", *_RECORDS, "records", "model", "seed", "epsilon")


@dataclass(frozen=True, eq=False, repr=False)
class PlanResult(JsonObject):
    """What a plan has found. As a mapping it has what `tern plan --json` prints."""

    lines: Sequence[str]  # for people
    _json: Mapping[str, Any] = field(repr=False)

    def to_frame(self) -> pd.DataFrame:
        """Return the quality of the model by the number of devices, or of rounds. Needs pandas.

        The columns "mean", "standard_error", "low" and "high" are the mean of the main figure over
        the runs, and its 95 % interval. A single run lies between "run_low" and "run_high" (98 %).
        The columns of the log-loss are named like these, such as "log_loss_mean". A fleet that
        exists has rows for both units of privacy, which the column "unit" names.

        The table of a statistic has a row for each attribute, statistic, assumed distribution and
        number of devices. "half" is half the length of the 95 % interval, in shares of the range or
        as a difference of shares, and "moved" how far liars can move the estimate.
        """
        if "statistic" in self:
            return frame(_rows_of_statistic(self._json))
        if "units" not in self:
            return frame(self["curve"])
        rows = []
        for unit in self["units"]:
            for row in unit["curve"]:
                rows.append({"unit": name_of(unit["unit"]), **row})
        return frame(rows)

    def plot(self) -> Figure:
        """Draw the quality of the model by the number of devices, of rounds, or by epsilon.

        There is a panel for the main figure, such as the AUC, and one for the log-loss if the model
        has one. A point is the mean of the simulated runs, and its bar the interval in which a
        single run lies. A plan with `epsilons` is drawn by the epsilon of a device's life, for both
        units of privacy; its bars are standard errors. A plan for a statistic has a panel for each
        attribute or assumed distribution: half the length of the interval by the number of devices.
        """
        return pictures.figure(self._json)

    def __repr__(self) -> str:
        return "\n".join(self.lines)


@dataclass(frozen=True)
class Statistic(statistic_options.Options):
    """A statistic to plan for, instead of a model.

    - statistic: mean, share (the shares of categories), quantile or histogram
    - data: a table with values like those of the devices; by default the plan assumes
      distributions, and its result says which
    - quantiles: of a quantile, such as "median,p90,p99" or [0.5, 0.9]
    - attributes: of a quantile or histogram, which numbers of the table are collected; all by default
    - bins: of a quantile or histogram, the finest bins; None: as `tern collect` chooses for a
      quantile, and 16 for a histogram
    - categories: of a share without a table, how many there are; None: 2
    - epsilon: of the only report of a device
    - unit: what is protected: "device", "record", or a number of records in a row
    - run_epsilon, delta, records: of devices that sum over so many records, where the unit is not
      the device: what the run spends, and on how many records
    - goal: half the length of an interval whose number of devices is wanted, as a share
    - liars: the share of the devices that report whatever they like; None: all are honest
    - runs: how many estimates are simulated; None: 100, or 8 of records. Means and shares of devices
      follow from the cards
    - seed: of the simulation
    - by, time, clients, publish: not used by plans

    Raises UsageError for values that make no sense, alone or together.
    """


def plan(
    learner: OptionGroup,
    devices: int | Sequence[int] | None = None,
    *,
    data: AnyData | None = None,
    rounds: RoundsForYears | None = None,
    goal: float | None = None,
    epsilons: bool = False,
    liars: Number | None = None,
    runs: int | None = None,
    workers: int | None = None,
    on_progress: Callable[[str], None] | None = None,
) -> PlanResult:
    """Estimate by simulation what devices can learn, as `tern plan` does.

    - learner: `FedSGD` or `Direct`, of which only the records (data, by, time, held_out, and their
      number on a device), model, seed and epsilon count: how good is the model by the number of
      devices, each of which reports once? Or `FedSum` for a fleet that exists: how good is it, if
      that protects parts of the records of a device, or the whole device?
    - devices: the numbers to try; of a fleet that exists, its number, which may be left out if
      the data say which device holds which records
    - data: the records, as of `train`; None: the learner's
    - rounds: rounds for years, which each device answers instead of reporting once; the epsilon of
      a report then follows from theirs, and the learner states none
    - goal: an accuracy, AUC or mean squared error whose number of devices is wanted; a `Statistic`
      has one of its own
    - epsilons: whether a fleet that exists is also simulated with a quarter, half and twice the
      epsilon, which `plot` then shows
    - liars: the share of devices that report whatever they like, for new devices; None: nobody lies
    - runs: for each number of devices, None: 8; workers: processes, None: one for each core
    - on_progress: called with a line of text after each part of the work

    Raises UsageError.
    """
    tell: Any = on_progress  # what a program without type checks may have handed over
    if on_progress is None:
        tell = _ignore
    run_count = _run_count(runs)
    if workers is not None:
        workers = arguments.whole(workers, "workers")
        if workers < 1:
            raise UsageError(f"workers must be 1 or more, not {workers}")
    if not callable(tell):
        raise UsageError("on_progress must be a function")
    if rounds is not None and not isinstance(rounds, RoundsForYears):
        raise UsageError("rounds must be RoundsForYears, such as RoundsForYears(2, '1h')")
    learner = records.replaced(learner, data)
    if isinstance(learner, statistic_options.Options):
        of_models = {
            "rounds": rounds,
            "goal": goal,
            "liars": liars,
            "runs": runs,
            "workers": workers,
        }
        return _of_statistic(learner, devices, {**of_models, "epsilons": epsilons or None}, tell)
    if isinstance(learner, fedsum.Options):
        _refuse_of_new_devices(goal, rounds, liars)
        count = None
        if devices is not None:
            count = arguments.whole(devices, "devices")  # type: ignore[arg-type]
        fleet = Existing(count, learner, runs=run_count, workers=workers)
        result = existing_plan.plan(fleet, tell, epsilons=epsilons)
        return PlanResult(tuple(side_by_side.text_lines(result)), result)

    if epsilons:
        text = "only a plan for a fleet that exists has several epsilons"
        raise UsageError(text, "give FedSum, or leave epsilons out")
    values = _of_learner(learner)
    numbers_to_try = one_report.ladder_of(values["records"])
    if rounds is not None:
        if values["epsilon"] != _default(learner, "epsilon"):
            text = "with rounds for years the epsilon of a report follows from their run_epsilon"
            raise UsageError(text, "leave the learner's epsilon out")
        values["epsilon"] = rounds.epsilon
        numbers_to_try = years.LADDER
    planned = one_report.Planned(
        **values,
        rounds=rounds,
        liars=liars,
        goal=_GOAL.normalised(goal),
        devices=_numbers(devices, numbers_to_try),
        ends_early=devices is None,
        runs=run_count,
        workers=workers,
    )
    result = one_report.plan(planned, tell)
    return PlanResult(tuple(one_report.text_lines(result)), result)


def _run_count(runs: int | None) -> int:
    """Return how often a training is simulated. Raises UsageError."""
    if runs is None:
        return one_report.RUNS
    return arguments.whole(runs, "runs")


def _of_statistic(
    options: statistic_options.Options,
    devices: int | Sequence[int] | None,
    of_models: Mapping[str, Any],
    tell: Callable[[str], None],
) -> PlanResult:
    """Plan for a statistic; arguments as of `plan`.

    of_models: by name what only plans for models have, None for what is not given. Raises
    UsageError.
    """
    for name, value in of_models.items():
        if value is not None:
            text = f"a plan for a statistic takes no {name} beside it"
            raise UsageError(text, "give it to Statistic if that has it, or leave it out")
    numbers = options.checked_devices(_numbers(devices, options.ladder))
    result = statistic_plan.plan(options, numbers, tell)
    return PlanResult(tuple(statistic_plan.text_lines(result)), result)


def _rows_of_statistic(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of a plan for a statistic, with what each estimate is about."""
    rows = []
    for estimate in result["estimates"]:
        for row in estimate["curve"]:
            rows.append({"name": estimate["name"], "assumed": estimate["assumed"], **row})
    return rows


def _refuse_of_new_devices(
    goal: float | None, rounds: RoundsForYears | None, liars: Number | None
) -> None:
    """Raise UsageError for what a fleet that exists does not have: a goal, rounds or liars."""
    if liars is not None:
        raise UsageError("a plan for a fleet that exists has no bound for liars", "leave liars out")
    if goal is not None:
        raise UsageError("a plan for a fleet that exists has no goal", "leave goal out")
    if rounds is not None:
        text = "a plan for a fleet that exists has no rounds for years"
        raise UsageError(text, "give FedSGD or Direct, or leave rounds out")


def _ignore(_message: str) -> None:
    """Do nothing with a line about progress."""


def _of_learner(learner: OptionGroup) -> dict[str, Any]:
    """Return what a plan for new devices takes of a learner. Raises UsageError for another one."""
    if not (isinstance(learner, BudgetOptions) and isinstance(learner, ModelOptions)):
        text = f"there is no plan for {type(learner).__name__}"
        raise UsageError(text, "give FedSGD or Direct, or FedSum for a fleet that exists")
    for option in options_of(learner):
        value = getattr(learner, option.name)
        if option.name not in _FROM_LEARNER and value != option.default:
            text = f"a plan takes no {option.name} of its learner"
            raise UsageError(text, f"it takes {', '.join(_FROM_LEARNER)}")
    values = {name: getattr(learner, name) for name in _FROM_LEARNER if name not in _RECORDS}
    values["model"] = values["model"] or None
    values["selection"] = learner.selection
    return values


def _default(learner: OptionGroup, name: str) -> Any:
    """Return the default of an option of a learner."""
    return next(option.default for option in options_of(learner) if option.name == name)


def _numbers(devices: int | Sequence[int] | None, usual: tuple[int, ...]) -> tuple[int, ...]:
    """Return the numbers of devices to try. Raises UsageError for anything else.

    usual: what None stands for.
    """
    if devices is None:
        return usual
    if isinstance(devices, Sequence) and not isinstance(devices, str | bytes):
        return tuple(arguments.whole(number, "devices") for number in devices)
    if not hasattr(devices, "__index__"):
        raise UsageError(f"devices must be whole numbers, not {shown(devices)}")
    return (arguments.whole(devices, "devices"),)  # type: ignore[arg-type]
