"""Results of collecting: the entries of attributes, their errors, and lines for people.

An entry has the `name` of an attribute and its number of `reports`. A numeric attribute has a
`mean` and its `interval`, which are scaled: `low` and `high` in its `unit` are what -1 and 1 stand
for, if that is known. A categorical one has `categories`, and for each a share in `frequencies`
and an interval in `intervals`. `true` is the mean, or the shares, among the clients, where known.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ternhost.datasets import Table
from ternhost.learn.collecting.estimate import Estimate

_SHOWN = 24  # attributes, for people,
_COMMON = 5  # and categories of each


def unit_of(name: str, table: Table) -> dict[str, Any]:
    """Return the unit of a numeric attribute, for its entry; empty if it has none.

    name: that of the attribute. table: of the attributes.
    """
    for unit in table.units:
        if unit.name == name:
            return {"low": unit.low, "high": unit.high, "unit": unit.unit}
    return {}


def intervals_of(estimate: Estimate) -> list[list[float] | None]:
    """Return the interval of each value of an estimate for JSON; None where it is not finite."""
    intervals: list[list[float] | None] = []
    for low, high in zip(estimate.low, estimate.high, strict=True):
        if np.isfinite(low) and np.isfinite(high):
            intervals.append([float(low), float(high)])
        else:
            intervals.append(None)
    return intervals


def squared_errors(entries: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """Return the mean squared errors of estimated means and of estimated frequencies, for JSON.

    An attribute is numeric, and has a mean, or categorical, and has frequencies of its categories.

    entries: the results of attributes. Only those whose true values are known count; an error is
        None if there is no such entry.
    """
    mean_errors, frequency_errors = [], []  # squared, of each attribute
    for entry in entries:
        if "true" not in entry:
            continue
        if "mean" in entry:
            mean_errors.append((entry["mean"] - entry["true"]) ** 2)
        elif entry["intervals"]:  # somebody reported the attribute
            errors = np.subtract(entry["frequencies"], entry["true"])
            frequency_errors.append(np.mean(np.square(errors)))
    return {
        "mean_squared_error": _mean(mean_errors),
        "frequency_squared_error": _mean(frequency_errors),
    }


def _mean(values: Sequence[float]) -> float | None:
    """Return the mean of the values; None if there are none."""
    if not values:
        return None
    return float(np.mean(values))


def error_lines(result: Mapping[str, Any]) -> list[str]:
    """Return lines for people about the squared errors of a result, as far as they are known."""
    kinds = {"mean_squared_error": "means", "frequency_squared_error": "frequencies"}
    lines = []
    for name, kind in kinds.items():
        if result.get(name) is not None:
            lines.append(f"mean squared error of the {kind} {result[name]:.3g}")
            if kind == "means" and any("low" in entry for entry in result["attributes"]):
                lines[-1] += ", with all bounds scaled to -1 and 1"
    return lines


def attribute_lines(result: Mapping[str, Any]) -> list[str]:
    """Return lines for people about the attributes of a result: their means or frequencies.

    A result of many attributes shows only the first ones. An example of a line is "age: +0.123  (95
    % interval +0.101 to +0.145)".
    """
    entries = result["attributes"]
    lines = []
    if any("mean" in entry and "low" not in entry for entry in entries):
        lines.append("means are scaled: -1 and 1 are the bounds of an attribute's public range")
    if result.get("clipped_at"):
        tau = result["clipped_at"]
        lines.append(
            f"numbers beyond a class's safe range, from {tau:g}, are clipped; intervals do not cover that"
        )
    for entry in entries[:_SHOWN]:
        lines.append(_line(entry))
    if len(entries) > _SHOWN:
        lines.append(f"and {len(entries) - _SHOWN} more")
    return lines


def _line(entry: Mapping[str, Any]) -> str:
    """Return a line about an attribute: its mean with the interval, or its frequencies."""
    if "frequencies" in entry:
        return _frequencies_line(entry)
    line = f"{entry['name']}: {value_with_unit(entry, entry['mean'])}"
    if entry["interval"]:
        line += f"  {interval_in_words(entry, entry['interval'])}"
    if "true" in entry:
        line += f"  true mean {value_in_unit(entry, entry['true'])}"
    return line


def interval_in_words(entry: Mapping[str, Any], interval: Sequence[float]) -> str:
    """Return an interval of an attribute for people: "(95 % interval 1.2 to 5.4)".

    interval: its ends, scaled to [-1, 1].
    """
    low, high = interval
    return f"(95 % interval {value_in_unit(entry, low)} to {value_in_unit(entry, high)})"


def value_with_unit(entry: Mapping[str, Any], scaled: float) -> str:
    """Return a value of an attribute with the name of its unit, if it has one: "3.1 min".

    scaled: the value in [-1, 1].
    """
    return f"{value_in_unit(entry, scaled)} {entry.get('unit', '')}".rstrip()


def value_in_unit(entry: Mapping[str, Any], scaled: float) -> str:
    """Return the number of a value in the unit of its attribute, if that is known: "3.1".

    scaled: the value in [-1, 1].
    """
    if "low" not in entry:
        return f"{scaled:+.3f}"
    return f"{in_unit(entry, scaled):.4g}"


def in_unit(entry: Mapping[str, Any], scaled: float) -> float:
    """Return a value in the unit of its attribute; as it is, if that is not known.

    scaled: the value in [-1, 1].
    """
    if "low" not in entry:
        return scaled
    low, high = entry["low"], entry["high"]
    return float((low + high) / 2 + scaled * (high - low) / 2)


def _frequencies_line(entry: Mapping[str, Any]) -> str:
    """Return a line about the most frequent categories of an attribute.

    For example "colour: red 0.512, green 0.301, 3 more".

    entry: the estimated frequency of each category; None if nobody reported the attribute.
    """
    common, left_out = most_frequent(entry, _COMMON)
    words = []
    for category in common:
        words.append(f"{entry['categories'][category]} {entry['frequencies'][category]:.3f}")
    if left_out:
        words.append(f"{left_out} more")
    return f"{entry['name']}: {', '.join(words)}"


def most_frequent(entry: Mapping[str, Any], most: int) -> tuple[list[int], int]:
    """Return the numbers of an attribute's most frequent categories, and how many are left out.

    Categories without an estimate do not count. most: how many to return at most.
    """
    frequencies = entry["frequencies"]
    estimated = [number for number, frequency in enumerate(frequencies) if frequency is not None]
    by_frequency = sorted(estimated, key=lambda number: -frequencies[number])
    return by_frequency[:most], len(by_frequency[most:])
