"""The vectorised twin of the device library: symbols, coordinates and gradients of many clients at once, in NumPy.

Every draw belongs to a *lane*, which has random bytes of its own. A function here handles all lanes together and takes
from each lane the bytes that the firmware would take, in the same order: on replayed bytes (`ReplayLanes`) its symbols
are those of tern.sampler, draw for draw, and its coordinates those of tern.coordinates. `RandomLanes` are the fast
path: fresh bytes of a NumPy generator, and the very same code.

It is fast because the first byte of a draw nearly always decides: whole arrays of bytes are looked up, and only the few
lanes that are still in doubt go on. All arithmetic that decides a symbol is integer, as on the device.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from tern.card import HIERARCHY, LAPLACE, MIXTURE, TABLE, WINDOW, Card, T, decode
from tern.entropy import EntropyError
from tern.fixed import ONE
from tern.gradient import sigmoid_tail
from tern.inference import exp_minus
from tern.lhp import Hierarchy
from tern.wire import (
    LINEAR,
    LOGISTIC,
    MAX_BATCH,
    MAX_DIMENSION,
    MAX_EXPONENT,
    MAX_RATE,
    MAX_TAU,
    MIN_EXPONENT,
    MIN_LOCAL_EXPONENT,
    SVM,
)

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]
Indices = npt.NDArray[np.intp]

_UNDECIDED = 255  # of a looked-up symbol; tables have at most 16


# --- lanes --------------------------------------------------------------------------------------------------


class Lanes(Protocol):
    """`count` lanes of random bytes. `joined` says whether draws of one client may go to lanes of their own."""

    count: int
    joined: bool

    def each(self, needed: npt.NDArray[np.bool_] | None = None) -> Bytes:
        """A byte of every lane; where `needed` is False nothing is taken, and the value means nothing."""
        ...

    def some(self, lanes: Indices) -> Bytes:
        """A byte of each of these lanes."""
        ...

    def subset(self, lanes: Indices) -> Lanes:
        """These lanes alone."""
        ...

    def of(self, count: int) -> Lanes:
        """So many lanes of independent bytes (joined lanes only)."""
        ...


class RandomLanes:
    """Fresh bytes for every draw, from a NumPy bit generator: for simulation, not for privacy."""

    joined = True

    def __init__(self, bits: np.random.BitGenerator, count: int) -> None:
        self.count = count
        self._bits = bits

    def _bytes(self, n: int) -> Bytes:
        return self._bits.random_raw((n + 7) // 8).view(np.uint8)[:n]

    def each(self, needed: npt.NDArray[np.bool_] | None = None) -> Bytes:
        return self._bytes(self.count)

    def some(self, lanes: Indices) -> Bytes:
        return self._bytes(len(lanes))

    def subset(self, lanes: Indices) -> RandomLanes:
        return RandomLanes(self._bits, len(lanes))

    def of(self, count: int) -> RandomLanes:
        return RandomLanes(self._bits, count)


class ReplayLanes:
    """The given bytes: row i of `data` (lanes x bytes) is lane i's stream. Raises EntropyError at the end of one."""

    joined = False

    def __init__(self, data: Bytes) -> None:
        self._data = data
        self._position = np.zeros(len(data), np.intp)
        self._rows: Indices = np.arange(len(data))
        self.count = len(data)

    def each(self, needed: npt.NDArray[np.bool_] | None = None) -> Bytes:
        result = np.zeros(self.count, np.uint8)
        lanes = np.arange(self.count) if needed is None else np.flatnonzero(needed)
        result[lanes] = self.some(lanes)
        return result

    def some(self, lanes: Indices) -> Bytes:
        rows = self._rows[lanes]
        position = self._position[rows]
        if len(rows) and position.max() >= self._data.shape[1]:
            raise EntropyError("stream at its end")
        self._position[rows] += 1
        taken: Bytes = self._data[rows, position]
        return taken

    def subset(self, lanes: Indices) -> ReplayLanes:
        part = ReplayLanes.__new__(ReplayLanes)
        part._data, part._position = self._data, self._position
        part._rows = self._rows[lanes]
        part.count = len(lanes)
        return part

    def of(self, count: int) -> ReplayLanes:
        raise TypeError("replayed lanes cannot be split")


