"""Pictures of plans: how good a model is by the number of devices, the rounds, or the epsilon.

A point is the mean of several simulated runs. Its bar is the interval in which a single run lies, or
in a picture by epsilon a standard error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ternhost.learn.models import judging
from ternhost.planning import records
from ternhost.planning.cells import Row
from ternhost.planning.quality import baseline_name, measures
from ternhost.planning.statistic_options import MEAN, QUANTILE
from ternhost.plots.curves import Curve, Panel, draw
from ternhost.privacy.units import name_of, protected
from ternhost.text import counted

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def figure(result: Mapping[str, Any]) -> Figure:
    """Draw a plan, with a panel for its figure and one for the log-loss, if its models have one.

    result: as `planning.one_report.plan` or `planning.existing.plan` returns it, or
        `planning.statistic_plan.plan`, which has a panel for each attribute.
    """
    if "statistic" in result:
        return draw(_of_statistic(result))
    make_panel = _over_devices
    if "units" in result:  # of a fleet that exists
        make_panel = _over_rounds
        if len(result["units"][0]["by_epsilon"]) > 1:
            make_panel = _over_epsilons
    return draw([make_panel(result, *measure) for measure in measures(result)])


def _curve(label: str, rows: Sequence[Row], x: str, prefix: str) -> Curve:
    """Return the means of several runs, with bars for the interval of a single run.

    rows: as of `quality.of_runs`. x: the column with the place of a point. prefix: that of the
    columns of the measure.
    """
    means = [row[f"{prefix}mean"] for row in rows]
    below = [row[f"{prefix}mean"] - row[f"{prefix}run_low"] for row in rows]
    above = [row[f"{prefix}run_high"] - row[f"{prefix}mean"] for row in rows]
    return Curve(label, x=[row[x] for row in rows], y=means, error=(below, above))


def _over_devices(result: Mapping[str, Any], measure: str, prefix: str) -> Panel:
    """Return the picture of a measure over the number of devices, for new devices.

    prefix: that of the names of the measure in the result.
    """
    curve_name = f"private model, mean of {result['runs']} runs; bars: a single run"
    private_curve = _curve(curve_name, result["curve"], "devices", prefix)

    # Horizontal lines to compare with.
    levels = {
        "without privacy": result[f"{prefix}optimum"],
        baseline_name(result): result[f"{prefix}baseline"],
    }
    if result["goal"] and measure == result["measure"]:
        levels["goal"] = result["goal"]["figure"]

    data = records.in_words(result["data"])
    title = f"{data}, d = {result['d']}, {result['model']}, epsilon {result['epsilon']:.8g}"
    reports_words = "one report"
    rounds = result["rounds"]
    if rounds:  # a plan for years
        reports_words = counted(rounds["rounds"], "report")
        title += f" a round, {rounds['run_epsilon']:g} in all"
    x_name = f"devices, each with {reports_words}"
    return Panel(title, x_name, judging.WORDS[measure], [private_curve], log_x=True, lines=levels)


def _over_rounds(result: Mapping[str, Any], measure: str, prefix: str) -> Panel:
    """Return the picture of a measure over the rounds of a fleet that exists.

    prefix: that of the names of the measure in the result.
    """
    of_records, of_device = result["units"]
    last_round = of_records["curve"][-1]["rounds"]

    # Curves over the rounds: what is protected is a unit of records.
    unit = of_records["unit"]
    curve_name = f"unit {name_of(unit)}: {protected(unit)}, mean of {result['runs']} runs; bars: a single run"
    curves = [_curve(curve_name, of_records["curve"], "rounds", prefix)]
    if of_records["curve_without_rows"]:
        name = "the same, without public rows"
        curves.append(_curve(name, of_records["curve_without_rows"], "rounds", prefix))

    # Single points to compare with: whole devices are protected; no privacy.
    curves.append(_curve("unit device", of_device["curve"][-1:], "rounds", prefix))
    without_privacy = {**result["without_privacy"], "rounds": last_round}
    curves.append(_curve("without privacy", [without_privacy], "rounds", prefix))

    title = f"{_fleet_in_words(result)}, epsilon {result['run_epsilon']:g} in all"
    levels = {baseline_name(result): result[f"{prefix}baseline"]}
    return Panel(title, "rounds", judging.WORDS[measure], curves, log_x=True, lines=levels)


def _over_epsilons(result: Mapping[str, Any], measure: str, prefix: str) -> Panel:
    """Return the picture of a measure over the epsilon of a device's whole life, for both units.

    prefix: that of the names of the measure in the result.
    """
    curves = []
    for unit in result["units"]:
        name = f"unit {name_of(unit['unit'])}: {protected(unit['unit'])}"
        if unit["delta"]:
            name += f" (delta {unit['delta']:g})"
        mean, error = f"{prefix}mean", f"{prefix}standard_error"
        curves.append(Curve.of(name, unit["by_epsilon"], "epsilon", mean, error))
    levels = {
        "without privacy": result["without_privacy"][f"{prefix}mean"],
        baseline_name(result): result[f"{prefix}baseline"],
    }
    x_name = "epsilon over a device's whole life (bars: standard error of the mean)"
    title = _fleet_in_words(result)
    return Panel(title, x_name, judging.WORDS[measure], curves, log_x=True, lines=levels)


def _of_statistic(result: Mapping[str, Any]) -> list[Panel]:
    """Return the pictures of the intervals to expect, over the number of devices.

    There is a panel for each attribute, or for each distribution where the plan assumes several.
    """
    by_panel: dict[str, list[Curve]] = {}
    for estimate in result["estimates"]:
        curves = by_panel.setdefault(f"{estimate['name']} ({estimate['assumed']})", [])
        rows = [row for row in estimate["tried"] if row["half"] is not None]
        devices = [row["devices"] for row in rows]
        halves = [100 * row["half"] for row in rows]
        curves.append(Curve(f"noise, {estimate['statistic']}", x=devices, y=halves))
        if result["liars"]:
            bounded = [row for row in rows if row["moved"] is not None]
            moved = [100 * row["moved"] for row in bounded]
            label = f"{100 * result['liars']:g} % liars, {estimate['statistic']}"
            curves.append(Curve(label, x=[row["devices"] for row in bounded], y=moved))

    epsilon = result["epsilon"]
    if epsilon is None:
        epsilon = result["run_epsilon"]
    of_what = "difference of shares"
    if result["statistic"] in (MEAN, QUANTILE):
        of_what = "share of the range"
    panels = []
    for name, curves in by_panel.items():
        panel = Panel(
            f"{result['statistic']} of {name}, epsilon {epsilon:g}",
            "devices",
            f"95 % interval, +- in % ({of_what})",
            curves,
            log_x=True,
            log_y=True,
            lines={"goal": 100 * result["goal"]} if result["goal"] else {},
        )
        panels.append(panel)
    return panels


def _fleet_in_words(result: Mapping[str, Any]) -> str:
    """Return the data of a plan, and the devices that hold them, for the title of a picture."""
    data = records.in_words(result["data"])
    return (
        f"{data}, {counted(result['devices'], 'device')} of {counted(result['records'], 'record')}"
    )
