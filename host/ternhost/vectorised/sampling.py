"""Symbols of cards for whole arrays of inputs: tern.sampler, shape by shape."""

from functools import lru_cache
from typing import cast

import numpy as np
import numpy.typing as npt

from tern.card import HIERARCHY, LAPLACE, MIXTURE, TABLE, WINDOW, Card, T, decode
from tern.fixed import ONE
from tern.lhp import Hierarchy
from ternhost.vectorised.lanes import (
    Array,
    Indices,
    Lanes,
    RandomLanes,
    below_some,
    mask_of,
    uniform_some,
)
from ternhost.vectorised.models import Fixed, Whole

_UNDECIDED = 255  # of a looked-up symbol; tables have at most 16
_BUCKET = 7  # bits of an input: 256 buckets


def sample(card: Card, lanes: Lanes, xs: Fixed) -> Array:
    """Draw a symbol (uint8; laplace: uint16) for every input (int16, Q1.14, saturated): `xs` has a
    row a lane.
    """
    if xs.ndim == 1:
        return _column(card, lanes, xs)
    if isinstance(lanes, RandomLanes):
        return _column(card, RandomLanes(lanes.bits, xs.size), xs.reshape(-1)).reshape(xs.shape)
    if card.shape == LAPLACE:  # all coordinates are rounded before the first has its noise
        rounded = [_grid(card, lanes, xs[:, i]) for i in range(xs.shape[1])]
        return np.stack([_noise(card, lanes, column) for column in rounded], axis=1)
    return np.stack([_column(card, lanes, xs[:, i]) for i in range(xs.shape[1])], axis=1)


def sample_categories(card: Card, lanes: Lanes, categories: Array) -> Array:
    """Draw a symbol of a window card for each window start (0..N-W); with W = 1, generalised
    randomised response.
    """
    if card.shape != WINDOW:
        raise ValueError("categories need a window card")
    start = np.minimum(categories, card.symbols - card.window).astype(np.uint8)
    return _around(card, lanes, start)


def _column(card: Card, lanes: Lanes, xs: Fixed) -> Array:
    if card.shape == TABLE:
        return _table(card, lanes, xs)
    if card.shape == WINDOW:
        return _window(card, lanes, xs)
    if card.shape == LAPLACE:
        return _noise(card, lanes, _grid(card, lanes, xs))
    if card.shape == HIERARCHY:
        return _level_and_sign(cast(Hierarchy, card.body), lanes, np.clip(xs, -ONE, ONE))
    assert card.shape == MIXTURE
    first = _below(lanes, card.threshold)
    result = np.empty(len(xs), np.uint8)
    for part, which, offset in (
        (card.first, np.flatnonzero(first), 0),
        (card.second, np.flatnonzero(~first), card.first.symbols),
    ):
        result[which] = _column(part, lanes.subset(which), xs[which]) + np.uint8(offset)
    return result


def _level_and_sign(of: Hierarchy, lanes: Lanes, xs: Fixed) -> Array:
    true = (xs[:, None] < np.array(of.bounds)).sum(axis=1)
    reported = np.empty(len(xs), np.uint8)
    for level, card in enumerate(of.level_cards):
        which = np.flatnonzero(true == level)
        reported[which] = sample_categories(card, lanes.subset(which), true[which])
    symbols = np.empty(len(xs), np.uint8)
    for level, card in enumerate(of.value_cards):
        which = np.flatnonzero(reported == level)
        symbols[which] = sample(card, lanes.subset(which), xs[which])
    return 2 * reported + symbols


def _shifted(xs: Fixed) -> npt.NDArray[np.uint16]:
    # saturated, from 0 to 2 ONE
    return (np.clip(xs, -ONE, ONE) + np.int16(ONE)).view(np.uint16)


def _round_up(lanes: Lanes, fraction: Array) -> npt.NDArray[np.bool_]:
    """Bernoulli(fraction / 2**15) of every lane, reading nothing where the fraction is 0."""
    u = lanes.each(fraction != 0)
    top = (fraction >> 7).astype(np.uint8)
    up = u < top
    tie = np.flatnonzero(u == top)
    up[tie] = below_some(lanes, tie, fraction[tie] & 127, 7)
    return up


def _below(lanes: Lanes, threshold: int) -> npt.NDArray[np.bool_]:
    """Bernoulli(threshold / T) of every lane."""
    u = lanes.each()
    top = np.uint8(threshold >> 22)
    result = u < top
    tie = np.flatnonzero(u == top)
    result[tie] = below_some(lanes, tie, np.full(len(tie), threshold & 0x3FFFFF), 22)
    return result


@lru_cache(maxsize=64)
def _table_parts(data: bytes) -> tuple[Array, Whole]:
    """The symbols that the first byte of a draw decides, 256 for each bucket of inputs; and the
    thresholds, T last.
    """
    card = decode(data)
    knots = (1 << card.knot_bits) + 1
    thresholds = np.full((knots, card.symbols), T, np.int64)
    thresholds[:, :-1] = np.array(card.thresholds, np.int64).reshape(knots, card.symbols - 1)
    # Thresholds are linear in a bucket, its end included: its ends say what holds in all of it.
    start = np.arange(0, 2 * ONE, 1 << _BUCKET)
    ends = [
        _interpolated(card, thresholds, *_place(card, a)) for a in (start, start + (1 << _BUCKET))
    ]
    low, high = np.minimum(*ends), np.maximum(*ends)
    first = np.empty((len(start), 256), np.uint8)
    for u in range(256):
        symbols = (high <= u << 40).sum(axis=1)
        doubt = np.take_along_axis(low, symbols[:, None], 1)[:, 0] < (u + 1) << 40
        first[:, u] = np.where(doubt, _UNDECIDED, symbols)
    return first.reshape(-1), thresholds


