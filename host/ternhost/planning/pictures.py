"""Pictures of plans: how good a model is by the number of devices, or by the rounds of a fleet.

The bars are one standard error of the mean of several simulated runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ternhost.learn.judging import TRIVIAL, WORDS
from ternhost.planning import records
from ternhost.plots.curves import Curve, Panel, draw
from ternhost.privacy.units import protected
from ternhost.text import counted

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def figure(result: Mapping[str, Any]) -> Figure:
    """Draw a plan. result: as `planning.one_report.plan` or `planning.existing.plan` returns it."""
    is_of_a_fleet = "device_unit" in result
    make_panel = _over_rounds if is_of_a_fleet else _over_devices
    return draw([make_panel(result)])


def _over_devices(result: Mapping[str, Any]) -> Panel:
    """Return the picture of the model's quality over the number of devices, for new devices."""
    measure = result["measure"]
    curve_name = f"private model, mean of {result['runs']} runs"
    private_curve = Curve.of(curve_name, result["curve"], "devices", "mean")

    # Horizontal lines to compare with.
    levels = {"without privacy": result["optimum"], TRIVIAL[measure]: result["baseline"]}
    if result["goal"]:
        levels["goal"] = result["goal"]["figure"]

    data = records.in_words(result["data"])
    title = f"{data}, d = {result['d']}, {result['model']}, epsilon {result['epsilon']:.8g}"
    reports_words = "one report"
    rounds = result["rounds"]
    if rounds:  # a plan for years
        reports_words = counted(rounds["rounds"], "report")
        title += f" a round, {rounds['run_epsilon']:g} in all"
    x_name = f"devices, each with {reports_words}"
    return Panel(title, x_name, WORDS[measure], [private_curve], log_x=True, lines=levels)


def _over_rounds(result: Mapping[str, Any]) -> Panel:
    """Return the picture of the model's quality over the rounds of a fleet that exists."""
    measure = result["measure"]
    last_round = result["curve"][-1]["rounds"]

    # Curves over the rounds: what is protected is a unit of records.
    curve_name = f"unit: {protected(result['unit'])}, mean of {result['runs']} runs"
    curves = [Curve.of(curve_name, result["curve"], "rounds", "mean")]
    if result["public_curve"]:
        name = "the same, with public rows"
        curves.append(Curve.of(name, result["public_curve"], "rounds", "mean"))

    # Single points to compare with: whole devices are protected, after one round; no privacy.
    one_round = {"rounds": 1, **result["device_unit"]}
    curves.append(Curve.of("unit: device", [one_round], "rounds", "mean"))
    without_privacy = {"rounds": last_round, **result["without_privacy"]}
    curves.append(Curve.of("without privacy", [without_privacy], "rounds", "mean"))

    data = records.in_words(result["data"])
    devices = f"{counted(result['devices'], 'device')} of {counted(result['records'], 'record')}"
    title = f"{data}, {devices}, epsilon {result['run_epsilon']:g} in all"
    levels = {TRIVIAL[measure]: result["baseline"]}
    return Panel(title, "rounds", WORDS[measure], curves, log_x=True, lines=levels)
