"""Tells in which order the worst-case variances of mechanisms are, at which epsilons.

Tables I and II of Zhao et al. (2021) divide the epsilons into ranges, in which the order is the
same. Between two ranges is a border: there two mechanisms have the same variance. The borders are
computed here, and the orders are compared at many epsilons of each range.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
from scipy.optimize import bisect, brentq

from ternhost.planning.cells import Row
from ternhost.privacy.mechanisms import three_outputs
from ternpapers.formula import worst_variance
from ternpapers.verdicts import ROUNDING, Check, Verdict, every

_LEAST, _LARGEST = 0.02, 10.0  # the ends of the ranges without a border
_EPSILONS_OF_A_RANGE = 50


@dataclass(frozen=True)
class Crossing:
    """Two mechanisms whose worst-case variances cross at one epsilon.

    The variance is that of one number, as the papers state it. first, second: their names. low,
    high: an interval of epsilon around the crossing, which has no other one.
    """

    first: str
    second: str
    low: float
    high: float

    def epsilon(self) -> float:
        """Return the epsilon at which both variances are equal."""

        def difference(epsilon: float) -> float:
            """Return how much larger the variance of the first mechanism is."""
            return worst_variance(self.first)(epsilon) - worst_variance(self.second)(epsilon)

        return float(brentq(difference, self.low, self.high, xtol=1e-12))


PM_AND_DUCHI = Crossing("pm", "duchi", 1, 1.6)
DUCHI_AND_LAPLACE = Crossing("duchi", "laplace", 2, 3)
PM_SUB_AND_DUCHI = Crossing("pm-sub", "duchi", 1, 1.6)
PM_SUB_AND_THREE_OUTPUTS = Crossing("pm-sub", "three-outputs", 2, 3)
PM_AND_THREE_OUTPUTS = Crossing("pm", "three-outputs", 3, 4)
# The crossings of Table I, and those of Table II.
OF_EXISTING = (PM_AND_DUCHI, DUCHI_AND_LAPLACE)
OF_PROPOSED = (PM_AND_DUCHI, PM_SUB_AND_DUCHI, PM_SUB_AND_THREE_OUTPUTS, PM_AND_THREE_OUTPUTS)


def parting() -> float:
    """Return the epsilon up to which Three-Outputs never reports 0, so that it is Duchi's mechanism."""

    def sign(epsilon: float) -> float:
        """Return whether 0 is reported, as 1 or -1."""
        if three_outputs.zero_probability(epsilon) > 0:
            return 1.0
        return -1.0

    return float(bisect(sign, 0.5, 1.0, xtol=1e-12))


def borders(crossings: Sequence[Crossing], with_parting: bool) -> list[Row]:
    """Return a row for each border of a table, the smallest epsilon first.

    with_parting: whether the epsilon where Three-Outputs parts from Duchi's mechanism is a border,
    too. A row has the number of the border (from 1) as "row", its epsilon, and its two mechanisms
    as the name of a curve.
    """
    epsilons = {}
    for crossing in crossings:
        epsilons[f"{crossing.first}, {crossing.second}"] = crossing.epsilon()
    if with_parting:
        epsilons["three-outputs, duchi"] = parting()
    rows: list[Row] = []
    in_order = sorted(epsilons.items(), key=lambda item: item[1])
    for number, (pair, epsilon) in enumerate(in_order, start=1):
        rows.append({"panel": "borders", "curve": pair, "row": number, "epsilon": epsilon})
    return rows


def order_statements(printed: Sequence[str], orders: Sequence[str]) -> dict[str, Check]:
    """Return what a table states: its borders, and the order of the mechanisms in each range.

    printed: the borders as the paper prints them. orders: one more than borders, the mechanism with
    the least variance first, such as "duchi = three-outputs < pm". The rows of the checks are those
    of `borders`.
    """
    ranges = [f"epsilon below {printed[0]}"]
    for low, high in pairwise(printed):
        ranges.append(f"epsilon from {low} to {high}")
    ranges.append(f"epsilon above {printed[-1]}")

    statements: dict[str, Check] = {
        f"the order of the variances changes at epsilon {', '.join(printed)}": partial(
            _are_borders, printed
        )
    }
    for number, (range_, order) in enumerate(zip(ranges, orders, strict=True)):
        statements[f"{range_}: {order}"] = partial(_is_order_in_range, number, order)
    return statements


def _are_borders(printed: Sequence[str], rows: Sequence[Row]) -> Verdict:
    """Test whether the borders are the printed ones, to as many digits as these have."""
    cases = []
    for border, row in zip(printed, rows, strict=True):
        _, _, decimals = border.partition(".")
        cases.append(f"{row['epsilon']:.{len(decimals)}f}" == border)
    return every(cases)


def _is_order_in_range(number: int, order: str, rows: Sequence[Row]) -> Verdict:
    """Test whether the variances have this order at many epsilons of the range of this number.

    order: see `order_statements`. rows: the borders; range 0 is before the first of them.
    """
    ends = [_LEAST, *(row["epsilon"] for row in rows), _LARGEST]
    epsilons = np.geomspace(ends[number], ends[number + 1], _EPSILONS_OF_A_RANGE + 2)
    return every(is_order(order, epsilon) for epsilon in epsilons[1:-1].tolist())


def is_order(order: str, epsilon: float) -> bool:
    """Return whether the variances at epsilon have this order, such as "duchi < pm = hm"."""
    largest_before = -math.inf
    for equals in order.split(" < "):
        variances = [worst_variance(name)(epsilon) for name in equals.split(" = ")]
        least, largest = min(variances), max(variances)
        are_equal = largest <= least * (1 + ROUNDING)
        are_larger_than_before = least > largest_before * (1 + ROUNDING)
        if not (are_equal and are_larger_than_before):
            return False
        largest_before = largest
    return True
