"""Tells in which order the worst-case variances of mechanisms are, at which epsilons.

Tables I and II of Zhao et al. (2021) divide the epsilons into ranges, in which the order is the
same. Between two ranges is a border: there two mechanisms have the same variance. The borders are
computed here, and the orders are compared at many epsilons of each range.
"""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise, takewhile

import numpy as np
from scipy.optimize import bisect, brentq

from ternhost.planning.cells import Row
from ternhost.planning.statistics import values_of
from ternhost.privacy.mechanisms import three_outputs
from ternpapers.formula import worst_variance
from ternpapers.verdicts import Check, Verdict, by_curve, every

# Two mechanisms of Tables I and II, and an interval of epsilon in which their variances cross.
CROSSINGS = (
    ("pm", "duchi", 1, 1.6),
    ("duchi", "laplace", 2, 3),
    ("pm-sub", "duchi", 1, 1.6),
    ("pm-sub", "three-outputs", 2, 3),
    ("pm", "three-outputs", 3, 4),
)
_LEAST, _LARGEST = 0.02, 10.0  # the ends of the ranges without a border
_EPSILONS_OF_A_RANGE = 50
_ROUNDING = 1e-9  # relative: variances that differ by less are equal


def crossing(first: str, second: str, low: float, high: float) -> float:
    """Return the epsilon between low and high at which two mechanisms have the same variance.

    That is the worst-case variance for one number, as the papers state it.
    """

    def difference(epsilon: float) -> float:
        """Return how much larger the variance of the first mechanism is."""
        return worst_variance(first)(epsilon) - worst_variance(second)(epsilon)

    return float(brentq(difference, low, high, xtol=1e-12))


def parting() -> float:
    """Return the epsilon up to which Three-Outputs never reports 0, so that it is Duchi's mechanism."""

    def sign(epsilon: float) -> float:
        """Return whether 0 is reported, as 1 or -1."""
        if three_outputs.zero_probability(epsilon) > 0:
            return 1.0
        return -1.0

    return float(bisect(sign, 0.5, 1.0, xtol=1e-12))


def borders(crossings: Sequence[tuple[str, str, float, float]], parts: bool) -> list[Row]:
    """Return a row for each border of a table, the smallest epsilon first.

    crossings: as CROSSINGS. parts: whether the epsilon where Three-Outputs parts from Duchi's
    mechanism is a border, too.
    """
    epsilons = {f"{row[0]}, {row[1]}": crossing(*row) for row in crossings}
    if parts:
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
        f"the order changes at epsilon {', '.join(printed)}": partial(_are_borders, printed)
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
        if least <= largest_before * (1 + _ROUNDING) or largest > least * (1 + _ROUNDING):
            return False
        largest_before = largest
    return True


# Statements about curves of variances by epsilon, whose rows are those of `formula.variances`.


def never_worse(name: str, others: Sequence[str], rows: Sequence[Row]) -> Verdict:
    """Test whether a mechanism's variance is never larger than another's; a case is an epsilon."""
    variances = by_curve(rows, "variance")
    least_of_others = np.minimum.reduce([variances[other] for other in others])
    return every((variances[name] <= least_of_others * (1 + _ROUNDING)).tolist())


def smaller(
    name: str, others: Sequence[str], rows: Sequence[Row], above: float = 0.0, to: float = math.inf
) -> Verdict:
    """Test whether a mechanism's variance is smaller than all others'; a case is an epsilon.

    above, to: the range of epsilon; its lower end does not belong to it.
    """
    by_epsilon = _is_smaller(name, others, rows)
    return every(by_epsilon[epsilon] for epsilon in by_epsilon if above < epsilon <= to)


def smaller_if_small(name: str, others: Sequence[str], rows: Sequence[Row]) -> Verdict:
    """Test whether a mechanism's variance is smaller than all others' at the smallest epsilons.

    The detail of the verdict says up to which epsilon.
    """
    smaller_at = _from_first(_is_smaller(name, others, rows))
    if not smaller_at:
        return Verdict(False, f"not at epsilon {rows[0]['epsilon']:g}")
    return Verdict(True, f"up to epsilon {smaller_at[-1]:g}")


def smaller_if_large(name: str, others: Sequence[str], rows: Sequence[Row]) -> Verdict:
    """Test whether a mechanism's variance is smaller than all others' at the largest epsilons.

    The detail of the verdict says from which epsilon on.
    """
    backwards = dict(reversed(_is_smaller(name, others, rows).items()))
    smaller_at = _from_first(backwards)
    if not smaller_at:
        return Verdict(False, f"not at epsilon {rows[-1]['epsilon']:g}")
    return Verdict(True, f"from epsilon {smaller_at[-1]:g} on")


def _from_first(is_smaller: Mapping[float, bool]) -> list[float]:
    """Return the epsilons from the first one to the last one before a value that is False."""
    return list(takewhile(lambda epsilon: is_smaller[epsilon], is_smaller))


def _is_smaller(name: str, others: Sequence[str], rows: Sequence[Row]) -> dict[float, bool]:
    """Return, by epsilon, whether a mechanism's variance is smaller than all others'."""
    variances = by_curve(rows, "variance")
    least_of_others = np.minimum.reduce([variances[other] for other in others])
    is_smaller = variances[name] < least_of_others * (1 - _ROUNDING)
    return dict(zip(values_of(rows, "epsilon"), is_smaller.tolist(), strict=True))


def close(name: str, best: str, within: float, rows: Sequence[Row]) -> Verdict:
    """Test whether a variance is at most a part `within` larger than the best one, at all epsilons."""
    variances = by_curve(rows, "variance")
    largest = float(np.max(variances[name] / variances[best])) - 1
    return Verdict(largest <= within, f"at most {100 * largest:.2g} % larger")
