"""Results of quantiles and histograms: the entries of attributes, and lines for people.

An entry has the `name` of an attribute, its number of `reports`, and its `low`, `high` and `unit`
where these are known (attribute_results.py). All values in it are scaled, so that -1 and 1 are the
public bounds of the attribute. Values beyond them count as at the bound. It has
- `quantiles`: for each its `quantile`, a `value` and an `interval`;
- `histogram`: the `edges` of the bins (one more than bins), and the `shares` and `intervals` of bins;
- `shown_histogram`: the same with fewer bins, if the finest ones are too noisy for a picture;
- `cumulative`: the `shares` at the upper edges of the bins, and their `intervals`;
- `levels`: for each the number of `bins` and of `reports`, and the `mechanism`.
All but the levels have `true` where the host knows what the clients hold. All intervals are for
95 %.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tern.fixed import ONE
from ternhost.learn import liar_results
from ternhost.learn.collecting.attribute_results import (
    interval_in_words,
    value_in_unit,
    value_with_unit,
)
from ternhost.learn.distributions.bin_tree import Distribution, Linear
from ternhost.learn.distributions.quantile_options import name_of
from ternhost.vectorised import bins as bins_of

Floats = npt.NDArray[np.float64]

_SHOWN = 24  # lines of quantiles, for people
_SHOWN_BEYOND = 6  # quantiles that may lie beyond the public bounds
_ROUNDING = 1e-9  # of a sum of weights, which are floats


@dataclass(frozen=True)
class HeldValues:
    """The values of an attribute that clients hold, where the host knows them.

    - values: in Q1.14 (n)
    - weights: how many clients, or records, each value stands for (n)
    """

    values: npt.NDArray[np.int16]
    weights: Floats

    def quantile(self, quantile: float) -> float:
        """Return the smallest value, scaled, so that a share of the clients hold it or less."""
        order = np.argsort(self.values, kind="stable")
        reached = np.cumsum(self.weights[order])
        needed = (quantile - _ROUNDING) * reached[-1]
        position = int(np.searchsorted(reached, needed))
        return float(self.values[order[position]] / ONE)

    def histogram(self, bins: int) -> Floats:
        """Return the share of the clients in each of so many bins, which must be a power of two."""
        exponent = bins.bit_length() - 1
        bin_of_value = bins_of(self.values, exponent)
        held = np.bincount(bin_of_value, weights=self.weights, minlength=bins)
        shares: Floats = held / held.sum()
        return shares


def estimates_of(
    distribution: Distribution, quantiles: Sequence[float], held: HeldValues | None
) -> dict[str, Any]:
    """Return the quantiles, the histogram and the cumulative shares of an entry, for JSON.

    distribution: what was estimated of the attribute.
    quantiles: those that are wanted.
    held: what the clients hold; None: the host does not know it.
    """
    quantile_entries = []
    for quantile in quantiles:
        estimate = distribution.quantile(quantile)
        entry: dict[str, Any] = {
            "quantile": quantile,
            "value": estimate.value,
            "interval": [estimate.low, estimate.high],
        }
        if held is not None:
            entry["true"] = held.quantile(quantile)
        quantile_entries.append(entry)

    cumulative = _shares(distribution, distribution.cumulative)
    if held is not None:
        cumulative["true"] = np.cumsum(held.histogram(distribution.bins)).tolist()
    estimates = {
        "quantiles": quantile_entries,
        "histogram": _histogram(distribution, distribution.bins, held),
        "cumulative": cumulative,
    }
    shown_bins = distribution.picture_bins()
    if shown_bins < distribution.bins:
        estimates["shown_histogram"] = _histogram(distribution, shown_bins, held)
    return estimates


def _histogram(distribution: Distribution, bins: int, held: HeldValues | None) -> dict[str, Any]:
    """Return the histogram of so many equal bins for JSON; the rest as of `estimates_of`."""
    parts = distribution.bins // bins  # finest bins of a bin
    histogram = {
        "edges": distribution.edges[::parts].tolist(),
        **_shares(distribution, distribution.histogram(bins)),
    }
    if held is not None:
        histogram["true"] = held.histogram(bins).tolist()
    return histogram


def _shares(distribution: Distribution, estimated: Linear) -> dict[str, Any]:
    """Return the shares of bins with their intervals, for JSON.

    estimated: what is in the bins, by the distribution.
    """
    shares = distribution.shares(estimated)
    return {
        "shares": shares.values.tolist(),
        "intervals": np.stack([shares.low, shares.high], axis=1).tolist(),
    }


# Lines for people


def quantile_lines(result: Mapping[str, Any]) -> list[str]:
    """Return lines for people about the quantiles of the attributes of a result.

    There is a line for each quantile, such as "delay: median 3.1 min  (95 % interval 1.2 to 5.4)".
    A result of many attributes shows only the first ones.
    """
    lines = []
    if any("low" not in entry for entry in result["attributes"]):
        lines.append("values are scaled: -1 and 1 are the bounds of an attribute's public range")
    shown = 0  # lines of quantiles
    left_out = 0  # attributes
    beyond = []  # quantiles that may lie beyond the public bounds
    for entry in result["attributes"]:
        if shown >= _SHOWN:
            left_out += 1
            continue
        for quantile in entry["quantiles"]:
            lines.append(_line(entry, quantile))
            shown += 1
        beyond += _beyond_bounds(entry)
    if left_out:
        lines.append(f"and {left_out} more")
    if beyond:
        if len(beyond) > _SHOWN_BEYOND:
            beyond = [*beyond[:_SHOWN_BEYOND], f"{len(beyond) - _SHOWN_BEYOND} more"]
        why = "values beyond the public bounds count as at the bound"
        lines.append(f"{why}; these quantiles may lie beyond: {', '.join(beyond)}")
    return lines


def liar_lines(result: Mapping[str, Any]) -> list[str]:
    """Return a line about how far lying devices can have moved quantiles; none if that is unknown.

    Of all attributes, it names the first quantile of the one where lies can move it farthest.
    """
    moved: Mapping[str, Any] = result.get("liars") or {"attributes": []}
    with_quantiles = [each for each in moved["attributes"] if each.get("quantiles")]
    if not with_quantiles:
        return []

    def width(attribute: Mapping[str, Any]) -> float:
        """Return how far the first quantile of an attribute can have been moved."""
        first = attribute["quantiles"][0]
        return float(first["high"] - first["low"])

    worst = max(with_quantiles, key=width)
    entries = {entry["name"]: entry for entry in result["attributes"]}
    entry = entries.get(worst["name"])
    if entry is None:  # the result was changed by somebody
        return []
    first, estimate = worst["quantiles"][0], entry["quantiles"][0]
    low, high = value_in_unit(entry, first["low"]), value_in_unit(entry, first["high"])
    name = f"{name_of(first['quantile'])} of {entry['name']}"
    value = value_with_unit(entry, estimate["value"])
    return [
        f"{liar_results.subject(worst['reports'])} can have moved the {name} to {value} from "
        f"anything between {low} and {high}"
    ]


def _line(entry: Mapping[str, Any], quantile: Mapping[str, Any]) -> str:
    """Return the line about a quantile of an attribute, with its interval and its true value."""
    name = name_of(quantile["quantile"])
    line = f"{entry['name']}: {name} {value_with_unit(entry, quantile['value'])}"
    line += f"  {interval_in_words(entry, quantile['interval'])}"
    if "true" in quantile:
        line += f"  true {name} {value_in_unit(entry, quantile['true'])}"
    return line


def _beyond_bounds(entry: Mapping[str, Any]) -> list[str]:
    """Return the quantiles of an attribute that may lie beyond a public bound, in words.

    An example is "delay p99 (60 min or more)"; without a known unit it is "delay p99". A quantile
    may lie above if its interval reaches the last bin, and one below the median may lie below if
    its interval reaches the first bin.
    """
    edges = entry["histogram"]["edges"]
    beyond = []
    for quantile in entry["quantiles"]:
        low, high = quantile["interval"]
        where = ""
        if high > edges[-2]:
            where = f"{value_with_unit(entry, edges[-1])} or more"
        elif low < edges[1] and quantile["quantile"] < 0.5:
            where = f"{value_with_unit(entry, edges[0])} or less"
        if not where:
            continue
        name = f"{entry['name']} {name_of(quantile['quantile'])}"
        if "low" in entry:
            name += f" ({where})"
        beyond.append(name)
    return beyond
