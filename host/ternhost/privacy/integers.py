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
    """The table card of rounded real rows that keeps `epsilon` (micro).

    rows: takes an epsilon and returns the real rows that keep it. `levels` and rows are symmetric
    about 0: row i from the end is row i mirrored. The first of `SLACKS` that suffices is given up.
    Raises CardError if none does.
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
    """Round rows to counts that add up to T, means exactly proportional to the knots (cards.md).

    Raises CardError.
    """
    last = len(rows) - 1
    largest_mean = sum(p * level for p, level in zip(rows[last], levels, strict=True))
    step = math.floor(largest_mean * T / last)  # B of cards.md
    divisor = math.gcd(*(b - a for a, b in pairwise(levels)))
    offset = levels[0] * T  # every mean is this plus a multiple of the divisor
    if offset % divisor:
        raise cards.CardError("levels and T have no means in common")
    step -= step % divisor
    counts: list[list[int]] = [[] for _ in rows]
    for i in range((last + 1) // 2, last + 1):
        if 2 * i == last:
            counts[i] = _round_symmetric_row(rows[i])
        else:
            counts[i] = _round_row(levels, rows[i], step * (2 * i - last))
        counts[last - i] = counts[i][::-1]
    return counts


def _round_symmetric_row(row: Sequence[float]) -> list[int]:
    """The counts of a row that is its own mirror image, as they are at x = 0: they add up to T."""
    half = [round(p * T) for p in row[: len(row) // 2]]
    if len(row) % 2:
        return [*half, T - 2 * sum(half), *half[::-1]]
    half[half.index(max(half))] += T // 2 - sum(half)
    return half + half[::-1]


def _round_row(levels: Sequence[int], row: Sequence[float], mean: int) -> list[int]:
    """The counts of a row that add up to T, and times the levels to `mean`. Raises CardError."""
    counts = [round(p * T) for p in row]
    counts[counts.index(max(counts))] += T - sum(counts)
    error = mean - sum(n * level for n, level in zip(counts, levels, strict=True))
    for lower, upper, moves in _moves(levels, counts, error):
        counts[lower] -= moves
        counts[upper] += moves
    if min(counts) < 1:
        raise cards.CardError("a count is not positive")
    return counts


def _moves(levels: Sequence[int], counts: Sequence[int], error: int) -> list[tuple[int, int, int]]:
    """Few moves of counts that change the sum of counts times levels by `error`.

    A move is (index of the lower level, of the upper one, units up or, if negative, down). They are
    between levels of large counts, which a unit changes least, if these suffice. Raises CardError.
    """
    large = [j for j, n in enumerate(counts) if n >= max(counts) >> 8]
    for usable in (large, range(len(levels))):
        pairs = {levels[b] - levels[a]: (a, b) for a, b in combinations(usable, 2)}
        if not pairs or error % math.gcd(*pairs):
            continue
        moves = []
        for gap, units in _sum_of_gaps(sorted(pairs), error).items():
            if units:
                moves.append((*pairs[gap], units))
        return moves
    raise cards.CardError("the differences of the levels have a common divisor")


def _sum_of_gaps(gaps: Sequence[int], error: int) -> dict[int, int]:
    """How often to add each gap for a sum of `error`, a multiple of their common divisor.

    It searches the residues modulo the widest gap breadth first; the rest is moves across that gap.
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
