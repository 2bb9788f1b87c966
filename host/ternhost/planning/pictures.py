"""Pictures of plans: how good a model is by the number of devices, or by the rounds of a fleet.

A point is the mean of several simulated runs, and its bar the interval in which a single run lies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ternhost.learn import judging
from ternhost.planning import records
from ternhost.planning.cells import Row
from ternhost.planning.quality import baseline_name, measures
from ternhost.plots.curves import Curve, Panel, draw
from ternhost.privacy.units import protected
from ternhost.text import counted

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def figure(result: Mapping[str, Any]) -> Figure:
    """Draw a plan, with a panel for its figure and one for the log-loss, if its models have one.

    result: as `planning.one_report.plan` or `planning.existing.plan` returns it.
    """
    is_of_a_fleet = "device_unit" in result
    make_panel = _over_rounds if is_of_a_fleet else _over_devices
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
    last_round = result["curve"][-1]["rounds"]

    # Curves over the rounds: what is protected is a unit of records.
    curve_name = (
        f"unit: {protected(result['unit'])}, mean of {result['runs']} runs; bars: a single run"
    )
    curves = [_curve(curve_name, result["curve"], "rounds", prefix)]
    if result["curve_without_rows"]:
        name = "the same, without public rows"
        curves.append(_curve(name, result["curve_without_rows"], "rounds", prefix))

    # Single points to compare with: whole devices are protected, after one round; no privacy.
    one_round = {"rounds": 1, **result["device_unit"]}
    curves.append(_curve("unit: device", [one_round], "rounds", prefix))
    without_privacy = {"rounds": last_round, **result["without_privacy"]}
    curves.append(_curve("without privacy", [without_privacy], "rounds", prefix))

    data = records.in_words(result["data"])
    devices = f"{counted(result['devices'], 'device')} of {counted(result['records'], 'record')}"
    title = f"{data}, {devices}, epsilon {result['run_epsilon']:g} in all"
    levels = {baseline_name(result): result[f"{prefix}baseline"]}
    return Panel(title, "rounds", judging.WORDS[measure], curves, log_x=True, lines=levels)
