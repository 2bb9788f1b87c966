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

# Epsilon given up so that rounded rows still keep the requested one: the first that suffices is
# taken. It is large only where epsilon is so large that T / e**epsilon is a handful of counts.
SLACKS = tuple(1e-8 * 2**k for k in range(29))


def certified_table(levels: Sequence[int], rows: Callable[[float], Rows], epsilon: int) -> bytes:
    """Return a table card of rounded real probabilities that keeps `epsilon` (micro).

    rows: takes a real epsilon and returns the probabilities that keep it, a row for each knot.
    `levels` and rows are symmetric about 0: row i from the end is row i mirrored. Rounding can
    raise the privacy loss, so rows are designed for an epsilon that is smaller by the first of
    `SLACKS` that suffices. Raises CardError if none does.
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
    """Round rows of probabilities to counts out of T, without a bias.

    levels: the integer level of each column. rows: one for each knot, symmetric about 0. The counts
    of a row add up to T, and the means of rows are exactly proportional to their knots (cards.md):
    row i of n + 1 has the mean B (2 i - n) counts, with a whole B. Raises CardError.
    """
    last = len(rows) - 1
    largest_mean = sum(p * level for p, level in zip(rows[last], levels, strict=True))
    step = math.floor(largest_mean * T / last)  # B of cards.md

    # T counts have a mean of levels[0] T plus a multiple of the levels' common divisor.
    differences = [higher - lower for lower, higher in pairwise(levels)]
    divisor = math.gcd(*differences)
    if levels[0] * T % divisor:
        raise cards.CardError("levels and T have no means in common")
    step -= step % divisor

    # Rows from the middle up are rounded; those below are their mirror images.
    counts: list[list[int]] = [[] for _ in rows]
    for i in range((last + 1) // 2, last + 1):
        if 2 * i == last:
            counts[i] = _round_symmetric_row(rows[i])
        else:
            counts[i] = _round_row(levels, rows[i], step * (2 * i - last))
        counts[last - i] = counts[i][::-1]
    return counts


def _round_symmetric_row(row: Sequence[float]) -> list[int]:
    """Return the counts, T in all, of a row that is its own mirror image: the one at x = 0."""
    half = [round(p * T) for p in row[: len(row) // 2]]
    if len(row) % 2:
        return [*half, T - 2 * sum(half), *half[::-1]]
    half[half.index(max(half))] += T // 2 - sum(half)
    return half + half[::-1]


def _round_row(levels: Sequence[int], row: Sequence[float], mean: int) -> list[int]:
    """Round a row of probabilities to counts that add up to T and have exactly this mean.

    mean: the sum of counts times levels. Raises CardError if a count would not be positive.
    """
    counts = [round(p * T) for p in row]
    # The largest count takes the rounding error of the total, since that changes it least.
    counts[counts.index(max(counts))] += T - sum(counts)
    error = mean - sum(n * level for n, level in zip(counts, levels, strict=True))
    for lower, upper, units in _moves(levels, counts, error):
        counts[lower] -= units
        counts[upper] += units
    if min(counts) < 1:
        raise cards.CardError("a count is not positive")
    return counts


def _moves(levels: Sequence[int], counts: Sequence[int], error: int) -> list[tuple[int, int, int]]:
    """Return a few moves of counts that change the sum of counts times levels by `error`.

    A move is (index of the lower level, index of the upper level, units that move up; negative:
    down). Levels with large counts are preferred, since a unit changes these relatively least.
    Raises CardError if no moves give `error`.
    """
    least_large = max(counts) >> 8  # 1/256 of the largest
    large = [j for j, count in enumerate(counts) if count >= least_large]
    for usable in (large, range(len(levels))):
        pair_of_gap = {levels[b] - levels[a]: (a, b) for a, b in combinations(usable, 2)}
        if not pair_of_gap or error % math.gcd(*pair_of_gap):
            continue  # sums of these gaps never give the error
        moves = []
        for gap, units in _sum_of_gaps(sorted(pair_of_gap), error).items():
            lower, upper = pair_of_gap[gap]
            if units:
                moves.append((lower, upper, units))
        return moves
    raise cards.CardError("the differences of the levels have a common divisor")


def _sum_of_gaps(gaps: Sequence[int], error: int) -> dict[int, int]:
    """Return how often to add each gap so that the sum is `error`; negative: to subtract it.

    gaps: ascending. error: a multiple of their common divisor. A breadth-first search over residues
    modulo the widest gap finds the fewest additions with the residue of `error`. Additions of the
    widest gap make up the rest.
    """
    widest = gaps[-1]
    times_by_residue: dict[int, dict[int, int]] = {0: {}}
    frontier = [0]
    while error % widest not in times_by_residue:
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
    times = dict(times_by_residue[error % widest])
    rest = error - sum(gap * n for gap, n in times.items())
    times[widest] = times.get(widest, 0) + rest // widest
    return times
