"""What lying devices could do to the results of a run, for JSON and in words (package liars).

A bound is None where lies may move an estimate anywhere.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np

from ternhost.count.rounds import CohortCounts
from ternhost.learn import liars
from ternhost.learn.distributions.bin_tree import Distribution, ReportedLevel
from ternhost.learn.liars import SHARE, Bound, Floats, Kind

# Gradients of rounds


def of_gradient(
    cohorts: Sequence[CohortCounts], mean: Floats, tau: float | Sequence[float] = 1.0
) -> dict[str, Any]:
    """Return how far lies can have moved a mean gradient, for the entry of a round.

    cohorts: the answers of all classes of devices.
    mean: the gradient that was estimated from them (d).
    tau: devices clipped values to +-tau, unless they reported about whole gradients.
    """
    reports = sum(cohort.reports for cohort in cohorts)
    if cohorts[0].vectors is not None:
        length = liars.length_of_projections(cohorts, mean)
    else:
        counts = [(cohort.card, cohort.counts) for cohort in cohorts]
        length = liars.length_of_means(counts, mean, cohorts[0].k, tau=tau)
    return of_length(length, mean, reports)


def of_kinds(kinds: Sequence[Kind], mean: Floats, k: int, reports: int) -> dict[str, Any]:
    """Return how far lies can have moved a weighted mean of vectors, for the entry of a round.

    kinds: the reports of all devices, k of the d values from each. mean: what they gave (d).
    reports: how many devices reported.
    """
    return of_length(liars.length(kinds, mean, k), mean, reports)


def of_length(length: float, estimate: Floats, reports: int) -> dict[str, Any]:
    """Return the entry of a round.

    - reports: how many devices reported
    - liars: how many of them are taken for liars
    - length: the l2 norm of the most by which these can have moved the estimate
    - relative: the same, divided by the norm of the estimate

    length: as in the entry; nan or infinite if there is no bound. estimate: of a vector.
    """
    norm = float(np.linalg.norm(np.nan_to_num(estimate)))
    bound = _finite_or_none(length)
    relative = None
    if bound is not None and norm > 0:
        relative = bound / norm
    return {
        "reports": reports,
        "liars": int(liars.liars_among(reports)),
        "length": bound,
        "relative": relative,
    }


def of_history(history: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return what liars could do in the rounds of a run, for its result.

    - share: the share of the devices that lie
    - reports: of the smallest round
    - length: the largest of a round
    - relative: the median over all rounds

    history: an entry for each round; those with a bound have "liars", as of `of_length`.
    Returns None if no round has any.
    """
    rounds = [entry["liars"] for entry in history if entry.get("liars")]
    if not rounds:
        return None
    lengths = [each["length"] for each in rounds]
    of_estimates = [each["relative"] for each in rounds if each["relative"] is not None]
    return {
        "share": float(SHARE),
        "reports": min(each["reports"] for each in rounds),
        "length": None if None in lengths else max(lengths),
        "relative": median(of_estimates) if of_estimates else None,
    }


def training_lines(result: Mapping[str, Any]) -> list[str]:
    """Return a line for people about what liars could do in a training; none if that is unknown."""
    moved: Mapping[str, Any] | None = result.get("liars")
    if not moved:
        return []
    lies = f"{subject(moved['reports'])} can move the gradient of a round"
    if moved["length"] is None or moved["relative"] is None:
        return [f"{lies} anywhere"]
    relative = f"{moved['relative']:.2g} times its length in the median round"
    return [f"{lies} by at most {moved['length']:.3g}, {relative}"]


# Attributes


def of_attribute(name: str, reports: int, bounds: Floats) -> dict[str, Any]:
    """Return how far lies can have moved the estimates of an attribute, for JSON.

    name: of the attribute. reports: about it.
    bounds: of its mean (1), or of the share of each category; nan or infinite if there is none.
    """
    return {
        "name": name,
        "reports": reports,
        "liars": int(liars.liars_among(reports)),
        "bounds": [_finite_or_none(bound) for bound in bounds.tolist()],
    }


def of_quantiles(
    name: str, distribution: Distribution, bound: Bound, quantiles: Sequence[float]
) -> dict[str, Any]:
    """Return how far lies can have moved quantiles of an attribute, for JSON.

    The bounds are those of its cumulative shares. Each quantile has a range, in which it is without
    the lies, and what it is farthest from there.

    name: of the attribute. bound: of the cumulative shares of its distribution.
    """
    reports = 0
    for level in distribution.levels:
        if isinstance(level, ReportedLevel):
            reports += level.reports.reports
    ranges = ranges_of_quantiles(distribution, dict.fromkeys(quantiles, bound))
    return {**of_attribute(name, reports, bound.most), "quantiles": ranges}


def ranges_of_quantiles(
    distribution: Distribution, bounds: Mapping[float, Bound]
) -> list[dict[str, float]]:
    """Return between which values lies can have moved quantiles of a distribution, for JSON.

    bounds: for each quantile the bound of the cumulative shares, or of the cumulative numbers of
        records, as of `liars.quantile_range`.
    """
    ranges = []
    for quantile, bound in bounds.items():
        low, high = liars.quantile_range(distribution, quantile, bound)
        ranges.append({"quantile": quantile, "low": low, "high": high})
    return ranges


def of_attributes(attributes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what liars could do to all attributes of a run, for its result.

    attributes: as of `of_attribute`, in the order of the entries of the result.
    """
    return {"share": float(SHARE), "attributes": list(attributes)}


def collecting_lines(result: Mapping[str, Any]) -> list[str]:
    """Return lines for people about what liars could do: to a mean, and to a share of a category.

    Of several attributes, the one is named that lies can move farthest.
    """
    moved: Mapping[str, Any] | None = result.get("liars")
    if not moved:
        return []
    entries = {entry["name"]: entry for entry in result["attributes"]}
    lines = []
    for kind in ("mean", "frequencies"):
        of_kind = [each for each in moved["attributes"] if kind in entries.get(each["name"], ())]
        if of_kind:
            worst = max(of_kind, key=_farthest)
            what = f"the mean of {worst['name']}"
            if kind == "frequencies":
                what = f"a share of {worst['name']}"
            moves = _move_in_words(worst, entries[worst["name"]])
            lines.append(f"{subject(worst['reports'])} can move {what} {moves}")
    return lines


def _farthest(attribute: Mapping[str, Any]) -> float:
    """Return the largest bound of an attribute; infinity if some estimate has none."""
    bounds: Sequence[float | None] = attribute["bounds"]
    return max(math.inf if bound is None else bound for bound in bounds)


def _move_in_words(attribute: Mapping[str, Any], entry: Mapping[str, Any]) -> str:
    """Say how far lies can move an estimate: "by at most 0.013". A mean is in its unit, if any."""
    farthest = _farthest(attribute)
    if farthest == math.inf:
        return "anywhere"
    if "low" in entry:  # where values are scaled to [-1, 1]
        in_unit = farthest * (entry["high"] - entry["low"]) / 2
        return f"by at most {in_unit:.3g} {entry['unit']}".rstrip()
    return f"by at most {farthest:.3g}"


def subject(reports: int) -> str:
    """Say which devices lie: a share of them, or a single one where the share would be less."""
    if SHARE * reports < 1:
        return "one lying device"
    return f"{100 * float(SHARE):g} % of the devices lying arbitrarily"


def _finite_or_none(bound: float) -> float | None:
    """Return a bound for JSON, which has no infinity and no nan."""
    if math.isfinite(bound):
        return bound
    return None
