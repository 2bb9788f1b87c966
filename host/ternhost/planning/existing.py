"""Estimates what a fleet that exists can learn.

Here the number of devices is fixed, and each holds several records. Privacy protects a unit: a part
of the records of a device. FedSum is run several times on as many simulated devices. Its model is
compared with two others: the best one on the same records without privacy, and one that is trained
from one report of each device that protects all records of the device, at the same epsilon.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ternhost.datasets import Dataset
from ternhost.errors import UsageError
from ternhost.learn import judging
from ternhost.learn.base import Population
from ternhost.learn.fedsum import FedSum, Options
from ternhost.learn.optimum import fit
from ternhost.learn.parameters import MODELS
from ternhost.learn.training import TrainingPlan
from ternhost.options import require
from ternhost.planning import records
from ternhost.planning.cells import Cell, FinishedCells, Row, run_cells
from ternhost.planning.one_report import RUNS
from ternhost.planning.simulation import default, figure_of, fleet_of, rounds, simulate
from ternhost.planning.statistics import grouped, interval, pick
from ternhost.privacy.base import parse_epsilon
from ternhost.privacy.units import DEVICE, parse_unit, protected
from ternhost.text import counted

# The model is judged after these rounds, and after the last.
_JUDGED_ROUNDS = (1, 2, 3, 4, 8, 15, 30, 60, 100)
_MOST_RECORDS = 10_000_000


@dataclass(frozen=True)
class Existing:
    """A fleet, and the options of FedSum on it.

    - devices: their number; None for the devices that the records name as their owners
    - options: those of FedSum; for its `data` see `records.load`
    - runs: how often training is simulated
    - workers: as in `run_cells`

    Raises UsageError for an option that makes no sense.
    """

    devices: int | None
    options: Options
    runs: int = RUNS
    workers: int | None = None

    def __post_init__(self) -> None:
        """Raise UsageError for options that make no sense together."""
        epsilon = self.options.run_epsilon
        # Raises if it is no epsilon of a report: the report of each device to compare with has it.
        parse_epsilon(epsilon, option="--run-epsilon")
        require(self.runs >= 2, "runs", "2 or more", self.runs)
        most = _MOST_RECORDS // self.options.most_records
        if self.devices is not None:
            require(1 <= self.devices <= most, "devices", f"1 to {most:,}", self.devices)
        if parse_unit(self.options.unit) == DEVICE:
            hint = f"use a smaller --unit, or leave it out: tern plan --epsilon {epsilon}"
            raise UsageError("a fleet that exists is planned for a unit within a device", hint)

    @property
    def loaded(self) -> tuple[Dataset, str]:
        """The data set, and the name of the model: by default the one that suits the labels.

        The data set has owners if the devices are those that the records name. Raises UsageError if
        the user names the column of the devices, and another number of devices.
        """
        options = self.options
        data, model = records.load(options.data, options.model or None, options.selection)
        if data.owners is None or self.devices in (None, records.owner_count(data)):
            return data, model
        if options.by:
            devices = counted(records.owner_count(data), "device")
            text = f"--by {options.by}: {data.name} has records of {devices}, not of {self.devices}"
            raise UsageError(text, "leave out --devices or --by")
        return data.without_owners(), model

    @property
    def device_count(self) -> int:
        """The number of devices. Raises UsageError if neither the user nor the records tell it."""
        if self.devices is not None:
            return self.devices
        data, _ = self.loaded
        if data.owners is None:
            text = "a plan for a fleet that exists needs the number of its devices"
            hint = "such as --devices 20; or name the column of a table that says it: --by COLUMN"
            raise UsageError(text, hint)
        return records.owner_count(data)

    def learner(self, seed: int, public: str = "") -> FedSum:
        """Return FedSum for this fleet, with the records given to their owners, or else dealt.

        If there are too few to deal, several devices hold the same ones. seed: that of the run.
        public: which records FedSum may read without noise, as in its options; empty for none.
        """
        data, model = self.loaded
        options = replace(self.options, seed=seed, public=public, model=model)
        if data.owners is not None:
            return FedSum(options, Population(), data)
        learner = FedSum(options, Population(clients=self.device_count, knows_records=False), data)
        learner.holdings = learner.deal(data, self.device_count, again=True)
        return learner


def _learned(existing: Existing, public: str, seed: int) -> list[Row]:
    """Run FedSum once; return how good its model is after each of the judged rounds.

    A row has the number of rounds and the figure of the model, such as its accuracy. public, seed:
    as in `Existing.learner`.
    """
    learner = existing.learner(seed, public)
    fleet = fleet_of(learner, seed)
    rows: list[Row] = []
    for number, _ in enumerate(rounds(learner, fleet), start=1):
        if number in _JUDGED_ROUNDS or learner.done:
            figure = figure_of(learner)
            rows.append({"public": public, "seed": seed, "rounds": number, "figure": figure})
    return rows


def _beside(existing: Existing, seed: int) -> list[Row]:
    """Return the figures of two models to compare FedSum with, as one row.

    "plain": the best model on the same records without privacy. "device": a model that is trained
    from one report of each device, which protects all of its records.
    """
    data, model = existing.loaded
    holdings = existing.learner(seed).holdings
    assert holdings is not None
    held = holdings.order
    same_records = replace(data, features=data.features[held], labels=data.labels[held])
    nothing_held_out = np.zeros(len(held), np.bool_)
    for_training = same_records.divided(nothing_held_out)
    weights = fit(MODELS[model], for_training, TrainingPlan.regularisation)
    figures = judging.figures(data, MODELS[model], weights)
    plain = next(iter(figures.values()))  # the first one is the most telling

    learner = default(
        data, existing.device_count, seed, model, epsilon=str(existing.options.run_epsilon)
    )
    return [{"plain": plain, "device": figure_of(simulate(learner, seed))}]


def plan(
    existing: Existing, progress: Callable[[str], None] = lambda message: None
) -> dict[str, Any]:
    """Simulate the fleet several times; return the result for JSON and `text_lines`.

    It has the figure of the model, such as its accuracy, after some of the rounds, with a
    confidence interval, and the figures of other models to compare it with. progress: called with a
    line of text after each part of the work. Raises UsageError.
    """
    data, model = existing.loaded
    options = existing.options
    measure = judging.measure(data)
    limits = judging.limits(measure)
    learner = existing.learner(options.seed, str(options.public))
    holdings = learner.holdings
    assert holdings is not None

    common = {"existing": existing}
    seeds = range(options.seed, options.seed + existing.runs)
    cells = Cell.for_each_combination(table="beside", work=_beside, common=common, seed=seeds)
    # With public rows, if there are any, and without. With them there are fewer rounds, so that a
    # run takes less time.
    cost_of_run = {options.public: 1, "": 5}
    for public, cost in cost_of_run.items():
        cells += Cell.for_each_combination(
            table="learned", work=_learned, common=common, cost=cost, public=[public], seed=seeds
        )
    only_in_memory = FinishedCells(None, options={})
    rows = run_cells(cells, only_in_memory, progress, existing.workers)

    without_privacy = [row["plain"] for row in rows["beside"]]
    device_unit = [row["device"] for row in rows["beside"]]
    public_curve = None
    if options.public:
        public_curve = _curve(pick(rows["learned"], public=options.public), limits)
    return {
        "data": options.data,
        "d": data.dimension,
        "model": model,
        "devices": existing.device_count,
        "records": learner.options.most_records,
        "held": len(holdings.order),
        "distinct": len(np.unique(holdings.order)),
        "unit": parse_unit(options.unit),
        "run_epsilon": float(options.run_epsilon),
        "delta": float(options.delta),
        "measure": measure,
        **records.facts(data, model),
        "runs": existing.runs,
        "baseline": judging.baselines(data, MODELS[model])[measure],
        "without_privacy": interval(without_privacy, limits),
        "device_unit": interval(device_unit, limits),
        "curve": _curve(pick(rows["learned"], public=""), limits),
        "public": options.public or None,
        "public_curve": public_curve,
    }


def _curve(rows: Sequence[Row], limits: tuple[float, float]) -> list[Row]:
    """Return how good the model is after each judged round: the mean of several runs.

    Each row has the mean figure, such as the accuracy, with its confidence interval. rows: those of
    `_learned`. A run that has ended earlier counts with its last figure. limits: the
    least and the largest possible figure.
    """
    runs = grouped(rows, "seed").values()
    curve = []
    numbers_of_rounds = {row["rounds"] for row in rows}
    for number in sorted(numbers_of_rounds):
        figures = []
        for run in runs:
            figures_so_far = [row["figure"] for row in run if row["rounds"] <= number]
            figures.append(figures_so_far[-1])
        curve.append({"rounds": number, **interval(figures, limits)})
    return curve


def text_lines(result: dict[str, Any]) -> list[str]:
    """Return the result of `plan` as lines of text: a table by rounds, then what to compare."""
    measure = result["measure"]
    devices = counted(result["devices"], "device")
    of_records = counted(result["records"], "record")
    if result["held"] < result["devices"] * result["records"]:
        of_records = f"at most {of_records}"
    judged = counted(result["judged"], "other record")
    lines = [
        f"{result['model']} model of {records.in_words(result['data'])} ({result['d']} features), "
        f"{devices} of {of_records}, judged on {judged};",
        f"(epsilon {result['run_epsilon']:g}, delta {result['delta']:g}) of the run protects "
        f"{protected(result['unit'])}:",
        f"      rounds  {judging.WORDS[measure]}, mean of {result['runs']} runs, standard error "
        "and 95 % interval",
    ]
    for row in result["curve"]:
        lines.append(_line_of_round(row))
    if result["public"]:
        lines.append(f"  with public rows ({result['public']}):")
        for row in result["public_curve"]:
            lines.append(_line_of_round(row))

    held_records = result["held"]
    same = f"the same {counted(held_records, 'record')}"
    if result["distinct"] < held_records:
        same += f" ({result['distinct']:,} different, with replacement)"
    without_privacy, device_unit = result["without_privacy"], result["device_unit"]
    return [
        *lines,
        f"  {same} without privacy:  {_figure(without_privacy)}",
        f"  unit device, epsilon {result['run_epsilon']:g}, one report each:  {_figure(device_unit)}",
        f"  {judging.TRIVIAL[measure]}:  {result['baseline']:.4f}",
        *records.doubts(result),
    ]


def _line_of_round(row: Row) -> str:
    """Return a line of the table: a number of rounds, and the figure after them."""
    return f"  {row['rounds']:>10}  {_figure(row)}"


def _figure(row: Row) -> str:
    """Return the text of a mean figure with its standard error and its interval."""
    error, low, high = row["standard_error"], row["low"], row["high"]
    return f"{row['mean']:.4f}  {error:.4f}   {low:.4f} to {high:.4f}"
