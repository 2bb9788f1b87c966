"""The report of a run that has collected means, frequencies or quantiles."""

import re
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ternhost.datasets import on_devices
from ternhost.extensions import Row
from ternhost.learn import liar_results
from ternhost.learn.collecting.attribute_results import most_frequent
from ternhost.learn.distributions.distribution_entries import (
    CollectedDistribution,
    Quantile,
    distributions_of,
)
from ternhost.learn.distributions.quantile_results import liar_lines
from ternhost.plots import canvas, distributions, runs
from ternhost.privacy.guarantee import rounded
from ternhost.run.plugins import learner_of
from ternhost.run.report.page import (
    Page,
    common_pictures,
    common_results,
    common_settings,
    guarantee_sentence,
    liar_rows,
    table,
)
from ternhost.text import counted

_MOST = 40  # attributes in the picture of means, and categories in the table
_MOST_PANELS = 14  # in the picture of frequencies, each of an attribute
_MOST_CATEGORIES = 8  # in a panel
_MOST_DISTRIBUTIONS = 12  # attributes with a picture of their distribution
_LONGEST_NAME = 40  # characters of an attribute in the name of its picture
_MOST_QUANTILES = 40  # rows of the table that is visible at once
_CONFIDENCE = 0.95  # of the intervals of means
_MECHANISM_NAMES = {"grr": "randomised response", "olh": "optimised local hashing"}
_ERRORS = {"mean_squared_error": "means", "frequency_squared_error": "frequencies"}


def page(result: Mapping[str, Any]) -> Page:
    """Return the report of a run that has collected something about attributes, from its result."""
    title = f"{on_devices.in_words(result['data'])}, {learner_of(result).collects}"
    lead = f"{counted(result['clients'], 'client')} told something of themselves. {guarantee_sentence(result)}"
    if "unit" in result:
        lead = f"{counted(result['clients'], 'device')} each told noisy sums. {guarantee_sentence(result)}"
    question_rows = [_question_row(part) for part in result["parts"]]
    collected_distributions = distributions_of(result["attributes"])
    return Page(
        title=title,
        lead=lead,
        pictures=_pictures(result),
        results=[*common_results(result), *_liar_rows(result)],
        settings=[*question_rows, *common_settings(result)],
        figures=quantile_table(collected_distributions) or _error_table(result),
        more={"Attributes": _attributes(result["attributes"])},
    )


def _liar_rows(result: Mapping[str, Any]) -> list[Row]:
    """Tabulate how far lying devices can have moved the estimates, as far as that is known."""
    return liar_rows([*liar_results.collecting_lines(result), *liar_lines(result)])


def quantile_table(collected: Sequence[CollectedDistribution]) -> list[Sequence[str]]:
    """Tabulate the first quantiles below a head; return nothing if there are none."""
    is_true_known = any(each.true is not None for each in _all_quantiles(collected))
    head = ["attribute", "quantile", "value", "interval of 95 %"]
    if is_true_known:
        head.append("truly")
    rows: list[Sequence[str]] = []
    for distribution in collected:
        for quantile in distribution.quantiles:
            low, high = f"{quantile.low:.4g}", distribution.with_unit(quantile.high)
            row = [distribution.name, quantile.name, distribution.with_unit(quantile.value)]
            row.append(f"{low} to {high}")
            if is_true_known:
                row.append("" if quantile.true is None else distribution.with_unit(quantile.true))
            rows.append(row)
    if not rows:
        return []
    return [head, *rows[:_MOST_QUANTILES]]


def _all_quantiles(collected: Sequence[CollectedDistribution]) -> Iterator[Quantile]:
    """Yield the quantiles of all distributions."""
    for distribution in collected:
        yield from distribution.quantiles


def _error_table(result: Mapping[str, Any]) -> list[Row]:
    """Tabulate the errors of the estimates, below a head; return nothing if none is known."""
    rows: list[Row] = []
    for name, estimates in _ERRORS.items():
        if result.get(name) is not None:
            meaning = f"of the {estimates}, against those of what the clients hold"
            rows.append(("mean squared error", f"{result[name]:.4g}", meaning))
    if not rows:
        return []
    return [("result", "value", "what it means"), *rows]


def _pictures(result: Mapping[str, Any]) -> dict[str, tuple[Figure, str]]:
    """Draw the means or distributions of numbers, the frequencies of categories, and the privacy.

    Return each figure with its caption, by the name of its file.
    """
    numeric, categorical = [], []
    for attribute in result["attributes"]:
        if "mean" in attribute:
            numeric.append(attribute)
        if attribute.get("intervals"):
            categorical.append(attribute)
    pictures: dict[str, tuple[Figure, str]] = {}
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
    pictures |= pictures_of_distributions(distributions_of(result["attributes"]))
    part = result["parts"][0]
    title = f"{part['mechanism']}, {canvas.plain(part['name'])}"
    return pictures | common_pictures(result, part["card"], title)


