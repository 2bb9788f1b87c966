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
from ternhost.planning import quality, records, table
from ternhost.planning.cells import Cell, FinishedCells, Row, run_cells
from ternhost.planning.one_report import RUNS
from ternhost.planning.simulation import default, fleet_of, rounds, simulate
from ternhost.planning.statistics import grouped, pick
from ternhost.privacy.base import parse_epsilon
from ternhost.privacy.units import DEVICE, parse_unit, protected
from ternhost.text import counted

# The model is judged after these rounds, and after the last.
_JUDGED_ROUNDS = (1, 2, 3, 4, 8, 15, 30, 60, 100)
_MOST_RECORDS = 10_000_000
_NO_ROWS = "none"  # of the option --public


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

    def learner(self, seed: int, public: str = _NO_ROWS) -> FedSum:
        """Return FedSum for this fleet, with the records given to their owners, or else dealt.

        If there are too few to deal, several devices hold the same ones. seed: that of the run.
        public: which records FedSum may read without noise, as in its options.
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

    A row has the number of rounds, and how good the model is, as of `quality.of_model`. public,
    seed: as in `Existing.learner`.
    """
    learner = existing.learner(seed, public)
    fleet = fleet_of(learner, seed)
    rows: list[Row] = []
    for number, _ in enumerate(rounds(learner, fleet), start=1):
        if number in _JUDGED_ROUNDS or learner.done:
            run = {"public": public, "seed": seed, "rounds": number}
            rows.append({**run, **quality.of_learner(learner)})
    return rows


def _beside(existing: Existing, seed: int) -> list[Row]:
    """Return how good two models are to compare FedSum with, as one row (`quality.of_model`).

    "plain": the best model on the same records without privacy. "device": a model that is trained
    from one report of each device, which protects all of its records.
    """
    data, model = existing.loaded
    fedsum = existing.learner(seed)
    holdings = fedsum.holdings
    assert holdings is not None
    held = holdings.order
    same_records = replace(data, features=data.features[held], labels=data.labels[held])
    nothing_held_out = np.zeros(len(held), np.bool_)
    for_training = same_records.divided(nothing_held_out)
    weights = fit(MODELS[model], for_training, TrainingPlan.regularisation)
    plain = quality.of_model(data, model, weights, fedsum.threshold_of(weights))

    learner = default(
        data, existing.device_count, seed, model, epsilon=str(existing.options.run_epsilon)
    )
    of_device_unit = simulate(learner, seed).weights
    threshold = fedsum.threshold_of(of_device_unit)
    device = quality.of_model(data, model, of_device_unit, threshold)
    return [{"plain": plain, "device": device}]


def plan(
    existing: Existing, progress: Callable[[str], None] = lambda message: None
) -> dict[str, Any]:
    """Simulate the fleet several times; return the result for JSON and `text_lines`.

    It has how good the model is after some of the rounds (`quality.of_runs`), and the same of other
    models to compare it with. progress: called with a line of text after each part of the work.
    Raises UsageError.
    """
    data, model = existing.loaded
    options = existing.options
    measure = judging.measure(data)
    as_asked = str(options.public)
    learner = existing.learner(options.seed, as_asked)
    holdings = learner.holdings
    assert holdings is not None
    has_public_rows = _has_public_rows(learner)

    common = {"existing": existing}
    seeds = range(options.seed, options.seed + existing.runs)
    cells = Cell.for_each_combination(table="beside", work=_beside, common=common, seed=seeds)
    # With public rows, if there are any, and without. With them there are fewer rounds, so that a
    # run takes less time.
    cost_of_run = {as_asked: 5}
    if has_public_rows:
        cost_of_run = {as_asked: 1, _NO_ROWS: 5}
    for public, cost in cost_of_run.items():
        cells += Cell.for_each_combination(
            table="learned", work=_learned, common=common, cost=cost, public=[public], seed=seeds
        )
    only_in_memory = FinishedCells(None, options={})
    rows = run_cells(cells, only_in_memory, progress, existing.workers)

    without_privacy = [row["plain"] for row in rows["beside"]]
    device_unit = [row["device"] for row in rows["beside"]]
    curve_without_rows = None
    if has_public_rows:
        curve_without_rows = _curve(pick(rows["learned"], public=_NO_ROWS), measure)
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
        **quality.of_reference(quality.of_baseline(data, model), "baseline"),
        "without_privacy": quality.of_runs(without_privacy, measure),
        "device_unit": quality.of_runs(device_unit, measure),
        "curve": _curve(pick(rows["learned"], public=as_asked), measure),
        "public": _public_rows_in_words(options, has_public_rows),
        "curve_without_rows": curve_without_rows,
    }


