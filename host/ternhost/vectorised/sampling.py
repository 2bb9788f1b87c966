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
    """Draw a symbol (uint8; laplace: uint16) for every input (int16, Q1.14, saturated).

    xs: an input for each lane, or a row of inputs for each.
    """
    if xs.ndim == 1:
        return _column(card, lanes, xs)
    if isinstance(lanes, RandomLanes):
        symbols = _column(card, RandomLanes(lanes.bits, xs.size), xs.reshape(-1))
        return symbols.reshape(xs.shape)
    if card.shape == LAPLACE:  # all coordinates are rounded before the first has its noise
        rounded = [_grid(card, lanes, column) for column in xs.T]
        columns = [_noise(card, lanes, column) for column in rounded]
    else:
        columns = [_column(card, lanes, column) for column in xs.T]
    return np.stack(columns, axis=1)


def sample_categories(card: Card, lanes: Lanes, categories: Array) -> Array:
    """Draw a symbol of a window card for each window start (0..N-W).

    With W = 1, that is generalised randomised response. Raises ValueError for another card.
    """
    if card.shape != WINDOW:
        raise ValueError("categories need a window card")
    start = np.minimum(categories, card.symbols - card.window).astype(np.uint8)
    return _around(card, lanes, start)


def _column(card: Card, lanes: Lanes, xs: Fixed) -> Array:
    """Draw a symbol for the input of each lane."""
    if card.shape == TABLE:
        return _table(card, lanes, xs)
    if card.shape == WINDOW:
        return _window(card, lanes, xs)
    if card.shape == LAPLACE:
        return _noise(card, lanes, _grid(card, lanes, xs))
    if card.shape == HIERARCHY:
        return _level_and_sign(cast(Hierarchy, card.body), lanes, np.clip(xs, -ONE, ONE))
    assert card.shape == MIXTURE
    return _mixture(card, lanes, xs)


def _mixture(card: Card, lanes: Lanes, xs: Fixed) -> Array:
    is_first = _below(lanes, card.threshold)
    symbols = np.empty(len(xs), np.uint8)
    which = np.flatnonzero(is_first)
    symbols[which] = _column(card.first, lanes.subset(which), xs[which])
    which = np.flatnonzero(~is_first)
    offset = np.uint8(card.first.symbols)
    symbols[which] = _column(card.second, lanes.subset(which), xs[which]) + offset
    return symbols


def _level_and_sign(hierarchy: Hierarchy, lanes: Lanes, xs: Fixed) -> Array:
    true_levels = (xs[:, None] < np.array(hierarchy.bounds)).sum(axis=1)
    levels = np.empty(len(xs), np.uint8)  # that are reported
    for level, card in enumerate(hierarchy.level_cards):
        which = np.flatnonzero(true_levels == level)
        levels[which] = sample_categories(card, lanes.subset(which), true_levels[which])
    symbols = np.empty(len(xs), np.uint8)
    for level, card in enumerate(hierarchy.value_cards):
        which = np.flatnonzero(levels == level)
        symbols[which] = sample(card, lanes.subset(which), xs[which])
    return 2 * levels + symbols


def _shifted(xs: Fixed) -> npt.NDArray[np.uint16]:
    """Inputs, saturated, from 0 to 2 ONE."""
    return (np.clip(xs, -ONE, ONE) + np.int16(ONE)).view(np.uint16)


def _round_up(lanes: Lanes, fraction: Array) -> npt.NDArray[np.bool_]:
    """Bernoulli(fraction / 2**15) of every lane, reading nothing where the fraction is 0."""
    drawn = lanes.each(fraction != 0)
    top = (fraction >> 7).astype(np.uint8)
    up = drawn < top
    tie = np.flatnonzero(drawn == top)
    up[tie] = below_some(lanes, tie, fraction[tie] & 127, 7)
    return up


