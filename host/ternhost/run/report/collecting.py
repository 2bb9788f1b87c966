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

_MOST = 40  # attributes in the picture of means, and categories in the table
_MOST_PANELS = 14  # in the picture of frequencies, each of an attribute
_MOST_CATEGORIES = 8  # in a panel
_CONFIDENCE = 0.95  # of the intervals of means
_MECHANISM_NAMES = {"grr": "randomised response", "olh": "optimised local hashing"}
_ERRORS = {"mean_squared_error": "means", "frequency_squared_error": "frequencies"}


def page(result: Mapping[str, Any]) -> Page:
    """Return the report of a run that has collected means and frequencies."""
    judged: list[Row] = []
    for name, estimates in _ERRORS.items():
        if result.get(name) is not None:
            meaning = f"of the {estimates}, against those of what the clients hold"
            judged.append(("mean squared error", f"{result[name]:.4g}", meaning))
    figures: list[Row] = []
    if judged:
        figures = [("result", "value", "what it means"), *judged]
    title = f"{result['dataset']}, means and frequencies by {result['method']}"
    lead = f"{result['clients']:,} clients told something of themselves. {promised(result)}"
    if "unit" in result:
        lead = f"{result['clients']:,} devices each told noisy sums. {promised(result)}"
    parts = [_part_row(part) for part in result["parts"]]
    return Page(
        title=title,
        lead=lead,
        pictures=_pictures(result),
        results=common_results(result),
        settings=[*parts, *common_settings(result)],
        figures=figures,
        more={"Attributes": _attributes(result["attributes"])},
    )


def _pictures(result: Mapping[str, Any]) -> dict[str, tuple[Figure, str]]:
    """Draw the means of numeric attributes, the frequencies of categories, and the privacy.

    Return each figure with its caption, by the name of its file.
    """
    numeric, categorical = [], []
    for attribute in result["attributes"]:
        if "mean" in attribute:
            numeric.append(attribute)
        if attribute.get("intervals"):
            categorical.append(attribute)
    pictures = {}
    if numeric:
        pictures["means"] = _picture_of_means(numeric[:_MOST], result.get("clipped_at"))
    if categorical:
        caption = (
            f"The {_MOST_CATEGORIES} categories of each attribute that seem to be the most "
            "frequent. Among many that are equally frequent, these are the ones with the most noise."
        )
        panels = [_shares(attribute) for attribute in categorical[:_MOST_PANELS]]
        figure = runs.frequencies(panels)
        pictures["frequencies"] = figure, caption
    part = result["parts"][0]
    title = f"{part['mechanism']}, {canvas.plain(part['name'])}"
    return pictures | common_pictures(result, part["card"], title)


def _picture_of_means(
    entries: Sequence[Mapping[str, Any]], clipped_at: float | None
) -> tuple[Figure, str]:
    """Draw the means of attributes with their intervals, and write the caption.

    clipped_at: the smallest safe range (tau) of a class of clients, if it is below 1.
    """
    names = [entry["name"] for entry in entries]
    means = np.array([entry["mean"] for entry in entries])
    intervals = [entry["interval"] or (np.nan, np.nan) for entry in entries]
    low, high = np.array(intervals, np.float64).T
    caption = "The estimated mean of every attribute, with an interval that covers 95 %."
    if clipped_at:
        caption += f" Numbers beyond a class's safe range, from {clipped_at:g}, are clipped;"
        caption += " intervals do not cover that."
    return runs.gradient(names, means, low, high, _CONFIDENCE, "mean"), caption


def _shares(entry: Mapping[str, Any]) -> runs.Shares:
    """Return the most frequent categories of an attribute, for a panel of their picture."""
    shown, left_out = common(entry, _MOST_CATEGORIES)
    title = entry["name"]
    if left_out:
        title += f", {left_out} more"
    true_frequencies = None
    if "true" in entry:
        true_frequencies = np.array(entry["true"])[shown]
    return runs.Shares(
        title,
        [entry["categories"][index] for index in shown],
        np.array(entry["frequencies"])[shown],
        np.array(entry["intervals"])[shown].T,
        true_frequencies,
    )


def common(entry: Mapping[str, Any], most: int) -> tuple[list[int], int]:
    """Return the indices of the most frequent categories, and how many more have an estimate.

    entry: an attribute with the estimated `frequencies` of its categories. most: the number of
    categories to return, at most.
    """
    estimated = [i for i, share in enumerate(entry["frequencies"]) if share is not None]
    by_frequency = sorted(estimated, key=lambda i: -entry["frequencies"][i])
    return by_frequency[:most], len(by_frequency[most:])


def _part_row(part: Mapping[str, Any]) -> Row:
    """Return the setting of one kind of question: how many attributes it asks, and how."""
    mechanism = _MECHANISM_NAMES.get(part["mechanism"], part["mechanism"])
    meaning = f"reported by a client at epsilon {rounded(part['epsilon'])} by {mechanism}"
    meaning += f" (card {part['card_hash']})"
    return part["name"], f"{part['k']} of {part['d']}", meaning


def _attributes(entries: Sequence[Mapping[str, Any]]) -> str:
    """Return the HTML table of all attributes with their estimates."""
    rows = [(entry["name"], _estimate(entry), f"{entry['reports']:,}") for entry in entries]
    return table(("attribute", "estimate", "reports"), rows)


def _estimate(entry: Mapping[str, Any]) -> str:
    """Write the estimate of an attribute: its mean, or the frequencies of its categories."""
    if "mean" in entry:
        text = f"{entry['mean']:+.4f}"
        if entry["interval"]:
            low, high = entry["interval"]
            text += f" ({low:+.4f} to {high:+.4f})"
        return text
    shown, left_out = common(entry, _MOST)
    frequencies = []
    for index in shown:
        category, frequency = entry["categories"][index], entry["frequencies"][index]
        frequencies.append(f"{category} {frequency:.3f}")
    if left_out:
        frequencies.append(f"{left_out} more")
    return ", ".join(frequencies)