def random_bits(seed: int, *path: int) -> np.random.BitGenerator:
    """The bit generator of a seed and, below it, of numbered parts (a round, a chunk): independent of each other."""
    return np.random.SFC64(np.random.SeedSequence(seed, spawn_key=path))


def _mask(n: int) -> int:
    return (1 << (n - 1).bit_length()) - 1


def _uniform_some(lanes: Lanes, which: Indices, n: int) -> npt.NDArray[np.int64]:
    # uniform(n) of cards.md for each of the lanes `which`
    mask = _mask(n)
    result = np.zeros(len(which), np.int64)
    pending = np.arange(len(which)) if mask else np.empty(0, np.intp)
    while pending.size:
        value = np.zeros(len(pending), np.int64)
        for shift in range(0, mask.bit_length(), 8):
            value |= lanes.some(which[pending]).astype(np.int64) << shift
        value &= mask
        result[pending] = value
        pending = pending[value >= n]
    return result


def _below_some(lanes: Lanes, which: Indices, part: Array, bits: int) -> npt.NDArray[np.bool_]:
    # Is a uniform `bits`-bit integer below `part` (an array)? Bytes are read while in doubt.
    result = np.zeros(len(which), bool)
    pending = np.arange(len(which))
    while bits > 0 and pending.size:
        width = min(8, bits)
        bits -= width
        u = lanes.some(which[pending]) >> (8 - width)
        top = (part[pending] >> bits) & ((1 << width) - 1)
        result[pending] = u < top
        pending = pending[u == top]
    return result


# --- sampler ------------------------------------------------------------------------------------------------


def sample(card: Card, lanes: Lanes, xs: npt.NDArray[np.int16]) -> Array:
    """Draw a symbol of `card` for every input (int16, Q1.14, saturated): a lane a row of `xs` (n, or n x k).

    Returns uint8, or uint16 for a laplace card, of the shape of `xs`.
    """
    if xs.ndim == 1:
        return _column(card, lanes, xs)
    if lanes.joined:
        return _column(card, lanes.of(xs.size), xs.reshape(-1)).reshape(xs.shape)
    if card.shape == LAPLACE:  # all coordinates are rounded before the first has its noise
        rounded = [_grid(card, lanes, xs[:, i]) for i in range(xs.shape[1])]
        return np.stack([_noise(card, lanes, column) for column in rounded], axis=1)
    return np.stack([_column(card, lanes, xs[:, i]) for i in range(xs.shape[1])], axis=1)


def sample_categories(card: Card, lanes: Lanes, categories: Array) -> Array:
    """Draw a symbol of a window card for each window start (0..N-W); with W = 1, generalised randomised response."""
    if card.shape != WINDOW:
        raise ValueError("categories need a window card")
    start = np.minimum(categories, card.symbols - card.window).astype(np.uint8)
    return _around(card, lanes, start)


def _column(card: Card, lanes: Lanes, xs: npt.NDArray[np.int16]) -> Array:
    if card.shape == TABLE:
        return _table(card, lanes, xs)
    if card.shape == WINDOW:
        return _window(card, lanes, xs)
    if card.shape == LAPLACE:
        return _noise(card, lanes, _grid(card, lanes, xs))
    if card.shape == HIERARCHY:
        return _level_and_sign(cast(Hierarchy, card.hierarchy), lanes, np.clip(xs, -ONE, ONE))
    assert card.shape == MIXTURE
    first = _below(lanes, card.threshold)
    result = np.empty(len(xs), np.uint8)
    for part, which, offset in (
        (card.first, np.flatnonzero(first), 0),
        (card.second, np.flatnonzero(~first), card.first.symbols),
    ):
        result[which] = _column(part, lanes.subset(which), xs[which]) + np.uint8(offset)
    return result


