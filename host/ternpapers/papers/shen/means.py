"""Fig. 2 of Shen et al.: the relative errors of means of PDPM's reports, exactly.

70 clients have 100 records each within their safe ranges, and report each record on its own. The
text does not say where the safe ranges lie; here their centre is 1. Nor does it say how often
clients draw their records; here they have evenly spaced ones.

The paper's measure is |estimate - truth| / |truth|, averaged over several runs. Here it is the root
of the expected square of that. For means of so many reports, which are nearly normal, it is about
1.25 times as large as the average.

In the paper the figure shows PDPM alone. The comparison with Laplace noise and with Duchi's
mechanism is our own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np

from ternhost.datasets import Floats
from ternhost.errors import UsageError
from ternhost.planning.cells import Cell, Row
from ternhost.planning.statistics import grouped, pick
from ternpapers.base import Options
from ternpapers.figure import RUNS, Axis, Figure
from ternpapers.laws import variances
from ternpapers.papers.shen.modes import EPSILON_CURVES, TAU_CURVES
from ternpapers.safe_ranges import EPSILONS, TAKEN, TAUS, Choices, choice_of
from ternpapers.verdicts import Check, Verdict, better_everywhere, every

CLIENTS, RECORDS = 70, 100
CENTRE = 1.0  # of all safe ranges

BY_EPSILON, BY_SIZE = "(a) by epsilon", "(b) by the size of the safe range"
OURS = "ours: other mechanisms"
_MECHANISMS = "pdpm", "laplace", "duchi"  # the paper's, and two to compare with
_X, _Y = "epsilon_or_size", "relative_error"  # columns


def records() -> Floats:
    """Return the records of a client on the scale [-1, 1]: the middles of RECORDS equal parts."""
    return np.asarray((2 * np.arange(RECORDS) + 1) / RECORDS - 1, np.float64)


def relative_error(mechanism: str, choices: Choices) -> float:
    """Return the root mean squared relative error of the mean of all records, exactly.

    Reports are unbiased and independent. So the squared error of their mean is the mean of their
    variances, divided by their number.

    mechanism: its name. choices: epsilon and tau, which the clients take in turn.
    """
    of_clients = []  # the mean variance of a client's reports
    for client in range(CLIENTS):
        epsilon, tau = choice_of(client, choices)
        of_clients.append(tau**2 * variances(mechanism, epsilon, records()).mean())
    squared_error = np.mean(of_clients) / (CLIENTS * RECORDS)
    return float(squared_error**0.5) / CENTRE


@dataclass(frozen=True)
class _Point:
    """A point of the figure.

    panel, curve, x: where it is. mechanism, choices: as of `relative_error`.
    """

    panel: str
    curve: str
    x: float
    mechanism: str
    choices: Choices


def _points() -> list[_Point]:
    """Return all points of the figure."""
    points = []
    for (mode, curve), epsilon in product(TAU_CURVES.items(), EPSILONS):
        choices = tuple((epsilon, tau) for tau in TAUS[TAKEN[mode]])
        points.append(_Point(BY_EPSILON, curve, epsilon, "pdpm", choices))
    for (mode, curve), tau in product(EPSILON_CURVES.items(), TAUS):
        choices = tuple((epsilon, tau) for epsilon in EPSILONS[TAKEN[mode]])
        size = 2 * tau
        points.append(_Point(BY_SIZE, curve, size, "pdpm", choices))
    for mechanism, epsilon in product(_MECHANISMS, EPSILONS):
        choices = tuple((epsilon, tau) for tau in TAUS)
        points.append(_Point(OURS, mechanism, epsilon, mechanism, choices))
    return points


def _cells(options: Options) -> list[Cell]:
    """Return the only cell. Raises UsageError for a data set, and for a number of runs."""
    if options.data is not None:
        text = "this figure has no data set: its numbers are evenly spaced"
        raise UsageError(text, hint="leave --data out")
    options.require_no_runs()
    return [Cell(RUNS, _errors, arguments={})]


def _errors() -> list[Row]:
    """Return the relative error at each point of the figure."""
    rows: list[Row] = []
    for point in _points():
        place = {"panel": point.panel, "curve": point.curve, "run": 0, _X: point.x}
        rows.append({**place, _Y: relative_error(point.mechanism, point.choices)})
    return rows


def _steps(panel: str, rows: Sequence[Row]) -> list[float]:
    """Return by how much each error of a panel exceeds the one before it on the same curve."""
    steps = []
    for curve_rows in grouped(pick(rows, panel=panel), "curve").values():
        for row, next_row in pairwise(curve_rows):
            steps.append(next_row[_Y] - row[_Y])
    return steps


def _errors_fall_with_epsilon(rows: Sequence[Row]) -> Verdict:
    """Test whether the error is smaller at each epsilon of a curve than at the one before it."""
    return every(step < 0 for step in _steps(BY_EPSILON, rows))


def _errors_grow_with_the_range(rows: Sequence[Row]) -> Verdict:
    """Test whether the error is larger at each size of a curve than at the one before it."""
    return every(step > 0 for step in _steps(BY_SIZE, rows))


def _larger_ranges_have_larger_errors(rows: Sequence[Row]) -> Verdict:
    """Test whether at each epsilon the errors grow from mode to mode of the safe ranges."""
    least, middle, largest = TAU_CURVES.values()
    of_panel = pick(rows, panel=BY_EPSILON)
    return every(
        better_everywhere(_Y, [smaller], [larger], of_panel).holds
        for smaller, larger in ((least, middle), (middle, largest))
    )


def _large_epsilons_have_smaller_errors(rows: Sequence[Row]) -> Verdict:
    """Test whether at each size of the range the errors are smaller in mode 3 than in mode 1."""
    least, _, largest = EPSILON_CURVES.values()
    return better_everywhere(_Y, [largest], [least], pick(rows, panel=BY_SIZE))


_STATEMENTS: dict[str, Check] = {
    "(a) the error falls as epsilon grows": _errors_fall_with_epsilon,
    "(a) larger safe ranges have larger errors": _larger_ranges_have_larger_errors,
    "(b) the error grows with the safe range": _errors_grow_with_the_range,
    "(b) the error is smaller in mode 3 of epsilon than in mode 1": (
        _large_epsilons_have_smaller_errors
    ),
}

FIGURE = Figure(
    title=f"relative error of a mean of {CLIENTS} clients, exactly",
    x=Axis(_X, "epsilon"),
    y=Axis(_Y, "relative error", log=True),
    cells=_cells,
    statements=_STATEMENTS,
    columns=3,
    exact=True,
    x_labels={BY_SIZE: "size of the safe range (2 tau)"},
)
