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
from ternhost.vectorised.models import (
    Fixed,
    ModelParameters,
    Whole,
    bins,
    probabilities,
    residuals,
)
from ternhost.vectorised.sampling import bernoulli_exp, laplace

Numbers = npt.NDArray[np.int32]  # values of records or units

MOST_TOTAL = 1 << 29  # the largest total of a unit's records, so that 32 bits never overflow
_CHUNK = 1 << 17  # numbers at a time, so that they stay in the processor's cache


def sums(
    card: Card,
    parameters: ModelParameters,
    records: Fixed,
    range_: int = 0,
    first: int = 0,
    categories: int = 1,
) -> Whole:
    """Compute the sums of clients' clipped, rounded unit vectors, exactly as tern.sums does.

    A unit is the part of a client's records that a report protects: so many records one after the
    other, or all of them. The values of its records are added up to a vector, which is clipped to
    the radius of the card, so that one unit changes the sums by no more than that.

    card: of shape "sum" (cards.md); it says how large a unit is, and how it is clipped. parameters:
    of a gradient, or of a collection (wire.md), whose mantissas are d flags of the features that
    are summed; with an exponent, they are numbers, of which the 2**exponent bins are counted.
    records: clients x records x (d + 1), the label last. range_: values are multiplied by
    2**range_. first: the index of each client's first record, which decides where units begin.
    categories: how many each attribute has, if categories or bins are counted.

    Returns clients x (values + 1), in steps of the card's grid; the last column is the tally, which
    estimates how many units were clipped. Raises ValueError for another model, range or shape.
    """
    clients, record_count, width = records.shape
    model = parameters.model
    weights = np.asarray(parameters.mantissas)
    _check_question(model, weights, width, range_)
    value_count = weights.size
    if model in COLLECTIONS:
        value_count = int(np.count_nonzero(weights)) * categories
    result = np.zeros((clients, value_count + 1), np.int64)
    if not record_count:
        return result

    body = cast(Sum, card.body)
    records_in_unit = body.unit
    if not records_in_unit:  # 0 stands for all records of the client
        records_in_unit = first + record_count + 1
    unit_of_record = (first + np.arange(record_count)) // records_in_unit
    unit_starts = np.flatnonzero(np.diff(unit_of_record, prepend=-1))

    clients_at_once = max(1, _CHUNK // max(1, record_count * value_count))
    for start in range(0, clients, clients_at_once):
        chunk = records[start : start + clients_at_once]
        rows = chunk.reshape(-1, width)
        values = _values(parameters, rows, range_, categories)
        by_client_and_record = values.reshape(value_count, len(chunk), record_count)
        totals = _totals(by_client_and_record, unit_starts)
        vectors, is_clipped = clipped_vectors(body, totals.reshape(value_count, -1))
        # What each unit adds to the tally.
        tallies = np.where(is_clipped, body.clipped, body.kept)

        # Sum over the units of each client: vectors are values x (clients x units).
        by_client = vectors.reshape(value_count, len(chunk), -1)
        client_sums = result[start : start + clients_at_once]
        client_sums[:, :-1] = by_client.sum(axis=2, dtype=np.int64).T
        client_sums[:, -1] = tallies.reshape(len(chunk), -1).sum(axis=1)
    return result


def _check_question(model: int, weights: Array, width: int, range_: int) -> None:
    """Raise ValueError for a question that no device sums, or whose weights do not fit records.

    width: the number of columns of a record, its label included.
    """
    is_known = model in GRADIENTS or model in COLLECTIONS
    if not is_known or not 0 <= range_ <= MAX_FINE:
        raise ValueError("no sum of this model or range")
    dimensions = 1
    if model == SOFTMAX_GRADIENT:
        dimensions = 2
    if weights.shape[-1] != width - 1 or weights.ndim != dimensions:
        raise ValueError("records or parameters do not fit")


# Numbers are in columns from here on: values x records, or values x units.


def _values(parameters: ModelParameters, rows: Fixed, range_: int, categories: int) -> Numbers:
    """Compute the values that each record adds to those of its unit (values x records).

    rows: the records of all clients, one after the other. Other arguments: as of `sums`. Values are
    in units of 2**-(14 + range_).
    """
    weights = np.asarray(parameters.mantissas)
    columns = np.ascontiguousarray(rows[:, :-1].T, np.int32)  # features x records
    if parameters.model == VALUES:
        return np.left_shift(columns[np.flatnonzero(weights)], range_)
    if parameters.model == CATEGORIES:
        # A value for each attribute and each of its categories: 1 if the record is of it.
        of_records: Array = columns[np.flatnonzero(weights), None]
        if parameters.exponent:  # the features are numbers, whose bins are counted
            of_records = bins(of_records, parameters.exponent)
        record_categories = np.clip(of_records, 0, categories - 1)
        is_category = record_categories == np.arange(categories)[:, None]
        flags: Numbers = np.where(is_category, np.int32(ONE), np.int32(0))
        return flags.reshape(-1, len(rows))

    products = _products(parameters, rows, columns, range_)
    # From 28 fractional bits to 14 + range_, rounded to the nearest.
    products += 1 << 13 - range_
    products >>= 14 - range_
    return products.astype(np.int32, copy=False)


def _products(parameters: ModelParameters, rows: Fixed, columns: Numbers, range_: int) -> Array:
    """Return the gradients of records, which are products of residuals and features.

    rows: records x (d + 1). columns: the features once more, as features x records. Returns values
    x records, with 28 fractional bits.
    """
    if parameters.model == SOFTMAX_GRADIENT:
        weights = np.asarray(parameters.mantissas)
        predicted = probabilities(weights, parameters.exponent, rows[:, :-1])
        is_label = rows[:, -1:] == np.arange(len(weights))
        class_residuals = (predicted - ONE * is_label).T.astype(np.int32)
        # The outer product for each record, class by class.
        return np.asarray((class_residuals[:, None] * columns).reshape(-1, len(rows)))

    record_residuals = residuals(parameters, rows, range_)
    # Residuals of linear regression may be more than 1, and their products need 64 bits.
    if parameters.model != LINEAR:
        record_residuals = record_residuals.astype(np.int32)
    return np.asarray(columns * record_residuals)


def _totals(added: Numbers, starts: Indices) -> Numbers:
    """Add up the values of each unit's records; totals are clipped to +-2**29 after each record.

    added: values x clients x records. starts: the first record of each unit, the same for each
    client. Returns values x clients x units.
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
    # Scale each vector so that its largest entry has 14 bits: a = t / 2**s. With s below 0 that is
    # a shift to the left, else one to the right.
    largest = np.abs(totals).max(axis=0)
    shift = _bits(largest) - 14
    scaled = totals << np.maximum(-shift, 0).astype(np.int32)
    scaled >>= np.maximum(shift, 0).astype(np.int32)
    size = _size(scaled, shift, body.norm)
    is_clipped: Flags = (largest > 0) & (size > body.reach)

    # Multiply by the factor p / 2**k. It takes a vector of the size of the reach, which is the
    # radius in the units of the totals, or a longer vector of its own size, to the radius.
    factor, factor_shift = _factors(body, np.where(is_clipped, size, body.reach), shift)
    is_zero = (largest == 0) | (factor_shift > 30)  # all entries round to 0
    factor[is_zero] = 0
    right_shift = np.where(is_zero, 1, factor_shift).astype(np.int32)
    half = np.int32(1) << right_shift - 1
    vectors = scaled * factor
    vectors += half  # so that the shift rounds to the nearest
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

    scaled: the vectors, divided by 2**shift (values x units). norm: 1 for the sum of the sizes of
    the entries, 2 for the root of the sum of their squares.
    """
    if norm == 1:
        return _scaled(_norm(scaled, 1), shift)
    # The last 14 bits of the sum of squares are dropped, and the rest is rounded up, so that a device
    # can compute with 32 bits. The root is then too small by a factor of 2**7.
    square = (_norm(scaled, 2) >> 14) + 1
    # A root of an integer has half as many bits. Small squares are multiplied by 4 until they are
    # 2**26 or more, so that 13 bits of the root are known; each time doubles the root.
    doublings = np.maximum(0, (28 - _bits(square)) // 2)
    root = np.sqrt(square << 2 * doublings).astype(np.int64) + 1  # rounded up
    return _scaled(root, 7 + shift - doublings)


def _factors(body: Sum, size: Whole, shift: Whole) -> tuple[Numbers, Whole]:
    """Return the factors p, and the shifts k to the right, that take sizes to the radius.

    The factor of a vector is `p / 2**k`, a little below the radius over its size. size: of each
    vector (units), in the units of the totals. shift: s, where the vectors to be multiplied have
    been divided by 2**s.
    """
    # The divisor is the size with exactly 15 bits, rounded up.
    bits = _bits(size)
    lengthened = size << np.maximum(15 - bits, 0)
    shortened = (size >> np.maximum(bits - 15, 0)) + 1
    divisor = np.where(bits <= 15, lengthened, shortened)
    # With a dividend of 29 bits, the quotient has 14 or 15. The entry that is multiplied by it has
    # 14, so that the product fits in 32 bits.
    radius_shift = 29 - int(body.radius).bit_length()
    factor = ((body.radius << radius_shift) // divisor).astype(np.int32)
    return factor, radius_shift + bits - 15 - shift


def _bits(n: Array) -> Whole:
    """Return the number of bits of each integer from 0 to 2**53, as int.bit_length does.

    frexp gives the exponent e with 2**(e - 1) <= n < 2**e, and 0 for n = 0.
    """
    _, exponents = np.frexp(n.astype(np.float64))
    return exponents.astype(np.int64)


def _norm(vectors: Numbers, norm: int) -> Whole:
    """Return the sum of sizes (norm 1), or of squares (norm 2), of each column.

    Rows are added one after the other, which needs no temporary array of 64-bit numbers as large as
    all vectors.
    """
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
    smaller = -(-n >> np.maximum(-exponent, 0))  # a shift rounds down, so of -n it rounds up
    return np.asarray(np.where(exponent >= 0, larger, smaller))


# Noise: the draws of tern.sums.noise, in its order.


def symbols(card: Card, lanes: Lanes, totals: Whole) -> npt.NDArray[np.uint16]:
    """Draw the symbols that clients report for their sums (lanes x values, in grid steps).

    Each sum gets its noise, is rounded to coarser steps of 2**coarse grid steps each, and is
    clamped to the range of the symbols.
    """
    body = cast(Sum, card.body)
    if isinstance(lanes, RandomLanes):  # no draw depends on its lane: all are made at once
        drawn_noise = noise(card, RandomLanes(lanes.bits, totals.size)).reshape(totals.shape)
    else:  # as a device draws: the noise of one value after the other
        noise_of_values = [noise(card, lanes) for _ in range(totals.shape[1])]
        drawn_noise = np.stack(noise_of_values, axis=1)
    half_step = 1 << body.coarse >> 1  # 0 if a step is a single grid step
    noisy = totals + drawn_noise
    coarse = (noisy + half_step) >> body.coarse
    middle = body.symbols >> 1  # the symbol that stands for 0
    return np.asarray(np.clip(coarse + middle, 0, body.symbols - 1).astype(np.uint16))


def noise(card: Card, lanes: Lanes) -> Whole:
    """Draw the exact noise of a value for every lane, in grid steps.

    It is discrete Laplace noise of scale t (for norm 1), or discrete Gaussian noise of variance
    c t / m (for norm 2), with the integers t, c and m of the card. Gaussian noise is made of
    Laplace noise by rejection: a draw is kept with some probability, or else made anew. Source:
    Canonne, Kamath, Steinke (2020), Algorithms 2 and 3.
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

    which: the lanes of the noise. With the distance D = |m size - c|, it is kept with probability
    exp(-x y), where x = D / (2 c) and y = D / (t m). A draw can only have a probability exp(-p)
    with p at most 1. So both factors are split into a whole number and a fraction, x = a + f and
    y = b + g, and the four products a b, a g, f b and f g are drawn one after the other: the noise
    is kept if all of these draws succeed.
    """
    distance = np.abs(body.m * sizes - body.c)
    x_divisor, y_divisor = 2 * body.c, body.t * body.m
    x_whole, x_rest = np.divmod(distance, x_divisor)
    y_whole, y_rest = np.divmod(distance, y_divisor)
    result = np.ones(len(which), bool)

    # Each of the first three products is an integer, the number of repetitions, times a fraction
    # dividend / divisor of at most 1: exp(-fraction) must succeed so many times. A draw for a
    # fraction of 0 would always succeed, and is left out, since a device reads no byte for it.
    for repetitions, dividend, divisor in (
        (x_whole * y_whole, np.ones_like(x_whole), 1),
        (np.where(y_rest > 0, x_whole, 0), y_rest, y_divisor),
        (np.where(x_rest > 0, y_whole, 0), x_rest, x_divisor),
    ):
        pending = np.flatnonzero(result & (repetitions > 0))
        left = repetitions.copy()
        while pending.size:
            passed = bernoulli_exp(lanes, which[pending], dividend[pending], divisor)
            result[pending[~passed]] = False
            left[pending] -= 1
            pending = pending[passed & (left[pending] > 0)]

    # The product of both fractions.
    last = np.flatnonzero(result & (x_rest > 0) & (y_rest > 0))
    result[last] = bernoulli_exp(
        lanes, which[last], a=x_rest[last], n=x_divisor, b=y_rest[last], m=y_divisor
    )
    return result