def _level_and_sign(of: Hierarchy, lanes: Lanes, xs: npt.NDArray[np.int16]) -> Bytes:
    true = (xs[:, None] < np.array(of.bounds)).sum(axis=1)
    reported = np.empty(len(xs), np.uint8)
    for level, card in enumerate(of.level_cards):
        which = np.flatnonzero(true == level)
        reported[which] = sample_categories(card, lanes.subset(which), true[which])
    symbols = np.empty(len(xs), np.uint8)
    for level, card in enumerate(of.value_cards):
        which = np.flatnonzero(reported == level)
        symbols[which] = sample(card, lanes.subset(which), xs[which])
    return reported * np.uint8(of.symbols) + symbols


def _shifted(xs: npt.NDArray[np.int16]) -> npt.NDArray[np.uint16]:
    # saturated, from 0 to 2 ONE
    return (np.clip(xs, -ONE, ONE) + np.int16(ONE)).view(np.uint16)


def _round_up(lanes: Lanes, fraction: Array, bits: int) -> npt.NDArray[np.bool_]:
    """Bernoulli(fraction / 2**bits) of every lane, reading nothing where the fraction is 0. 8 <= bits <= 16."""
    low = bits - 8
    u = lanes.each(None if lanes.joined else fraction != 0)
    top = (fraction >> low).astype(np.uint8)
    up = u < top
    tie = np.flatnonzero(u == top)
    tie = tie[fraction[tie] != 0]
    if low and tie.size:
        up[tie] = _below_some(lanes, tie, fraction[tie], low)
    return up


def _below(lanes: Lanes, threshold: int) -> npt.NDArray[np.bool_]:
    # Is a uniform 30-bit integer of every lane below the threshold?
    u = lanes.each()
    top = threshold >> 22
    result = u < np.uint8(top)
    tie = np.flatnonzero(u == np.uint8(top))
    result[tie] = _below_some(lanes, tie, np.full(len(tie), threshold & ((1 << 22) - 1)), 22)
    return result


@lru_cache(maxsize=64)
def _table_parts(data: bytes) -> tuple[Bytes, npt.NDArray[np.int64]]:
    # What the first byte of a threshold draw decides at each knot (256 bytes a knot), and the thresholds, T at the end.
    card = decode(data)
    knots = (1 << card.knot_bits) + 1
    thresholds = np.full((knots, card.symbols), T, np.int64)
    thresholds[:, :-1] = np.array(card.thresholds, np.int64).reshape(knots, card.symbols - 1)
    bottoms = np.arange(257, dtype=np.int64) << 22
    first = np.empty((knots, 256), np.uint8)
    for row in range(knots):
        symbols = np.searchsorted(thresholds[row], bottoms[:-1], "right")
        decided = thresholds[row][symbols] >= bottoms[1:]
        first[row] = np.where(decided, symbols, _UNDECIDED)
    return first.reshape(-1), thresholds


def _table(card: Card, lanes: Lanes, xs: npt.NDArray[np.int16]) -> Bytes:
    first, thresholds = _table_parts(bytes(card.data))
    shift = 15 - card.knot_bits
    a = _shifted(xs)
    row = a >> np.uint16(shift)
    row += _round_up(lanes, a & np.uint16((1 << shift) - 1), shift)
    u = lanes.each()
    symbols: Bytes = first.take((row << np.uint16(8)) | u)
    pending = np.flatnonzero(symbols == _UNDECIDED)
    r = u[pending].astype(np.int64) << 22
    for s in (14, 6, 0):
        if not pending.size:
            break
        byte = lanes.some(pending).astype(np.int64)
        r |= byte << s if s else byte >> 2
        of_row = thresholds[row[pending]]
        symbol = (of_row <= r[:, None]).sum(axis=1)
        symbols[pending] = symbol
        doubt = np.take_along_axis(of_row, symbol[:, None], 1)[:, 0] < r + (1 << s)
        pending, r = pending[doubt], r[doubt]
    return symbols


def _window(card: Card, lanes: Lanes, xs: npt.NDArray[np.int16]) -> Bytes:
    b = _shifted(xs).astype(np.int32) * (card.symbols - card.window)
    start = (b >> 15).astype(np.uint8)
    start += _round_up(lanes, b & 32767, 15)
    return _around(card, lanes, start)