def _below(lanes: Lanes, threshold: int) -> npt.NDArray[np.bool_]:
    """Bernoulli(threshold / T) of every lane."""
    drawn = lanes.each()
    top = np.uint8(threshold >> 22)
    result = drawn < top
    tie = np.flatnonzero(drawn == top)
    result[tie] = below_some(lanes, tie, np.full(len(tie), threshold & 0x3FFFFF), 22)
    return result


@lru_cache(maxsize=64)
def _table_parts(data: bytes) -> tuple[Array, Whole]:
    """The symbols that the first byte of a draw decides, and the thresholds of the card.

    The symbols are 256 for each bucket of inputs. Thresholds are knots x symbols, with T last.
    """
    card = decode(data)
    knots = (1 << card.knot_bits) + 1
    thresholds = np.full((knots, card.symbols), T, np.int64)
    thresholds[:, :-1] = np.array(card.thresholds, np.int64).reshape(knots, card.symbols - 1)
    # Thresholds are linear in a bucket, its end included: its ends say what holds in all of it.
    bucket_starts = np.arange(0, 2 * ONE, 1 << _BUCKET)
    at_starts = _thresholds_at(card, thresholds, bucket_starts)
    at_ends = _thresholds_at(card, thresholds, bucket_starts + (1 << _BUCKET))
    low, high = np.minimum(at_starts, at_ends), np.maximum(at_starts, at_ends)
    decided = np.empty((len(bucket_starts), 256), np.uint8)
    for byte in range(256):
        symbols = (high <= byte << 40).sum(axis=1)
        threshold = np.take_along_axis(low, symbols[:, None], 1)[:, 0]
        is_in_doubt = threshold < (byte + 1) << 40
        decided[:, byte] = np.where(is_in_doubt, _UNDECIDED, symbols)
    return decided.reshape(-1), thresholds


def _thresholds_at(card: Card, thresholds: Whole, inputs: Array) -> Whole:
    """The thresholds (inputs x symbols) at inputs from 0 to 2 ONE, out of 2**48: six bytes.

    They are interpolated between the knots below and above.
    """
    place = inputs.astype(np.int64) << card.knot_bits
    # The largest input is the end of the last interval.
    knot = np.minimum(place >> 15, (1 << card.knot_bits) - 1)
    share = (place - (knot << 15))[:, None]  # of the way to the next knot, out of 2**15
    return np.asarray((thresholds[knot] * (2**15 - share) + thresholds[knot + 1] * share) << 3)


def _table(card: Card, lanes: Lanes, xs: Fixed) -> Array:
    decided, thresholds = _table_parts(bytes(card.data))
    inputs = _shifted(xs)
    byte = lanes.each()
    place = inputs - (inputs >> np.uint16(15))  # the largest input is the end of the last bucket
    place >>= np.uint16(_BUCKET)
    place <<= np.uint16(8)
    place |= byte
    symbols: Array = decided.take(place)

    pending = np.flatnonzero(symbols == _UNDECIDED)
    exact = _thresholds_at(card, thresholds, inputs[pending])
    drawn = byte[pending].astype(np.int64) << 40
    for shift in (40, 32, 24, 16, 8, 0):
        if shift < 40:
            drawn |= lanes.some(pending).astype(np.int64) << shift
        symbol = (exact <= drawn[:, None]).sum(axis=1)
        symbols[pending] = symbol
        threshold = np.take_along_axis(exact, symbol[:, None], 1)[:, 0]
        is_in_doubt = threshold < drawn + (1 << shift)
        pending, exact, drawn = pending[is_in_doubt], exact[is_in_doubt], drawn[is_in_doubt]
        if not pending.size:
            break
    return symbols


def _window(card: Card, lanes: Lanes, xs: Fixed) -> Array:
    place = _shifted(xs).astype(np.int32) * (card.symbols - card.window)
    start = (place >> 15).astype(np.uint8)
    start += _round_up(lanes, place & 32767)
    return _around(card, lanes, start)


