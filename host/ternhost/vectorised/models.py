"""Computations of devices on their records, for many clients at once.

They are gradients, local training and probabilities.
"""

from functools import lru_cache
from hashlib import sha256

import numpy as np
import numpy.typing as npt

from tern import wire
from tern.collect import PRIME
from tern.fixed import ONE
from tern.gradient import MAX_FINE, sigmoid_tail
from tern.inference import exp_minus
from ternhost.vectorised.lanes import Array

Fixed = npt.NDArray[np.int16]
Whole = npt.NDArray[np.int64]

_MAX_RESIDUAL = 2047
_FINE_BITS = 8  # of a weight in local training, below its mantissa
_HALF_MANTISSA = 1 << _FINE_BITS - 1
_MOST_FINE = 32767 << _FINE_BITS


@lru_cache(maxsize=1)
def _sigmoid_tails() -> Whole:
    """sigmoid_tail(t) for every t up to where it is 0: a table of the firmware's own function."""
    return np.array([sigmoid_tail(t) for t in range(10 * ONE + 1)], np.int64)


def residuals(model: int, parameters: Array, exponent: int, records: Fixed, fine: int = 0) -> Whole:
    """Compute the residual of each record (n, in Q1.14), exactly as tern.gradient does.

    model: LINEAR, LOGISTIC or SVM. records: a row of d features and a label each. parameters: d
    mantissas of 2**exponent, or a row of them for each record. fine: the bits of range that the
    gradient will be multiplied by; a linear residual is clipped so that this fits. Raises
    ValueError for an unknown model or exponent.
    """
    if not wire.LINEAR <= model <= wire.SVM:
        raise ValueError("unknown model")
    if not wire.MIN_EXPONENT <= exponent <= wire.MAX_EXPONENT:
        raise ValueError("parameters do not fit: exponent not in -30..-12")
    features = records[:, :-1]
    # A product is at most 2**30, and there are at most 128 of them: their sum in float64 is an
    # exact integer.
    mantissas = np.asarray(parameters, np.float64)
    if mantissas.ndim == 1:
        total = (features @ mantissas).astype(np.int64)
    else:
        total = np.einsum("ij,ij->i", features.astype(np.float64), mantissas).astype(np.int64)
    label = records[:, -1].astype(np.int64)
    is_positive = label > 0
    shift = -exponent
    if model == wire.SVM:  # the hinge's slope, which is 0 beyond the margin
        margin = ONE << shift
        of_positive = np.where(total < margin, -ONE, 0)
        of_negative = np.where(total > -margin, ONE, 0)
        return np.where(is_positive, of_positive, of_negative)
    # The score in Q1.14, rounded as on the device, in two steps.
    score = ((total >> 8) + (1 << (shift - 9))) >> (shift - 8)
    if model == wire.LINEAR:
        most = (_MAX_RESIDUAL >> fine) * ONE
        return np.asarray(np.clip(score - label, -most, most))
    assert model == wire.LOGISTIC
    return sigmoids(score) - ONE * is_positive


def gradients(
    model: int,
    parameters: Array,
    exponent: int,
    records: Fixed,
    chosen: Array | None = None,
    batch: int = 1,
    range_: int = 0,
) -> Fixed:
    """Compute clients' clipped mean gradients, times 2**range_, exactly as tern.gradient does.

    model: LINEAR, LOGISTIC or SVM. parameters: d mantissas of 2**exponent, or a row of them for
    each client. records: `batch` rows for each client, as of `residuals`. chosen: the k coordinates
    of each client (clients x k). Returns clients x d, or clients x k. Raises ValueError for arrays
    of other shapes.
    """
    clients = len(records) // batch
    d = records.shape[1] - 1
    has_own_parameters = np.ndim(parameters) == 2
    expected_shape: tuple[int, ...] = (d,)
    if has_own_parameters:
        expected_shape = (clients, d)
    fits = clients * batch == len(records) and np.shape(parameters) == expected_shape
    if not 1 <= batch <= wire.MAX_BATCH or not fits:
        raise ValueError("records or parameters do not fit")
    if has_own_parameters:
        parameters = np.repeat(parameters, batch, axis=0)  # a row for each record
    fine = min(range_, MAX_FINE)
    of_records = residuals(model, parameters, exponent, records, fine).reshape(clients, batch)
    features = records[:, :d].reshape(clients, batch, d)
    if chosen is not None:
        features = np.take_along_axis(features, chosen[:, None, :].astype(np.intp), axis=2)
    products = features * of_records[:, :, None]  # clients x batch x values
    return _mean(products, batch, range_)