def _around(card: Card, lanes: Lanes, start: Bytes) -> Bytes:
    # The window is [start, start + W).
    window, others = card.window, card.symbols - card.window
    inside = _below(lanes, card.threshold)
    if window == others == 1:
        u = np.zeros(lanes.count, np.uint8)
    else:
        last = np.where(inside, np.uint8(window - 1), np.uint8(others - 1))
        mask = np.where(inside, np.uint8(_mask(window)), np.uint8(_mask(others)))
        u = lanes.each(None if lanes.joined else mask != 0) & mask
        pending = np.flatnonzero(u > last)
        while pending.size:
            u[pending] = lanes.some(pending) & mask[pending]
            pending = pending[u[pending] > last[pending]]
    symbols: Bytes = np.where(inside, u + start, u + np.where(u >= start, np.uint8(window), np.uint8(0)))
    return symbols


def _grid(card: Card, lanes: Lanes, xs: npt.NDArray[np.int16]) -> npt.NDArray[np.int64]:
    # The inputs rounded to the grid, as outputs counted from the lowest.
    a = _shifted(xs)
    bits = 14 - card.grid_bits
    y = (a >> np.uint16(bits)).astype(np.int64)
    fraction = a & np.uint16((1 << bits) - 1)
    if bits > 8:
        y += _round_up(lanes, fraction, bits)
    elif bits:
        y += _round_up(lanes, fraction << np.uint16(8 - bits), 8)
    return y - ((1 << card.grid_bits) + card.lowest)


def _noise(card: Card, lanes: Lanes, y: npt.NDArray[np.int64]) -> npt.NDArray[np.uint16]:
    """Exact discrete Laplace noise, clamped: Canonne, Kamath, Steinke (2020), Algorithms 1 and 2."""
    y = y.copy()
    pending: Indices = np.arange(len(y))
    while pending.size:
        offset = _uniform_some(lanes, pending, card.t)
        kept = _bernoulli_exp(lanes, pending, offset, card.t)
        again, pending, offset = pending[~kept], pending[kept], offset[kept]
        whole = np.zeros(len(pending), np.int64)
        going: Indices = np.arange(len(pending))
        while going.size:  # how often Bernoulli(exp(-1)) is 1 before it is 0
            going = going[_bernoulli_exp_one(lanes, pending[going])]
            whole[going] += 1
        magnitude = (offset + card.t * whole) // card.s
        negative = (lanes.some(pending) & 1).astype(bool)
        done = ~negative | (magnitude > 0)  # there is no negative zero
        y[pending[done]] += np.where(negative, -magnitude, magnitude)[done]
        pending = np.concatenate([again, pending[~done]])
    return np.clip(y, 0, card.highest - card.lowest).astype(np.uint16)


def _bernoulli_exp(lanes: Lanes, which: Indices, numerator: Array, t: int) -> npt.NDArray[np.bool_]:
    # Bernoulli(exp(-numerator / t)) of each of the lanes `which`, 0 <= numerator < t
    result = np.zeros(len(which), bool)
    going: Indices = np.arange(len(which))
    k = 1
    while going.size:
        for failed_at in (0, 1):
            if failed_at == 0:
                passed = _uniform_some(lanes, which[going], t) < numerator[going]
            elif k > 1:
                passed = _uniform_some(lanes, which[going], k) == 0
            else:
                continue
            result[going[~passed]] = k % 2 == 1
            going = going[passed]
        k += 1
    return result


def _bernoulli_exp_one(lanes: Lanes, which: Indices) -> npt.NDArray[np.bool_]:
    # Bernoulli(exp(-1)): it cannot fail at k = 1
    result = np.zeros(len(which), bool)
    going: Indices = np.arange(len(which))
    k = 2
    while going.size:
        passed = _uniform_some(lanes, which[going], k) == 0
        result[going[~passed]] = k % 2 == 1
        going = going[passed]
        k += 1
    return result


# --- coordinates --------------------------------------------------------------------------------------------


