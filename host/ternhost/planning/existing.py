"""Estimates what a fleet that exists can learn, for two units of privacy side by side.

Here the number of devices is fixed, and each holds several records. One unit is a part of these
records: FedSum adds up noisy sums over many rounds. The other unit is the whole device: each answers
once, or a few times, about all of its records (`whole_devices`). Both are simulated several times,
with the same epsilon for the life of a device, and are compared with the best model on the same
records without privacy.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tern.fixed import MAX_EPSILON
from ternhost.datasets import Dataset, Indices
from ternhost.errors import UsageError
from ternhost.learn.base import Population
from ternhost.learn.models import judging
from ternhost.learn.models.learning import Learning
from ternhost.learn.models.optimum import fit
from ternhost.learn.models.projections import Split, best_split
from ternhost.learn.models.training import TrainingPlan
from ternhost.learn.one_answer.direct import Direct
from ternhost.learn.parameters import MODELS, Floats
from ternhost.learn.sums.fedsum import FedSum, Options
from ternhost.options import flag, require
from ternhost.planning import quality, records
from ternhost.planning.cells import Cell, FinishedCells, Row, Tables, run_cells
from ternhost.planning.one_report import RUNS
from ternhost.planning.simulation import fleet_of, rounds, simulate
from ternhost.planning.statistics import grouped, pick
from ternhost.planning.whole_devices import MOST_HELD, WholeDevices, epsilon_text
from ternhost.privacy import sums
from ternhost.privacy.base import MICRO, parse_epsilon
from ternhost.privacy.units import DEVICE, parse_unit
from ternhost.text import counted

# The model is judged after these rounds, and after the last.
_JUDGED_ROUNDS = (1, 2, 3, 4, 8, 15, 30, 60, 100)
_NO_ROWS = "none"  # of the option --public
# The epsilons of the picture, as multiples of the one that the user asked for.
_NEIGHBOURS = (0.25, 0.5, 2.0)


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
        require(self.runs >= 2, "runs", "2 or more", self.runs)
        most = MOST_HELD // self.options.most_records
        if self.devices is not None:
            require(1 <= self.devices <= most, "devices", f"1 to {most:,}", self.devices)
        if parse_unit(self.options.unit) == DEVICE:
            hint = "leave --unit out: the plan shows the unit device beside the unit record"
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

    def with_epsilon(self, epsilon: int) -> "Existing":
        """Return the same fleet with another epsilon of the whole run, in millionths."""
        return replace(self, options=replace(self.options, run_epsilon=epsilon_text(epsilon)))

    def whole_devices(self, split: Split) -> WholeDevices:
        """Return the same devices where each report protects all of a device's records.

        split: the reports among which a device divides the budget of its life.
        """
        data, _ = self.loaded
        number_of_records = self.options.records
        if data.owners is None:
            number_of_records = self.options.most_records
        names = ("data", "by", "time", "held_out", "public", "threshold")
        further = tuple((name, getattr(self.options, name)) for name in names)
        return WholeDevices(
            self.device_count, number_of_records, split.epsilon, split.reports, further
        )


def _learned(existing: Existing, public: str, seed: int) -> list[Row]:
    """Run FedSum once; return how good its model is after each of the judged rounds.

    A row has the number of rounds, and how good the model is, as of `quality.of_model`. public,
    seed: as in `Existing.learner`.
    """
    learner = existing.learner(seed, public)
    fleet = fleet_of(learner, seed)
    epsilon = _micro_epsilon(existing)
    rows: list[Row] = []
    for number, _ in enumerate(rounds(learner, fleet), start=1):
        if number in _JUDGED_ROUNDS or learner.done:
            run = {"public": public, "epsilon": epsilon, "seed": seed, "rounds": number}
            rows.append({**run, "reports": number, **quality.of_learner(learner)})
    return rows


def _answered(existing: Existing, split: Split, seed: int) -> list[Row]:
    """Train once from reports that each protect a device; return one row, as those of `_learned`.

    split: the reports of each device.
    """
    data, model = existing.loaded
    learner = existing.whole_devices(split).learner(data, model, seed)
    simulate(learner, seed)
    run = {"epsilon": _micro_epsilon(existing), "seed": seed, "rounds": learner.rounds}
    return [{**run, "reports": split.reports, **quality.of_learner(learner)}]


def _without_privacy(existing: Existing, seed: int) -> list[Row]:
    """Return how good the best model on the same records is, as one row (`quality.of_model`)."""
    data, model = existing.loaded
    fedsum = existing.learner(seed)
    holdings = fedsum.holdings
    assert holdings is not None
    weights = _best_weights(data, model, holdings.order)
    return [quality.of_model(data, model, weights, fedsum.threshold_of(weights))]


def _micro_epsilon(existing: Existing) -> int:
    """Return the epsilon of the whole run, in millionths."""
    most = 1000 * MICRO
    return parse_epsilon(existing.options.run_epsilon, most, "--run-epsilon")


def plan(
    existing: Existing,
    progress: Callable[[str], None] = lambda message: None,
    *,
    epsilons: bool = False,
) -> dict[str, Any]:
    """Simulate the fleet several times; return the result for JSON, and for `side_by_side`.

    It has an entry for each unit of privacy, with how good the model is (`quality.of_runs`), and
    the same of other models to compare both with.

    progress: called with a line of text after each part of the work.
    epsilons: whether to simulate a quarter, half and twice the epsilon, too, with half as many
        runs, for a picture.
    Raises UsageError.
    """
    data, model = existing.loaded
    options = existing.options
    measure = judging.measure(data)
    learner = existing.learner(options.seed, str(options.public))
    holdings = learner.holdings
    assert holdings is not None
    has_public_rows = _has_public_rows(learner)
    splits = _splits(existing, learner)
    neighbours: list[Existing] = []
    if epsilons:
        neighbours = _neighbours(existing, progress)

    cells = _cells(existing, splits, has_public_rows, neighbours)
    only_in_memory = FinishedCells(None, options={})
    rows = run_cells(cells, only_in_memory, progress, existing.workers)
    return {
        "data": options.data,
        "d": data.dimension,
        "model": model,
        "devices": existing.device_count,
        "records": learner.options.most_records,
        "held": len(holdings.order),
        "distinct": len(np.unique(holdings.order)),
        "run_epsilon": float(options.run_epsilon),
        "delta": float(options.delta),
        "measure": measure,
        **records.facts(data, model),
        "runs": existing.runs,
        **quality.of_reference(quality.of_baseline(data, model), "baseline"),
        "without_privacy": quality.of_runs(rows["without privacy"], measure),
        **_public_rows_alone(existing, splits[-1]),
        "units": [
            _part_of_records(existing, learner, rows, measure, has_public_rows),
            _whole_device(existing, learner, rows, measure, splits),
        ],
    }


def _has_public_rows(learner: Learning) -> bool:
    """Return whether a learner reads public rows: those of a file, or records that no device gets."""
    public = str(getattr(learner.options, "public", _NO_ROWS))
    return len(learner.reserved) > 0 or public not in ("", _NO_ROWS)


def _public_rows_in_words(learner: Learning) -> str | None:
    """Return which public rows a learner reads, for people; None for none."""
    if not _has_public_rows(learner):
        return None
    text = str(learner.options.public) or "those that the data declare"
    if learner.name == Direct.name and len(learner.reserved):
        known = "class shares"
        if learner.model == "linear":
            known = "mean label"
        text += f", whose labels tell the {known}"
    return text


def _public_rows_alone(existing: Existing, split: Split) -> dict[str, Any]:
    """Return how good a model is that learns from the labels of the public rows, without devices.

    It is named "public_alone", as of `quality.of_reference`, and "public_labels" is the number of
    these rows. The result is empty if the public rows have no labels. split: the reports of a
    device.
    """
    data, model = existing.loaded
    learner = existing.whole_devices(split).learner(data, model, existing.options.seed)
    reserved = np.asarray(learner.reserved, np.int64)
    if not len(reserved) or (data.labels[reserved] == data.labels[reserved[0]]).all():
        return {}
    weights = _best_weights(data, model, reserved)
    quality_of_rows = quality.of_model(data, model, weights, learner.threshold_of(weights))
    figures = quality.of_reference(quality_of_rows, "public_alone")
    return {**figures, "public_labels": len(reserved)}


def _best_weights(data: Dataset, model: str, positions: Indices) -> Floats:
    """Return the weights of the best model on the records at these positions, without privacy."""
    same_records = replace(data, features=data.features[positions], labels=data.labels[positions])
    nothing_held_out = np.zeros(len(positions), np.bool_)
    for_training = same_records.divided(nothing_held_out)
    return fit(MODELS[model], for_training, TrainingPlan.regularisation)


def _splits(existing: Existing, learner: FedSum) -> list[Split]:
    """Return the reports of a device to try: a single one, and the best split, if it is another.

    The last one is the best. Only where devices answer about all of their records there may be more
    than one report.

    learner: FedSum for the same model. Raises UsageError for an epsilon that no report can have.
    """
    budget = _micro_epsilon(existing)
    one = Split(reports=1, epsilon=budget, variance=math.nan)
    if not _can_split(existing, learner):
        parse_epsilon(existing.options.run_epsilon, option="--run-epsilon")
        return [one]
    best = best_split(budget, learner.d)
    if best.reports > 1 and budget <= MAX_EPSILON:  # a single report can have it, too
        return [one, best]
    return [best]


def _can_split(existing: Existing, learner: FedSum) -> bool:
    """Return whether a device may answer several times. learner: FedSum for the same model."""
    data, model = existing.loaded
    any_split = Split(reports=1, epsilon=MICRO, variance=math.nan)
    learner_class = existing.whole_devices(any_split).learner_class(data, model)
    return learner_class is Direct and learner.options.most_records > 1


def _neighbours(existing: Existing, progress: Callable[[str], None]) -> list[Existing]:
    """Return the same fleet with a quarter, half and twice the epsilon, for a picture.

    An epsilon at which one of the units has no report is left out. progress: as in `plan`.
    """
    neighbours = []
    for factor in _NEIGHBOURS:
        other = existing.with_epsilon(round(factor * _micro_epsilon(existing)))
        try:
            learner = other.learner(other.options.seed)
            data, model = other.loaded
            best = _split_to_run(other, learner)
            other.whole_devices(best).learner(data, model, other.options.seed)
        except UsageError as error:
            progress(f"the picture has no epsilon {other.options.run_epsilon}: {error}")
            continue
        neighbours.append(other)
    epsilons = ", ".join(str(other.options.run_epsilon) for other in neighbours)
    progress(f"for the picture, also epsilon {epsilons} with {_few_runs(existing)} runs each")
    return neighbours


def _few_runs(existing: Existing) -> int:
    """Return how many runs each of the other epsilons of a picture has."""
    return max(2, existing.runs // 2)


def _split_to_run(existing: Existing, learner: FedSum) -> Split:
    """Return the best of `_splits`."""
    return _splits(existing, learner)[-1]


def _cells(
    existing: Existing,
    splits: Sequence[Split],
    has_public_rows: bool,
    neighbours: Sequence[Existing],
) -> list[Cell]:
    """Return all simulations of a plan. Parameters as the names in `plan`."""
    options = existing.options
    as_asked = str(options.public)
    seeds = range(options.seed, options.seed + existing.runs)
    common = {"existing": existing}
    cells = Cell.for_each_combination(
        table="without privacy", work=_without_privacy, common=common, seed=seeds
    )
    # With public rows, if there are any, and without. With them there are fewer rounds, so that a
    # run takes less time.
    cost_of_run = {as_asked: 5}
    if has_public_rows:
        cost_of_run = {as_asked: 1, _NO_ROWS: 5}
    for public, cost in cost_of_run.items():
        cells += Cell.for_each_combination(
            table="rounds", work=_learned, common=common, cost=cost, public=[public], seed=seeds
        )
    cells += Cell.for_each_combination(
        table="answers", work=_answered, common=common, split=splits, seed=seeds
    )

    few_seeds = seeds[: _few_runs(existing)]
    for other in neighbours:
        common = {"existing": other}
        cells += Cell.for_each_combination(
            table="rounds",
            work=_learned,
            common=common,
            cost=cost_of_run[as_asked],
            public=[as_asked],
            seed=few_seeds,
        )
        best = _split_to_run(other, other.learner(options.seed))
        cells += Cell.for_each_combination(
            table="answers", work=_answered, common=common, split=[best], seed=few_seeds
        )
    return cells


def _part_of_records(
    existing: Existing, learner: FedSum, rows: Tables, measure: str, has_public_rows: bool
) -> dict[str, Any]:
    """Return the part of the result about the unit within a device.

    learner: FedSum for it. rows: of all simulations. measure: that of the figure.
    """
    options = existing.options
    budget = options.budget_in_rho()
    of_rows = pick(rows["rounds"], public=str(options.public))
    curve_without_rows = None
    if has_public_rows:
        curve_without_rows = _curve(pick(rows["rounds"], public=_NO_ROWS), measure)
    return {
        "unit": parse_unit(options.unit),
        "learner": FedSum.name,
        "epsilon": float(options.run_epsilon),
        "delta": float(options.delta),
        # What the same reports promise about all of a device's records together.
        "device_epsilon": sums.group(
            budget, learner.options.units_per_device, float(options.delta)
        ),
        "command": _command(existing, FedSum.name, _options_of_sums(existing)),
        "curve": _curve(pick(of_rows, epsilon=_micro_epsilon(existing)), measure),
        "curve_without_rows": curve_without_rows,
        "public": _public_rows_in_words(learner),
        "by_epsilon": _by_epsilon(of_rows, measure),
        "splits": [],
        "split_in_rho": None,
    }


def _whole_device(
    existing: Existing, learner: FedSum, rows: Tables, measure: str, splits: Sequence[Split]
) -> dict[str, Any]:
    """Return the part of the result about the unit device, with the keys of the other unit.

    Its curve has a row for each of the splits, of which the last is the best. Other parameters as of
    `_part_of_records`.
    """
    data, model = existing.loaded
    of_best = existing.whole_devices(splits[-1]).learner(data, model, existing.options.seed)
    curve = []
    for split in splits:
        of_split = pick(rows["answers"], epsilon=_micro_epsilon(existing), reports=split.reports)
        curve += _curve(of_split, measure)
    summaries = [_summary_of_split(existing, of_best.name, split) for split in splits]
    split_in_rho = None
    if _can_split(existing, learner):
        best = best_split(existing.options.budget_in_rho(), learner.d, in_rho=True)
        split_in_rho = {"reports": best.reports, "epsilon": best.epsilon / MICRO}
    return {
        "unit": DEVICE,
        "learner": of_best.name,
        "epsilon": float(existing.options.run_epsilon),
        "delta": 0.0,
        "device_epsilon": float(existing.options.run_epsilon),
        "command": summaries[-1]["command"],
        "curve": curve,
        "curve_without_rows": None,
        "public": _public_rows_in_words(of_best),
        "by_epsilon": _by_epsilon(_with_most_reports(rows["answers"]), measure),
        "splits": summaries,
        "split_in_rho": split_in_rho,
    }


def _summary_of_split(existing: Existing, learner: str, split: Split) -> dict[str, Any]:
    """Return the reports of a device, and the command that asks for them, for JSON.

    learner: the name of the one that learns from them.
    """
    further = {"epsilon": epsilon_text(split.epsilon)}
    if split.reports > 1:
        further["reports"] = str(split.reports * existing.device_count)
    return {
        "reports": split.reports,
        "epsilon": split.epsilon / MICRO,
        "command": _command(existing, learner, further),
    }


def _options_of_sums(existing: Existing) -> dict[str, str]:
    """Return the options of `tern train` that only FedSum has, by name."""
    options = existing.options
    return {
        "unit": str(options.unit),
        "run_epsilon": str(options.run_epsilon),
        "delta": str(options.delta),
    }


def _command(existing: Existing, learner: str, further: dict[str, str]) -> str:
    """Return the command that runs on real devices what was simulated.

    learner: its name. further: its options by name, beside those of the records.
    """
    given = existing.options
    values = {
        "data": given.data,
        "by": given.by,
        "time": given.time,
        "model": given.model,
        "public": str(given.public),
    }
    if learner == "fedsgd":
        del values["public"]
    data, _ = existing.loaded
    if given.records is not None or data.owners is None:
        values["records"] = str(given.most_records)
    words = f"tern train {learner} --fleet FLEET"
    for name, value in {**values, **further}.items():
        if value:
            words += f" {flag(name)} {value}"
    return words


def _curve(rows: Sequence[Row], measure: str) -> list[Row]:
    """Return how good the models of several runs are after each judged round.

    Each row has the number of rounds, the number of reports of each device, and what
    `quality.of_runs` returns. rows: those of `_learned`. A run that has ended earlier counts with
    its last model. measure: that of the figure.
    """
    runs = grouped(rows, "seed").values()
    curve = []
    numbers_of_rounds = {row["rounds"] for row in rows}
    for number in sorted(numbers_of_rounds):
        models = []
        for run in runs:
            models_so_far = [row for row in run if row["rounds"] <= number]
            models.append(models_so_far[-1])
        reports = max(model["reports"] for model in models)
        curve.append({"rounds": number, "reports": reports, **quality.of_runs(models, measure)})
    return curve


def _by_epsilon(rows: Sequence[Row], measure: str) -> list[Row]:
    """Return how good the last models of several runs are, by the epsilon of a device's life.

    Each row has the epsilon, the number of runs, and the rest as of `_curve`. rows: of `_learned`
    or `_answered`.
    """
    by_epsilon = []
    for (epsilon,), of_epsilon in sorted(grouped(rows, "epsilon").items()):
        number_of_runs = len(grouped(of_epsilon, "seed"))
        last = _curve(of_epsilon, measure)[-1]
        by_epsilon.append({"epsilon": epsilon / MICRO, "runs": number_of_runs, **last})
    return by_epsilon


def _with_most_reports(rows: Sequence[Row]) -> list[Row]:
    """Return, of the rows of each epsilon, those of the split with the most reports, the best one."""
    best = []
    for of_epsilon in grouped(rows, "epsilon").values():
        most = max(row["reports"] for row in of_epsilon)
        best += pick(of_epsilon, reports=most)
    return best