def _place(card: Card, a: Array) -> tuple[Array, Array]:
    # The knot below x, and where x lies between that and the next, out of 2**15. 1 is the end of
    # the last interval.
    b = a.astype(np.int64) << card.knot_bits
    row = np.minimum(b >> 15, (1 << card.knot_bits) - 1)
    return row, b - (row << 15)


def _interpolated(card: Card, thresholds: Whole, row: Array, f: Array) -> Whole:
    # out of 2**48: six bytes
    f = f[:, None]
    return np.asarray((thresholds[row] * (2**15 - f) + thresholds[row + 1] * f) << 3)


def _table(card: Card, lanes: Lanes, xs: Fixed) -> Array:
    first, thresholds = _table_parts(bytes(card.data))
    a = _shifted(xs)
    u = lanes.each()
    bucket = a - (a >> np.uint16(15))  # 1 is the end of the last
    bucket >>= np.uint16(_BUCKET)
    bucket <<= np.uint16(8)
    bucket |= u
    symbols: Array = first.take(bucket)
    pending = np.flatnonzero(symbols == _UNDECIDED)
    exact = _interpolated(card, thresholds, *_place(card, a[pending]))
    r = u[pending].astype(np.int64) << 40
    for shift in (40, 32, 24, 16, 8, 0):
        if shift < 40:
            r |= lanes.some(pending).astype(np.int64) << shift
        symbol = (exact <= r[:, None]).sum(axis=1)
        symbols[pending] = symbol
        doubt = np.take_along_axis(exact, symbol[:, None], 1)[:, 0] < r + (1 << shift)
        pending, exact, r = pending[doubt], exact[doubt], r[doubt]
        if not pending.size:
            break
    return symbols


def _window(card: Card, lanes: Lanes, xs: Fixed) -> Array:
    b = _shifted(xs).astype(np.int32) * (card.symbols - card.window)
    start = (b >> 15).astype(np.uint8)
    start += _round_up(lanes, b & 32767)
    return _around(card, lanes, start)


def _around(card: Card, lanes: Lanes, start: Array) -> Array:
    # The window is [start, start + W).
    window, others = card.window, card.symbols - card.window
    inside = _below(lanes, card.threshold)
    if window == others == 1:
        u = np.zeros(lanes.count, np.uint8)
    else:
        last = np.where(inside, np.uint8(window - 1), np.uint8(others - 1))
        mask = np.where(inside, np.uint8(mask_of(window)), np.uint8(mask_of(others)))
        u = lanes.each(mask != 0) & mask
        pending = np.flatnonzero(u > last)
        while pending.size:
            u[pending] = lanes.some(pending) & mask[pending]
            pending = pending[u[pending] > last[pending]]
    return np.asarray(
        np.where(inside, u + start, u + np.where(u >= start, np.uint8(window), np.uint8(0)))
    )


def _grid(card: Card, lanes: Lanes, xs: Fixed) -> Whole:
    # The inputs rounded to the grid, as outputs counted from the lowest.
    b = _shifted(xs).astype(np.int64) << (card.grid_bits + 1)
    y = (b >> 15) + _round_up(lanes, b & 32767)
    return y - ((1 << card.grid_bits) + card.lowest)


def _noise(card: Card, lanes: Lanes, y: Whole) -> npt.NDArray[np.uint16]:
    """Exact discrete Laplace noise, clamped."""
    y = y.copy()
    pending: Indices = np.arange(len(y))
    while pending.size:
        which, z, pending = laplace(lanes, pending, card.t, card.s)
        y[which] += z
    return np.clip(y, 0, card.symbols - 1).astype(np.uint16)


def laplace(
    lanes: Lanes, which: Indices, t: int, s: int = 1, frugal: bool = False
) -> tuple[Indices, Whole, Indices]:
    """Try to draw discrete Laplace noise of scale t / s for each of the lanes `which`: those that
    have it, their noise, and those that start again. Canonne, Kamath, Steinke (2020), Algorithms 1
    and 2. frugal: an offset of 0 reads nothing.
    """
    offset = uniform_some(lanes, which, t)
    kept = np.ones(len(which), bool)
    at = np.flatnonzero(offset) if frugal else np.arange(len(which))
    kept[at] = bernoulli_exp(lanes, which[at], offset[at], t)
    again, which, offset = which[~kept], which[kept], offset[kept]
    whole = np.zeros(len(which), np.int64)
    going: Indices = np.arange(len(which))
    while going.size:  # how often Bernoulli(exp(-1)) is 1 before it is 0
        going = going[bernoulli_exp(lanes, which[going], np.ones(len(going), np.int64), 1)]
        whole[going] += 1
    magnitude = (offset + t * whole) // s
    negative = (lanes.some(which) & 1).astype(bool)
    done = ~negative | (magnitude > 0)  # there is no negative zero
    z = np.where(negative, -magnitude, magnitude)[done]
    return which[done], z, np.concatenate([again, which[~done]])


def bernoulli_exp(
    lanes: Lanes, which: Indices, a: Array, n: int, b: Array | None = None, m: int = 1
) -> npt.NDArray[np.bool_]:
    """Bernoulli(exp(-(a / n) (b / m))) of each of the lanes `which`, 0 <= a <= n; b / m: 1 if not
    given. uniform(1) reads nothing.
    """
    result = np.zeros(len(which), bool)
    going: Indices = np.arange(len(which))
    ones = np.ones(len(which), np.int64)
    k = 1
    while going.size:
        for below, limits in ((n, a), (m, ones if b is None else b), (k, ones)):
            if below > 1 or limits is a:
                passed = uniform_some(lanes, which[going], below) < limits[going]
                result[going[~passed]] = k % 2 == 1
                going = going[passed]
        k += 1
    return result