def choose(lanes: Lanes, d: int, k: int) -> npt.NDArray[np.uint8]:
    """k of the coordinates 0..d-1 for every lane, ascending (lanes x k): tern.coordinates.choose on the same bytes.

    d is at most 256. Raises ValueError for a k that cannot be.
    """
    if not 1 <= k <= d <= 256:
        raise ValueError(f"{k} of {d} coordinates cannot be chosen")
    if k == d:
        return np.tile(np.arange(d, dtype=np.uint8), (lanes.count, 1))
    every = np.arange(lanes.count)
    if k == 1:
        return _uniform_each(lanes, d)[:, None]
    order = np.tile(np.arange(d, dtype=np.uint8), (lanes.count, 1))
    chosen = np.empty((lanes.count, k), np.uint8)
    for i in range(k):
        j = _uniform_each(lanes, d - i).astype(np.intp) + i
        chosen[:, i] = order[every, j]
        order[every, j] = order[:, i]
    chosen.sort(axis=1)
    return chosen


def _uniform_each(lanes: Lanes, n: int) -> Bytes:
    # uniform(n) of every lane, n <= 256
    mask = np.uint8(_mask(n))
    if not mask:
        return np.zeros(lanes.count, np.uint8)
    u = lanes.each() & mask
    pending = np.flatnonzero(u > n - 1)
    while pending.size:
        u[pending] = lanes.some(pending) & mask
        pending = pending[u[pending] > n - 1]
    return u


# --- gradients ----------------------------------------------------------------------------------------------

_MAX_RESIDUAL = 1025 * ONE


@lru_cache(maxsize=1)
def _sigmoid_tails() -> npt.NDArray[np.int64]:
    # sigmoid_tail(t) for every t up to where it is 0: the firmware's own function, tabulated once
    return np.array([sigmoid_tail(t) for t in range(10 * ONE + 1)], np.int64)


def residuals(
    model: int, parameters: Array, exponent: int, records: npt.NDArray[np.int16]
) -> npt.NDArray[np.int64]:
    """The residual r of each record (d features and a label a row), as tern.gradient computes it, in 2**-14 units.

    parameters: d mantissas, or as many rows of d as there are records.
    """
    if not LINEAR <= model <= SVM or not MIN_EXPONENT <= exponent <= MAX_EXPONENT:
        raise ValueError("unknown model, or exponent not in -30..-12")
    d = records.shape[1] - 1
    # |m x| <= 2**30 and d <= 128: the float64 sum of products is an exact integer
    mantissas = np.asarray(parameters, np.float64)
    if mantissas.ndim == 1:
        total = (records[:, :d] @ mantissas).astype(np.int64)
    else:
        total = np.einsum("ij,ij->i", records[:, :d].astype(np.float64), mantissas).astype(np.int64)
    label = records[:, d].astype(np.int64)
    positive = label > 0
    shift = -exponent
    if model == SVM:
        one = ONE << shift
        return np.where(positive, np.where(total < one, -ONE, 0), np.where(total > -one, ONE, 0))
    z = ((total >> 8) + (1 << (shift - 9))) >> (shift - 8)
    if model == LINEAR:
        clipped: npt.NDArray[np.int64] = np.clip(z - label, -_MAX_RESIDUAL, _MAX_RESIDUAL)
        return clipped
    assert model == LOGISTIC
    margin = np.where(positive, z, -z)
    tail = _sigmoid_tails().take(np.abs(margin), mode="clip")
    size = np.where(margin >= 0, tail, ONE - tail)
    return np.where(positive, -size, size)


