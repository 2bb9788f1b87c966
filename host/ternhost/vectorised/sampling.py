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
_INPUT_BITS = 15  # of an input from 0 to 2 ONE
_FRACTION_MASK = (1 << _INPUT_BITS) - 1
_BUCKET = 7  # bits of an input: 256 buckets


def sample(card: Card, lanes: Lanes, xs: Fixed) -> Array:
    """Draw a symbol for every input, exactly as tern.sampler does.

    xs: an input (Q1.14, saturated) for each lane, or a row of inputs for each. Returns symbols of
    the same shape, as uint8, or, of a laplace card, as uint16.
    """
    if xs.ndim == 1:
        return _column(card, lanes, xs)
    if isinstance(lanes, RandomLanes):  # no draw depends on its lane: all are made at once
        symbols = _column(card, RandomLanes(lanes.bits, xs.size), xs.reshape(-1))
        return symbols.reshape(xs.shape)
    columns = []
    if card.shape == LAPLACE:
        # All coordinates are rounded before the first has its noise.
        rounded = [_grid(card, lanes, inputs) for inputs in xs.T]
        for outputs in rounded:
            columns.append(_noise(card, lanes, outputs))
    else:
        for inputs in xs.T:
            columns.append(_column(card, lanes, inputs))
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
    """Draw a symbol of one of a mixture's two cards for the input of each lane.

    The symbols of the second card come after those of the first.
    """
    is_first = _below(lanes, card.threshold)
    symbols = np.empty(len(xs), np.uint8)
    which = np.flatnonzero(is_first)
    symbols[which] = _column(card.first, lanes.subset(which), xs[which])
    which = np.flatnonzero(~is_first)
    offset = np.uint8(card.first.symbols)
    symbols[which] = _column(card.second, lanes.subset(which), xs[which]) + offset
    return symbols


def _level_and_sign(hierarchy: Hierarchy, lanes: Lanes, xs: Fixed) -> Array:
    """Draw the level of each input, then a sign at that level; each is perturbed by its own card.

    xs: saturated. The symbol is twice the level, plus the symbol of the sign.
    """
    true_levels = (xs[:, None] < np.array(hierarchy.bounds)).sum(axis=1)
    reported_levels = np.empty(len(xs), np.uint8)
    for level, card in enumerate(hierarchy.level_cards):
        which = np.flatnonzero(true_levels == level)
        reported_levels[which] = sample_categories(card, lanes.subset(which), true_levels[which])
    sign_symbols = np.empty(len(xs), np.uint8)
    for level, card in enumerate(hierarchy.value_cards):
        which = np.flatnonzero(reported_levels == level)
        sign_symbols[which] = sample(card, lanes.subset(which), xs[which])
    return 2 * reported_levels + sign_symbols


def _shifted(xs: Fixed) -> npt.NDArray[np.uint16]:
    """Saturate inputs at -1 and 1, and count them from the lowest: 0 to 2 ONE."""
    return (np.clip(xs, -ONE, ONE) + np.int16(ONE)).view(np.uint16)


def _round_up(lanes: Lanes, fraction: Array) -> npt.NDArray[np.bool_]:
    """Decide for every lane, with probability fraction / 2**15; read nothing for a fraction of 0.

    The first byte decides, unless it equals the upper 8 bits of the fraction.
    """
    drawn = lanes.each(fraction != 0)
    top_byte = (fraction >> 7).astype(np.uint8)
    up = drawn < top_byte
    in_doubt = np.flatnonzero(drawn == top_byte)
    lower_bits = fraction[in_doubt] & 0x7F
    up[in_doubt] = below_some(lanes, in_doubt, lower_bits, 7)
    return up


def _below(lanes: Lanes, threshold: int) -> npt.NDArray[np.bool_]:
    """Decide for every lane, with probability threshold / T, where T is 2**30.

    The first byte decides, unless it equals the upper 8 bits of the threshold.
    """
    drawn = lanes.each()
    top_byte = np.uint8(threshold >> 22)
    result = drawn < top_byte
    in_doubt = np.flatnonzero(drawn == top_byte)
    lower_bits = np.full(len(in_doubt), threshold & 0x3FFFFF)
    result[in_doubt] = below_some(lanes, in_doubt, lower_bits, 22)
    return result


