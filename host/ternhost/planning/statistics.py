"""Statistics of repeated runs: means with errors and intervals, and comparisons beyond noise."""

import math
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from ternhost.planning.cells import Row

_LEVEL = 0.05  # the level of significance: the accepted probability of a wrong verdict
# The probability that one more run lies outside of the interval of a single run. By 8 runs, the
# interval then holds at least 90 % of all possible runs with a probability of 95 %, if these are
# normal; by more runs, it does so more surely. With 0.05, the probability would be only 85 %.
LEVEL_OF_RUN = 0.02


def mean_and_error(values: Sequence[float], shared: float = 0.0) -> tuple[float, float]:
    """Return the mean of several runs and its standard error, which is 0 for a single run.

    shared: for folds of a cross-validation, the number of held-out records over that of training
    records. Folds share training records, so the error is larger than in independent runs (Nadeau
    and Bengio, Machine Learning 52, 2003).
    """
    numbers = np.asarray(values, np.float64)
    runs = len(numbers)
    mean = float(numbers.mean())
    if runs <= 1:
        return mean, 0.0
    # Independent runs have a standard error of deviation / sqrt(runs).
    deviation = float(numbers.std(ddof=1))
    return mean, deviation * (1 / runs + shared) ** 0.5


def averaged(figure: str, values: Sequence[float]) -> Row:
    """Return columns for the mean of a figure over several runs.

    They are the mean, in a column named `figure`, its standard error, and the number of runs.
    """
    mean, error = mean_and_error(values)
    return {figure: mean, "standard_error": error, "runs": len(values)}


def half_interval(error: float, runs: int, level: float = _LEVEL) -> float:
    """Return half the length of a confidence interval of a mean, by Student's t.

    error: the standard error of the mean of so many runs. level: the probability that the interval
    misses the true mean. The result is 0 for a single run.
    """
    from scipy.special import stdtrit  # takes long to import

    if runs <= 1:
        return 0.0
    quantile = float(stdtrit(runs - 1, 1 - level / 2))  # of Student's t with runs - 1 degrees
    return error * quantile


def intervals(values: Sequence[float], limits: tuple[float, float]) -> Row:
    """Return the mean of several runs, and two intervals.

    "low" and "high" are the 95 % confidence interval of the mean, to which "standard_error" belongs.
    It gets shorter with more runs. "run_low" and "run_high" are the 98 % prediction interval: one
    more run lies in it. limits: the least and largest possible value, beyond which intervals are
    cut.
    """
    mean, error = mean_and_error(values)
    runs = len(values)
    # One more run has the variance of a run, and the mean that it is compared with has its own.
    error_of_run = error * (runs + 1) ** 0.5
    low, high = _around(mean, half_interval(error, runs), limits)
    run_low, run_high = _around(mean, half_interval(error_of_run, runs, LEVEL_OF_RUN), limits)
    return {
        "mean": mean,
        "standard_error": error,
        "low": low,
        "high": high,
        "run_low": run_low,
        "run_high": run_high,
    }


def _around(middle: float, half: float, limits: tuple[float, float]) -> tuple[float, float]:
    """Return the ends of an interval of half this length, cut to the limits."""
    least, largest = limits
    return max(middle - half, least), min(middle + half, largest)


def enough(reports: Sequence[int], shortfalls: Sequence[float]) -> float | None:
    """Return the number of reports from which on a figure reaches a goal.

    reports: increasing numbers that were tried. shortfalls: by how much the figure misses the goal
    at each; 0 or less is enough. The result is interpolated over the logarithm. It is the first
    number if the figure never misses the goal, and None if it does so at the last one.
    """
    misses = [i for i, shortfall in enumerate(shortfalls) if shortfall > 0]
    if not misses:
        return float(reports[0])
    last_miss = misses[-1]
    if last_miss == len(shortfalls) - 1:
        return None
    # From the last miss to the next number the shortfall falls from above 0 to 0 or less. On a
    # straight line it is 0 after this part of the way.
    before, after = shortfalls[last_miss], shortfalls[last_miss + 1]
    part = before / (before - after)
    log_reports = np.log(reports[last_miss : last_miss + 2])
    return float(np.exp(np.interp(part, (0, 1), log_reports)))


def rounded_up(number: float) -> int:
    """Return a whole number that is at least this one, with two digits that are not 0."""
    digits_after_second = max(0, math.floor(math.log10(number)) - 1)
    unit = int(10**digits_after_second)
    almost_nothing = 1e-9  # so that a rounding error of the quotient does not add a unit
    return math.ceil(number / unit - almost_nothing) * unit


def pick(rows: Sequence[Row], **values: Any) -> list[Row]:
    """Return the rows that have these values in the columns of these names."""
    picked = []
    for row in rows:
        of_row = {name: row[name] for name in values}
        if of_row == values:
            picked.append(row)
    return picked


def values_of(rows: Sequence[Row], name: str) -> list[Any]:
    """Return the distinct values of a column, in the order of the rows."""
    values = [row[name] for row in rows]
    return list(dict.fromkeys(values))  # a dictionary has each key once, in order


