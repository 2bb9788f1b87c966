"""Checks of statements about the worst-case variances of mechanisms by epsilon.

The rows are those of `formula.figure_of_variances`: a curve for each mechanism, all of them with the
same epsilons. A case is an epsilon.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import takewhile

import numpy as np

from ternhost.planning.cells import Row
from ternhost.planning.statistics import values_of
from ternpapers.verdicts import ROUNDING, Verdict, better_everywhere, by_curve, every


def never_worse(name: str, others: Sequence[str], rows: Sequence[Row]) -> Verdict:
    """Test whether a mechanism's variance is never larger than another's."""
    variances = by_curve(rows, "variance")
    least_of_others = np.minimum.reduce([variances[other] for other in others])
    is_no_worse = variances[name] <= least_of_others * (1 + ROUNDING)
    return every(is_no_worse.tolist())


def smaller(
    name: str, others: Sequence[str], rows: Sequence[Row], above: float = 0.0, to: float = math.inf
) -> Verdict:
    """Test whether a mechanism's variance is smaller than all others'.

    above, to: the range of epsilon; its lower end does not belong to it.
    """
    rows_in_range = [row for row in rows if above < row["epsilon"] <= to]
    return better_everywhere("variance", (name,), others, rows_in_range)


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
    is_smaller = variances[name] < least_of_others * (1 - ROUNDING)
    return dict(zip(values_of(rows, "epsilon"), is_smaller.tolist(), strict=True))


def close(name: str, best: str, within: float, rows: Sequence[Row]) -> Verdict:
    """Test whether a variance is at most a part `within` larger than the best one, at all epsilons."""
    variances = by_curve(rows, "variance")
    largest = float(np.max(variances[name] / variances[best])) - 1
    return Verdict(largest <= within, f"at most {100 * largest:.2g} % larger")
