"""Plans: how many devices a good model needs, or what a fleet can learn, by simulation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ternhost.api import arguments
from ternhost.api import data as records
from ternhost.api.frames import frame
from ternhost.api.json_object import JsonObject
from ternhost.errors import UsageError
from ternhost.learn import fedsum
from ternhost.learn.designs import BudgetOptions
from ternhost.learn.learning import ModelOptions
from ternhost.options import Option, OptionGroup, options_of, shown
from ternhost.planning import existing, one_report, pictures, side_by_side, years
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
        """
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
        units of privacy; its bars are standard errors.
        """
        return pictures.figure(self._json)

    def __repr__(self) -> str:
        return "\n".join(self.lines)


def plan(
    learner: OptionGroup,
    devices: int | Sequence[int] | None = None,
    *,
    data: AnyData | None = None,
    rounds: RoundsForYears | None = None,
    goal: float | None = None,
    epsilons: bool = False,
    runs: int = one_report.RUNS,
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
    - goal: an accuracy, AUC or mean squared error whose number of devices is wanted
    - epsilons: whether a fleet that exists is also simulated with a quarter, half and twice the
      epsilon, which `plot` then shows
    - runs: for each number of devices; workers: processes, None: one for each core
    - on_progress: called with a line of text after each part of the work

    Raises UsageError.
    """
    tell: Any = on_progress  # what a program without type checks may have handed over
    if on_progress is None:
        tell = _ignore
    run_count = arguments.whole(runs, "runs")
    if workers is not None:
        workers = arguments.whole(workers, "workers")
        if workers < 1:
            raise UsageError(f"workers must be 1 or more, not {workers}")
    if not callable(tell):
        raise UsageError("on_progress must be a function")
    if rounds is not None and not isinstance(rounds, RoundsForYears):
        raise UsageError("rounds must be RoundsForYears, such as RoundsForYears(2, '1h')")
    learner = records.replaced(learner, data)
    if isinstance(learner, fedsum.Options):
        _refuse_of_new_devices(goal, rounds)
        count = None
        if devices is not None:
            count = arguments.whole(devices, "devices")  # type: ignore[arg-type]
        fleet = existing.Existing(count, learner, runs=run_count, workers=workers)
        result = existing.plan(fleet, tell, epsilons=epsilons)
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
        goal=_GOAL.normalised(goal),
        devices=_numbers(devices, numbers_to_try),
        runs=run_count,
        workers=workers,
    )
    result = one_report.plan(planned, tell)
    return PlanResult(tuple(one_report.text_lines(result)), result)


def _refuse_of_new_devices(goal: float | None, rounds: RoundsForYears | None) -> None:
    """Raise UsageError for a goal or for rounds, which a fleet that exists does not have."""
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