def pictures_of_distributions(
    collected: Sequence[CollectedDistribution],
) -> dict[str, tuple[Figure, str]]:
    """Draw the first distributions, each with its caption, by the name of its file."""
    pictures: dict[str, tuple[Figure, str]] = {}
    for distribution in collected[:_MOST_DISTRIBUTIONS]:
        finest, drawn = len(distribution.histogram.shares), len(distribution.shown.shares)
        caption = (
            f"The distribution of {distribution.name}. Above is its histogram, and below the share "
            "of values that are at most as large, with the quantiles. Bars and bands are intervals "
            "that cover 95 %. An estimate may lie below 0 or above 1."
        )
        if drawn < finest:
            caption += (
                f" The histogram has {drawn} bins, since the noise would hide the shares of the "
                f"{finest} bins that were collected."
            )
        figure = distributions.distribution(distribution)
        pictures[_name_of_picture(distribution.name, taken=pictures)] = figure, caption
    return pictures


def _name_of_picture(attribute: str, taken: Container[str]) -> str:
    """Return a name for the file with the distribution of an attribute, such as "distribution-age".

    It has only letters, digits and hyphens, and a number if the same name was taken before.
    """
    readable = re.sub("[^a-z0-9]+", "-", attribute.lower()).strip("-")
    first = f"distribution-{readable[:_LONGEST_NAME]}".strip("-")
    name = first
    number = 1
    while name in taken:
        number += 1
        name = f"{first}-{number}"
    return name


def _picture_of_means(
    attributes: Sequence[Mapping[str, Any]], clipped_at: float | None
) -> tuple[Figure, str]:
    """Draw the estimated means of attributes with their intervals, and write the caption.

    clipped_at: the smallest bound (tau) to which a class of clients clips its values; None: no
    class clips any.
    """
    names, means, lows, highs = [], [], [], []
    for attribute in attributes:
        low, high = attribute["interval"] or (np.nan, np.nan)  # nan: nobody has reported it
        names.append(attribute["name"])
        means.append(attribute["mean"])
        lows.append(low)
        highs.append(high)
    caption = "The estimated mean of every attribute, with an interval that covers 95 %."
    if clipped_at:
        caption += f" Numbers beyond a class's safe range, from {clipped_at:g}, are clipped;"
        caption += " intervals do not cover that."
    figure = runs.gradient(
        names,
        mean=np.array(means),
        low=np.array(lows, np.float64),
        high=np.array(highs, np.float64),
        confidence=_CONFIDENCE,
        across="mean",
    )
    return figure, caption


def _shares(attribute: Mapping[str, Any]) -> runs.Shares:
    """Return the most frequent categories of an attribute, as a panel of a picture shows them."""
    shown, left_out = most_frequent(attribute, _MOST_CATEGORIES)
    title = attribute["name"]
    if left_out:
        title += f", {left_out} more"
    true_frequencies = None
    if "true" in attribute:
        true_frequencies = np.array(attribute["true"])[shown]
    return runs.Shares(
        title,
        categories=[attribute["categories"][index] for index in shown],
        shares=np.array(attribute["frequencies"])[shown],
        interval=np.array(attribute["intervals"])[shown].T,
        true=true_frequencies,
    )


def _question_row(part: Mapping[str, Any]) -> Row:
    """Return the row of the settings about one kind of question: what it asks for, and how."""
    mechanism = _MECHANISM_NAMES.get(part["mechanism"], part["mechanism"])
    meaning = f"reported by a client at epsilon {rounded(part['epsilon'])} by {mechanism}"
    meaning += f" (card {part['card_hash']})"
    return part["name"], f"{part['k']} of {part['d']}", meaning


def _attributes(attributes: Sequence[Mapping[str, Any]]) -> str:
    """Return the HTML table of all attributes with their estimates."""
    rows = []
    for attribute in attributes:
        rows.append((attribute["name"], _estimate(attribute), f"{attribute['reports']:,}"))
    return table(("attribute", "estimate", "reports"), rows)


def _estimate(attribute: Mapping[str, Any]) -> str:
    """Write the estimate of an attribute: its mean, its quantiles, or its frequencies."""
    if "histogram" in attribute:
        distribution = CollectedDistribution.of(attribute)
        quantiles = []
        for quantile in distribution.quantiles:
            quantiles.append(f"{quantile.name} {distribution.with_unit(quantile.value)}")
        return ", ".join(quantiles)
    if "mean" in attribute:
        text = f"{attribute['mean']:+.4f}"
        if attribute["interval"]:
            low, high = attribute["interval"]
            text += f" ({low:+.4f} to {high:+.4f})"
        return text

    shown, left_out = most_frequent(attribute, _MOST)
    frequencies = []
    for index in shown:
        category = attribute["categories"][index]
        frequency = attribute["frequencies"][index]
        frequencies.append(f"{category} {frequency:.3f}")
    if left_out:
        frequencies.append(f"{left_out} more")
    return ", ".join(frequencies)