def grouped(rows: Sequence[Row], *names: str) -> dict[tuple[Any, ...], list[Row]]:
    """Return lists of the rows that have the same values in these columns, by these values.

    Groups, and the rows of a group, are in the order of the rows.
    """
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        values = tuple(row[name] for name in names)
        groups.setdefault(values, []).append(row)
    return groups


def summaries(
    rows: Sequence[Row],
    by: Sequence[str],
    compared: str,
    figure: str,
    *,
    larger: Callable[[Row], bool] = lambda row: False,
    shared: float = 0.0,
) -> list[Row]:
    """Compare contenders by their repeated runs, and say which of them are better beyond noise.

    rows: one for each run of each contender. by: the columns that divide the rows into groups, such
    as the data set; contenders are compared within a group. compared: the column that names the
    contender. figure: the column that they are compared by. larger: says of the first row of a
    group whether a larger figure is better. shared: see `mean_and_error`. Runs with the same value
    in the column "run" had the same data, so that their difference has less noise.

    Returns a row for each contender of each group. It has the mean of the figure, its standard
    error, its 95 % interval, and its distance from the best of the group. `verdict` is "best" if it
    is better than every other beyond noise, "tied" if its distance from the best may be noise, else
    "worse". The level is 5 % for all comparisons of a group together (Bonferroni); with fewer than
    two runs, nothing is beyond noise.
    """
    summary = []
    for group in grouped(rows, *by).values():
        sign = -1.0
        if larger(group[0]):
            sign = 1.0
        summary += _summaries_of_group(group, compared, figure, sign, shared)
    return summary


def _summaries_of_group(
    group: Sequence[Row], compared: str, figure: str, sign: float, shared: float
) -> list[Row]:
    """Return the rows of `summaries` for one group.

    sign: 1 if a larger figure is better, else -1. The other arguments are those of `summaries`.
    """
    # The figures of each contender, in the order of runs, so that the same runs can be compared.
    first_rows = {}
    figures = {}
    scores = {}  # the mean figure, the larger the better
    for (name,), rows_of_name in grouped(group, compared).items():
        runs = sorted(rows_of_name, key=itemgetter("run"))
        first_rows[name] = runs[0]
        figures[name] = np.array([row[figure] for row in runs], np.float64)
        scores[name] = sign * figures[name].mean()
    best = max(scores, key=lambda name: scores[name])
    # By how much each run is worse than the same run of the best.
    behind = {}
    for name, values in figures.items():
        behind[name] = sign * (figures[best] - values)
    verdicts = _verdicts(behind, best, shared)

    summary = []
    for name, values in figures.items():
        mean, error = mean_and_error(values.tolist(), shared)
        half = half_interval(error, len(values))
        row = dict(first_rows[name])
        del row["run"], row[figure]
        row[figure] = mean  # after the other columns
        row["standard_error"] = error
        row["low"] = mean - half
        row["high"] = mean + half
        row["behind_best"] = float(behind[name].mean())
        row["verdict"] = verdicts[name]
        row["runs"] = len(values)
        summary.append(row)
    return summary


def _verdicts(
    behind: Mapping[Any, npt.NDArray[np.float64]], best: Any, shared: float
) -> dict[Any, str]:
    """Return the verdict of `summaries` on each row of a group.

    behind: by how much each run is worse than the same run of the best. shared: as in
    `mean_and_error`.
    """
    level = _LEVEL / max(1, len(behind) - 1)  # Bonferroni: for all comparisons together
    verdicts = {best: "best"}
    for name, distances in behind.items():
        if name == best:
            continue
        if beyond_noise(distances, shared, level):
            verdicts[name] = "worse"
        else:
            verdicts[name] = verdicts[best] = "tied"
    return verdicts


def beyond_noise(differences: npt.NDArray[Any], shared: float = 0.0, level: float = _LEVEL) -> bool:
    """Return whether the mean of the differences of paired runs is above 0 by more than noise.

    That is a t test at this two-sided level; a single run proves nothing. shared: as in
    `mean_and_error`.
    """
    runs = len(differences)
    mean, error = mean_and_error(differences.tolist(), shared)
    return runs > 1 and mean > half_interval(error, runs, level)


def winners(rows: Sequence[Row], by: Sequence[str], compared: str, figure: str) -> list[Row]:
    """Return a row for each group of `summaries`: the best contender, and those tied with it.

    rows: the result of `summaries`, which explains the other arguments. The column `wins` says
    whether the best is better than all others beyond noise.
    """
    best_by_group = []
    for group in grouped(rows, *by).values():
        best = min(group, key=lambda row: row["behind_best"])
        tied = []
        for row in group:
            if row["verdict"] == "tied" and row is not best:
                tied.append(str(row[compared]))
        winner = {name: best[name] for name in by}
        winner["best"] = best[compared]
        winner[figure] = best[figure]
        winner["wins"] = best["verdict"] == "best"
        winner["tied"] = ", ".join(tied)
        best_by_group.append(winner)
    return best_by_group
