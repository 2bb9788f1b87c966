"""What a fleet that exists can learn: several runs of FedSum on as many simulated boards, beside
the same records without privacy, and beside the device's unit at the same epsilon.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ternhost.datasets import Dataset
from ternhost.errors import UsageError
from ternhost.learn import judging
from ternhost.learn.base import Population
from ternhost.learn.fedsum import FedSum, Options
from ternhost.learn.optimum import fit
from ternhost.learn.parameters import MODELS, SUITED
from ternhost.learn.training import TrainingPlan
from ternhost.options import require
from ternhost.planning.cells import Cell, Kept, Row, tables
from ternhost.planning.one_report import RUNS, data_of
from ternhost.planning.simulation import default, figure_of, fleet_of, rounds, simulate
from ternhost.planning.statistics import grouped, interval, pick
from ternhost.privacy.base import parse_epsilon
from ternhost.privacy.units import DEVICE, parse_unit, protected
from ternhost.text import counted

_MARKS = (
    1,
    2,
    3,
    4,
    8,
    15,
    30,
    60,
    100,
)  # rounds after which the model is judged, as after the last
_MOST = 10_000_000  # records


@dataclass(frozen=True)
class Existing:
    """A fleet, and what FedSum is asked on it; asked.dimension: of synthetic records; data: a file
    of records, instead of a data set. Raises UsageError for an option that makes no sense.
    """

    devices: int
    asked: Options
    data: str = ""
    runs: int = RUNS
    workers: int | None = None

    def __post_init__(self) -> None:
        life, records = self.asked.life, self.asked.records
        parse_epsilon(life, option="--life")  # also of a report at the device's unit
        require(self.runs >= 2, "runs", "2 or more", self.runs)
        require(
            1 <= self.devices <= _MOST // records,
            "devices",
            f"1 to {_MOST // records:,}",
            self.devices,
        )
        if parse_unit(self.asked.unit) == DEVICE:
            hint = f"tern plan --epsilon {life} --reports {self.devices}; or a smaller --unit"
            raise UsageError("a fleet that exists is planned for a unit within a device", hint)

    @property
    def loaded(self) -> tuple[Dataset, str]:
        """The data set, and the model."""
        data = data_of(
            self.asked.dataset, self.asked.dimension, self.asked.model or None, self.data
        )
        return data, self.asked.model or SUITED[data.task]

    def learner(self, seed: int, public: str = "") -> FedSum:
        """FedSum on this fleet, whose boards are dealt records with replacement where there are too
        few.
        """
        data, model = self.loaded
        asked = replace(self.asked, seed=seed, public=public, model=model)
        learner = FedSum(asked, Population(clients=self.devices, knows_records=False), data)
        learner.holdings = learner.deal(data, self.devices, again=True)
        return learner


def _learned(existing: Existing, public: str, seed: int) -> list[Row]:
    learner, rows = existing.learner(seed, public), []
    for number, _ in enumerate(rounds(learner, fleet_of(learner, seed)), 1):
        if number in _MARKS or learner.done:
            rows.append(
                {"public": public, "seed": seed, "rounds": number, "figure": figure_of(learner)}
            )
    return rows


def _beside(existing: Existing, seed: int) -> list[Row]:
    """The same records without privacy, and one report of each device at the device's unit."""
    (data, model), holdings = existing.loaded, existing.learner(seed).holdings
    assert holdings is not None
    dealt, none = holdings.order, np.zeros(len(holdings.order), np.bool_)
    same = replace(data, features=data.features[dealt], labels=data.labels[dealt]).divided(none)
    weights = fit(MODELS[model], same, TrainingPlan.regularisation)
    plain = next(iter(judging.figures(data, MODELS[model], weights).values()))
    epsilon = existing.asked.life
    device = simulate(default(data, existing.devices, seed, model, epsilon), seed)
    return [{"plain": plain, "device": figure_of(device)}]


def plan(
    existing: Existing, progress: Callable[[str], None] = lambda message: None
) -> dict[str, Any]:
    """The figure of the model by rounds, with its interval, and those to compare it with.

    Raises UsageError.
    """
    (data, model), asked = existing.loaded, existing.asked
    name, first = judging.measure(data), existing.learner(asked.seed, asked.public).holdings
    assert first is not None
    given, seeds = {"existing": existing}, range(asked.seed, asked.seed + existing.runs)
    cells = Cell.each("beside", _beside, given, seed=seeds)
    for public, cost in {asked.public: 1, "": 5}.items():  # with public rows there are fewer rounds
        cells += Cell.each("learned", _learned, given, cost, public=[public], seed=seeds)
    rows = tables(cells, Kept(None, {}), progress, existing.workers)
    summary = partial(interval, limits=judging.limits(name))

    def curve(public: str) -> list[Row]:
        runs = grouped(pick(rows["learned"], public=public), "seed").values()
        marks = sorted({row["rounds"] for run in runs for row in run})
        reached = [
            [[row["figure"] for row in run if row["rounds"] <= n][-1] for run in runs]
            for n in marks
        ]
        return [{"rounds": n, **summary(values)} for n, values in zip(marks, reached, strict=True)]

    return {
        "dataset": None if asked.dimension else data.name,
        "d": data.dimension,
        "model": model,
        "devices": existing.devices,
        "records": asked.records,
        "distinct": len(np.unique(first.order)),
        "unit": parse_unit(asked.unit),
        "life": float(asked.life),
        "delta": float(asked.delta),
        "measure": name,
        "judged": len(data.test),
        "runs": existing.runs,
        "baseline": judging.baselines(data, MODELS[model])[name],
        "without_privacy": summary([row["plain"] for row in rows["beside"]]),
        "device_unit": summary([row["device"] for row in rows["beside"]]),
        "curve": curve(""),
        "public": asked.public or None,
        "public_curve": curve(asked.public) if asked.public else None,
    }


def words(result: dict[str, Any]) -> list[str]:
    """The result of `plan` as lines of text."""
    name, devices = result["measure"], counted(result["devices"], "device")
    dataset = result["dataset"] or "synthetic records"
    n, distinct = result["devices"] * result["records"], result["distinct"]
    figure = "{mean:.4f}  {standard_error:.4f}   {low:.4f} to {high:.4f}"
    line, by_rounds = figure.format, f"  {{rounds:>10}}  {figure}".format
    lines = [
        f"{result['model']} model of {dataset} ({result['d']} features), {devices} of "
        f"{counted(result['records'], 'record')}, judged on {counted(result['judged'], 'other record')};",
        f"(epsilon {result['life']:g}, delta {result['delta']:g}) for life protects {protected(result['unit'])}:",
        f"      rounds  {judging.WORDS[name]}, mean of {result['runs']} runs, standard error and 95 % interval",
        *(by_rounds(**row) for row in result["curve"]),
    ]
    if result["public"]:
        lines.append(f"  with public rows ({result['public']}):")
        lines += [by_rounds(**row) for row in result["public_curve"]]
    repeated = "" if distinct == n else f" ({distinct:,} different ones, with replacement)"
    return [
        *lines,
        f"  the same {n:,} records{repeated} without privacy:  {line(**result['without_privacy'])}",
        f"  unit device, epsilon {result['life']:g}, one report each:  {line(**result['device_unit'])}",
        f"  {judging.TRIVIAL[name]}:  {result['baseline']:.4f}",
    ]
