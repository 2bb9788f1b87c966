"""Sums of units for many clients at once, and their exact noise: tern.sums (arithmetic.md, Sums of
units).
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

_MOST_TOTAL = 1 << 29  # of a unit's number
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
    """The sums of clients' clipped, rounded unit vectors, and the tally: n x (values + 1) in grid
    steps, as tern.sums.

    records: n x records x (d + 1), the label last; `first` is the place of every client's first.
    parameters: d mantissas; model 10: classes x d; models 8 and 9: d flags. categories: of an
    attribute (model 9). Raises ValueError for another model, range or shape.
    """
    n, count, width = records.shape
    weights = np.asarray(parameters)
    collects = model in COLLECTIONS
    if not (model in GRADIENTS or collects) or not 0 <= range_ <= MAX_FINE:
        raise ValueError("no sum of this model or range")
    if weights.shape[-1] != width - 1 or weights.ndim != 1 + (model == SOFTMAX_GRADIENT):
        raise ValueError("records or parameters do not fit")
    values = int(np.count_nonzero(weights)) * categories if collects else weights.size
    body = cast(Sum, card.body)
    result = np.zeros((n, values + 1), np.int64)
    runs = (first + np.arange(count)) // (body.unit or first + count + 1)
    starts = np.flatnonzero(np.diff(runs, prepend=-1))
    step = max(1, _CHUNK // max(1, count * values))
    for at in range(0, n if count else 0, step):
        rows = records[at : at + step].reshape(-1, width)
        added = _added(model, weights, exponent, rows, range_, categories).reshape(
            values, -1, count
        )
        vectors, clipped = _clipped(body, _totals(added, starts).reshape(values, -1))
        part = result[at : at + step]
        part[:, :-1] = vectors.reshape(values, len(part), -1).sum(axis=2, dtype=np.int64).T
        part[:, -1] = np.where(clipped, body.clipped, body.kept).reshape(len(part), -1).sum(axis=1)
    return result


# Numbers are in columns from here on: values x records, or values x units.


def _added(
    model: int, weights: Array, exponent: int, rows: Fixed, range_: int, categories: int
) -> Numbers:
    """What each record adds to its unit's numbers."""
    x = np.ascontiguousarray(rows[:, :-1].T, np.int32)
    if model == VALUES:
        return np.left_shift(x[np.flatnonzero(weights)], range_)
    if model == CATEGORIES:
        held = np.clip(x[np.flatnonzero(weights), None], 0, categories - 1)
        one: Numbers = np.where(held == np.arange(categories)[:, None], np.int32(ONE), np.int32(0))
        return one.reshape(-1, len(rows))
    if model == SOFTMAX_GRADIENT:
        p = probabilities(weights, exponent, rows[:, :-1])
        r = p - ONE * (rows[:, -1:] == np.arange(len(weights)))
        products: Array = (r.T[:, None].astype(np.int32) * x).reshape(-1, len(rows))
    else:
        r = residuals(model, weights, exponent, rows, range_)
        products = x * (
            r if model == LINEAR else r.astype(np.int32)
        )  # other residuals are at most 1
    products += 1 << 13 - range_
    products >>= 14 - range_
    return products.astype(np.int32, copy=False)


def _totals(added: Numbers, starts: Indices) -> Numbers:
    """The numbers of every unit (values x n x units), held to 2**29 after each record (values x n x
    records).
    """
    lengths = np.diff([*starts, added.shape[2]])
    if lengths.max() == 1:
        return added
    if int(lengths.max()) * max(int(added.max()), -int(added.min())) <= _MOST_TOTAL:
        return np.add.reduceat(added, starts, axis=2, dtype=np.int32)
    totals = np.zeros((*added.shape[:2], len(starts)), np.int32)
    for i, (start, length) in enumerate(zip(starts, lengths, strict=True)):
        for at in range(start, start + length):
            totals[:, :, i] = np.clip(totals[:, :, i] + added[:, :, at], -_MOST_TOTAL, _MOST_TOTAL)
    return totals


