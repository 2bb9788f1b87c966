"""Computations of devices on their records, for many clients at once.

They are gradients, local training and probabilities. All numbers are integers, with the rounding of
the device library, so that simulated clients answer exactly as boards do. Q1.14 means a number with
14 fractional bits: the integer ONE, which is 2**14, stands for 1.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256

import numpy as np
import numpy.typing as npt

from tern import wire
from tern.collect import PRIME
from tern.fixed import ONE
from tern.gradient import MAX_FINE
from tern.inference import exp_minus
from tern.residual import SIGMOID, sigmoid_tail
from ternhost.vectorised.lanes import Array

Fixed = npt.NDArray[np.int16]
Whole = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int32] | Whole

_MAX_RESIDUAL = 2047  # largest residual of linear regression, as a number
# Local training keeps a weight with this many bits more than its mantissa, so that small steps add
# up instead of being rounded away.
_FINE_BITS = 8
_HALF_MANTISSA = 1 << _FINE_BITS - 1
_MOST_FINE = 32767 << _FINE_BITS
# The product of a residual up to this size and any int16 fits in 32 bits, with room to round.
_MOST_NARROW_RESIDUAL = 1 << 15


@dataclass(frozen=True)
class ModelParameters:
    """The kind of a model, and its parameters as a request to devices states them.

    model: the number of the model in wire.md, such as wire.LOGISTIC. mantissas, exponent: parameter
    i is `mantissas[i] * 2**exponent`. The array has the shape d, the number of features, or
    classes x d of softmax regression. Some functions also take an array with one dimension more in
    front, for parameters that differ between clients or records.
    """

    model: int
    mantissas: npt.ArrayLike
    exponent: int


@lru_cache(maxsize=1)
def _sigmoid_tails() -> Whole:
    """sigmoid_tail(t) for every t up to where it is 0: a table of the firmware's own function."""
    return np.array([sigmoid_tail(t, SIGMOID) for t in range(10 * ONE + 1)], np.int64)


def residuals(parameters: ModelParameters, records: Fixed, fine: int = 0) -> Whole:
    """Compute the residual of each record (n, in Q1.14), exactly as tern.residual does.

    The residual is the derivative of the record's loss by its score, which is the product of
    weights and features: a gradient is the residual times the features.

    parameters: of a linear or logistic model or an SVM; d mantissas, or a row of them for each
    record. records: a row of d features and a label each. fine: the bits of range that the gradient
    will be multiplied by; a linear residual is clipped so that this fits. Raises ValueError for an
    unknown model or exponent.
    """
    model, exponent = parameters.model, parameters.exponent
    if not wire.LINEAR <= model <= wire.SVM:
        raise ValueError("unknown model")
    if not wire.MIN_EXPONENT <= exponent <= wire.MAX_EXPONENT:
        raise ValueError("parameters do not fit: exponent not in -30..-12")
    total = _products_with_weights(records[:, :-1], parameters.mantissas)
    label = records[:, -1].astype(np.int64)
    is_positive = label > 0

    # The total has 14 - exponent fractional bits.
    if model == wire.SVM:  # the hinge's slope, which is 0 beyond the margin
        margin = ONE << -exponent
        of_positive = np.where(total < margin, -ONE, 0)
        of_negative = np.where(total > -margin, ONE, 0)
        return np.where(is_positive, of_positive, of_negative)
    score = _rounded_score(total, exponent)
    if model == wire.LINEAR:
        most = (_MAX_RESIDUAL >> fine) * ONE
        return np.asarray(np.clip(score - label, -most, most))
    assert model == wire.LOGISTIC
    return sigmoids(score) - ONE * is_positive


