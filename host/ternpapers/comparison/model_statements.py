"""Checks of what the papers say about figures of models: cases that are beyond noise, or not.

In each case, paired runs are compared, at the level of significance of `verdicts.gained`.
"""

import math
from collections.abc import Sequence
from itertools import product

import numpy as np

from ternhost.datasets import Floats
from ternhost.planning.cells import Row
from ternhost.planning.statistics import (
    grouped,
    half_interval,
    mean_and_error,
    pick,
    values_of,
)
from ternpapers.figure import UNROUNDED
from ternpapers.verdicts import LEVEL, Holds, Verdict, every, every_gain

_LEAST_RUNS = 3  # whose distances from their median differ; two runs are equally far from it
SIMILAR = 0.1  # so large a part of the error may differ between similar mechanisms
_ERRORS = ("misclassification", "squared_error", "error")


def better_at_each(
    x: str, names: Sequence[str], others: Sequence[str], rows: Sequence[Row]
) -> Verdict:
    """Test whether each of the curves `names` has smaller errors than each of the others.

    A case is a panel, an x and two curves. Cases in which both curves are the same mechanism, and
    have the same errors, are left out. x: the column of the x axis.
    """
    gains = []
    for of_point in grouped(rows, "panel", x).values():
        for name, other in product(names, others):
            gain = _errors(pick(of_point, curve=other)) - _errors(pick(of_point, curve=name))
            if gain.any():
                gains.append(gain)
    return _every_gain(gains)


def falls(rows: Sequence[Row]) -> Verdict:
    """Test whether errors fall as the number of outputs grows.

    A case is a panel and a curve of a mechanism whose outputs are rounded: there the slope of the
    straight line through the errors over the logarithm of the outputs is below 0.
    """
    gains = []
    for of_curve in _rounded_curves(rows):
        outputs = np.log(values_of(of_curve, "outputs"))
        slopes = []
        for of_run in grouped(of_curve, "run").values():
            slope, _ = np.polyfit(outputs, _errors(of_run), 1)
            slopes.append(slope)
        gains.append(-np.array(slopes))
    return _every_gain(gains)


def few_outputs_are_erratic(rows: Sequence[Row]) -> Verdict:
    """Test whether errors with the fewest outputs differ more between runs than with the most.

    A case is a panel and a curve of a mechanism whose outputs are rounded. The distances of the
    runs from their median are compared (the test of Brown and Forsythe, for paired runs). It cannot
    be told from fewer than three runs.
    """
    if len(values_of(rows, "run")) < _LEAST_RUNS:
        return Verdict(None, f"it takes {_LEAST_RUNS} runs")
    gains = []
    for of_curve in _rounded_curves(rows):
        outputs = values_of(of_curve, "outputs")
        distances = []
        for number in (min(outputs), max(outputs)):
            errors = _errors(pick(of_curve, outputs=number))
            distances.append(np.abs(errors - np.median(errors)))
        gains.append(distances[0] - distances[1])
    return _every_gain(gains)


def better_with_most_outputs(name: str, other: str, rows: Sequence[Row]) -> Verdict:
    """Test whether a curve has smaller errors than another one at the largest number of outputs.

    A case is a panel. If noise hides whether it has, the detail bounds the difference.
    """
    most = pick(rows, outputs=max(values_of(rows, "outputs")))
    verdict = better_at_each("outputs", (name,), (other,), most)
    if verdict.holds is not None:
        return verdict
    pairs = []
    for of_panel in grouped(most, "panel").values():
        pairs.append((_errors(pick(of_panel, curve=name)), _errors(pick(of_panel, curve=other))))
    largest = max(high for _, high in _relative_differences(pairs))
    return Verdict(None, f"noise hides it: they differ by at most {100 * largest:.2g} %")


def similar_with_most_outputs(rows: Sequence[Row]) -> Verdict:
    """Test whether errors with the most outputs are similar to those before rounding.

    A case is a panel and a mechanism. It holds if the mean difference is surely at most 10 % of the
    error, and fails if it is surely more.
    """
    most = pick(rows, outputs=max(values_of(rows, "outputs")))
    pairs = []
    for of_panel in grouped(most, "panel").values():
        for name in _rounded_names(of_panel):
            before = _errors(pick(of_panel, curve=name + UNROUNDED))
            pairs.append((_errors(pick(of_panel, curve=name)), before))

    differences = _relative_differences(pairs)
    cases: list[Holds] = []
    for low, high in differences:
        if high <= SIMILAR:
            cases.append(True)
        elif low > SIMILAR:
            cases.append(False)
        else:
            cases.append(None)
    verdict = every(cases)
    if verdict.holds:
        largest = max(high for _, high in differences)
        return Verdict(True, f"they differ by at most {100 * largest:.2g} %")
    return verdict


def _relative_differences(pairs: Sequence[tuple[Floats, Floats]]) -> list[tuple[float, float]]:
    """Return how much the mean errors of two curves differ at least and at most, for each pair.

    The differences are relative to the second curve's errors. All intervals together hold with a
    probability of 95 %. pairs: the errors of all runs of two curves.
    """
    intervals = []
    for errors, others in pairs:
        differences = (errors - others) / others.mean()
        mean, error = mean_and_error(differences.tolist())
        half = math.inf  # one run tells nothing
        if len(differences) > 1:
            half = half_interval(error, len(differences), LEVEL / len(pairs))
        intervals.append((abs(mean) - half, abs(mean) + half))
    return intervals


def _rounded_names(rows: Sequence[Row]) -> list[str]:
    """Return the mechanisms whose outputs are rounded: those with a curve before rounding."""
    curves = values_of(rows, "curve")
    return [name for name in curves if name + UNROUNDED in curves]


def _rounded_curves(rows: Sequence[Row]) -> list[list[Row]]:
    """Return the rows of each panel and each mechanism whose outputs are rounded."""
    curves = []
    for of_panel in grouped(rows, "panel").values():
        curves += [pick(of_panel, curve=name) for name in _rounded_names(of_panel)]
    return curves


def _errors(rows: Sequence[Row]) -> Floats:
    """Return the errors of models, in the order of the rows."""
    (column,) = [name for name in _ERRORS if name in rows[0]]
    return np.array([row[column] for row in rows])


def _every_gain(gains: Sequence[Floats]) -> Verdict:
    """Return the verdict on a statement that holds if the mean gain of every case is above 0.

    gains: those of all runs, for each case.
    """
    if not gains:
        return Verdict(None, "all errors are equal")
    return every_gain(gains)
