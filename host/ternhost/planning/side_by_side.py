"""The result of a plan for a fleet that exists, for people: both units of privacy side by side."""

from collections.abc import Mapping
from typing import Any

from ternhost.learn.models import judging
from ternhost.planning import records, table
from ternhost.planning.cells import Row
from ternhost.privacy.units import DEVICE, name_of, protected
from ternhost.text import counted

_Result = Mapping[str, Any]
_Unit = Mapping[str, Any]  # an entry of "units" of a result


def text_lines(result: _Result) -> list[str]:
    """Return the result of `existing.plan` as lines: a table for each unit, and what they mean."""
    devices = counted(result["devices"], "device")
    of_records = counted(result["records"], "record")
    if result["held"] < result["devices"] * result["records"]:
        of_records = f"at most {of_records}"
    judged = counted(result["judged"], "other record")
    lines = [
        f"{result['model']} model of {records.in_words(result['data'])} ({result['d']} features), "
        f"{devices} of {of_records}, judged on {judged}"
    ]
    for unit in result["units"]:
        lines += _table_of(result, unit)
    same = f"the same {counted(result['held'], 'record')}"
    if result["distinct"] < result["held"]:
        same += f" ({result['distinct']:,} different, with replacement)"
    lines += [
        "to compare with:",
        table.line_of_runs(result, table.WITHOUT_PRIVACY, result["without_privacy"]),
    ]
    if "public_alone" in result:
        lines.append(table.line_of_public_rows(result))
    lines += [table.line_of_baseline(result), f"  {table.WITHOUT_PRIVACY}: {same}"]
    if "public_alone" in result:
        labels = counted(result["public_labels"], "public row")
        lines.append(
            f"  {table.PUBLIC_ALONE}: learned from the labels of {labels}, without devices"
        )
    lines += table.explanation(result)
    for unit in result["units"]:
        subject = f"Unit {name_of(unit['unit'])}: a run"
        lines.append(table.verdict(result, unit["curve"][-1], subject))
        lines += _warnings(result, unit)
    lines += [*_comparison(result), *_public_rows_lines(result)]
    lines += [*_split_lines(result), *records.doubts(result)]
    return lines


def _table_of(result: _Result, unit: _Unit) -> list[str]:
    """Return the part of the table about a unit: what is protected, and a row for each model."""
    epsilon = f"epsilon {unit['epsilon']:g}, without a delta,"
    if unit["delta"]:
        epsilon = f"(epsilon {unit['epsilon']:g}, delta {unit['delta']:g})"
    first_column = "rounds"
    if unit["unit"] == DEVICE:
        first_column = "reports of each"
    lines = [
        f"unit {name_of(unit['unit'])}, by tern train {unit['learner']}:",
        f"  {epsilon} for the device's life protects {protected(unit['unit'])}",
    ]
    if unit["public"]:
        lines.append(f"  with public rows: {unit['public']}")
    lines += table.heading(result, first_column)
    for row in unit["curve"]:
        label = row["rounds"]
        if unit["unit"] == DEVICE:
            label = row["reports"]
        lines.append(table.line_of_runs(result, f"{label}", row))
    if unit["curve_without_rows"]:
        lines.append("  without public rows:")
        for row in unit["curve_without_rows"]:
            lines.append(table.line_of_runs(result, f"{row['rounds']}", row))
    return lines


def _warnings(result: _Result, unit: _Unit) -> list[str]:
    """Return sentences about what is bad about the models of a unit after the last round."""
    name = f"With the unit {name_of(unit['unit'])}"
    lines = table.warnings(result, unit["curve"][-1:], lambda _: name)
    if unit["curve_without_rows"]:
        last_row = unit["curve_without_rows"][-1:]
        lines += table.warnings(result, last_row, lambda _: f"{name}, without public rows")
    return lines


def _public_rows_lines(result: _Result) -> list[str]:
    """Return a sentence for each unit whose model is worse than one of the public rows alone."""
    measure = result["measure"]
    best_end = "low"
    if judging.is_better(measure, 1, 0):
        best_end = "high"
    lines = []
    for unit in result["units"]:
        best_of_mean = unit["curve"][-1][best_end]
        if judging.is_better(measure, result.get("public_alone", best_of_mean), best_of_mean):
            lines.append(
                f"The labels of the public rows alone give a better {judging.WORDS[measure]} than the "
                f"unit {name_of(unit['unit'])}. If yours have labels, too, train on them first."
            )
    return lines


def _comparison(result: _Result) -> list[str]:
    """Return sentences that say what each unit protects, and what it costs in the figure."""
    of_records, of_device = result["units"]
    name = name_of(of_records["unit"])
    epsilon = of_device["epsilon"]
    lines = [
        f"The unit {name} hides {protected(of_records['unit'])}. For all "
        f"{counted(result['records'], 'record')} of a device together, its reports guarantee only "
        f"epsilon {_rounded(of_records['device_epsilon'])}.",
        f"The unit device hides all of them together, at epsilon {epsilon:g} without a delta.",
    ]
    figure = judging.WORDS[result["measure"]]
    last_of_records, last_of_device = of_records["curve"][-1], of_device["curve"][-1]
    both = (
        f"The {figure} is {last_of_records['mean']:.4f} with the unit {name}, and "
        f"{last_of_device['mean']:.4f} with the unit device"
    )
    better = _better(result["measure"], last_of_records, last_of_device)
    if better is None:
        return [*lines, f"{both}: noise hides which of them is better."]
    difference = abs(last_of_records["mean"] - last_of_device["mean"])
    if better is last_of_records:
        return [*lines, f"{both}: here the stronger protection costs {difference:.4f}."]
    return [*lines, f"{both}: here the stronger protection also has the better model."]


def _better(measure: str, one: Row, other: Row) -> Row | None:
    """Return which of two rows has the better mean; None if their 95 % intervals overlap."""
    worse_end, better_end = "high", "low"
    if judging.is_better(measure, 1, 0):
        worse_end, better_end = "low", "high"
    if judging.is_better(measure, one[worse_end], other[better_end]):
        return one
    if judging.is_better(measure, other[worse_end], one[better_end]):
        return other
    return None


def _rounded(epsilon: float) -> str:
    """Return an epsilon with three digits, or in whole numbers if it is large."""
    digits = 3
    if epsilon >= 10**digits:
        return f"{epsilon:,.0f}"
    return f"{epsilon:.{digits}g}"


def _split_lines(result: _Result) -> list[str]:
    """Return sentences on how a device divides the budget of its life, with the command to run."""
    of_device = result["units"][1]
    best = of_device["splits"][-1]
    budget = f"epsilon {of_device['epsilon']:g}"
    lines = []
    if of_device["split_in_rho"] is not None:
        reports = "a single report with all of it"
        if best["reports"] > 1:
            reports = f"{best['reports']} reports with epsilon {best['epsilon']:g} each"
        lines.append(
            f"Of all ways to divide {budget} among the reports of a device, {reports} should tell most."
        )
        in_rho = of_device["split_in_rho"]
        lines.append(
            f"If a device's ledger adds up rho (--budget {of_device['epsilon']:g} --delta "
            f"{result['delta']:g}), it can pay for {counted(in_rho['reports'], 'report')} of epsilon "
            f"{in_rho['epsilon']:.3g}."
        )
    lines.append("To run them on your devices:")
    for unit in result["units"]:
        lines.append(f"  {unit['command']}")
    return lines
