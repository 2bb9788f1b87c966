"""How many devices a model needs: several runs on simulated fleets of increasing size.

Every device reports once, or in all rounds of years. A run trains as `tern train` does, with the
algorithm that it chooses and its defaults (in rounds of years: fedsgd), on the records of a data
set or on synthetic ones. The curve shows the figure of a run and how much it varies between runs;
both depend on the data.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ternhost import datasets
from ternhost.datasets import Dataset, synthetic
from ternhost.datasets.own import own
from ternhost.errors import UsageError
from ternhost.learn import judging
from ternhost.learn.base import MOST_SIMULATED
from ternhost.learn.learning import Learning
from ternhost.learn.parameters import MODELS, SUITED
from ternhost.options import require
from ternhost.planning import years
from ternhost.planning.cells import Cell, Kept, Row, tables
from ternhost.planning.simulation import default, figure_of, optimal_figures, sgd, simulate
from ternhost.planning.statistics import enough, interval
from ternhost.planning.years import Lasting
from ternhost.privacy.base import parse_epsilon
from ternhost.text import counted

LADDER = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000)
RUNS = 8
MOST_OF_THE_WAY = 0.9  # from the answer that ignores the features to the optimum


@dataclass(frozen=True)
class Planned:
    """A simulation: a data set, or synthetic records of `dimension` features; the model and epsilon
    of a report.

    model: None for the one that suits the labels. goal: for the most informative figure of the data
    set. reports: the numbers of devices to try. runs: for each of them. rounds: those that each
    device answers, at a cost that replaces epsilon; None for one report. Raises UsageError for an
    option that makes no sense.
    """

    epsilon: str
    dataset: str = "synthetic-logistic"
    dimension: int | None = None
    model: str | None = None
    goal: float | None = None
    reports: tuple[int, ...] = LADDER
    runs: int = RUNS
    seed: int = 1
    workers: int | None = None
    rounds: Lasting | None = None

    def __post_init__(self) -> None:
        parse_epsilon(self.epsilon)
        require(self.runs >= 2, "runs", "2 or more", self.runs)
        require(self.seed >= 0, "seed", "0 or more", self.seed)
        least = min(self.reports, default=0)
        require(least >= 1, "reports", "numbers of 1 or more", least)
        most = max(self.reports)
        require(
            most <= MOST_SIMULATED, "reports", f"numbers of {MOST_SIMULATED:,} or less", f"{most:,}"
        )


@lru_cache(maxsize=2)
def data_of(dataset: str, dimension: int | None, model: str | None, path: str = "") -> Dataset:
    """A data set; synthetic records of this dimension; or those in a file. Raises UsageError."""
    if path:
        return own(Path(path), classes=model == "softmax")
    if dimension is None:
        return datasets.load(dataset, classes=model == "softmax")
    if model == "softmax":
        raise UsageError(
            "synthetic records have two classes", hint="name a --dataset for --model softmax"
        )
    return synthetic.linear(d=dimension) if model == "linear" else synthetic.logistic(d=dimension)


def _learned(
    dataset: str,
    dimension: int | None,
    model: str,
    epsilon: str,
    simulated: Mapping[int, tuple[str, int]],
    reports: int,
    seed: int,
) -> list[Row]:
    data = data_of(dataset, dimension, model)
    learner: Learning
    if simulated:
        epsilon, number = simulated[reports]
        learner = sgd(data, number, seed, clients=reports, group=0, model=model, epsilon=epsilon)
    else:
        learner = default(data, reports, seed, model, epsilon)
    return [{"reports": reports, "figure": figure_of(simulate(learner, seed))}]


def plan(
    planned: Planned, progress: Callable[[str], None] = lambda message: None
) -> dict[str, Any]:
    """The figure of the model by number of devices, and how many devices reach which figure.

    Raises UsageError.
    """
    data = data_of(planned.dataset, planned.dimension, planned.model)
    model, ladder = planned.model or SUITED[data.task], sorted(set(planned.reports))
    name = judging.measure(data)
    lowest, highest = judging.limits(name)
    if planned.goal is not None:
        limits = f"{lowest:g} or more" if math.isinf(highest) else f"{lowest:g} to {highest:g}"
        must = f"{limits}, the range of {judging.WORDS[name]}"
        require(lowest <= planned.goal <= highest, "goal", must, planned.goal)
    rounds = planned.rounds
    reckoned = rounds and rounds.reckoned(data, model)
    simulated = {n: rounds.simulated(data, model, n) for n in ladder} if rounds else {}
    common = {name: getattr(planned, name) for name in ("dataset", "dimension", "epsilon")}
    common |= {"model": model, "simulated": simulated}
    seeds = range(planned.seed, planned.seed + planned.runs)
    choices = {"reports": ladder, "seed": seeds}
    number = {n: simulated[n][1] if simulated else n for n in ladder}
    cells = Cell.each(
        "curve", _learned, common, lambda reports, **_: 1e4 + number[reports], **choices
    )
    rows = tables(cells, Kept(None, {}), progress, planned.workers)["curve"]
    baseline = judging.baselines(data, MODELS[model])[name]
    optimum = optimal_figures(data, model)[name]
    sign = 1 if judging.better(name, 1, 0) else -1
    curve = []
    for n in ladder:
        figures_of_n = [row["figure"] for row in rows if row["reports"] == n]
        curve.append({"reports": n, **interval(figures_of_n, (lowest, highest))})
        if simulated:
            curve[-1]["simulated"] = {"epsilon": float(simulated[n][0]), "reports": number[n]}
    most_of_the_way = baseline + MOST_OF_THE_WAY * (optimum - baseline)
    named = None if planned.dimension else planned.dataset
    setting = {
        "dataset": named,
        "d": data.dimension,
        "model": model,
        "epsilon": float(planned.epsilon),
    }
    figures = {"measure": name, "baseline": baseline, "optimum": optimum, "runs": planned.runs}
    beats = _needed(curve, baseline, sign, "low" if sign > 0 else "high")
    goal = None if planned.goal is None else reached(curve, planned.goal, sign)
    most = reached(curve, most_of_the_way, sign)
    numbers = {"beats_baseline": beats, "most_of_the_way": most, "goal": goal}
    return {**setting, "rounds": reckoned, **figures, "curve": curve, **numbers}


def reached(curve: Sequence[Row], goal: float, sign: int) -> dict[str, Any]:
    """How many reports the mean of the curve needs for a goal, and how many its better and its
    worse bound need.

    sign: 1 if a larger figure is better, else -1. None stands for more reports than were tried.
    """
    bounds = ("high", "low") if sign > 0 else ("low", "high")
    least, most = (_needed(curve, goal, sign, bound) for bound in bounds)
    return {
        "figure": goal,
        "reports": _needed(curve, goal, sign, "mean"),
        "least": least,
        "most": most,
    }


def _needed(curve: Sequence[Row], goal: float, sign: int, column: str) -> int | None:
    """The number of reports from which on a column of the curve reaches the goal, rounded up to two
    digits.
    """
    first = curve[0]["reports"]
    n = enough([row["reports"] for row in curve], [sign * (goal - row[column]) for row in curve])
    if n is None or n <= first:
        return None if n is None else int(first)
    unit = int(10 ** max(0, math.floor(math.log10(n)) - 1))
    return math.ceil(n / unit - 1e-9) * unit


def words(result: dict[str, Any]) -> list[str]:
    """The result of `plan` as lines of text."""
    name, curve = result["measure"], result["curve"]
    figure, trivial = judging.WORDS[name], judging.TRIVIAL[name]
    data = f"{result['dataset']} ({result['d']} features)"
    if not result["dataset"]:
        data = (
            f"synthetic records of {result['d']} features (yours may need more devices, or fewer)"
        )
    often, before = "for each device, which reports once", []
    if rounds := result["rounds"]:
        before = years.words(rounds, sorted({row["simulated"]["epsilon"] for row in curve}))
        often = f"a round by a ledger in rho, and {counted(rounds['rounds'], 'round')}"
    lines = [
        *before,
        f"{result['model']} model of {data}, epsilon {result['epsilon']:.8g} {often}:",
        f"  {'devices':>10}  {figure}, mean of {result['runs']} runs and its 95 % interval",
        *("  {reports:>10,}  {mean:.4f}   {low:.4f} to {high:.4f}".format(**row) for row in curve),
        f"  {trivial} {result['baseline']:.4f}; without privacy {result['optimum']:.4f}",
    ]
    first, last = curve[0]["reports"], curve[-1]["reports"]
    if goal := result["goal"]:
        return [*lines, _answer(goal, figure, name, result["optimum"], first, last)]
    article = "" if trivial == "guessing" else "the "
    beats = _from(result["beats_baseline"], first, last)
    way = result["most_of_the_way"]
    return [
        *lines,
        f"It beats {article}{trivial} by more than noise {beats}.",
        f"It reaches {figure} {way['figure']:.4f}, {100 * MOST_OF_THE_WAY:.0f} % of the way to the model without "
        f"privacy, {_from(way['reports'], first, last)}{_between(way, first, last)}.",
    ]


def _answer(goal: Row, figure: str, name: str, optimum: float, first: int, last: int) -> str:
    if judging.better(name, goal["figure"], optimum):
        text = (
            f"No number of devices is known to give {figure} {goal['figure']:g}: without privacy, "
        )
        return f"{text}and with all records, this model has {optimum:.4f}."
    n = goal["reports"]
    if n is None:
        return f"You need more than {last:,} devices for {figure} {goal['figure']:g}."
    number = f"at most {n:,}" if n <= first else f"about {n:,}"
    return (
        f"You need {number} devices for {figure} {goal['figure']:g}{_between(goal, first, last)}."
    )


def _from(n: int | None, first: int, last: int) -> str:
    if n is None:
        return f"with more than {last:,} devices, if at all"
    return f"with {n:,} devices or fewer" if n <= first else f"with about {n:,} devices or more"


def _between(needed: Row, first: int, last: int) -> str:
    """The bounds of `reached` in words; nothing if the first number is enough or the last is not."""
    if needed["reports"] is None or needed["reports"] <= first:
        return ""
    most = f"more than {last:,}" if needed["most"] is None else f"{needed['most']:,}"
    return f" (between {needed['least']:,} and {most}, by the 95 % interval of the mean)"