def _around(card: Card, lanes: Lanes, start: Array) -> Array:
    """Draw symbols for windows [start, start + W): one of the window, or one of the others."""
    window, others = card.window, card.symbols - card.window
    is_inside = _below(lanes, card.threshold)
    if window == others == 1:
        drawn = np.zeros(lanes.count, np.uint8)
    else:
        last = np.where(is_inside, np.uint8(window - 1), np.uint8(others - 1))
        mask = np.where(is_inside, np.uint8(mask_of(window)), np.uint8(mask_of(others)))
        drawn = lanes.each(mask != 0) & mask
        pending = np.flatnonzero(drawn > last)
        while pending.size:
            drawn[pending] = lanes.some(pending) & mask[pending]
            pending = pending[drawn[pending] > last[pending]]
    skipped = np.where(drawn >= start, np.uint8(window), np.uint8(0))
    return np.asarray(np.where(is_inside, drawn + start, drawn + skipped))


def _grid(card: Card, lanes: Lanes, xs: Fixed) -> Whole:
    """The inputs rounded to the grid, as outputs counted from the lowest."""
    place = _shifted(xs).astype(np.int64) << (card.grid_bits + 1)
    rounded = (place >> 15) + _round_up(lanes, place & 32767)
    return rounded - ((1 << card.grid_bits) + card.lowest)


def _noise(card: Card, lanes: Lanes, y: Whole) -> npt.NDArray[np.uint16]:
    """The outputs y with exact discrete Laplace noise, clamped."""
    noisy = y.copy()
    pending: Indices = np.arange(len(y))
    while pending.size:
        which, z, pending = laplace(lanes, pending, card.t, card.s)
        noisy[which] += z
    return np.clip(noisy, 0, card.symbols - 1).astype(np.uint16)


def laplace(
    lanes: Lanes, which: Indices, t: int, s: int = 1, frugal: bool = False
) -> tuple[Indices, Whole, Indices]:
    """Try to draw discrete Laplace noise of scale t / s for each of the lanes `which`.

    Returns the lanes that have it, their noise, and the lanes that start again. frugal: an offset
    of 0 reads nothing. Source: Canonne, Kamath, Steinke (2020), Algorithms 1 and 2.
    """
    offset = uniform_some(lanes, which, t)
    is_accepted = np.ones(len(which), bool)
    drawing: Indices = np.arange(len(which))
    if frugal:
        drawing = np.flatnonzero(offset)
    is_accepted[drawing] = bernoulli_exp(lanes, which[drawing], offset[drawing], t)
    rejected, which, offset = which[~is_accepted], which[is_accepted], offset[is_accepted]

    whole = np.zeros(len(which), np.int64)
    going: Indices = np.arange(len(which))
    while going.size:  # how often Bernoulli(exp(-1)) is 1 before it is 0
        going = going[bernoulli_exp(lanes, which[going], np.ones(len(going), np.int64), 1)]
        whole[going] += 1
    magnitude = (offset + t * whole) // s
    is_negative = (lanes.some(which) & 1).astype(bool)
    is_done = ~is_negative | (magnitude > 0)  # there is no negative zero
    z = np.where(is_negative, -magnitude, magnitude)[is_done]
    return which[is_done], z, np.concatenate([rejected, which[~is_done]])


def bernoulli_exp(
    lanes: Lanes, which: Indices, a: Array, n: int, b: Array | None = None, m: int = 1
) -> npt.NDArray[np.bool_]:
    """Bernoulli(exp(-(a / n) (b / m))) of each of the lanes `which`, 0 <= a <= n.

    b / m: 1 if not given. uniform(1) reads nothing.
    """
    result = np.zeros(len(which), bool)
    going: Indices = np.arange(len(which))
    ones = np.ones(len(which), np.int64)
    if b is None:
        b = ones
    k = 1
    while going.size:
        for below, limits in ((n, a), (m, b), (k, ones)):
            if below > 1 or limits is a:
                passed = uniform_some(lanes, which[going], below) < limits[going]
                result[going[~passed]] = k % 2 == 1
                going = going[passed]
        k += 1
    return result
