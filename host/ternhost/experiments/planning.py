"""How many devices a model needs: FedSGD on the simulated fleet, several times at each of a ladder of numbers of
reports.

Every device reports once. It is `tern train` itself with its defaults, on the records of a data set, or on made-up ones
of a dimension. So the curve says what a run gives, and its spread how much one run differs from the next; both depend
on the data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ternhost import datasets
from ternhost.datasets import Dataset, synthetic
from ternhost.errors import UsageError
from ternhost.experiments.cells import Cell, Kept, Row, tables
from ternhost.experiments.rounds import figure_of, optimal_figures, sgd, simulate
from ternhost.experiments.statistics import enough, half_interval, mean_and_error
from ternhost.learn import judging
from ternhost.learn.parameters import MODELS, SUITED
from ternhost.options import require
from ternhost.privacy.base import parse_epsilon
from ternhost.reach.simulated.fleet import Simulated

LADDER = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000)
RUNS = 8
MOST_OF_THE_WAY = 0.9  # from the answer that knows no features to the optimum


@dataclass(frozen=True)
class Planned:
    """A plan: a data set, or `dimension` features of made-up records; the model and the epsilon of a report.

    model: None for the one that suits the data. goal: for the figure that judges the data set. Raises UsageError.
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

    def __post_init__(self) -> None:
        parse_epsilon(self.epsilon)
        require(self.runs >= 2, "runs", "2 or more", self.runs)
        if self.dimension is not None and self.model == "softmax":
            raise UsageError("made-up records have two classes", hint="name a --dataset for --model softmax")
        require(self.seed >= 0, "seed", "0 or more", self.seed)
        least = min(self.reports, default=0)
        require(least >= 1, "reports", "numbers of 1 or more", least)
        most = max(self.reports)
        require(most <= Simulated.MOST, "reports", f"numbers of {Simulated.MOST:,} or less", f"{most:,}")
        if self.goal is not None:
            require(math.isfinite(self.goal), "goal", "a number", self.goal)
        object.__setattr__(self, "reports", tuple(sorted(set(self.reports))))


@lru_cache(maxsize=2)
def _data(dataset: str, dimension: int | None, model: str | None) -> Dataset:
    if dimension is None:
        return datasets.load(dataset, classes=model == "softmax")
    return synthetic.linear(d=dimension) if model == "linear" else synthetic.logistic(d=dimension)


def _learned(
    dataset: str, dimension: int | None, model: str, epsilon: str, reports: int, seed: int
) -> list[Row]:
    data = _data(dataset, dimension, model)
    learner = simulate(sgd(data, reports, seed, group=0, epsilon=epsilon, model=model), seed)
    return [{"reports": reports, "figure": figure_of(learner)}]


def plan(planned: Planned, progress: Callable[[str], None] = lambda message: None) -> dict[str, Any]:
    """The curve of the figure against the number of devices, and how many are needed for what. Raises UsageError."""
    data = _data(planned.dataset, planned.dimension, planned.model)
    model = planned.model or SUITED[data.task]
    cells = Cell.each(
        "curve",
        _learned,
        {
            "dataset": planned.dataset,
            "dimension": planned.dimension,
            "model": model,
            "epsilon": planned.epsilon,
        },
        cost=lambda reports, **_: 10_000 + reports,
        reports=planned.reports,
        seed=range(planned.seed, planned.seed + planned.runs),
    )
    rows = tables(cells, Kept(None, {}), progress, planned.workers)["curve"]
    name = judging.measure(data)
    baseline = judging.baselines(data, MODELS[model])[name]
    optimum = optimal_figures(data, model)[name]
    curve = []
    for n in planned.reports:
        mean, error = mean_and_error([row["figure"] for row in rows if row["reports"] == n])
        half = half_interval(error, planned.runs)
        curve.append({"reports": n, "mean": mean, "low": mean - half, "high": mean + half})
    sign = 1 if judging.better(name, 1, 0) else -1
    wanted = baseline + MOST_OF_THE_WAY * (optimum - baseline)
    return {
        "dataset": None if planned.dimension else planned.dataset,
        "d": data.dimension,
        "model": model,
        "epsilon": float(planned.epsilon),
        "measure": name,
        "baseline": baseline,
        "optimum": optimum,
        "runs": planned.runs,
        "curve": curve,
        "beats_baseline": _needed(curve, baseline, sign, "low" if sign > 0 else "high"),
        "most_of_the_way": reached(curve, wanted, sign),
        "goal": None if planned.goal is None else reached(curve, planned.goal, sign),
    }


