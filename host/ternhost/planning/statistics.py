"""Statistics of repeated runs: means with errors and intervals, and comparisons beyond noise."""

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from ternhost.planning.cells import Row

_LEVEL = 0.05  # of significance


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
    return mean, float(numbers.std(ddof=1) * (1 / runs + shared) ** 0.5)


def averaged(figure: str, values: Sequence[float]) -> Row:
    """The columns of a figure over several runs: mean, standard error and number of runs."""
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
    return error * float(stdtrit(runs - 1, 1 - level / 2))


def interval(values: Sequence[float], limits: tuple[float, float]) -> Row:
    """Return the mean of several runs, its standard error, and its 95 % confidence interval.

    limits: the least and largest possible value, beyond which the interval is cut.
    """
    mean, error = mean_and_error(values)
    half = half_interval(error, len(values))
    low, high = max(mean - half, limits[0]), min(mean + half, limits[1])
    return {"mean": mean, "standard_error": error, "low": low, "high": high}


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
    # The shortfall falls from positive to 0 or less; where it is 0 is this part of the way.
    part = shortfalls[last_miss] / (shortfalls[last_miss] - shortfalls[last_miss + 1])
    log_reports = np.log(reports[last_miss : last_miss + 2])
    return float(np.exp(np.interp(part, (0, 1), log_reports)))


def pick(rows: Sequence[Row], **values: Any) -> list[Row]:
    """The rows with these values of columns."""
    picked = []
    for row in rows:
        if all(row[name] == value for name, value in values.items()):
            picked.append(row)
    return picked


def values_of(rows: Sequence[Row], name: str) -> list[Any]:
    """The distinct values of a column, in the order of the rows."""
    return list(dict.fromkeys(row[name] for row in rows))


def grouped(rows: Sequence[Row], *names: str) -> dict[tuple[Any, ...], list[Row]]:
    """The rows by their values in these columns, in their order."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
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
    """Compare repeated runs: a row for each value of the column `compared`, in each group.

    by: the columns that divide the rows into groups. A row has the mean of the column `figure`, its
    standard error, its 95 % interval, and its distance from the best of the group. Runs are paired
    by the column "run". larger: whether a larger figure is better. shared: see `mean_and_error`.

    `verdict` is "best" if a row is better than every other beyond noise, "tied" if its distance
    from the best may be noise, else "worse": at 5 % for all comparisons of a group together
    (Bonferroni), and only with two runs or more.
    """
    summary = []
    for group in grouped(rows, *by).values():
        sign = 1.0 if larger(group[0]) else -1.0
        summary += _summaries_of_group(group, compared, figure, sign, shared)
    return summary


def _summaries_of_group(
    group: Sequence[Row], compared: str, figure: str, sign: float, shared: float
) -> list[Row]:
    """Return the rows of `summaries` for one group.

    sign: 1 if a larger figure is better, else -1.
    """
    # The figures of all runs, in the order of runs, so that the same runs can be compared.
    first_rows = {}
    figures = {}
    for (name,), rows_of_name in grouped(group, compared).items():
        runs = sorted(rows_of_name, key=itemgetter("run"))
        first_rows[name] = runs[0]
        figures[name] = np.array([row[figure] for row in runs], np.float64)
    best = max(figures, key=lambda name: sign * figures[name].mean())
    behind = {name: sign * (figures[best] - values) for name, values in figures.items()}
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
    """Whether the mean of the differences of paired runs is above 0, at this two-sided level."""
    mean, error = mean_and_error(differences.tolist(), shared)
    return len(differences) > 1 and mean > half_interval(error, len(differences), level)


def winners(rows: Sequence[Row], by: Sequence[str], compared: str, figure: str) -> list[Row]:
    """Return a row for each group of `summaries`: the best, and those that are tied with it.

    rows: of `summaries`, which explains the other arguments. `wins` says whether the best is better
    than all others beyond noise.
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
