"""Estimates how many devices a model needs, by runs on simulated fleets of increasing size.

Every device reports once, or in every round for years. It holds one record, or, if it reports once,
as many as the user says. A run trains as `tern train` does, with the
algorithm that it chooses and its defaults (in rounds for years: fedsgd), on the records of a data
set or on synthetic ones. The result is a curve: for each number of devices how good the model is
(its figure, such as its accuracy), and how much that varies between runs. Both depend on the data.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ternhost import datasets
from ternhost.datasets import Selection
from ternhost.datasets.holdings import MOST_RECORDS
from ternhost.datasets.selection import EVERYTHING
from ternhost.errors import UsageError
from ternhost.learn.base import MOST_SIMULATED
from ternhost.learn.models import judging
from ternhost.learn.models.learning import Learning
from ternhost.options import Number, flag, require
from ternhost.planning import lying, quality, records, table, years
from ternhost.planning.cells import Cell, FinishedCells, Row, run_cells
from ternhost.planning.simulation import default, simulate
from ternhost.planning.statistic_options import parse_liars
from ternhost.planning.statistics import enough, rounded_up
from ternhost.planning.whole_devices import MOST_HELD, WholeDevices
from ternhost.planning.years import EquivalentReports, RoundsForYears
from ternhost.privacy.base import parse_epsilon
from ternhost.text import counted

LADDER = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000)
# The same for devices with several records each, as far as the records are not too many.
LADDER_OF_MANY = (10, 20, 50, 100, 200, 500, 1_000)
RUNS = 8
# A model is called useful after this part of the way from the answer that ignores the features to
# the best model without privacy.
MOST_OF_THE_WAY = 0.9
# Fleets with at most so many records that are reported on are simulated together, even if the
# smallest of them would be enough: they take less time than further processes need to start.
_MOST_REPORTS_TOGETHER = 300_000


@dataclass(frozen=True)
class Planned:
    """The options of a simulation: the records, the model, and the epsilon of a report.

    - epsilon: that of a report, as text
    - data, selection: the records, as of `records.load`
    - records: how many of them each device holds; None for one
    - model: the name of the model; None for the one that suits the labels
    - goal: the figure that the user wants to reach, such as an accuracy; None for none
    - devices: the numbers of devices to try
    - ends_early: whether larger numbers are left out once all goals are surely reached
    - runs: how often training is repeated for each of these numbers
    - seed: that of the first run; the others count on from it
    - workers: as in `run_cells`
    - rounds: the rounds that each device answers, whose cost replaces epsilon; None for one report
    - liars: the share of the devices that lie, of devices that report once; None for none

    Raises UsageError for an option that makes no sense.
    """

    epsilon: str
    data: str = "synthetic-logistic"
    model: str | None = None
    goal: float | None = None
    devices: tuple[int, ...] = LADDER
    ends_early: bool = False
    runs: int = RUNS
    seed: int = 1
    workers: int | None = None
    rounds: RoundsForYears | None = None
    selection: Selection = EVERYTHING
    records: int | None = None
    liars: Number | None = None

    @property
    def share_of_liars(self) -> Fraction | None:
        """The share of the devices that lie; None if all are honest. Raises UsageError."""
        if self.liars is None:
            return None
        return parse_liars(self.liars)

    @property
    def most_records(self) -> int:
        """How many records each device holds."""
        return self.records or 1

    def __post_init__(self) -> None:
        """Raise UsageError for numbers that are out of bounds."""
        parse_epsilon(self.epsilon)
        if self.share_of_liars and self.rounds is not None:
            text = "liars would change nothing: rounds for years are simulated by other reports"
            raise UsageError(text, "leave it out")
        in_order = 1 <= self.most_records <= MOST_RECORDS
        require(in_order, "records", f"1 to {MOST_RECORDS}", self.records)
        require(self.runs >= 2, "runs", "2 or more", self.runs)
        for option in ("by", "time"):
            if getattr(self.selection, option):
                text = f"{flag(option)} would change nothing: new devices are dealt their records"
                hint = "to plan for the devices of the table, use --run-epsilon; or leave it out"
                raise UsageError(text, hint)
        require(self.seed >= 0, "seed", "0 or more", self.seed)
        least = min(self.devices, default=0)
        require(least >= 1, "devices", "numbers of 1 or more", least)
        most = max(self.devices)
        must = f"numbers of {MOST_SIMULATED:,} or less"
        require(most <= MOST_SIMULATED, "devices", must, f"{most:,}")
        if self.most_records > 1:
            most_devices = MOST_HELD // self.most_records
            must = f"numbers of {most_devices:,} or less with --records {self.records}"
            require(most <= most_devices, "devices", must, f"{most:,}")
            if self.rounds is not None:
                text = "records would change nothing: rounds for years are for a record each"
                raise UsageError(text, "leave it out")


def ladder_of(number_of_records: int | None) -> tuple[int, ...]:
    """Return the numbers of devices to try, by the number of records of each; None for one."""
    if number_of_records is None or number_of_records <= 1:
        return LADDER
    most = MOST_HELD // number_of_records
    return tuple(devices for devices in LADDER_OF_MANY if devices <= most)


def _learned(
    planned: Planned,
    model: str,
    simulated: Mapping[int, EquivalentReports],
    devices: int,
    seed: int,
) -> list[Row]:
    """Train once, and return one row that says how good the model is (`quality.of_model`).

    devices: how many report. simulated: for each number of devices, the reports that stand
    for those of years (`RoundsForYears.fewer_equivalent_reports`); empty if each device reports once.
    """
    learner: Learning
    if simulated:
        data, _ = records.load(planned.data, model, planned.selection)
        learner = simulated[devices].learner(data.without_owners(), model, devices, seed)
    else:
        learner = _learner(planned, model, devices, seed)
    return [{"devices": devices, **quality.of_learner(simulate(learner, seed))}]


def _learner(planned: Planned, model: str, devices: int, seed: int) -> Learning:
    """Return the learner for devices that report once, before its first round.

    model: its name. devices: how many report. seed: that of the run.
    """
    data, _ = records.load(planned.data, model, planned.selection)
    data = data.without_owners()  # any number of devices is dealt records
    if planned.most_records > 1:
        return _whole_devices(planned, devices).learner(data, model, seed)
    return default(data, devices, seed, model, planned.epsilon)


def _first_rounds(
    planned: Planned, model: str, curve: Sequence[Row]
) -> list[dict[str, Any]] | None:
    """Return what liars can do in the first round, for each point of the curve; None without liars.

    model: its name.
    """
    share = planned.share_of_liars
    if share is None:
        return None
    rows = []
    for point in curve:
        devices = point["devices"]
        learner = _learner(planned, model, devices, planned.seed)
        row = {"devices": devices}
        rows.append({**row, **(lying.first_round(learner, planned.seed, share) or {})})
    return rows


def _whole_devices(planned: Planned, devices: int) -> WholeDevices:
    """Return so many devices with several records each, whose single report protects them all."""
    selection = planned.selection
    further = (("data", planned.data), ("held_out", selection.held_out))
    return WholeDevices(
        devices=devices,
        records=planned.most_records,
        epsilon=parse_epsilon(planned.epsilon),
        options=further,
    )


def plan(
    planned: Planned, progress: Callable[[str], None] = lambda message: None
) -> dict[str, Any]:
    """Train on fleets of increasing size; return the result for JSON and `text_lines`.

    It says how good the model is (its figure, such as its accuracy) by the number of devices, and
    how many devices are needed for which figure. progress: called with a line of text after each
    part of the work. Raises UsageError.
    """
    data, model = records.load(planned.data, planned.model, planned.selection)
    measure = judging.measure(data)
    _require_reachable(planned.goal, measure)

    rounds = planned.rounds
    costs_of_rounds = None
    simulated: dict[int, EquivalentReports] = {}
    if rounds is not None:
        costs_of_rounds = rounds.cost_summary(data, model)
        for devices in set(planned.devices):
            simulated[devices] = rounds.fewer_equivalent_reports(data, model, devices)

    no_features = quality.of_baseline(data, model)
    baseline = no_features["figure"]
    facts = records.facts(data, model)
    most_of_the_way = baseline + MOST_OF_THE_WAY * (facts["optimum"] - baseline)
    # The baseline, which ignores the features, is beaten where even the worse end of the interval
    # is better than it.
    larger_is_better = judging.is_better(measure, 1, 0)
    sign, worse_bound = -1, "high"
    if larger_is_better:
        sign, worse_bound = 1, "low"
    goals = [baseline, most_of_the_way]
    if planned.goal is not None:
        goals.append(planned.goal)

    def is_decided(curve: Sequence[Row]) -> bool:
        """Whether the last fleet reaches all goals, even by the worse end of its interval."""
        worse_end = curve[-1][worse_bound]
        return all(sign * (goal - worse_end) <= 0 for goal in goals)

    curve = _curve(planned, model, simulated, measure, is_decided, progress)
    goal = None
    if planned.goal is not None:
        goal = reached(curve, planned.goal, sign)
    held = curve[-1]["devices"] * planned.most_records
    devices_of_table = None
    if data.owners is not None:
        devices_of_table = records.owner_count(data)
    return {
        "data": planned.data,
        "d": data.dimension,
        "devices_of_table": devices_of_table,
        "records": planned.most_records,
        "model": model,
        "epsilon": float(planned.epsilon),
        "rounds": costs_of_rounds,
        "measure": measure,
        **quality.of_reference(no_features, "baseline"),
        **facts,
        "held": held,
        "distinct": min(held, facts["available"]),
        "runs": planned.runs,
        "curve": curve,
        "beats_baseline": _needed(curve, baseline, sign, worse_bound),
        "most_of_the_way": reached(curve, most_of_the_way, sign),
        "goal": goal,
        "liars": float(planned.share_of_liars) if planned.share_of_liars else None,
        "first_rounds": _first_rounds(planned, model, curve),
    }


def _require_reachable(goal: float | None, measure: str) -> None:
    """Raise UsageError for a goal that is outside of the range of this measure."""
    if goal is None:
        return
    lowest, highest = judging.limits(measure)
    limits = f"{lowest:g} to {highest:g}"
    if math.isinf(highest):
        limits = f"{lowest:g} or more"
    must = f"{limits}, the range of {judging.WORDS[measure]}"
    require(lowest <= goal <= highest, "goal", must, goal)


def _curve(
    planned: Planned,
    model: str,
    simulated: Mapping[int, EquivalentReports],
    measure: str,
    is_decided: Callable[[Sequence[Row]], bool],
    progress: Callable[[str], None],
) -> list[Row]:
    """Return how good the models of several runs are by number of devices, ascending.

    Each row has the number of devices, and what `quality.of_runs` returns. model: its name.
    simulated: as in `_learned`. measure: that of the figure. is_decided: whether a curve so far
    leaves no question open, so that larger fleets can be left out. progress: as in `plan`.
    """
    curve: list[Row] = []
    for ladder in _ladders(planned, simulated):
        curve += _points(planned, model, simulated, measure, ladder, progress)
        if is_decided(curve):
            break
    return curve


def _ladders(planned: Planned, simulated: Mapping[int, EquivalentReports]) -> list[list[int]]:
    """Return the numbers of devices to try, ascending, in groups that are simulated together.

    There is one group, unless the plan may end early. simulated: as in `_learned`.
    """
    ladder = sorted(set(planned.devices))
    if not planned.ends_early:
        return [ladder]
    together = []
    one_by_one = []
    for devices in ladder:
        if _reports(planned, simulated, devices) <= _MOST_REPORTS_TOGETHER:
            together.append(devices)
        else:
            one_by_one.append([devices])
    return [group for group in (together, *one_by_one) if group]


def _reports(planned: Planned, simulated: Mapping[int, EquivalentReports], devices: int) -> int:
    """Return how many records are reported on in a run of so many devices.

    simulated: as in `_learned`.
    """
    if simulated:
        return simulated[devices].count
    return devices * planned.most_records


def _points(
    planned: Planned,
    model: str,
    simulated: Mapping[int, EquivalentReports],
    measure: str,
    ladder: Sequence[int],
    progress: Callable[[str], None],
) -> list[Row]:
    """Return the part of the curve that is about the numbers of devices in `ladder`.

    Other parameters as of `_curve`.
    """
    common = {"planned": planned, "model": model, "simulated": simulated}
    seeds = range(planned.seed, planned.seed + planned.runs)

    def cost(devices: int, seed: int) -> float:
        """Return the relative duration of a run, which the seed does not change."""
        # A run takes some time even with few reports.
        return 1e4 + _reports(planned, simulated, devices)

    cells = Cell.for_each_combination(
        table="curve", work=_learned, common=common, cost=cost, devices=ladder, seed=seeds
    )
    only_in_memory = FinishedCells(None, options={})
    rows = run_cells(cells, only_in_memory, progress, planned.workers)["curve"]
    curve: list[Row] = []
    for devices in ladder:
        models = [row for row in rows if row["devices"] == devices]
        point = {"devices": devices, **quality.of_runs(models, measure)}
        if simulated:
            equivalent = simulated[devices]
            point["simulated"] = {
                "epsilon": float(equivalent.epsilon),
                "reports": equivalent.count,
            }
        curve.append(point)
    return curve


def reached(curve: Sequence[Row], goal: float, sign: int) -> dict[str, Any]:
    """Return how many devices a goal needs, by the curve's mean and by both ends of its interval.

    goal: how good the model shall be, such as an accuracy. curve: how good it is by the number of
    devices, with an interval. sign: 1 if a larger figure is better, else -1. The result has the
    number by the mean ("devices"), and by the better and the worse end of the interval ("least" and
    "most"). A number is None if the goal needs more devices than were tried.
    """
    better, worse = "low", "high"
    if sign > 0:
        better, worse = "high", "low"
    return {
        "figure": goal,
        "devices": _needed(curve, goal, sign, "mean"),
        "least": _needed(curve, goal, sign, better),
        "most": _needed(curve, goal, sign, worse),
    }


def _needed(curve: Sequence[Row], goal: float, sign: int, column: str) -> int | None:
    """Return how many devices a goal needs by a column of the curve, rounded up to two digits.

    curve, goal, sign: as in `reached`. column: "mean", "low" or "high". Returns None if it needs
    more devices than were tried.
    """
    devices = []
    shortfalls = []  # by how much each point of the curve misses the goal
    for row in curve:
        devices.append(row["devices"])
        shortfalls.append(sign * (goal - row[column]))
    needed = enough(devices, shortfalls)
    if needed is None:
        return None
    if needed <= devices[0]:
        return int(devices[0])
    return rounded_up(needed)


def text_lines(result: dict[str, Any]) -> list[str]:
    """Return the result of `plan` as lines of text: a table by devices, then an answer."""
    lines = _heading_lines(result)
    for row in result["curve"]:
        lines.append(table.line_of_runs(result, f"{row['devices']:,}", row))
    lines += [
        table.line_of_optimum(result),
        table.line_of_baseline(result),
        f"  from {counted(result['distinct'], 'different record')}, judged on {result['judged']:,} others",
        *table.explanation(result),
    ]
    if result["liars"]:
        lines += lying.text_lines(result["first_rounds"], result["liars"])
    return [*lines, *_answer_lines(result), *_doubts(result)]


def _heading_lines(result: Mapping[str, Any]) -> list[str]:
    """Return the first lines: what the rounds cost, the model and its data, the head of the table."""
    rounds = result["rounds"]
    lines: list[str] = []
    if rounds:
        epsilons = sorted({row["simulated"]["epsilon"] for row in result["curve"]})
        lines += years.text_lines(rounds, epsilons)
        frequency = f"a round by a ledger in rho, and {counted(rounds['rounds'], 'round')}"
    else:
        of_records = "one record"
        if result["records"] > 1:
            of_records = counted(result["records"], "record")
        frequency = f"for each new device, which holds {of_records} and reports once"
    return [
        *lines,
        f"{result['model']} model of {_data_in_words(result)},",
        f"epsilon {result['epsilon']:.8g} {frequency}:",
        *table.heading(result, "devices"),
    ]


def _data_in_words(result: Mapping[str, Any]) -> str:
    """Return which records the plan has used, and how many features they have, for people."""
    if datasets.on_devices.parse(result["data"]) is not None:
        return (
            f"synthetic records of {result['d']} features (yours may need more devices, or fewer)"
        )
    return f"{records.in_words(result['data'])} ({result['d']} features)"


def _answer_lines(result: Mapping[str, Any]) -> list[str]:
    """Return how many devices the goal of the user needs, or else two usual goals, in sentences."""
    curve = result["curve"]
    first, last = curve[0]["devices"], curve[-1]["devices"]
    if result["goal"]:
        return [_answer(result, first, last)]
    figure = judging.WORDS[result["measure"]]
    trivial = judging.TRIVIAL[result["measure"]]
    if trivial != "guessing":
        trivial = f"the {trivial}"
    beats = _from(result["beats_baseline"], first, last)
    way = result["most_of_the_way"]
    reaches = f"{_from(way['devices'], first, last)}{_between(way, first, last)}"
    return [
        f"It beats {trivial} by more than noise {beats}.",
        f"It reaches {figure} {way['figure']:.4f}, {100 * MOST_OF_THE_WAY:.0f} % of the way to the "
        f"model without privacy, {reaches}.",
    ]


def _doubts(result: Mapping[str, Any]) -> list[str]:
    """Return sentences on what is bad about the models, and on what else the plan may not tell."""
    doubts = [
        *table.warnings(result, result["curve"], _with_devices),
        *records.doubts(result),
    ]
    if result["devices_of_table"] and not result["rounds"]:
        devices_of_table = counted(result["devices_of_table"], "device")
        doubts.append(f"To plan for the {devices_of_table} of the table, add --run-epsilon.")
    return doubts


def _with_devices(rows: Sequence[Row]) -> str:
    """Return the beginning of a sentence that is about the devices of some rows of the curve."""
    *others, last = [f"{row['devices']:,}" for row in rows]
    if others:
        return f"With {', '.join(others)} and {last} devices"
    return f"With {counted(rows[0]['devices'], 'device')}"


def _answer(result: Mapping[str, Any], first: int, last: int) -> str:
    """Return a sentence on how many devices reach the goal of the user.

    result: that of `plan`. first, last: the least and the largest number of devices that were
    tried.
    """
    goal, measure, optimum = result["goal"], result["measure"], result["optimum"]
    figure = f"{judging.WORDS[measure]} {goal['figure']:g}"
    if judging.is_better(measure, goal["figure"], optimum):
        return (
            f"No number of devices is known to give {figure}: without privacy, and with all "
            f"records, this model has {optimum:.4f}."
        )
    devices = goal["devices"]
    if devices is None:
        return f"You need more than {counted(last, 'device')} for {figure}."
    number = f"about {counted(devices, 'device')}"
    if devices <= first:
        number = f"at most {counted(devices, 'device')}"
    return f"You need {number} for {figure}{_between(goal, first, last)}."


def _from(devices: int | None, first: int, last: int) -> str:
    """Say from how many devices on something holds.

    devices: that number; None if it is more than `last`. first, last: the least and the largest
    number of devices that were tried.
    """
    if devices is None:
        return f"with more than {counted(last, 'device')}, if at all"
    if devices <= first:
        return f"already with {counted(devices, 'device')}, the fewest that were tried"
    return f"with about {counted(devices, 'device')} or more"


def _between(needed: Row, first: int, last: int) -> str:
    """Return the interval of the number of devices in words, in parentheses.

    needed: the result of `reached`. first, last: the least and the largest number of devices that
    were tried. The text is empty if the first of them is enough, or the last one is not.
    """
    if needed["devices"] is None or needed["devices"] <= first:
        return ""
    most = f"more than {last:,}"
    if needed["most"] is not None:
        most = f"{needed['most']:,}"
    return f" (between {needed['least']:,} and {most}, by the 95 % interval of the mean)"
