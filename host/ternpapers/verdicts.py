"""Verdicts on what a paper says about a figure: does it hold for the rows that tern computes?

A *check* computes the verdict on one statement from the rows of all runs of a figure. Most checks
compare curves case by case, such as at each x of each panel, and a statement holds if it does so in
every case. Curves with noise are compared by paired runs, and exact curves point by point.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt

from ternhost.datasets import Floats
from ternhost.planning.cells import Row
from ternhost.planning.statistics import beyond_noise, grouped, pick, values_of

Holds = bool | None  # None: it cannot be told here
_WORDS = {True: "so here", False: "not so here", None: "cannot be told here"}
LEVEL = 0.05  # of significance, of all cases of a statement together
ROUNDING = 1e-9  # relative: exact values that differ by less are equal
_SMALLEST = 1e-300  # takes the place of a divisor of 0


@dataclass(frozen=True)
class Verdict:
    """Whether a statement of a paper holds for the computed rows.

    holds: None if it cannot be told, because noise hides it, or because it needs what tern does not
    have. detail: in how many cases it holds, or why it cannot be told; empty if there is nothing to
    add.
    """

    holds: Holds
    detail: str = ""

    @property
    def words(self) -> str:
        """The verdict in words: "so here", "not so here" or "cannot be told here"."""
        return _WORDS[self.holds]


Check = Callable[[Sequence[Row]], Verdict]
"""Says of the rows of all runs whether a statement holds."""


def by_curve(rows: Sequence[Row], column: str) -> dict[str, Floats]:
    """Return the values of a column by curve, in the order of the rows."""
    columns = {}
    for (name,), curve_rows in grouped(rows, "curve").items():
        columns[name] = np.array([row[column] for row in curve_rows])
    return columns


def gained(gains: npt.ArrayLike, shared: float = 0.0, cases: int = 1) -> Holds:
    """Return whether the mean of the gains of paired runs is above 0; None if noise hides it.

    gains: the gain of each run. shared: see `mean_and_error`. cases: how many cases the statement
    has. It fails with one of them, so that the level of 5 % for a failure by chance is divided
    among all (Bonferroni). It holds only if it does in every case, which needs no such division.
    """
    differences = np.asarray(gains, np.float64)
    if beyond_noise(differences, shared):
        return True
    if beyond_noise(-differences, shared, level=LEVEL / cases):
        return False
    return None


def every(cases: Iterable[Holds]) -> Verdict:
    """Return the verdict on a statement that holds if it holds in every case.

    It cannot be told if noise hides some cases, and none fails, or if there is no case.
    """
    counts = Counter(cases)
    number = counts.total()
    if number == 0:
        return Verdict(None, "there is no case")
    if counts[False]:
        return Verdict(False, _words_of_failure(counts))
    if counts[None]:
        return Verdict(None, f"noise hides {counts[None]} of {number} cases")
    return Verdict(True)


def _words_of_failure(counts: Counter[Holds]) -> str:
    """Return in how many cases a statement holds that fails in others; empty for a single case."""
    if counts.total() == 1:
        return ""
    words = f"in {counts[True]} of {counts.total()} cases"
    if counts[None]:
        words += f"; noise hides {counts[None]} of the others"
    return words


def every_gain(gains_of_cases: Sequence[npt.ArrayLike], shared: float = 0.0) -> Verdict:
    """Return the verdict on a statement that holds if something is gained in every case.

    gains_of_cases: for each case, the gain of each run. shared: see `mean_and_error`.
    """
    cases = len(gains_of_cases)
    return every(gained(gains, shared, cases) for gains in gains_of_cases)


def relative_gains(
    column: str, name: str, other: str, rows: Sequence[Row], larger: bool = False
) -> list[float]:
    """Return, for each run, by how much a curve is better than another one.

    The gain of a curve y over another z in a run is the mean of (y - z) / (y + z) over x. column:
    that of the compared values. rows: those of a panel. larger: whether larger values are better;
    if not, gains change their sign.
    """
    sign = -1
    if larger:
        sign = 1
    gains = []
    for run_rows in grouped(rows, "run").values():
        curves = by_curve(run_rows, column)
        y, z = curves[name], curves[other]
        relative_differences = (y - z) / np.maximum(y + z, _SMALLEST)
        gains.append(sign * float(np.mean(relative_differences)))
    return gains


def better(
    column: str,
    names: Sequence[str],
    others: Sequence[str],
    rows: Sequence[Row],
    larger: bool = False,
    shared: float = 0.0,
) -> Verdict:
    """Test whether each of the curves `names` is better than each of the others, in every panel.

    Runs are paired, and a case is a panel with two curves: there the mean of the `relative_gains`
    of all runs must be above 0, beyond noise. column, larger: as of `relative_gains`. shared: see
    `mean_and_error`.
    """
    gains_of_cases: list[npt.ArrayLike] = []
    for panel, name, other in product(values_of(rows, "panel"), names, others):
        if name != other:
            of_panel = pick(rows, panel=panel)
            gains_of_cases.append(relative_gains(column, name, other, of_panel, larger))
    return every_gain(gains_of_cases, shared)


def better_everywhere(
    column: str,
    names: Sequence[str],
    others: Sequence[str],
    rows: Sequence[Row],
    larger: bool = False,
) -> Verdict:
    """Test whether curves without noise are better than each of the others, at every x.

    A case is an x of a panel: there each of the curves `names` must be better than all others.
    column: that of the compared values. larger: whether larger values are better. The curves of a
    panel have the same xs.
    """
    cases: list[Holds] = []
    for panel in values_of(rows, "panel"):
        curves = by_curve(pick(rows, panel=panel), column)
        if larger:
            curves = {name: -values for name, values in curves.items()}
        worst_of_named = np.maximum.reduce([curves[name] for name in names])
        best_of_others = np.minimum.reduce([curves[name] for name in others])
        margin = ROUNDING * np.abs(best_of_others)
        cases += (worst_of_named < best_of_others - margin).tolist()
    return every(cases)