def _mean(products: Whole, batch: int, range_: int) -> Fixed:
    """Average products (clients x batch x values) over the batch, times 2**range_, and clip.

    A product of two Q1.14 numbers is rounded to Q1.14, then the mean once more, as on the device.
    """
    fine = min(range_, MAX_FINE)
    rounded = (products + (1 << (13 - fine))) >> (14 - fine)
    totals = rounded.sum(axis=1) << (range_ - fine)
    means = (totals + batch // 2) // batch
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
    the class as label. range_, chosen: as of `gradients`. Returns clients x (classes d), class by
    class, or clients x k. Raises ValueError for arrays of other shapes.
    """
    if not 1 <= batch <= wire.MAX_BATCH or len(records) % batch:
        raise ValueError("records do not fit")
    class_residuals = _class_residuals(parameters, exponent, records)
    classes, d = class_residuals.shape[1], records.shape[1] - 1
    if chosen is None:
        # The outer product of each record's residuals and features: records x classes x d.
        products = class_residuals[:, :, None] * records[:, None, :-1].astype(np.int64)
        return _mean(products.reshape(-1, batch, classes * d), batch, range_)
    coordinates = np.repeat(chosen.astype(np.intp), batch, axis=0)  # a row for each record
    class_index, feature_index = np.divmod(coordinates, d)
    features = np.take_along_axis(records, feature_index, axis=1).astype(np.int64)
    products = np.take_along_axis(class_residuals, class_index, axis=1) * features
    return _mean(products.reshape(-1, batch, chosen.shape[1]), batch, range_)


def _class_residuals(parameters: npt.ArrayLike, exponent: int, records: Fixed) -> Whole:
    """Return how much each probability exceeds that of a certain label (records x classes, Q1.14).

    parameters: as of `scores`. records: the features and the number of the class.
    """
    predicted = probabilities(parameters, exponent, records[:, :-1]).astype(np.int64)
    is_label = records[:, -1:] == np.arange(predicted.shape[1])
    return np.asarray(predicted - ONE * is_label)


def train_locally(
    model: int, parameters: Array, exponent: int, records: Fixed, epochs: int, batch: int, rate: int
) -> Whole:
    """Train a model on each client's records, exactly as tern.local does; return the moves.

    A move (clients x weights) is how far a weight has moved, in units of 2**(exponent - 8): a
    weight is kept with _FINE_BITS more bits than its mantissa. model: of the gradients. parameters:
    d mantissas, or classes x d of softmax regression. records: clients x records of each x (d + 1).
    batch: records of a step; 0: all of them. rate: the learning rate is 2**-rate. Raises ValueError
    where tern.local does.
    """
    clients, record_count, width = records.shape
    batch = batch or record_count
    _check_training(batch, record_count, epochs, rate, exponent)
    start = np.asarray(parameters, np.int64)
    dimensions = 1
    if model == wire.SOFTMAX_GRADIENT:
        dimensions = 2
    if start.ndim != dimensions or start.shape[-1] != width - 1:
        raise ValueError("parameters do not fit")

    weights = np.repeat(start[None], clients, axis=0)  # mantissas of each client
    fine_weights = weights << _FINE_BITS
    # A gradient has units of 2**-14, and a fine weight those of 2**(exponent - 8).
    shift = -6 - exponent - rate
    for _ in range(epochs):
        for first in range(0, record_count, batch):
            gradient = _local_gradients(model, weights, exponent, records[:, first : first + batch])
            if shift >= 0:
                move = gradient << shift
            else:
                move = (gradient + (1 << (-shift - 1))) >> -shift
            fine_weights = np.clip(fine_weights - move, -_MOST_FINE, _MOST_FINE)
            weights = (fine_weights + _HALF_MANTISSA) >> _FINE_BITS
    return (fine_weights - (start << _FINE_BITS)).reshape(clients, -1)


def _check_training(batch: int, record_count: int, epochs: int, rate: int, exponent: int) -> None:
    """Raise ValueError for local training that a device refuses."""
    if not 1 <= batch <= wire.MAX_BATCH or record_count < 1:
        raise ValueError("records or batch out of bounds")
    if epochs < 1 or not 0 <= rate <= wire.MAX_RATE:
        raise ValueError("epochs or rate out of bounds")
    if not wire.MIN_LOCAL_EXPONENT <= exponent <= wire.MAX_EXPONENT:
        raise ValueError("exponent out of bounds")


def _local_gradients(model: int, weights: Whole, exponent: int, records: Fixed) -> Whole:
    """Compute the mean gradients of clients with weights of their own.

    weights: mantissas, clients x d, or clients x classes x d of softmax regression. records:
    clients x batch x (d + 1). Returns an array of the shape of the weights.
    """
    _, batch, width = records.shape
    if model != wire.SOFTMAX_GRADIENT:
        flat = records.reshape(-1, width)
        return gradients(model, weights, exponent, flat, batch=batch).astype(np.int64)

    totals = np.zeros_like(weights)
    for i in range(batch):  # one after the other, for the memory
        class_residuals = _class_residuals(weights, exponent, records[:, i])
        features = records[:, i, :-1].astype(np.int64)
        products = class_residuals[:, :, None] * features[:, None]
        totals += (products + (1 << 13)) >> 14
    return np.asarray(np.clip((totals + batch // 2) // batch, -ONE, ONE))


def shares(moved: Whole, tau: Array) -> Fixed:
    """Divide moves by each client's tau, in Q1.14, rounded and clipped, exactly as tern.local does.

    moved: n x weights, as of `train_locally`. tau: n, in the same units. Raises ValueError for a
    tau that no frame carries.
    """
    bound = np.asarray(tau, np.int64)[:, None]
    if (bound < 1).any() or (bound > wire.MAX_TAU).any():
        raise ValueError("tau does not fit")
    quotients = (np.abs(moved) * (2 * ONE) + bound) // (2 * bound)  # rounded
    sizes = np.minimum(ONE, quotients)
    return np.asarray(np.where(moved < 0, -sizes, sizes).astype(np.int16))


def hashes(devices: npt.ArrayLike, number: int) -> Whole:
    """Return the hash function of each device in a round: a and b (n x 2) of tern.collect.hash_of.

    A category c has the hash (a c + b) mod PRIME. number: of the round.
    """
    round_bytes = number.to_bytes(4, "little")
    digests = []
    for device in np.asarray(devices, np.int64).ravel().tolist():
        digest = sha256(device.to_bytes(4, "little") + round_bytes).digest()
        digests.append(digest[:8])
    return np.frombuffer(b"".join(digests), "<u4").reshape(-1, 2).astype(np.int64) % PRIME


def hashed(hashes: Whole, categories: npt.ArrayLike, buckets: int) -> Fixed:
    """Hash categories (n x m, or 1 x m) to buckets (n x m), as tern.collect does.

    hashes: of each device (n x 2), as the function of this name returns them.
    """
    known = np.clip(np.asarray(categories, np.int64), 0, PRIME - 1)
    return ((hashes[:, :1] * known + hashes[:, 1:]) % PRIME % buckets).astype(np.int16)


def scores(parameters: npt.ArrayLike, exponent: int, features: Array) -> Whole:
    """Compute the scores of records by class (n x classes, Q1.14), exactly as tern.model does.

    features: n x d. parameters: classes x d mantissas of 2**exponent, or n x classes x d. Raises
    ValueError for arrays of other shapes, or for an exponent out of bounds.
    """
    weights = np.asarray(parameters, np.float64)
    shape = weights.shape[-2:]
    if weights.ndim not in (2, 3) or not 1 <= min(shape) <= max(shape) <= wire.MAX_DIMENSION:
        raise ValueError("classes or features out of bounds")
    if shape[1] != features.shape[1] or not wire.MIN_EXPONENT <= exponent <= wire.MAX_EXPONENT:
        raise ValueError("parameters or exponent do not fit")
    shift = -8 - exponent
    # The sum of products is an exact integer in float64.
    if weights.ndim == 2:
        total = (features @ weights.T).astype(np.int64)
    else:
        total = np.einsum("nd,ncd->nc", features.astype(np.float64), weights).astype(np.int64)
    return ((total >> 8) + (1 << (shift - 1))) >> shift


def sigmoids(z: Whole) -> Whole:
    """Compute the probability of a positive label (Q1.14) from scores z, exactly as tern.model."""
    tail = _sigmoid_tails().take(np.abs(z), mode="clip")
    return np.where(z >= 0, ONE - tail, tail)


def probabilities(
    parameters: npt.ArrayLike, exponent: int, features: Array, grid_bits: int = 14
) -> Array:
    """Compute class probabilities (n x classes, Q1.14), exactly as tern.inference does.

    grid_bits: of a probability; lower bits are 0. Other parameters and errors: as of `scores`.
    """
    return class_probabilities(scores(parameters, exponent, features), grid_bits)


def class_probabilities(z: Whole, grid_bits: int = 14) -> Array:
    """Compute what `probabilities` returns from scores z (n x classes).

    Raises ValueError for fewer than two classes.
    """
    if z.shape[1] < 2:
        raise ValueError("classes or features out of bounds")
    below_largest = z.max(axis=1, keepdims=True) - z
    exponentials = _exponentials().take(below_largest, mode="clip")
    quotients = (exponentials << 14) // exponentials.sum(axis=1, keepdims=True)
    grid_mask = -(1 << (14 - grid_bits))
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