def _has_public_rows(learner: FedSum) -> bool:
    """Return whether FedSum reads public rows: those of a file, or records that no device gets."""
    public = str(learner.options.public)
    return len(learner.reserved) > 0 or public not in ("", _NO_ROWS)


def _public_rows_in_words(options: Options, has_public_rows: bool) -> str | None:
    """Return which public rows FedSum reads, for people; None for none."""
    if not has_public_rows:
        return None
    return str(options.public) or "those that the data declare"


def _curve(rows: Sequence[Row], measure: str) -> list[Row]:
    """Return how good the models of several runs are after each judged round.

    Each row has the number of rounds, and what `quality.of_runs` returns. rows: those of
    `_learned`. A run that has ended earlier counts with its last model. measure: that of the figure.
    """
    runs = grouped(rows, "seed").values()
    curve = []
    numbers_of_rounds = {row["rounds"] for row in rows}
    for number in sorted(numbers_of_rounds):
        models = []
        for run in runs:
            models_so_far = [row for row in run if row["rounds"] <= number]
            models.append(models_so_far[-1])
        curve.append({"rounds": number, **quality.of_runs(models, measure)})
    return curve


def text_lines(result: dict[str, Any]) -> list[str]:
    """Return the result of `plan` as lines of text: a table by rounds, and what it means."""
    devices = counted(result["devices"], "device")
    of_records = counted(result["records"], "record")
    if result["held"] < result["devices"] * result["records"]:
        of_records = f"at most {of_records}"
    judged = counted(result["judged"], "other record")
    epsilon = f"{result['run_epsilon']:g}"
    with_rows = ""
    if result["public"]:
        with_rows = f"; with public rows ({result['public']})"
    lines = [
        f"{result['model']} model of {records.in_words(result['data'])} ({result['d']} features), "
        f"{devices} of {of_records}, judged on {judged};",
        f"(epsilon {epsilon}, delta {result['delta']:g}) of the run protects "
        f"{protected(result['unit'])}{with_rows}:",
        *table.heading(result, "rounds"),
    ]
    for row in result["curve"]:
        lines.append(table.line_of_runs(result, f"{row['rounds']}", row))
    if result["curve_without_rows"]:
        lines.append("  without public rows:")
        for row in result["curve_without_rows"]:
            lines.append(table.line_of_runs(result, f"{row['rounds']}", row))

    held_records = result["held"]
    same = f"the same {counted(held_records, 'record')}"
    if result["distinct"] < held_records:
        same += f" ({result['distinct']:,} different, with replacement)"
    return [
        *lines,
        table.line_of_runs(result, table.WITHOUT_PRIVACY, result["without_privacy"]),
        table.line_of_runs(result, "unit device", result["device_unit"]),
        table.line_of_baseline(result),
        f"  {table.WITHOUT_PRIVACY}: {same}; unit device: one report of each device, epsilon {epsilon}",
        *table.explanation(result),
        table.verdict(result, result["curve"][-1]),
        *_warnings(result),
        *records.doubts(result),
    ]


def _warnings(result: dict[str, Any]) -> list[str]:
    """Return sentences about what is bad about the models after the last round."""
    lines = table.warnings(result, result["curve"][-1:], lambda _: "After the last round")
    if result["curve_without_rows"]:
        last_row = result["curve_without_rows"][-1:]
        lines += table.warnings(result, last_row, lambda _: "Without public rows")
    return lines
