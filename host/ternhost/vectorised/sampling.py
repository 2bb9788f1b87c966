"""Draws symbols of cards for whole arrays of inputs, as tern.sampler does for one.

A card (cards.md) is the table by which a device draws a noisy symbol for its value. Cards have
shapes: tables of probabilities, windows, Laplace noise, mixtures and hierarchies of other cards.
"""

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

_UNDECIDED = 255  # stands for a symbol that one byte does not decide; tables have at most 16
_INPUT_BITS = 15  # an input is a number from 0 to 2 ONE, which is 2**15
_FRACTION_MASK = (1 << _INPUT_BITS) - 1
_BUCKET = 7  # inputs that agree but for 7 bits are a bucket, so there are 256 of them


def sample(card: Card, lanes: Lanes, xs: Fixed) -> Array:
    """Draw a symbol for every input, exactly as tern.sampler does.

    xs: an input for each lane, or a row of inputs for each, in Q1.14; those beyond -1 and 1 count as
    -1 and 1. Returns symbols of the same shape, as uint8, or, of a laplace card, as uint16.
    """
    if xs.ndim == 1:
        return _column(card, lanes, xs)
    if isinstance(lanes, RandomLanes):  # no draw depends on its lane: all are made at once
        symbols = _column(card, RandomLanes(lanes.bits, xs.size), xs.reshape(-1))
        return symbols.reshape(xs.shape)
    columns = []
    if card.shape == LAPLACE:
        # As on a device, all coordinates are rounded before the first has its noise.
        rounded = [_grid(card, lanes, inputs) for inputs in xs.T]
        for outputs in rounded:
            columns.append(_noise(card, lanes, outputs))
    else:
        for inputs in xs.T:
            columns.append(_column(card, lanes, inputs))
    return np.stack(columns, axis=1)


def sample_categories(card: Card, lanes: Lanes, categories: Array) -> Array:
    """Draw a symbol of a window card for each category.

    A window card has N symbols. It reports one of the W symbols from the category on with a higher
    probability than each of the others. categories: where the windows start; they are clipped to
    0 .. N - W. With W = 1, that is generalised randomised response. Raises ValueError for another
    card.
    """
    if card.shape != WINDOW:
        raise ValueError("categories need a window card")
    start = np.clip(categories, 0, card.symbols - card.window).astype(np.uint8)
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

    Levels are ranges of inputs, the highest first; the bounds of the hierarchy separate them. xs:
    inputs from -ONE to ONE. The symbol is twice the reported level, plus the symbol of the sign.
    """
    is_below_bound = xs[:, None] < np.array(hierarchy.bounds)  # inputs x bounds
    true_levels = is_below_bound.sum(axis=1)
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
    """Clip inputs to -1 and 1, and count them from the lowest one: 0 to 2 ONE."""
    return (np.clip(xs, -ONE, ONE) + np.int16(ONE)).view(np.uint16)


def _round_up(lanes: Lanes, fraction: Array) -> npt.NDArray[np.bool_]:
    """Decide for every lane whether to round up, with probability fraction / 2**15.

    The first byte decides, unless it equals the upper 8 bits of the fraction; then the lower 7 bits
    of the fraction count. For a fraction of 0 nothing is read.
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

    The first byte decides, unless it equals the upper 8 bits of the threshold; then its lower 22
    bits count.
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
    _UNDECIDED where more bytes are needed), and the card's thresholds out of T (knots x symbols,
    with T itself as the last one of each knot).
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
        # Draws of 48 bits with this first byte are from `least` to below `beyond`.
        least = byte << 40
        beyond = (byte + 1) << 40
        # All of them reach the first `symbols` thresholds, everywhere in the bucket. If none may
        # reach the next threshold, that is the symbol.
        symbols = (high <= least).sum(axis=1)
        next_threshold = np.take_along_axis(low, symbols[:, None], 1)[:, 0]
        is_in_doubt = next_threshold < beyond
        decided[:, byte] = np.where(is_in_doubt, _UNDECIDED, symbols)
    return decided.reshape(-1), thresholds


def _thresholds_at(card: Card, thresholds: Whole, inputs: Array) -> Whole:
    """Return the thresholds at inputs (inputs x symbols), out of 2**48, which is six bytes.

    They are interpolated linearly between the knots below and above each input. thresholds: at the
    card's knots, out of T = 2**30. inputs: from 0 to 2 ONE.
    """
    # With 2**p intervals between knots, the upper bits are the interval, the lower 15 the way in it.
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
    # The largest input, 2**15, is the end of the last bucket: the shift is 1 for it alone.
    place = inputs - (inputs >> np.uint16(_INPUT_BITS))
    place >>= np.uint16(_BUCKET)
    place <<= np.uint16(8)  # 256 symbols for each bucket
    place |= first_byte
    symbols: Array = decided.take(place)

    # Lanes in doubt read byte after byte, until no threshold is among the numbers still possible.
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
    """Draw symbols for windows of W symbols that begin at `start`, one for each lane.

    The symbol is inside the window with the probability of the card, else it is one of the others;
    each of them is equally likely.
    """
    window, others = card.window, card.symbols - card.window
    is_inside = _below(lanes, card.threshold)
    # The number of the symbol, among those of the window or among the others.
    if window == others == 1:
        drawn = np.zeros(lanes.count, np.uint8)
    else:
        # As `uniform_each`, but with a limit that differs between lanes.
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

    The grid has 2**grid_bits steps from 0 to 1. Returns the outputs, in steps from the card's
    lowest output.
    """
    place = _shifted(xs).astype(np.int64) << (card.grid_bits + 1)
    steps_from_minus_1 = (place >> _INPUT_BITS) + _round_up(lanes, place & _FRACTION_MASK)
    steps = steps_from_minus_1 - (1 << card.grid_bits)
    return steps - card.lowest


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

    Returns the lanes that have their noise, the noise, and the lanes that must try again.

    The size of the noise is (offset + t whole) / s, rounded down. `offset` is uniform below t, and
    accepted with probability exp(-offset / t); `whole` is geometric, with ratio exp(-1). Source:
    Canonne, Kamath, Steinke (2020), Algorithms 1 and 2. frugal: a lane whose offset is 0 reads no
    bytes to accept it, as in tern.sums.
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
    pending: Indices = np.arange(len(which))  # indices into `which` of lanes that go on
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
    """Decide for each of the lanes `which`, with probability exp(-p), where p = (a / n) (b / m).

    a, b: integers for each of these lanes, with 0 <= a <= n and 0 <= b <= m; b None stands for
    b / m = 1. A lane goes on for k = 1, 2 and so on with probability p / k: as long as it draws a
    number below a out of n, one below b out of m, and a 0 out of k. It succeeds if the k at which
    it stops is odd, which has the probability 1 - p + p**2 / 2! - ... = exp(-p). Source: Canonne,
    Kamath, Steinke (2020), Algorithm 1.
    """
    result = np.zeros(len(which), bool)
    pending: Indices = np.arange(len(which))
    ones = np.ones(len(which), np.int64)
    if b is None:
        b = ones
    k = 1
    while pending.size:
        for bound, limits in ((n, a), (m, b), (k, ones)):
            # A draw out of 1 is always 0 and below its limit of 1. Only `a` may have the limit 0,
            # which no draw is below.
            if bound == 1 and limits is not a:
                continue
            passed = uniform_some(lanes, which[pending], bound) < limits[pending]
            result[pending[~passed]] = k % 2 == 1
            pending = pending[passed]
        k += 1
    return result
