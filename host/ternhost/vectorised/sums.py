"""Sums of units for many clients at once, and their exact noise, as tern.sums.

The integers are those of arithmetic.md, Sums of units.
"""

from typing import cast

import numpy as np
import numpy.typing as npt

from tern.card import Card
from tern.fixed import ONE
from tern.gradient import MAX_FINE
from tern.sums import Sum
from tern.wire import CATEGORIES, COLLECTIONS, GRADIENTS, LINEAR, SOFTMAX_GRADIENT, VALUES
from ternhost.vectorised.lanes import Array, Flags, Indices, Lanes, RandomLanes
from ternhost.vectorised.models import Fixed, Whole, probabilities, residuals
from ternhost.vectorised.sampling import bernoulli_exp, laplace

Numbers = npt.NDArray[np.int32]  # of units: at most 2**29

MOST_TOTAL = 1 << 29  # of a unit's number
_CHUNK = 1 << 17  # numbers at a time, so that they stay in the processor's cache


def sums(
    card: Card,
    model: int,
    parameters: npt.ArrayLike,
    exponent: int,
    records: Fixed,
    range_: int = 0,
    first: int = 0,
    categories: int = 1,
) -> Whole:
    """The sums of clients' clipped, rounded unit vectors, and the tally, as tern.sums.

    The result is n x (values + 1), in grid steps, with the tally last. records: n x records x (d +
    1), the label last; `first` is the place of every client's first. parameters: d mantissas; model
    10: classes x d; models 8 and 9: d flags. categories: of an attribute (model 9). Raises
    ValueError for another model, range or shape.
    """
    n, count, width = records.shape
    weights = np.asarray(parameters)
    collects = model in COLLECTIONS
    if not (model in GRADIENTS or collects) or not 0 <= range_ <= MAX_FINE:
        raise ValueError("no sum of this model or range")
    if weights.shape[-1] != width - 1 or weights.ndim != 1 + (model == SOFTMAX_GRADIENT):
        raise ValueError("records or parameters do not fit")
    values = weights.size
    if collects:
        values = int(np.count_nonzero(weights)) * categories
    result = np.zeros((n, values + 1), np.int64)
    if not count:
        return result

    body = cast(Sum, card.body)
    unit = body.unit or first + count + 1  # all records are one unit
    unit_of_record = (first + np.arange(count)) // unit
    starts = np.flatnonzero(np.diff(unit_of_record, prepend=-1))
    chunk = max(1, _CHUNK // max(1, count * values))  # of clients
    for at in range(0, n, chunk):
        rows = records[at : at + chunk].reshape(-1, width)
        added = _added(model, weights, exponent, rows, range_, categories)
        totals = _totals(added.reshape(values, -1, count), starts)
        vectors, is_clipped = clipped_vectors(body, totals.reshape(values, -1))
        tallies = np.where(is_clipped, body.clipped, body.kept)
        part = result[at : at + chunk]
        part[:, :-1] = vectors.reshape(values, len(part), -1).sum(axis=2, dtype=np.int64).T
        part[:, -1] = tallies.reshape(len(part), -1).sum(axis=1)
    return result


# Numbers are in columns from here on: values x records, or values x units.


def _added(
    model: int, weights: Array, exponent: int, rows: Fixed, range_: int, categories: int
) -> Numbers:
    """What each record adds to its unit's numbers."""
    columns = np.ascontiguousarray(rows[:, :-1].T, np.int32)
    if model == VALUES:
        return np.left_shift(columns[np.flatnonzero(weights)], range_)
    if model == CATEGORIES:
        held = np.clip(columns[np.flatnonzero(weights), None], 0, categories - 1)
        is_held = held == np.arange(categories)[:, None]
        flags: Numbers = np.where(is_held, np.int32(ONE), np.int32(0))
        return flags.reshape(-1, len(rows))
    if model == SOFTMAX_GRADIENT:
        p = probabilities(weights, exponent, rows[:, :-1])
        r = p - ONE * (rows[:, -1:] == np.arange(len(weights)))
        products: Array = (r.T[:, None].astype(np.int32) * columns).reshape(-1, len(rows))
    else:
        r = residuals(model, weights, exponent, rows, range_)
        if model != LINEAR:  # whose residuals may be more than 1
            r = r.astype(np.int32)
        products = columns * r
    products += 1 << 13 - range_
    products >>= 14 - range_
    return products.astype(np.int32, copy=False)


def _totals(added: Numbers, starts: Indices) -> Numbers:
    """The numbers of every unit (values x n x units), held to 2**29 after each record.

    added: values x n x records. starts: the first record of each unit.
    """
    lengths = np.diff([*starts, added.shape[2]])
    longest = int(lengths.max())
    if longest == 1:
        return added
    largest = max(int(added.max()), -int(added.min()))
    if longest * largest <= MOST_TOTAL:
        return np.add.reduceat(added, starts, axis=2, dtype=np.int32)
    totals = np.zeros((*added.shape[:2], len(starts)), np.int32)
    for unit, (start, length) in enumerate(zip(starts, lengths, strict=True)):
        for record in range(start, start + length):
            total = totals[:, :, unit] + added[:, :, record]
            totals[:, :, unit] = np.clip(total, -MOST_TOTAL, MOST_TOTAL)
    return totals


def clipped_vectors(body: Sum, t: Numbers) -> tuple[Numbers, Flags]:
    """The clipped and rounded vectors of units, in grid steps, and which of them were clipped.

    t: the numbers of units (values x n), in units of 2**-(14 + range), at most 2**29. The norm of a
    vector is at most R. Letters are those of arithmetic.md.
    """
    most = np.abs(t).max(axis=0)
    s = _bits(most) - 14
    a = t << np.maximum(-s, 0).astype(np.int32)
    a >>= np.maximum(s, 0).astype(np.int32)
    if body.norm == 1:
        size = _scaled(_norm(a, 1), s)
    else:
        g = (_norm(a, 2) >> 14) + 1
        doublings = np.maximum(0, (28 - _bits(g)) // 2)  # until g is 2**26 or more
        root = np.sqrt(g << 2 * doublings).astype(np.int64) + 1
        size = _scaled(root, 7 + s - doublings)
    is_clipped: Flags = (most > 0) & (size > body.reach)
    n = np.where(is_clipped, size, body.reach)
    bits = _bits(n)
    shorter, longer = n << np.maximum(15 - bits, 0), (n >> np.maximum(bits - 15, 0)) + 1
    n = np.where(bits <= 15, shorter, longer)
    up = 29 - int(body.radius).bit_length()
    p = ((body.radius << up) // n).astype(np.int32)
    down = up + bits - 15 - s
    is_left = (most > 0) & (down <= 30)  # the others round to 0
    k = np.where(is_left, down, 1).astype(np.int32)
    p[~is_left] = 0
    vectors = a * p
    vectors += np.int32(1) << k - 1
    vectors >>= k
    limit = body.radius**body.norm
    beyond = np.flatnonzero(_norm(vectors, body.norm) > limit)
    if beyond.size:  # they are rounded toward 0 instead
        long = a[:, beyond]
        rounded = np.sign(long) * (np.abs(long) * p[beyond] >> k[beyond])
        rounded[:, _norm(rounded, body.norm) > limit] = 0
        vectors[:, beyond] = rounded
    return vectors, is_clipped


def _bits(n: Array) -> Whole:
    """The number of bits of integers from 0 to 2**53."""
    _, exponents = np.frexp(n.astype(np.float64))
    return exponents.astype(np.int64)


def _norm(vectors: Numbers, norm: int) -> Whole:
    """The sum of sizes, or of squares with norm 2, of each column."""
    total = np.zeros(vectors.shape[1], np.int64)
    for row in vectors:
        if norm == 1:
            total += np.abs(row)
        else:
            total += row * row
    return total


def _scaled(n: Whole, by: Whole) -> Whole:
    """n 2**by, rounded up."""
    larger = n << np.maximum(by, 0)
    smaller = -(-n >> np.maximum(-by, 0))
    return np.asarray(np.where(by >= 0, larger, smaller))


# Noise: the draws of tern.sums.noise, in its order.


def symbols(card: Card, lanes: Lanes, totals: Whole) -> npt.NDArray[np.uint16]:
    """Draw the symbols for sums (a row a lane), in grid steps.

    Each gets its noise, is rounded to coarser steps, and clamped.
    """
    body = cast(Sum, card.body)
    if isinstance(lanes, RandomLanes):
        z = noise(card, RandomLanes(lanes.bits, totals.size)).reshape(totals.shape)
    else:
        z = np.stack([noise(card, lanes) for _ in range(totals.shape[1])], axis=1)
    coarse = totals + z + (1 << body.coarse >> 1) >> body.coarse
    symbols = coarse + (body.symbols >> 1)
    return np.asarray(np.clip(symbols, 0, body.symbols - 1).astype(np.uint16))


def noise(card: Card, lanes: Lanes) -> Whole:
    """Z of every lane, exactly.

    It is discrete Laplace noise of scale t (norm 1), or Gaussian noise of variance c t / m.
    """
    body = cast(Sum, card.body)
    result = np.zeros(lanes.count, np.int64)
    pending: Indices = np.arange(lanes.count)
    while pending.size:
        which, z, pending = laplace(lanes, pending, body.t, frugal=True)
        if body.norm == 2:
            is_accepted = _accepted(body, lanes, which, np.abs(z))
            pending = np.concatenate([pending, which[~is_accepted]])
            which, z = which[is_accepted], z[is_accepted]
        result[which] = z
    return result


def _accepted(body: Sum, lanes: Lanes, which: Indices, y: Whole) -> Flags:
    """Whether Laplace noise of size y becomes Gaussian noise, for each of the lanes `which`."""
    distance = np.abs(body.m * y - body.c)
    x, e = np.divmod(distance, 2 * body.c)
    v, g = np.divmod(distance, body.t * body.m)
    result = np.ones(len(which), bool)
    for times, a, n in (
        (x * v, np.ones_like(x), 1),
        (np.where(g > 0, x, 0), g, body.t * body.m),  # of 0 it is 1, and nothing is read
        (np.where(e > 0, v, 0), e, 2 * body.c),
    ):
        going = np.flatnonzero(result & (times > 0))
        left = times.copy()
        while going.size:
            passed = bernoulli_exp(lanes, which[going], a[going], n)
            result[going[~passed]] = False
            left[going] -= 1
            going = going[passed & (left[going] > 0)]
    last = np.flatnonzero(result & (e > 0) & (g > 0))
    result[last] = bernoulli_exp(lanes, which[last], e[last], 2 * body.c, g[last], body.t * body.m)
    return result
