"""The report of a run that has collected means and frequencies."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ternhost.extensions import Row
from ternhost.plots import canvas, runs
from ternhost.privacy.guarantee import rounded
from ternhost.run.report.page import (
    Page,
    common_pictures,
    common_results,
    common_settings,
    promised,
    table,
)

_MOST = 40  # attributes in a picture; of categories
_PANELS, _CATEGORIES = 14, 8
_IN_WORDS = {"grr": "randomised response", "olh": "optimised local hashing"}


def page(result: Mapping[str, Any]) -> Page:
    """The page of its result."""
    judged: list[Row] = []
    for name, what in (("mean_squared_error", "means"), ("frequency_squared_error", "frequencies")):
        if result.get(name) is not None:
            meaning = f"of the {what}, against those of what the clients hold"
            judged.append(("mean squared error", f"{result[name]:.4g}", meaning))
    title = f"{result['dataset']}, means and frequencies by {result['method']}"
    lead = f"{result['clients']:,} clients told something of themselves. {promised(result)}"
    if "unit" in result:
        lead = f"{result['clients']:,} devices each told noisy sums. {promised(result)}"
    parts = [_part(part) for part in result["parts"]]
    return Page(
        title=title,
        lead=lead,
        pictures=_pictures(result),
        results=common_results(result),
        settings=[*parts, *common_settings(result)],
        figures=[("result", "value", "what it means"), *judged] if judged else (),
        more={"Attributes": _attributes(result["attributes"])},
    )


def _pictures(result: Mapping[str, Any]) -> dict[str, tuple[Figure, str]]:
    pictures = {}
    means = [entry for entry in result["attributes"] if "mean" in entry][:_MOST]
    if means:
        pictures["means"] = _picture_of_means(means, result.get("clipped_at"))
    categorical = [entry for entry in result["attributes"] if entry.get("intervals")][:_PANELS]
    if categorical:
        caption = (
            f"The {_CATEGORIES} categories of each attribute that seem to be the most frequent. "
            "Among many that are equally frequent, these are the ones with the most noise."
        )
        figure = runs.frequencies([_shares(entry) for entry in categorical])
        pictures["frequencies"] = figure, caption
    part = result["parts"][0]
    title = f"{part['mechanism']}, {canvas.plain(part['name'])}"
    return pictures | common_pictures(result, part["card"], title)


def _picture_of_means(
    entries: Sequence[Mapping[str, Any]], clipped_at: float | None
) -> tuple[Figure, str]:
    """The means of attributes with their intervals, and the caption."""
    names = [entry["name"] for entry in entries]
    means = np.array([entry["mean"] for entry in entries])
    intervals = [entry["interval"] or (np.nan, np.nan) for entry in entries]
    low, high = np.array(intervals, np.float64).T
    caption = "The estimated mean of every attribute, with an interval that covers 95 %."
    if clipped_at:
        caption += f" Numbers beyond a class's safe range, from {clipped_at:g}, are clipped;"
        caption += " intervals do not cover that."
    return runs.gradient(names, means, low, high, 0.95, "mean"), caption


def _shares(entry: Mapping[str, Any]) -> runs.Shares:
    """The most frequent categories of an attribute, for their picture."""
    shown, left_out = common(entry, _CATEGORIES)
    name = entry["name"]
    if left_out:
        name += f", {left_out} more"
    return runs.Shares(
        name,
        [entry["categories"][i] for i in shown],
        np.array(entry["frequencies"])[shown],
        np.array(entry["intervals"])[shown].T,
        np.array(entry["true"])[shown] if "true" in entry else None,
    )


def common(entry: Mapping[str, Any], most: int) -> tuple[list[int], int]:
    """The categories of an attribute that seem the most frequent, and how many are left out."""
    reported = [i for i, share in enumerate(entry["frequencies"]) if share is not None]
    order = sorted(reported, key=lambda i: -entry["frequencies"][i])
    return order[:most], len(order[most:])


def _part(part: Mapping[str, Any]) -> Row:
    how = _IN_WORDS.get(part["mechanism"], part["mechanism"])
    meaning = f"reported by a client at epsilon {rounded(part['epsilon'])} by {how} (card {part['card_hash']})"
    return part["name"], f"{part['k']} of {part['d']}", meaning


def _attributes(entries: Sequence[Mapping[str, Any]]) -> str:
    rows = [(entry["name"], _value(entry), f"{entry['reports']:,}") for entry in entries]
    return table(("attribute", "estimate", "reports"), rows)


def _value(entry: Mapping[str, Any]) -> str:
    if "mean" in entry:
        text = f"{entry['mean']:+.4f}"
        if entry["interval"]:
            low, high = entry["interval"]
            text += f" ({low:+.4f} to {high:+.4f})"
        return text
    shown, left_out = common(entry, _MOST)
    parts = [f"{entry['categories'][i]} {entry['frequencies'][i]:.3f}" for i in shown]
    if left_out:
        parts.append(f"{left_out} more")
    return ", ".join(parts)