def _products_with_weights(features: Fixed, mantissas: npt.ArrayLike) -> Whole:
    """Return the scalar product of features and weights for each record (n integers).

    features: n x d. mantissas: d, or n x d for weights of each record's own.
    """
    # A product is at most 2**30, and there are at most 128 of them: their sum in float64, which is
    # faster than int64, is an exact integer.
    weights = np.asarray(mantissas, np.float64)
    if weights.ndim == 1:
        # Often all weights but that of the constant are 0, and their features need no look.
        in_use = np.flatnonzero(weights)
        products: Array = features[:, in_use] @ weights[in_use]
    else:
        products = np.einsum("ij,ij->i", features.astype(np.float64), weights)
    return products.astype(np.int64)


def _rounded_score(total: Whole, exponent: int) -> Whole:
    """Round sums of products, which have 14 - exponent fractional bits, to Q1.14.

    That takes two steps, as on the device: first 8 bits are cut off, so that the sum fits in 32
    bits there, then the rest is rounded to the nearest integer.
    """
    shift = -exponent - 8
    half = 1 << (shift - 1)
    return ((total >> 8) + half) >> shift


def gradients(
    parameters: ModelParameters,
    records: Fixed,
    chosen: Array | None = None,
    batch: int = 1,
    range_: int = 0,
) -> Fixed:
    """Compute clients' clipped mean gradients, times 2**range_, exactly as tern.gradient does.

    parameters: of a linear or logistic model or an SVM; d mantissas, or a row of them for each
    client. records: `batch` rows for each client, as of `residuals`; there may be any number of
    them. chosen: the k coordinates of each client that are needed (clients x k); None for all.
    Returns clients x d, or clients x k. Raises ValueError for arrays of other shapes.
    """
    clients = len(records) // batch
    d = records.shape[1] - 1
    mantissas = np.asarray(parameters.mantissas)
    has_own_parameters = mantissas.ndim == 2
    expected_shape: tuple[int, ...] = (d,)
    if has_own_parameters:
        expected_shape = (clients, d)
    fits = clients * batch == len(records) and mantissas.shape == expected_shape
    if batch < 1 or not fits:
        raise ValueError("records or parameters do not fit")

    if has_own_parameters:
        of_each_record = np.repeat(mantissas, batch, axis=0)
        parameters = replace(parameters, mantissas=of_each_record)
    fine = min(range_, MAX_FINE)
    of_records = residuals(parameters, records, fine).reshape(clients, batch)
    features = records[:, :d].reshape(clients, batch, d)
    if chosen is not None:
        features = np.take_along_axis(features, chosen[:, None, :].astype(np.intp), axis=2)
    return _mean(_totals(features, of_records[:, :, None], fine), batch, range_)


def _totals(features: Fixed, factors: Whole, fine: int = 0) -> Numbers:
    """Add up the products of features and residuals over each client's batch (clients x values).

    features: clients x batch x values. factors: residuals, clients x batch x values, or x 1 for one
    residual of all features of a record. A product of two Q1.14 numbers has 28 fractional bits. It
    is rounded to 14 + `fine` of them, as on the device.
    """
    dropped_bits = 14 - fine
    half = 1 << (dropped_bits - 1)
    if factors.size and max(-factors.min(), factors.max()) <= _MOST_NARROW_RESIDUAL:
        factors = factors.astype(np.int32)  # in half the memory, and half the time
    products = features * factors
    products += half
    products >>= dropped_bits
    if products.shape[1] == 1:  # there is nothing to add up
        return np.asarray(products[:, 0])
    return np.asarray(products.sum(axis=1, dtype=np.int64))