def _clipped(body: Sum, t: Numbers) -> tuple[Numbers, Flags]:
    """The clipped and rounded vectors of units (values x n, in grid steps) with these numbers T (in
    units of 2**-(14 + range), at most 2**29), and which of them were clipped. Their norm is at most
    R.
    """
    most = np.abs(t).max(axis=0)
    s = _bits(most) - 14
    a = t << np.maximum(-s, 0).astype(np.int32)
    a >>= np.maximum(s, 0).astype(np.int32)
    if body.norm == 1:
        size = _scaled(_norm(a, 1), s)
    else:
        g = (_norm(a, 2) >> 14) + 1
        doubled = np.maximum(0, (28 - _bits(g)) // 2)  # until g is 2**26 or more
        size = _scaled(np.sqrt(g << 2 * doubled).astype(np.int64) + 1, 7 + s - doubled)
    clipped: Flags = (most > 0) & (size > body.reach)
    n = np.where(clipped, size, body.reach)
    bits = _bits(n)
    n = np.where(bits <= 15, n << np.maximum(15 - bits, 0), (n >> np.maximum(bits - 15, 0)) + 1)
    up = 29 - int(body.radius).bit_length()
    p = ((body.radius << up) // n).astype(np.int32)
    down = up + bits - 15 - s
    alive = (most > 0) & (down <= 30)
    k = np.where(alive, down, 1).astype(np.int32)
    p[~alive] = 0
    vectors = a * p
    vectors += np.int32(1) << k - 1
    vectors >>= k
    limit = body.radius**body.norm
    over = np.flatnonzero(_norm(vectors, body.norm) > limit)
    if over.size:
        some = a[:, over]
        toward = np.sign(some) * (np.abs(some) * p[over] >> k[over])
        toward[:, _norm(toward, body.norm) > limit] = 0
        vectors[:, over] = toward
    return vectors, clipped


def _bits(n: Array) -> Whole:
    """The number of bits of integers from 0 to 2**53."""
    return np.frexp(n.astype(np.float64))[1].astype(np.int64)


def _norm(vectors: Numbers, norm: int) -> Whole:
    """The sum of sizes, or of squares with norm 2, of each column."""
    total = np.zeros(vectors.shape[1], np.int64)
    for row in vectors:
        total += np.abs(row) if norm == 1 else row * row
    return total


def _scaled(n: Whole, by: Whole) -> Whole:
    """n 2**by, rounded up."""
    return np.asarray(np.where(by >= 0, n << np.maximum(by, 0), -(-n >> np.maximum(-by, 0))))


# Noise: the draws of tern.sums.noise, in its order.


def symbols(card: Card, lanes: Lanes, totals: Whole) -> npt.NDArray[np.uint16]:
    """Draw the symbols for sums (a row a lane) in grid steps: noise for each, then coarser steps,
    then clamped.
    """
    body = cast(Sum, card.body)
    if isinstance(lanes, RandomLanes):
        z = noise(card, RandomLanes(lanes.bits, totals.size)).reshape(totals.shape)
    else:
        z = np.stack([noise(card, lanes) for _ in range(totals.shape[1])], axis=1)
    w = (totals + z + (1 << body.coarse >> 1) >> body.coarse) + (body.symbols >> 1)
    return np.asarray(np.clip(w, 0, body.symbols - 1).astype(np.uint16))


def noise(card: Card, lanes: Lanes) -> Whole:
    """Z of every lane: exactly discrete Laplace noise of scale t (norm 1), or Gaussian noise of
    variance c t / m.
    """
    body = cast(Sum, card.body)
    result = np.zeros(lanes.count, np.int64)
    pending: Indices = np.arange(lanes.count)
    while pending.size:
        which, z, pending = laplace(lanes, pending, body.t, frugal=True)
        if body.norm == 2:
            kept = _accepted(body, lanes, which, np.abs(z))
            pending = np.concatenate([pending, which[~kept]])
            which, z = which[kept], z[kept]
        result[which] = z
    return result


def _accepted(body: Sum, lanes: Lanes, which: Indices, y: Whole) -> Flags:
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
