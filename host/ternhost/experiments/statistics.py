"""Statistics of repeated runs: means with errors and intervals, and comparisons beyond noise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from ternhost.experiments.cells import Row

_LEVEL = 0.05


def mean_and_error(values: Sequence[float], shared: float = 0.0) -> tuple[float, float]:
    """The mean of several runs and its standard error (0 of a single one).

    shared: for folds of a cross-validation, held-out records over training records. Folds share training records, which
    makes the error larger than in independent runs (Nadeau and Bengio, Machine Learning 52, 2003).
    """
    numbers = np.asarray(values, np.float64)
    n = len(numbers)
    error = float(numbers.std(ddof=1) * (1 / n + shared) ** 0.5) if n > 1 else 0.0
    return float(numbers.mean()), error


def averaged(figure: str, values: Sequence[float]) -> Row:
    """The mean of a figure over several runs, its standard error, and how many runs there are."""
    mean, error = mean_and_error(values)
    return {figure: mean, "standard_error": error, "runs": len(values)}


def half_interval(error: float, runs: int, level: float = _LEVEL) -> float:
    """Half of the interval that holds the mean with probability 1 - level, by Student's t; 0 of a single run."""
    from scipy.special import stdtrit  # takes long to import

    return error * float(stdtrit(runs - 1, 1 - level / 2)) if runs > 1 else 0.0


def enough(numbers: Sequence[int], short: Sequence[float]) -> float | None:
    """The number from which a figure is no longer `short` (for each number by how much; 0 or less: not short).

    Interpolated linearly over the logarithm; the smallest number where the figure is never short, None where more than
    these are needed.
    """
    last = max((i for i, missing in enumerate(short) if missing > 0), default=-1)
    if last == len(short) - 1:
        return None
    if last < 0:
        return float(numbers[0])
    share = short[last] / (short[last] - short[last + 1])
    return float(np.exp(np.interp(share, (0, 1), np.log(numbers[last : last + 2]))))


def pick(rows: Sequence[Row], **of: Any) -> list[Row]:
    """The rows with these values."""
    return [row for row in rows if all(row[name] == value for name, value in of.items())]


def values_of(rows: Sequence[Row], name: str) -> list[Any]:
    """The distinct values of a column, in order."""
    return list(dict.fromkeys(row[name] for row in rows))


def grouped(rows: Sequence[Row], *names: str) -> dict[tuple[Any, ...], list[Row]]:
    """The rows by their values in these columns, in order."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    return groups


def summaries(
    rows: Sequence[Row],
    by: Sequence[str],
    who: str,
    figure: str,
    *,
    larger: Callable[[Row], bool] = lambda row: False,
    shared: float = 0.0,
) -> list[Row]:
    """A row for each `who` of each group (columns `by`): the mean of the column `figure` over its runs, the standard
    error, the 95 % interval, and how far it is from the best of the group, run by run.

    Runs are paired by the column "run". larger: whether a larger figure is better. `verdict` is "best" where a row is
    better than every other one beyond noise, "tied" where noise may explain its distance from the best one, else
    "worse": at 5 % for all comparisons of a group together (Bonferroni), and only with two runs or more.
    """
    summary = []
    for own in grouped(rows, *by).values():
        runs = {name: sorted(part, key=itemgetter("run")) for (name,), part in grouped(own, who).items()}
        values = {name: np.array([row[figure] for row in part], np.float64) for name, part in runs.items()}
        sign = 1.0 if larger(own[0]) else -1.0
        best = max(values, key=lambda name: sign * values[name].mean())
        behind = {name: sign * (values[best] - each) for name, each in values.items()}
        level = _LEVEL / max(1, len(values) - 1)
        worse = {name: beyond_noise(each, shared, level) for name, each in behind.items() if name != best}
        for name, each in values.items():
            mean, error = mean_and_error(each.tolist(), shared)
            half = half_interval(error, len(each))
            if name == best:
                verdict = "best" if all(worse.values()) else "tied"
            else:
                verdict = "worse" if worse[name] else "tied"
            common = {key: value for key, value in runs[name][0].items() if key not in ("run", figure)}
            interval = {"standard_error": error, "low": mean - half, "high": mean + half}
            place = {"behind_best": float(behind[name].mean()), "verdict": verdict, "runs": len(each)}
            summary.append({**common, figure: mean, **interval, **place})
    return summary


def beyond_noise(differences: npt.NDArray[Any], shared: float = 0.0, level: float = _LEVEL) -> bool:
    """Whether the mean of paired differences is above 0, two-sided at this level."""
    mean, error = mean_and_error(differences.tolist(), shared)
    return len(differences) > 1 and mean > half_interval(error, len(differences), level)


def winners(rows: Sequence[Row], by: Sequence[str], who: str, figure: str) -> list[Row]:
    """The best of the summaries of each group, and the ones tied with it."""
    best_by_group = []
    for group, own in grouped(rows, *by).items():
        best = min(own, key=lambda row: row["behind_best"])
        tied = [str(row[who]) for row in own if row["verdict"] == "tied" and row is not best]
        first = {"best": best[who], figure: best[figure], "wins": best["verdict"] == "best"}
        best_by_group.append({**dict(zip(by, group, strict=True)), **first, "tied": ", ".join(tied)})
    return best_by_group
