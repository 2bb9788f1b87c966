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
    """Compute the sums of clients' clipped, rounded unit vectors, exactly as tern.sums does.

    model: of gradients or of collections (wire.md). parameters: d mantissas of 2**exponent, or
    classes x d of softmax regression; to collect, d flags of the features that are summed.
    records: clients x records x (d + 1), the label last. range_: values are multiplied by
    2**range_. first: the index of each client's first record, which decides where units begin.
    categories: of each attribute, if categories are counted.

    Returns clients x (values + 1), in grid steps; the last column is the tally. Raises ValueError
    for another model, range or shape.
    """
    clients, record_count, width = records.shape
    weights = np.asarray(parameters)
    _check_question(model, weights, width, range_)
    value_count = weights.size
    if model in COLLECTIONS:
        value_count = int(np.count_nonzero(weights)) * categories
    result = np.zeros((clients, value_count + 1), np.int64)
    if not record_count:
        return result

    body = cast(Sum, card.body)
    unit = body.unit or first + record_count + 1  # 0: all records are one unit
    unit_of_record = (first + np.arange(record_count)) // unit
    unit_starts = np.flatnonzero(np.diff(unit_of_record, prepend=-1))
    clients_at_once = max(1, _CHUNK // max(1, record_count * value_count))
    for start in range(0, clients, clients_at_once):
        chunk = records[start : start + clients_at_once]
        rows = chunk.reshape(-1, width)
        values = _values(model, weights, exponent, rows, range_, categories)
        totals = _totals(values.reshape(value_count, -1, record_count), unit_starts)
        vectors, is_clipped = clipped_vectors(body, totals.reshape(value_count, -1))
        tallies = np.where(is_clipped, body.clipped, body.kept)

        # Sum over the units of each client: vectors are values x (clients x units).
        by_client = vectors.reshape(value_count, len(chunk), -1)
        client_sums = result[start : start + clients_at_once]
        client_sums[:, :-1] = by_client.sum(axis=2, dtype=np.int64).T
        client_sums[:, -1] = tallies.reshape(len(chunk), -1).sum(axis=1)
    return result


def _check_question(model: int, weights: Array, width: int, range_: int) -> None:
    """Raise ValueError for a question that no device sums, or whose weights do not fit records."""
    is_known = model in GRADIENTS or model in COLLECTIONS
    if not is_known or not 0 <= range_ <= MAX_FINE:
        raise ValueError("no sum of this model or range")
    dimensions = 1
    if model == SOFTMAX_GRADIENT:
        dimensions = 2
    if weights.shape[-1] != width - 1 or weights.ndim != dimensions:
        raise ValueError("records or parameters do not fit")


# Numbers are in columns from here on: values x records, or values x units.


def _values(
    model: int, weights: Array, exponent: int, rows: Fixed, range_: int, categories: int
) -> Numbers:
    """Compute the values that each record adds to those of its unit (values x records).

    Arguments are those of `sums`, with the records of all clients in `rows`. Values are in units of
    2**-(14 + range_).
    """
    columns = np.ascontiguousarray(rows[:, :-1].T, np.int32)  # features x records
    if model == VALUES:
        return np.left_shift(columns[np.flatnonzero(weights)], range_)
    if model == CATEGORIES:
        # A value for each attribute and each of its categories: 1 if the record is of it.
        record_categories = np.clip(columns[np.flatnonzero(weights), None], 0, categories - 1)
        is_category = record_categories == np.arange(categories)[:, None]
        flags: Numbers = np.where(is_category, np.int32(ONE), np.int32(0))
        return flags.reshape(-1, len(rows))

    # Gradients: the products of residuals and features.
    if model == SOFTMAX_GRADIENT:
        predicted = probabilities(weights, exponent, rows[:, :-1])
        is_label = rows[:, -1:] == np.arange(len(weights))
        class_residuals = (predicted - ONE * is_label).T.astype(np.int32)
        products: Array = (class_residuals[:, None] * columns).reshape(-1, len(rows))
    else:
        record_residuals = residuals(model, weights, exponent, rows, range_)
        if model != LINEAR:  # residuals of linear regression may be more than 1, and need 64 bits
            record_residuals = record_residuals.astype(np.int32)
        products = columns * record_residuals
    # From 28 fractional bits to 14 + range_, rounded.
    products += 1 << 13 - range_
    products >>= 14 - range_
    return products.astype(np.int32, copy=False)


def _totals(added: Numbers, starts: Indices) -> Numbers:
    """Add up the values of each unit's records; totals are clipped to +-2**29 after each record.

    added: values x clients x records. starts: the first record of each unit. Returns values x
    clients x units.
    """
    lengths = np.diff([*starts, added.shape[2]])
    longest = int(lengths.max())
    if longest == 1:
        return added
    largest = max(int(added.max()), -int(added.min()))
    if longest * largest <= MOST_TOTAL:  # no total can reach the bound
        return np.add.reduceat(added, starts, axis=2, dtype=np.int32)
    totals = np.zeros((*added.shape[:2], len(starts)), np.int32)
    for unit, (start, length) in enumerate(zip(starts, lengths, strict=True)):
        for record in range(start, start + length):
            total = totals[:, :, unit] + added[:, :, record]
            totals[:, :, unit] = np.clip(total, -MOST_TOTAL, MOST_TOTAL)
    return totals


def clipped_vectors(body: Sum, totals: Numbers) -> tuple[Numbers, Flags]:
    """Clip the vectors of units to the card's radius, and round them to grid steps.

    totals: of each unit (values x units), in units of 2**-(14 + range), at most 2**29. Returns the
    vectors (values x units), whose norm is at most the radius R in grid steps, and which of them
    were clipped (units). Specification: arithmetic.md, whose letters are in the comments.
    """
    # Scale each vector so that its largest entry has 14 bits: a = t / 2**s.
    largest = np.abs(totals).max(axis=0)
    shift = _bits(largest) - 14
    scaled = totals << np.maximum(-shift, 0).astype(np.int32)
    scaled >>= np.maximum(shift, 0).astype(np.int32)
    size = _size(scaled, shift, body.norm)
    is_clipped: Flags = (largest > 0) & (size > body.reach)

    # Multiply by the radius over the size, or over the reach: by p / 2**k.
    factor, factor_shift = _factors(body, np.where(is_clipped, size, body.reach), shift)
    is_zero = (largest == 0) | (factor_shift > 30)  # all entries round to 0
    factor[is_zero] = 0
    right_shift = np.where(is_zero, 1, factor_shift).astype(np.int32)
    vectors = scaled * factor
    vectors += np.int32(1) << right_shift - 1
    vectors >>= right_shift

    # Where rounding to the nearest leads beyond the radius, round towards 0 instead.
    limit = body.radius**body.norm
    beyond = np.flatnonzero(_norm(vectors, body.norm) > limit)
    if beyond.size:
        entries = scaled[:, beyond]
        sizes = np.abs(entries) * factor[beyond] >> right_shift[beyond]
        rounded = np.sign(entries) * sizes
        rounded[:, _norm(rounded, body.norm) > limit] = 0
        vectors[:, beyond] = rounded
    return vectors, is_clipped


def _size(scaled: Numbers, shift: Whole, norm: int) -> Whole:
    """Return an upper bound on the norm of each vector, in the units of the totals.

    scaled: the vectors, divided by 2**shift (values x units). norm: 1 or 2.
    """
    if norm == 1:
        return _scaled(_norm(scaled, 1), shift)
    square = (_norm(scaled, 2) >> 14) + 1
    doublings = np.maximum(0, (28 - _bits(square)) // 2)  # until the square is 2**26 or more
    root = np.sqrt(square << 2 * doublings).astype(np.int64) + 1
    return _scaled(root, 7 + shift - doublings)


def _factors(body: Sum, size: Whole, shift: Whole) -> tuple[Numbers, Whole]:
    """Return the factors, and how far to shift right after them, that take sizes to the radius.

    size: of each vector (units), which is brought to 15 bits, rounded up. shift: by which the
    vectors were scaled.
    """
    bits = _bits(size)
    lengthened = size << np.maximum(15 - bits, 0)
    shortened = (size >> np.maximum(bits - 15, 0)) + 1
    divisor = np.where(bits <= 15, lengthened, shortened)
    radius_shift = 29 - int(body.radius).bit_length()
    factor = ((body.radius << radius_shift) // divisor).astype(np.int32)
    return factor, radius_shift + bits - 15 - shift


def _bits(n: Array) -> Whole:
    """Return the number of bits of integers from 0 to 2**53."""
    _, exponents = np.frexp(n.astype(np.float64))
    return exponents.astype(np.int64)


def _norm(vectors: Numbers, norm: int) -> Whole:
    """Return the sum of sizes (norm 1), or of squares (norm 2), of each column."""
    total = np.zeros(vectors.shape[1], np.int64)
    for row in vectors:
        if norm == 1:
            total += np.abs(row)
        else:
            total += row * row
    return total


def _scaled(n: Whole, exponent: Whole) -> Whole:
    """Return n 2**exponent, rounded up; exponents may be negative."""
    larger = n << np.maximum(exponent, 0)
    smaller = -(-n >> np.maximum(-exponent, 0))
    return np.asarray(np.where(exponent >= 0, larger, smaller))


# Noise: the draws of tern.sums.noise, in its order.


def symbols(card: Card, lanes: Lanes, totals: Whole) -> npt.NDArray[np.uint16]:
    """Draw the symbols for sums in grid steps (lanes x values).

    Each sum gets its noise, is rounded to coarser steps, and clamped to the symbols.
    """
    body = cast(Sum, card.body)
    if isinstance(lanes, RandomLanes):  # no draw depends on its lane: all are made at once
        drawn_noise = noise(card, RandomLanes(lanes.bits, totals.size)).reshape(totals.shape)
    else:  # as a device draws: the noise of one value after the other
        noise_of_values = [noise(card, lanes) for _ in range(totals.shape[1])]
        drawn_noise = np.stack(noise_of_values, axis=1)
    half_step = 1 << body.coarse >> 1
    coarse = totals + drawn_noise + half_step >> body.coarse
    symbols = coarse + (body.symbols >> 1)  # the middle symbol stands for 0
    return np.asarray(np.clip(symbols, 0, body.symbols - 1).astype(np.uint16))


def noise(card: Card, lanes: Lanes) -> Whole:
    """Draw the exact noise of a value for every lane, in grid steps.

    It is discrete Laplace noise of scale t (norm 1), or discrete Gaussian noise of variance c t / m
    (norm 2), which is made of Laplace noise by rejection. Source: Canonne, Kamath, Steinke (2020),
    Algorithms 2 and 3.
    """
    body = cast(Sum, card.body)
    result = np.zeros(lanes.count, np.int64)
    pending: Indices = np.arange(lanes.count)  # lanes without noise
    while pending.size:
        which, drawn, pending = laplace(lanes, pending, body.t, frugal=True)
        if body.norm == 2:
            is_accepted = _accepted(body, lanes, which, np.abs(drawn))
            pending = np.concatenate([pending, which[~is_accepted]])
            which, drawn = which[is_accepted], drawn[is_accepted]
        result[which] = drawn
    return result


def _accepted(body: Sum, lanes: Lanes, which: Indices, sizes: Whole) -> Flags:
    """Decide whether Laplace noise of these sizes is kept as Gaussian noise (cards.md, sum).

    which: the lanes of the noise. With D = |m size - c| it is kept with probability
    exp(-(D / 2 c) (D / (t m))). Both factors are split into a whole number and a fraction, and the
    four products are drawn one after the other.
    """
    distance = np.abs(body.m * sizes - body.c)
    first_divisor, second_divisor = 2 * body.c, body.t * body.m
    first_whole, first_rest = np.divmod(distance, first_divisor)
    second_whole, second_rest = np.divmod(distance, second_divisor)
    result = np.ones(len(which), bool)
    # exp(-1) for each pair of wholes, then a whole times the other's fraction. A draw for a
    # fraction of 0 always succeeds, and reads nothing.
    for repetitions, dividend, divisor in (
        (first_whole * second_whole, np.ones_like(first_whole), 1),
        (np.where(second_rest > 0, first_whole, 0), second_rest, second_divisor),
        (np.where(first_rest > 0, second_whole, 0), first_rest, first_divisor),
    ):
        pending = np.flatnonzero(result & (repetitions > 0))
        left = repetitions.copy()
        while pending.size:
            passed = bernoulli_exp(lanes, which[pending], dividend[pending], divisor)
            result[pending[~passed]] = False
            left[pending] -= 1
            pending = pending[passed & (left[pending] > 0)]
    # The product of both fractions.
    last = np.flatnonzero(result & (first_rest > 0) & (second_rest > 0))
    result[last] = bernoulli_exp(
        lanes,
        which[last],
        a=first_rest[last],
        n=first_divisor,
        b=second_rest[last],
        m=second_divisor,
    )
    return result