def reached(curve: Sequence[Row], goal: float, sign: int) -> dict[str, Any]:
    """How many reports the mean needs for a goal, with the bounds of its interval; None: more than were tried.

    sign: 1 where more of the figure is better, else -1.
    """
    ends = ("high", "low") if sign > 0 else ("low", "high")
    least, most = (_needed(curve, goal, sign, end) for end in ends)
    return {"figure": goal, "reports": _needed(curve, goal, sign, "mean"), "least": least, "most": most}


def _needed(curve: Sequence[Row], goal: float, sign: int, of: str) -> int | None:
    """From how many reports on this end of the curve is as good as the goal, rounded up to two digits."""
    first = curve[0]["reports"]
    n = enough([row["reports"] for row in curve], [sign * (goal - row[of]) for row in curve])
    if n is None or n <= first:
        return None if n is None else int(first)
    unit = int(10 ** max(0, math.floor(math.log10(n)) - 1))
    return math.ceil(n / unit - 1e-9) * unit


def words(found: dict[str, Any]) -> list[str]:
    """The plan in sentences."""
    name, curve = found["measure"], found["curve"]
    what, trivial = judging.WORDS[name], judging.TRIVIAL[name]
    of = (
        f"{found['dataset']} ({found['d']} features)"
        if found["dataset"]
        else f"made-up records of {found['d']} features (yours may need more devices, or fewer)"
    )
    lines = [
        f"{found['model']} model of {of}, epsilon {found['epsilon']:g} a device, which reports once:",
        f"  {'devices':>10}  {what}, mean of {found['runs']} runs and its 95 % interval",
        *(
            f"  {row['reports']:>10,}  {row['mean']:.4f}   {row['low']:.4f} to {row['high']:.4f}"
            for row in curve
        ),
        f"  {trivial} {found['baseline']:.4f}; without privacy {found['optimum']:.4f}",
    ]
    first, last = curve[0]["reports"], curve[-1]["reports"]
    if found["goal"]:
        return [
            *lines,
            _answer(found["goal"], what, found["optimum"], judging.better(name, 1, 0), first, last),
        ]
    beats = found["beats_baseline"]
    article = "" if trivial == "guessing" else "the "
    lines.append(f"It beats {article}{trivial} by more than noise {_from(beats, first, last)}.")
    way = found["most_of_the_way"]
    far = (
        f"{what} {way['figure']:.4f}, {100 * MOST_OF_THE_WAY:.0f} % of the way to the model without privacy,"
    )
    return [*lines, f"It reaches {far} {_from(way['reports'], first, last)}{_between(way, first, last)}."]


def _answer(goal: dict[str, Any], what: str, optimum: float, more: bool, first: int, last: int) -> str:
    if (goal["figure"] > optimum) if more else (goal["figure"] < optimum):
        return (
            f"No number of devices is known to give {what} {goal['figure']:g}: without privacy, and with all records, "
            f"this model has {optimum:.4f}."
        )
    n = goal["reports"]
    if n is None:
        return f"You need more than {last:,} devices for {what} {goal['figure']:g}."
    many = f"at most {n:,}" if n <= first else f"about {n:,}"
    return f"You need {many} devices for {what} {goal['figure']:g}{_between(goal, first, last)}."


def _from(n: int | None, first: int, last: int) -> str:
    if n is None:
        return f"with more than {last:,} devices, if at all"
    return f"with {n:,} devices or fewer" if n <= first else f"from about {n:,} devices on"


def _between(found: dict[str, Any], first: int, last: int) -> str:
    least, most = found["least"], found["most"]
    if found["reports"] is None or found["reports"] <= first:
        return ""
    upper = f"more than {last:,}" if most is None else f"{most:,}"
    return f" (between {least:,} and {upper}, as far as these runs tell)"
