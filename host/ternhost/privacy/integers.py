"""Rounds real probabilities to the integer rows of a table card.

The card is exactly unbiased, and certified at the requested epsilon.
"""

import math
from collections.abc import Callable, Sequence
from itertools import combinations, pairwise, product

from tern import card as cards
from tern.card import T
from tern.fixed import MAX_EPSILON
from ternhost.privacy.base import MICRO, table

Rows = Sequence[Sequence[float]]

# Rounding can raise the privacy loss. So rows are designed for an epsilon that is smaller by one of
# these: the first that suffices. That is large only where epsilon is so large that T / e**epsilon,
# the least count of a row, is only a handful.
SLACKS = tuple(1e-8 * 2**k for k in range(29))


def certified_table(levels: Sequence[int], rows: Callable[[float], Rows], epsilon: int) -> bytes:
    """Return a table card with rounded probabilities that keeps `epsilon` (in millionths).

    levels: the integer level of each output, symmetric about 0. rows: a function that takes a real
    epsilon and returns the probabilities that keep it, a row for each knot. These are symmetric,
    too: row i from the end is row i mirrored.

    Raises CardError if rounding raises the privacy loss by more than the largest of `SLACKS`.
    """
    for slack in SLACKS:
        target = epsilon / MICRO - slack
        if target <= 0:
            break
        try:
            data = table(levels, integer_rows(levels, rows(target)))
        except cards.CardError:
            continue
        if cards.certify(cards.decode(data), min(epsilon, MAX_EPSILON)):
            return data
    raise cards.CardError("no rounding of these rows keeps the requested epsilon")


def integer_rows(levels: Sequence[int], rows: Rows) -> list[list[int]]:
    """Round rows of probabilities to counts out of T, so that the table is exactly unbiased.

    The counts of a row add up to T. The means of rows are exactly proportional to their knots: row
    i of n + 1 rows has the mean B (2 i - n), in counts times levels, with a whole number B
    (cards.md).

    levels: the integer level of each column. rows: one for each knot, symmetric about 0. Raises
    CardError if there are no such counts.
    """
    last = len(rows) - 1  # n
    largest_mean = sum(p * level for p, level in zip(rows[last], levels, strict=True))
    step = math.floor(largest_mean * T / last)  # B

    # To move a count from one level to another changes the mean by their difference. So T counts
    # have a mean of levels[0] T plus a multiple of the differences' common divisor.
    differences = [higher - lower for lower, higher in pairwise(levels)]
    divisor = math.gcd(*differences)
    if levels[0] * T % divisor:
        raise cards.CardError("levels and T have no means in common")
    step -= step % divisor

    # Rows from the middle up are rounded; those below are their mirror images.
    counts: list[list[int]] = [[] for _ in rows]
    first_of_upper_half = (last + 1) // 2
    for i in range(first_of_upper_half, last + 1):
        is_middle = 2 * i == last
        if is_middle:
            counts[i] = _round_symmetric_row(rows[i])
        else:
            counts[i] = _round_row(levels, rows[i], mean=step * (2 * i - last))
        counts[last - i] = counts[i][::-1]
    return counts


def _round_symmetric_row(row: Sequence[float]) -> list[int]:
    """Return the counts, T in all, of a row that is its own mirror image: the one at x = 0."""
    half = [round(p * T) for p in row[: len(row) // 2]]
    if len(row) % 2:
        middle = T - 2 * sum(half)
        return [*half, middle, *half[::-1]]
    # Without a middle, the largest count takes the rounding error of the total.
    half[half.index(max(half))] += T // 2 - sum(half)
    return half + half[::-1]


def _round_row(levels: Sequence[int], row: Sequence[float], mean: int) -> list[int]:
    """Round a row of probabilities to counts that add up to T and have exactly this mean.

    mean: the sum of counts times levels. Raises CardError if a count would not be positive.
    """
    counts = [round(p * T) for p in row]
    # The largest count takes the rounding error of the total, since that changes it least.
    counts[counts.index(max(counts))] += T - sum(counts)

    missing = mean - sum(count * level for count, level in zip(counts, levels, strict=True))
    for lower, upper, moved in _moves(levels, counts, missing):
        counts[lower] -= moved
        counts[upper] += moved
    if min(counts) < 1:
        raise cards.CardError("a count is not positive")
    return counts


def _moves(
    levels: Sequence[int], counts: Sequence[int], missing: int
) -> list[tuple[int, int, int]]:
    """Return a few moves of counts from level to level that raise their mean by `missing`.

    A move is (index of the lower level, index of the upper level, how many counts go up; negative:
    down). The mean is the sum of counts times levels. Levels with large counts are preferred, since
    moves change these relatively least. Raises CardError if no moves give `missing`.
    """
    least_large = max(counts) >> 8  # a count is large from 1/256 of the largest on
    large = [j for j, count in enumerate(counts) if count >= least_large]
    all_levels = range(len(levels))
    for usable in (large, all_levels):
        pair_of_gap = {}  # for each difference of two levels the indices of two that have it
        for lower, upper in combinations(usable, 2):
            pair_of_gap[levels[upper] - levels[lower]] = lower, upper
        if not pair_of_gap or missing % math.gcd(*pair_of_gap):
            continue  # no sum of these gaps is what is missing
        moves = []
        for gap, times in _sum_of_gaps(sorted(pair_of_gap), missing).items():
            lower, upper = pair_of_gap[gap]
            if times:
                moves.append((lower, upper, times))
        return moves
    raise cards.CardError("the differences of the levels have a common divisor")


def _sum_of_gaps(gaps: Sequence[int], total: int) -> dict[int, int]:
    """Return how often to add each gap so that the sum is `total`; negative: to subtract it.

    A breadth-first search over the residues modulo the widest gap finds the fewest additions and
    subtractions whose sum has the residue of `total`. Additions of the widest gap make up the rest.

    gaps: positive integers, ascending. total: a multiple of their greatest common divisor.
    """
    widest = gaps[-1]
    wanted_residue = total % widest
    # How often each gap is added to reach a residue, for the residues that were reached so far.
    times_by_residue: dict[int, dict[int, int]] = {0: {}}
    frontier = [0]
    while wanted_residue not in times_by_residue:
        next_frontier = []
        for residue, gap, sign in product(frontier, gaps, (1, -1)):
            reached = (residue + sign * gap) % widest
            if reached in times_by_residue:
                continue
            times = dict(times_by_residue[residue])
            times[gap] = times.get(gap, 0) + sign
            times_by_residue[reached] = times
            next_frontier.append(reached)
        frontier = next_frontier

    times = dict(times_by_residue[wanted_residue])
    rest = total - sum(gap * n for gap, n in times.items())  # a multiple of the widest gap
    times[widest] = times.get(widest, 0) + rest // widest
    return times
