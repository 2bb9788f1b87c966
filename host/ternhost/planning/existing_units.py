"""The part of a plan about each unit of privacy: what its simulations have shown, and its command."""

from collections.abc import Sequence
from typing import Any

from ternhost.learn.models.learning import Learning
from ternhost.learn.models.projections import Split, best_split
from ternhost.learn.one_answer.direct import Direct
from ternhost.learn.sums.fedsum import FedSum
from ternhost.options import flag
from ternhost.planning import quality
from ternhost.planning.cells import Row, Tables
from ternhost.planning.existing import NO_ROWS, Existing, can_split, micro_epsilon
from ternhost.planning.statistics import grouped, pick
from ternhost.planning.whole_devices import epsilon_text
from ternhost.privacy import sums
from ternhost.privacy.base import MICRO
from ternhost.privacy.units import DEVICE, parse_unit


def part_of_records(
    existing: Existing, learner: FedSum, rows: Tables, measure: str, has_public_rows: bool
) -> dict[str, Any]:
    """Return the part of the result about the unit within a device.

    learner: FedSum for this unit. rows: the results of all simulations. measure: the metric that
    the plan compares. has_public_rows: whether there were simulations with public rows.
    """
    options = existing.options
    budget = options.budget_in_rho()
    of_rows = pick(rows["rounds"], public=str(options.public))
    curve_without_rows = None
    if has_public_rows:
        curve_without_rows = _curve(pick(rows["rounds"], public=NO_ROWS), measure)
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
        "curve": _curve(pick(of_rows, epsilon=micro_epsilon(existing)), measure),
        "curve_without_rows": curve_without_rows,
        "public": public_rows_in_words(learner),
        "by_epsilon": _by_epsilon(of_rows, measure),
        "splits": [],
        "split_in_rho": None,
    }


def whole_device(
    existing: Existing, learner: FedSum, rows: Tables, measure: str, splits: Sequence[Split]
) -> dict[str, Any]:
    """Return the part of the result about the unit device, with the keys of the other unit.

    splits: the reports of a device that were simulated; the last one is the best. The curve has a
    row for each of them. The other parameters are those of `part_of_records`.
    """
    data, model = existing.loaded
    of_best = existing.whole_devices(splits[-1]).learner(data, model, existing.options.seed)
    curve = []
    for split in splits:
        of_split = pick(rows["answers"], epsilon=micro_epsilon(existing), reports=split.reports)
        curve += _curve(of_split, measure)
    summaries = [_summary_of_split(existing, of_best.name, split) for split in splits]
    split_in_rho = None
    if can_split(existing, learner):
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
        "public": public_rows_in_words(of_best),
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


def reads_public_rows(learner: Learning) -> bool:
    """Return whether a learner reads public rows: those of a file, or records that no device gets."""
    public = str(getattr(learner.options, "public", NO_ROWS))
    return len(learner.reserved) > 0 or public not in ("", NO_ROWS)


def public_rows_in_words(learner: Learning) -> str | None:
    """Return which public rows a learner reads, for people; None for none."""
    if not reads_public_rows(learner):
        return None
    text = str(learner.options.public) or "those that the data declare"
    if learner.name == Direct.name and len(learner.reserved):
        known = "class shares"
        if learner.model == "linear":
            known = "mean label"
        text += f", whose labels tell the {known}"
    return text


def _curve(rows: Sequence[Row], measure: str) -> list[Row]:
    """Return how good the models of several runs are after each judged round.

    Each row has the number of rounds, the number of reports of each device, and what
    `quality.of_runs` returns. rows: of the simulated runs. A run that has ended earlier counts with
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

    Each row has the epsilon, the number of runs, and the rest as of `_curve`. rows: of
    the simulated runs.
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