def gradients(
    model: int,
    parameters: Array,
    exponent: int,
    records: npt.NDArray[np.int16],
    chosen: Array | None = None,
    batch: int = 1,
) -> npt.NDArray[np.int16]:
    """Clients' clipped mean gradients, exactly those of tern.gradient: clients x d, or only each one's `chosen` k.

    `records` holds `batch` rows a client, one client after the other; `parameters` are d mantissas, or a row of them a
    client. Raises ValueError where tern.gradient does.
    """
    n = len(records) // batch
    d = records.shape[1] - 1
    own = np.ndim(parameters) == 2
    if (
        not 1 <= batch <= MAX_BATCH
        or n * batch != len(records)
        or np.shape(parameters) != ((n, d) if own else (d,))
    ):
        raise ValueError("records or parameters do not fit")
    if own:
        parameters = np.repeat(parameters, batch, axis=0)
    r = residuals(model, parameters, exponent, records).reshape(n, batch)
    features = records[:, :d].reshape(n, batch, d)
    if chosen is not None:
        features = np.take_along_axis(features, chosen[:, None, :].astype(np.intp), axis=2)
    # each product is rounded, then the mean once more
    totals = ((features * r[:, :, None] + ONE // 2) >> 14).sum(axis=1)
    means: npt.NDArray[np.int16] = np.clip((totals + batch // 2) // batch, -ONE, ONE).astype(np.int16)
    return means


# --- local training -----------------------------------------------------------------------------------------

_MOST_FINE = 32767 * 256


def train_locally(
    model: int,
    parameters: Array,
    exponent: int,
    records: npt.NDArray[np.int16],
    epochs: int,
    batch: int,
    rate: int,
) -> npt.NDArray[np.int64]:
    """How far each client's weights move, n x d in units of 2**(exponent - 8): exactly tern.local.

    records: n clients x their records x (d + 1). Raises ValueError where tern.local does.
    """
    n, count, width = records.shape
    size = batch or count
    if not 1 <= size <= MAX_BATCH or count < 1 or epochs < 1 or not 0 <= rate <= MAX_RATE:
        raise ValueError("records, epochs, batch or rate out of bounds")
    if not MIN_LOCAL_EXPONENT <= exponent <= MAX_EXPONENT or len(parameters) != width - 1:
        raise ValueError("parameters or exponent do not fit")
    start = np.asarray(parameters, np.int64)
    own = np.tile(start, (n, 1))
    fine = own * 256
    shift = -6 - exponent - rate
    for _ in range(epochs):
        for first in range(0, count, size):
            rows = records[:, first : first + size]
            g = gradients(model, own, exponent, rows.reshape(-1, width), batch=rows.shape[1]).astype(np.int64)
            move = g << shift if shift >= 0 else (g + (1 << (-shift - 1))) >> -shift
            fine = np.clip(fine - move, -_MOST_FINE, _MOST_FINE)
            own = (fine + 128) >> 8
    moved: npt.NDArray[np.int64] = fine - start * 256
    return moved


def shares(moved: npt.NDArray[np.int64], tau: Array) -> npt.NDArray[np.int16]:
    """Moves as shares of each client's tau (fine units, n), Q1.14, rounded and clipped: exactly tern.local."""
    if (np.asarray(tau) < 1).any() or (np.asarray(tau) > MAX_TAU).any():
        raise ValueError("tau does not fit")
    wide = np.asarray(tau, np.int64)[:, None]
    size = np.minimum(ONE, (np.abs(moved) * (2 * ONE) + wide) // (2 * wide))
    signed: npt.NDArray[np.int16] = np.where(moved < 0, -size, size).astype(np.int16)
    return signed


# Protected inference


def probabilities(parameters: npt.ArrayLike, exponent: int, features: Array, grid_bits: int = 14) -> Array:
    """Class probabilities (n x c, Q1.14) of rows of features (n x f), exactly those of tern.inference.

    parameters: c x f int16 mantissas of 2**exponent. Raises ValueError where the device does.
    """
    weights = np.asarray(parameters, np.float64)
    if (
        weights.ndim != 2
        or not 2 <= len(weights) <= MAX_DIMENSION
        or not 1 <= weights.shape[1] <= MAX_DIMENSION
    ):
        raise ValueError("classes or features out of bounds")
    if weights.shape[1] != features.shape[1] or not MIN_EXPONENT <= exponent <= MAX_EXPONENT:
        raise ValueError("parameters or exponent do not fit")
    shift = -8 - exponent
    total = (features @ weights.T).astype(np.int64)  # an exact integer in float64
    z = ((total >> 8) + (1 << (shift - 1))) >> shift
    e = _exponentials().take(z.max(axis=1, keepdims=True) - z, mode="clip")
    p = (e << 14) // e.sum(axis=1, keepdims=True)
    rounded: Array = (p & -(1 << (14 - grid_bits))).astype(np.int16)
    return rounded


@lru_cache(maxsize=1)
def _exponentials() -> npt.NDArray[np.int64]:
    # the firmware's own function, tabulated once
    return np.array([exp_minus(t) for t in range(12 * ONE + 1)], np.int64)