@lru_cache(maxsize=64)
def _table_parts(data: bytes) -> tuple[Array, Whole]:
    """Tabulate the symbols that the first byte of a draw decides, for each bucket of inputs.

    data: the bytes of a table card. Returns the symbols (256 for each bucket, one after the other;
    _UNDECIDED where more bytes are needed), and the card's thresholds (knots x symbols, with T
    last).
    """
    card = decode(data)
    knots = (1 << card.knot_bits) + 1
    thresholds = np.full((knots, card.symbols), T, np.int64)
    thresholds[:, :-1] = np.array(card.thresholds, np.int64).reshape(knots, card.symbols - 1)
    # Thresholds are linear in a bucket, its end included: its ends say what holds in all of it.
    bucket_starts = np.arange(0, 2 * ONE, 1 << _BUCKET)
    at_starts = _thresholds_at(card, thresholds, bucket_starts)
    at_ends = _thresholds_at(card, thresholds, bucket_starts + (1 << _BUCKET))
    low = np.minimum(at_starts, at_ends)  # buckets x symbols
    high = np.maximum(at_starts, at_ends)
    decided = np.empty((len(bucket_starts), 256), np.uint8)
    for byte in range(256):
        # The first threshold that a draw with this first byte may be below, of 48 bits.
        symbols = (high <= byte << 40).sum(axis=1)
        threshold = np.take_along_axis(low, symbols[:, None], 1)[:, 0]
        is_in_doubt = threshold < (byte + 1) << 40
        decided[:, byte] = np.where(is_in_doubt, _UNDECIDED, symbols)
    return decided.reshape(-1), thresholds


def _thresholds_at(card: Card, thresholds: Whole, inputs: Array) -> Whole:
    """Return the thresholds (inputs x symbols) at inputs from 0 to 2 ONE, out of 2**48: six bytes.

    They are interpolated between the knots below and above.
    """
    place = inputs.astype(np.int64) << card.knot_bits
    # The largest input is the end of the last interval.
    knot = np.minimum(place >> _INPUT_BITS, (1 << card.knot_bits) - 1)
    weight_above = (place - (knot << _INPUT_BITS))[:, None]  # out of 2**15
    weight_below = 2**_INPUT_BITS - weight_above
    interpolated = thresholds[knot] * weight_below + thresholds[knot + 1] * weight_above
    return np.asarray(interpolated << 3)  # from 30 + 15 bits to 48


def _table(card: Card, lanes: Lanes, xs: Fixed) -> Array:
    """Draw a symbol of a table card for the input of each lane.

    The symbol is the number of thresholds that a random number of 48 bits reaches. Its first byte
    nearly always decides: then the symbol is looked up.
    """
    decided, thresholds = _table_parts(bytes(card.data))
    inputs = _shifted(xs)
    first_byte = lanes.each()
    # The largest input is the end of the last bucket.
    place = inputs - (inputs >> np.uint16(_INPUT_BITS))
    place >>= np.uint16(_BUCKET)
    place <<= np.uint16(8)
    place |= first_byte
    symbols: Array = decided.take(place)

    pending = np.flatnonzero(symbols == _UNDECIDED)
    exact = _thresholds_at(card, thresholds, inputs[pending])
    drawn = first_byte[pending].astype(np.int64) << 40
    for unread_bits in (40, 32, 24, 16, 8, 0):
        if unread_bits < 40:
            drawn |= lanes.some(pending).astype(np.int64) << unread_bits
        reached = (exact <= drawn[:, None]).sum(axis=1)
        symbols[pending] = reached
        next_threshold = np.take_along_axis(exact, reached[:, None], 1)[:, 0]
        is_in_doubt = next_threshold < drawn + (1 << unread_bits)
        pending, exact, drawn = pending[is_in_doubt], exact[is_in_doubt], drawn[is_in_doubt]
        if not pending.size:
            break
    return symbols


def _window(card: Card, lanes: Lanes, xs: Fixed) -> Array:
    """Draw a symbol of a window card for the input of each lane.

    The input decides where the window starts, which is rounded up or down at random.
    """
    place = _shifted(xs).astype(np.int32) * (card.symbols - card.window)
    start = (place >> _INPUT_BITS).astype(np.uint8)
    start += _round_up(lanes, place & _FRACTION_MASK)
    return _around(card, lanes, start)


