"""Results of collecting: the entries of attributes, their errors, and lines for people.

An entry has the `name` of an attribute and its number of `reports`. A numeric attribute has a
`mean` and its `interval`, a categorical one has `categories`, and for each a share in `frequencies`
and an interval in `intervals`. `true` is the mean, or the shares, among the clients, where known.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ternhost.learn.estimate import Estimate

_SHOWN = 24  # attributes, for people,
_COMMON = 5  # and categories of each


def intervals_of(estimate: Estimate) -> list[list[float] | None]:
    """The intervals of an estimate for JSON, None where there is none."""
    intervals: list[list[float] | None] = []
    for low, high in zip(estimate.low, estimate.high, strict=True):
        if np.isfinite(low) and np.isfinite(high):
            intervals.append([float(low), float(high)])
        else:
            intervals.append(None)
    return intervals


def squared_errors(entries: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """The mean squared errors of means and of frequencies, over entries with true values."""
    of_means, of_frequencies = [], []
    for entry in entries:
        if "true" not in entry:
            continue
        if "mean" in entry:
            of_means.append((entry["mean"] - entry["true"]) ** 2)
        elif entry["intervals"]:
            errors = np.subtract(entry["frequencies"], entry["true"])
            of_frequencies.append(np.mean(np.square(errors)))
    return {
        "mean_squared_error": _mean(of_means),
        "frequency_squared_error": _mean(of_frequencies),
    }


def _mean(values: Sequence[float]) -> float | None:
    if not values:
        return None
    return float(np.mean(values))


def error_lines(result: Mapping[str, Any]) -> list[str]:
    """The squared errors of a result, for people."""
    kinds = {"mean_squared_error": "means", "frequency_squared_error": "frequencies"}
    lines = []
    for name, kind in kinds.items():
        if result.get(name) is not None:
            lines.append(f"mean squared error of the {kind} {result[name]:.3g}")
    return lines


def attribute_lines(result: Mapping[str, Any]) -> list[str]:
    """The attributes of a result, for people."""
    entries = result["attributes"]
    lines = []
    if any("mean" in entry for entry in entries):
        lines.append("means are scaled: -1 and 1 are the bounds of an attribute's public range")
    if result.get("clipped_at"):
        tau = result["clipped_at"]
        lines.append(
            f"numbers beyond a class's safe range, from {tau:g}, are clipped; intervals do not cover that"
        )
    lines += [_line(entry) for entry in entries[:_SHOWN]]
    if len(entries) > _SHOWN:
        lines.append(f"and {len(entries) - _SHOWN} more")
    return lines


def _line(entry: Mapping[str, Any]) -> str:
    if "frequencies" in entry:
        return _frequencies_line(entry)
    line = f"{entry['name']}: {entry['mean']:+.3f}"
    if entry["interval"]:
        low, high = entry["interval"]
        line += f"  (95 % interval {low:+.3f} to {high:+.3f})"
    if "true" in entry:
        line += f"  true mean {entry['true']:+.3f}"
    return line


def _frequencies_line(entry: Mapping[str, Any]) -> str:
    """The most frequent categories of an attribute."""
    reported = []
    for i, share in enumerate(entry["frequencies"]):
        if share is not None:
            reported.append((share, i))
    reported.sort(reverse=True)
    words = [f"{entry['categories'][i]} {share:.3f}" for share, i in reported[:_COMMON]]
    if len(reported) > _COMMON:
        words.append(f"{len(reported) - _COMMON} more")
    return f"{entry['name']}: {', '.join(words)}"