def _mean(totals: Array, batch: int, range_: int) -> Fixed:
    """Divide the totals of a batch by its number of records, times 2**range_, and clip.

    totals: of `_totals`, which have up to MAX_FINE bits of the range already.
    """
    fine = min(range_, MAX_FINE)
    means = totals
    if range_ > fine:
        means = means.astype(np.int64) << (range_ - fine)
    if batch > 1:
        means = (means + batch // 2) // batch  # rounded to the nearest
    return np.asarray(np.clip(means, -ONE, ONE).astype(np.int16))


def softmax_gradients(
    parameters: npt.ArrayLike,
    exponent: int,
    records: Fixed,
    batch: int = 1,
    range_: int = 0,
    chosen: Array | None = None,
) -> Fixed:
    """Compute the clipped mean gradients of softmax regression, exactly as tern.softmax does.

    parameters: classes x d mantissas of 2**exponent. records: as of `gradients`, with the number of
    the class as label. range_, chosen: as of `gradients`; coordinate `c d + j` is feature j of
    class c. Returns clients x (classes d), class by class, or clients x k. Raises ValueError for
    arrays of other shapes.
    """
    if batch < 1 or len(records) % batch:
        raise ValueError("records do not fit")
    fine = min(range_, MAX_FINE)
    d = records.shape[1] - 1
    class_residuals = _class_residuals(parameters, exponent, records)
    classes = class_residuals.shape[1]
    class_residuals = class_residuals.reshape(-1, batch, classes)
    features = records[:, :d].reshape(-1, batch, d)
    if chosen is None:
        # The outer products of residuals and features, one class at a time, to need less memory.
        totals = []
        for residuals_of_class in np.split(class_residuals, classes, axis=2):
            totals.append(_totals(features, residuals_of_class, fine))
        return _mean(np.concatenate(totals, axis=1), batch, range_)

    # Only the chosen entries of those outer products.
    class_index, feature_index = np.divmod(chosen[:, None, :].astype(np.intp), d)
    chosen_features = np.take_along_axis(features, feature_index, axis=2)
    chosen_residuals = np.take_along_axis(class_residuals, class_index, axis=2)
    return _mean(_totals(chosen_features, chosen_residuals, fine), batch, range_)


def _class_residuals(parameters: npt.ArrayLike, exponent: int, records: Fixed) -> Whole:
    """Return the residuals of softmax regression: records x classes, in Q1.14.

    A residual is the probability that the model gives to the class, less 1 if it is the label.
    parameters: as of `scores`. records: the features and the number of the class.
    """
    predicted = probabilities(parameters, exponent, records[:, :-1]).astype(np.int64)
    is_label = records[:, -1:] == np.arange(predicted.shape[1])
    return np.asarray(predicted - ONE * is_label)


def train_locally(
    parameters: ModelParameters, records: Fixed, epochs: int, batch: int, rate: int
) -> Whole:
    """Train a model on each client's records by gradient descent, exactly as tern.local does.

    Returns how far each weight of each client has moved (clients x weights), in units of
    2**(exponent - 8), since a weight is kept with _FINE_BITS more bits than its mantissa.

    parameters: where training starts; d mantissas, or classes x d of softmax regression. records:
    clients x records of each x (d + 1). epochs: how often all records are gone through. batch: the
    number of records of a step; 0 for all of them. rate: the learning rate is 2**-rate. Raises
    ValueError where tern.local does.
    """
    clients, record_count, width = records.shape
    if not batch:
        batch = record_count
    _check_training(batch, record_count, epochs, rate, parameters.exponent)
    start = np.asarray(parameters.mantissas, np.int64)
    dimensions = 1
    if parameters.model == wire.SOFTMAX_GRADIENT:
        dimensions = 2
    if start.ndim != dimensions or start.shape[-1] != width - 1:
        raise ValueError("parameters do not fit")

    weights = np.repeat(start[None], clients, axis=0)  # mantissas of each client
    fine_weights = weights << _FINE_BITS
    for _ in range(epochs):
        for first in range(0, record_count, batch):
            records_of_step = records[:, first : first + batch]
            gradient = _local_gradients(replace(parameters, mantissas=weights), records_of_step)
            move = _step(gradient, parameters.exponent, rate)
            fine_weights = np.clip(fine_weights - move, -_MOST_FINE, _MOST_FINE)
            weights = (fine_weights + _HALF_MANTISSA) >> _FINE_BITS
    return (fine_weights - (start << _FINE_BITS)).reshape(clients, -1)


def _step(gradient: Whole, exponent: int, rate: int) -> Whole:
    """Return the gradient times the learning rate 2**-rate, in the units of a fine weight.

    A gradient has units of 2**-14, and a fine weight those of 2**(exponent - 8). The factor
    2**-rate * 2**-14 / 2**(exponent - 8) is a shift; to the right it rounds to the nearest.
    """
    left_shift = -6 - exponent - rate
    if left_shift >= 0:
        return gradient << left_shift
    half = 1 << (-left_shift - 1)
    return (gradient + half) >> -left_shift


def _check_training(batch: int, record_count: int, epochs: int, rate: int, exponent: int) -> None:
    """Raise ValueError for local training that a device refuses."""
    if not 1 <= batch <= wire.MAX_BATCH or record_count < 1:
        raise ValueError("records or batch out of bounds")
    if epochs < 1 or not 0 <= rate <= wire.MAX_RATE:
        raise ValueError("epochs or rate out of bounds")
    if not wire.MIN_LOCAL_EXPONENT <= exponent <= wire.MAX_EXPONENT:
        raise ValueError("exponent out of bounds")


def _local_gradients(parameters: ModelParameters, records: Fixed) -> Whole:
    """Compute the mean gradients of clients with weights of their own.

    parameters: clients x d mantissas, or clients x classes x d of softmax regression. records:
    clients x batch x (d + 1). Returns an array of the shape of the mantissas.
    """
    _, batch, width = records.shape
    if parameters.model != wire.SOFTMAX_GRADIENT:
        flat = records.reshape(-1, width)
        return gradients(parameters, flat, batch=batch).astype(np.int64)

    weights = np.asarray(parameters.mantissas)
    totals = np.zeros_like(weights)
    for i in range(batch):  # one record of each client at a time, to need less memory
        class_residuals = _class_residuals(weights, parameters.exponent, records[:, i])
        features = records[:, i, :-1].astype(np.int64)
        products = class_residuals[:, :, None] * features[:, None]  # clients x classes x d
        totals += (products + (1 << 13)) >> 14  # from 28 fractional bits to 14, rounded
    means = (totals + batch // 2) // batch  # rounded
    return np.asarray(np.clip(means, -ONE, ONE))


def shares(moved: Whole, tau: Array) -> Fixed:
    """Divide moves by each client's tau, in Q1.14, rounded and clipped, exactly as tern.local does.

    moved: n x weights, as of `train_locally`. tau: the largest move that each client reports (n),
    in the same units. Raises ValueError for a tau that no frame carries.
    """
    bound = np.asarray(tau, np.int64)[:, None]
    if (bound < 1).any() or (bound > wire.MAX_TAU).any():
        raise ValueError("tau does not fit")
    # |moved| ONE / tau, rounded to the nearest: adding half a divisor before dividing.
    quotients = (np.abs(moved) * (2 * ONE) + bound) // (2 * bound)
    sizes = np.minimum(ONE, quotients)
    return np.asarray(np.where(moved < 0, -sizes, sizes).astype(np.int16))


def bins(values: npt.ArrayLike, exponent: int) -> Fixed:
    """Return the bin of each value, exactly as tern.collect does.

    There are 2**exponent bins of equal width in [-1, 1], and values beyond are in the first or the
    last. values: Q1.14, of any shape. exponent: 1 .. wire.MAX_BIN_EXPONENT.
    """
    from_least = np.asarray(values, np.int32) + ONE
    return np.asarray((np.clip(from_least, 0, 2 * ONE - 1) >> 15 - exponent).astype(np.int16))


def hashes(devices: npt.ArrayLike, number: int) -> Whole:
    """Return the coefficients a and b of each device's hash function in a round (n x 2).

    A category c has the hash (a c + b) mod PRIME, as in tern.collect.hash_of. devices: the numbers
    of n devices. number: that of the round.
    """
    round_bytes = number.to_bytes(4, "little")
    digests = []
    for device in np.asarray(devices, np.int64).ravel().tolist():
        digest = sha256(device.to_bytes(4, "little") + round_bytes).digest()
        digests.append(digest[:8])  # four bytes for each coefficient
    coefficients = np.frombuffer(b"".join(digests), "<u4").reshape(-1, 2)
    return coefficients.astype(np.int64) % PRIME


def hashed(hashes: Whole, categories: npt.ArrayLike, buckets: int) -> Fixed:
    """Hash categories (n x m, or 1 x m) to buckets (n x m), as tern.collect does.

    hashes: of each device (n x 2), as the function of this name returns them.
    """
    c = np.clip(np.asarray(categories, np.int64), 0, PRIME - 1)
    a, b = hashes[:, :1], hashes[:, 1:]
    return ((a * c + b) % PRIME % buckets).astype(np.int16)


def scores(parameters: npt.ArrayLike, exponent: int, features: Array) -> Whole:
    """Compute the scores of records by class (n x classes, Q1.14), exactly as tern.model does.

    The score of a class is the product of its weights and the features. features: n x d.
    parameters: classes x d mantissas of 2**exponent, or n x classes x d for weights of each
    record's own. Raises ValueError for arrays of other shapes, or for an exponent out of bounds.
    """
    weights = np.asarray(parameters, np.float64)
    shape = weights.shape[-2:]
    if weights.ndim not in (2, 3) or not 1 <= min(shape) <= max(shape) <= wire.MAX_DIMENSION:
        raise ValueError("classes or features out of bounds")
    if shape[1] != features.shape[1] or not wire.MIN_EXPONENT <= exponent <= wire.MAX_EXPONENT:
        raise ValueError("parameters or exponent do not fit")
    # The sum of products is an exact integer in float64.
    if weights.ndim == 2:
        total = (features @ weights.T).astype(np.int64)
    else:
        total = np.einsum("nd,ncd->nc", features.astype(np.float64), weights).astype(np.int64)
    return _rounded_score(total, exponent)


def sigmoids(z: Whole) -> Whole:
    """Compute the probability of a positive label (Q1.14) from scores z, exactly as tern.model."""
    tail = _sigmoid_tails().take(np.abs(z), mode="clip")
    return np.where(z >= 0, ONE - tail, tail)


def probabilities(
    parameters: npt.ArrayLike, exponent: int, features: Array, grid_bits: int = 14
) -> Array:
    """Compute class probabilities (n x classes, Q1.14), exactly as tern.inference does.

    grid_bits: how many fractional bits a probability has; lower bits are 0. Other parameters and
    errors: as of `scores`.
    """
    return class_probabilities(scores(parameters, exponent, features), grid_bits)


def class_probabilities(z: Whole, grid_bits: int = 14) -> Array:
    """Compute what `probabilities` returns from scores z (n x classes).

    It is the softmax, exp(z_c) / sum_i exp(z_i). The largest score is subtracted from all of them
    first, so that no exponential is above 1. Raises ValueError for fewer than two classes.
    """
    if z.shape[1] < 2:
        raise ValueError("classes or features out of bounds")
    below_largest = z.max(axis=1, keepdims=True) - z
    exponentials = _exponentials().take(below_largest, mode="clip")
    quotients = (exponentials << 14) // exponentials.sum(axis=1, keepdims=True)
    grid_mask = -(1 << (14 - grid_bits))  # ones, except for the bits below the grid
    return np.asarray((quotients & grid_mask).astype(np.int16))


def labels(parameters: npt.ArrayLike, exponent: int, features: Array) -> Fixed:
    """Return the most probable class of each row of features, as tern.inference does.

    If several are equally probable, it is the first of them.
    """
    return np.asarray(probabilities(parameters, exponent, features).argmax(1).astype(np.int16))


@lru_cache(maxsize=1)
def _exponentials() -> Whole:
    """exp_minus(t) for every t up to where it is 0: a table of the firmware's own function."""
    return np.array([exp_minus(t) for t in range(12 * ONE + 1)], np.int64)