def _around(card: Card, lanes: Lanes, start: Array) -> Array:
    """Draw symbols for windows [start, start + W): one inside the window, or one of the others."""
    window, others = card.window, card.symbols - card.window
    is_inside = _below(lanes, card.threshold)
    # The number of the symbol, among those of the window or among the others.
    if window == others == 1:
        drawn = np.zeros(lanes.count, np.uint8)
    else:
        largest = np.where(is_inside, np.uint8(window - 1), np.uint8(others - 1))
        mask = np.where(is_inside, np.uint8(mask_of(window)), np.uint8(mask_of(others)))
        drawn = lanes.each(mask != 0) & mask
        pending = np.flatnonzero(drawn > largest)
        while pending.size:
            drawn[pending] = lanes.some(pending) & mask[pending]
            pending = pending[drawn[pending] > largest[pending]]
    # The others are the symbols before the window, then those after it.
    skipped = np.where(drawn >= start, np.uint8(window), np.uint8(0))
    return np.asarray(np.where(is_inside, drawn + start, drawn + skipped))


def _grid(card: Card, lanes: Lanes, xs: Fixed) -> Whole:
    """Round the inputs of a laplace card to its grid, up or down at random.

    Returns the outputs, counted from the card's lowest.
    """
    place = _shifted(xs).astype(np.int64) << (card.grid_bits + 1)
    rounded = (place >> _INPUT_BITS) + _round_up(lanes, place & _FRACTION_MASK)
    return rounded - ((1 << card.grid_bits) + card.lowest)


def _noise(card: Card, lanes: Lanes, outputs: Whole) -> npt.NDArray[np.uint16]:
    """Add exact discrete Laplace noise to the outputs of a laplace card, and clamp them."""
    noisy = outputs.copy()
    pending: Indices = np.arange(len(outputs))  # lanes without noise
    while pending.size:
        which, noise, pending = laplace(lanes, pending, card.t, card.s)
        noisy[which] += noise
    return np.clip(noisy, 0, card.symbols - 1).astype(np.uint16)


def laplace(
    lanes: Lanes, which: Indices, t: int, s: int = 1, frugal: bool = False
) -> tuple[Indices, Whole, Indices]:
    """Try once to draw discrete Laplace noise of scale t / s for each of the lanes `which`.

    Returns the lanes that have their noise, the noise, and the lanes that must try again. frugal:
    a lane whose offset is 0 reads no bytes to accept it. Source: Canonne, Kamath, Steinke (2020),
    Algorithms 1 and 2: the magnitude is (offset + t whole) / s, where `offset` is uniform below t
    and accepted with probability exp(-offset / t), and `whole` is geometric.
    """
    offset = uniform_some(lanes, which, t)
    is_accepted = np.ones(len(which), bool)
    to_decide: Indices = np.arange(len(which))
    if frugal:
        to_decide = np.flatnonzero(offset)
    is_accepted[to_decide] = bernoulli_exp(lanes, which[to_decide], offset[to_decide], t)
    rejected = which[~is_accepted]
    which, offset = which[is_accepted], offset[is_accepted]

    # How often Bernoulli(exp(-1)) is 1 before it is 0.
    whole = np.zeros(len(which), np.int64)
    pending: Indices = np.arange(len(which))
    while pending.size:
        ones = np.ones(len(pending), np.int64)
        pending = pending[bernoulli_exp(lanes, which[pending], ones, 1)]
        whole[pending] += 1

    magnitude = (offset + t * whole) // s
    is_negative = (lanes.some(which) & 1).astype(bool)
    is_done = ~is_negative | (magnitude > 0)  # a negative zero is drawn again
    noise = np.where(is_negative, -magnitude, magnitude)[is_done]
    return which[is_done], noise, np.concatenate([rejected, which[~is_done]])


def bernoulli_exp(
    lanes: Lanes, which: Indices, a: Array, n: int, b: Array | None = None, m: int = 1
) -> npt.NDArray[np.bool_]:
    """Decide for each of the lanes `which`, with probability exp(-(a / n) (b / m)), 0 <= a <= n.

    a, b: of each of these lanes; b / m is 1 if not given. A lane goes on for k = 1, 2 and so on as
    long as it draws a number below a out of n, one below b out of m, and a 0 out of k. It succeeds
    if the k at which it stops is odd. Source: Canonne, Kamath, Steinke (2020), Algorithm 1.
    """
    result = np.zeros(len(which), bool)
    pending: Indices = np.arange(len(which))
    ones = np.ones(len(which), np.int64)
    if b is None:
        b = ones
    k = 1
    while pending.size:
        for bound, limits in ((n, a), (m, b), (k, ones)):
            # A number below 1 is 0, and needs no draw; but a limit of 0 is never reached.
            if bound == 1 and limits is not a:
                continue
            passed = uniform_some(lanes, which[pending], bound) < limits[pending]
            result[pending[~passed]] = k % 2 == 1
            pending = pending[passed]
        k += 1
    return result
