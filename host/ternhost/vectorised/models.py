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
_MOST_FINE = 32767 * 256


@lru_cache(maxsize=1)
def _sigmoid_tails() -> Whole:
    """sigmoid_tail(t) for every t up to where it is 0: a table of the firmware's own function."""
    return np.array([sigmoid_tail(t) for t in range(10 * ONE + 1)], np.int64)


def residuals(model: int, parameters: Array, exponent: int, records: Fixed, fine: int = 0) -> Whole:
    """The residual r of each record in 2**-14 units, exactly tern.gradient's.

    records: d features and a label a row. parameters: d mantissas, or as many rows of d as there
    are records. Raises ValueError.
    """
    if not wire.LINEAR <= model <= wire.SVM:
        raise ValueError("unknown model")
    if not wire.MIN_EXPONENT <= exponent <= wire.MAX_EXPONENT:
        raise ValueError("parameters do not fit: exponent not in -30..-12")
    features = records[:, :-1]
    # |m x| <= 2**30 and d <= 128: the float64 sum of products is an exact integer
    mantissas = np.asarray(parameters, np.float64)
    if mantissas.ndim == 1:
        total = (features @ mantissas).astype(np.int64)
    else:
        total = np.einsum("ij,ij->i", features.astype(np.float64), mantissas).astype(np.int64)
    label = records[:, -1].astype(np.int64)
    is_positive = label > 0
    shift = -exponent
    if model == wire.SVM:
        one = ONE << shift
        of_positive = np.where(total < one, -ONE, 0)
        of_negative = np.where(total > -one, ONE, 0)
        return np.where(is_positive, of_positive, of_negative)
    z = ((total >> 8) + (1 << (shift - 9))) >> (shift - 8)
    if model == wire.LINEAR:
        most = (_MAX_RESIDUAL >> fine) * ONE
        return np.asarray(np.clip(z - label, -most, most))
    assert model == wire.LOGISTIC
    return sigmoids(z) - ONE * is_positive


def gradients(
    model: int,
    parameters: Array,
    exponent: int,
    records: Fixed,
    chosen: Array | None = None,
    batch: int = 1,
    range_: int = 0,
) -> Fixed:
    """Clients' clipped mean gradients times 2**range_, exactly tern.gradient's.

    They are clients x d, or only the `chosen` k. A client has `batch` rows of `records`;
    `parameters` are d mantissas, or a row of them a client. Raises ValueError.
    """
    n = len(records) // batch
    d = records.shape[1] - 1
    are_individual = np.ndim(parameters) == 2
    shape = (n, d) if are_individual else (d,)
    fits = n * batch == len(records) and np.shape(parameters) == shape
    if not 1 <= batch <= wire.MAX_BATCH or not fits:
        raise ValueError("records or parameters do not fit")
    if are_individual:
        parameters = np.repeat(parameters, batch, axis=0)
    r = residuals(model, parameters, exponent, records, min(range_, MAX_FINE)).reshape(n, batch)
    features = records[:, :d].reshape(n, batch, d)
    if chosen is not None:
        features = np.take_along_axis(features, chosen[:, None, :].astype(np.intp), axis=2)
    return _mean(features * r[:, :, None], batch, range_)


def _mean(products: Whole, batch: int, range_: int) -> Fixed:
    """The means of products (clients x batch x values), times 2**range_.

    Each product is rounded, then the mean once more.
    """
    fine = min(range_, MAX_FINE)
    totals = ((products + (1 << (13 - fine))) >> (14 - fine)).sum(axis=1) << (range_ - fine)
    return np.asarray(np.clip((totals + batch // 2) // batch, -ONE, ONE).astype(np.int16))


def softmax_gradients(
    parameters: npt.ArrayLike,
    exponent: int,
    records: Fixed,
    batch: int = 1,
    range_: int = 0,
    chosen: Array | None = None,
) -> Fixed:
    """Clients' clipped mean gradients of softmax regression, exactly tern.softmax's.

    They are clients x (c d), or the `chosen` k. parameters: c x d mantissas. records: as of
    `gradients`, the label a class. Raises ValueError.
    """
    if not 1 <= batch <= wire.MAX_BATCH or len(records) % batch:
        raise ValueError("records do not fit")
    p = probabilities(parameters, exponent, records[:, :-1]).astype(np.int64)
    classes, d = p.shape[1], records.shape[1] - 1
    r = p - ONE * (records[:, -1:] == np.arange(classes))
    if chosen is None:
        products = r[:, :, None] * records[:, None, :-1].astype(np.int64)
        return _mean(products.reshape(-1, batch, classes * d), batch, range_)
    coordinates = np.repeat(chosen.astype(np.intp), batch, axis=0)
    class_index, feature_index = np.divmod(coordinates, d)
    features = np.take_along_axis(records, feature_index, axis=1).astype(np.int64)
    products = np.take_along_axis(r, class_index, axis=1) * features
    return _mean(products.reshape(-1, batch, chosen.shape[1]), batch, range_)


def train_locally(
    model: int, parameters: Array, exponent: int, records: Fixed, epochs: int, batch: int, rate: int
) -> Whole:
    """How far weights move, exactly tern.local's.

    The result is clients x weights, in units of 2**(exponent - 8). model: of the gradients.
    parameters: d mantissas, or c x d of softmax regression. records: n clients x their records x
    (d + 1). batch: 0 for all records at once. Raises ValueError where tern.local does.
    """
    n, count, width = records.shape
    size = batch or count
    if not 1 <= size <= wire.MAX_BATCH or count < 1:
        raise ValueError("records or batch out of bounds")
    if epochs < 1 or not 0 <= rate <= wire.MAX_RATE:
        raise ValueError("epochs or rate out of bounds")
    if not wire.MIN_LOCAL_EXPONENT <= exponent <= wire.MAX_EXPONENT:
        raise ValueError("exponent out of bounds")
    start = np.asarray(parameters, np.int64)
    has_classes = model == wire.SOFTMAX_GRADIENT
    if start.ndim != 1 + has_classes or start.shape[-1] != width - 1:
        raise ValueError("parameters do not fit")
    weights = np.repeat(start[None], n, axis=0)
    fine = weights * 256
    shift = -6 - exponent - rate
    for _ in range(epochs):
        for first in range(0, count, size):
            rows = records[:, first : first + size]
            if has_classes:
                g = _gradients_of_classes(weights, exponent, rows)
            else:
                flat = rows.reshape(-1, width)
                g = gradients(model, weights, exponent, flat, batch=rows.shape[1]).astype(np.int64)
            if shift >= 0:
                move = g << shift
            else:
                move = (g + (1 << (-shift - 1))) >> -shift
            fine = np.clip(fine - move, -_MOST_FINE, _MOST_FINE)
            weights = (fine + 128) >> 8
    return (fine - start * 256).reshape(n, -1)


def _gradients_of_classes(parameters: Whole, exponent: int, records: Fixed) -> Whole:
    """Mean gradients of softmax regression, for clients with weights of their own: clients x c x d.

    records: clients x batch x (d + 1).
    """
    totals = np.zeros_like(parameters)
    batch = records.shape[1]
    for i in range(batch):  # one after the other, for the memory
        features, label = records[:, i, :-1], records[:, i, -1:]
        p = probabilities(parameters, exponent, features).astype(np.int64)
        r = p - ONE * (label == np.arange(p.shape[1]))
        totals += (r[:, :, None] * features[:, None].astype(np.int64) + (1 << 13)) >> 14
    return np.asarray(np.clip((totals + batch // 2) // batch, -ONE, ONE))


def shares(moved: Whole, tau: Array) -> Fixed:
    """Moves as shares of each client's tau, Q1.14, rounded and clipped: exactly tern.local's.

    tau: n, in the units of `train_locally`. Raises ValueError.
    """
    bound = np.asarray(tau, np.int64)[:, None]
    if (bound < 1).any() or (bound > wire.MAX_TAU).any():
        raise ValueError("tau does not fit")
    size = np.minimum(ONE, (np.abs(moved) * (2 * ONE) + bound) // (2 * bound))
    return np.asarray(np.where(moved < 0, -size, size).astype(np.int16))


def hashes(devices: npt.ArrayLike, number: int) -> Whole:
    """a and b (n x 2) of the hashes that these devices use in a round: tern.collect.hash_of."""
    round_bytes = number.to_bytes(4, "little")
    digests = []
    for device in np.asarray(devices, np.int64).ravel().tolist():
        digest = sha256(device.to_bytes(4, "little") + round_bytes).digest()
        digests.append(digest[:8])
    return np.frombuffer(b"".join(digests), "<u4").reshape(-1, 2).astype(np.int64) % PRIME


def hashed(hashes: Whole, categories: npt.ArrayLike, buckets: int) -> Fixed:
    """The buckets of categories (n x m, or 1 x m) by `hashes` (n x 2): those of tern.collect."""
    known = np.clip(np.asarray(categories, np.int64), 0, PRIME - 1)
    return ((hashes[:, :1] * known + hashes[:, 1:]) % PRIME % buckets).astype(np.int16)


def scores(parameters: npt.ArrayLike, exponent: int, features: Array) -> Whole:
    """w.x (n x c, in 2**-14 units), exactly tern.model's.

    features: n x d. parameters: c x d mantissas, or n x c x d. Raises ValueError.
    """
    weights = np.asarray(parameters, np.float64)
    shape = weights.shape[-2:]
    if weights.ndim not in (2, 3) or not 1 <= min(shape) <= max(shape) <= wire.MAX_DIMENSION:
        raise ValueError("classes or features out of bounds")
    if shape[1] != features.shape[1] or not wire.MIN_EXPONENT <= exponent <= wire.MAX_EXPONENT:
        raise ValueError("parameters or exponent do not fit")
    shift = -8 - exponent
    # an exact integer in float64
    if weights.ndim == 2:
        total = (features @ weights.T).astype(np.int64)
    else:
        total = np.einsum("nd,ncd->nc", features.astype(np.float64), weights).astype(np.int64)
    return ((total >> 8) + (1 << (shift - 1))) >> shift


def sigmoids(z: Whole) -> Whole:
    """The probability of label +1 (Q1.14) by its scores, exactly that of tern.model."""
    tail = _sigmoid_tails().take(np.abs(z), mode="clip")
    return np.where(z >= 0, ONE - tail, tail)


def probabilities(
    parameters: npt.ArrayLike, exponent: int, features: Array, grid_bits: int = 14
) -> Array:
    """Class probabilities (n x c, Q1.14), exactly those of tern.inference.

    parameters: as of scores(), which raises.
    """
    return class_probabilities(scores(parameters, exponent, features), grid_bits)


def class_probabilities(z: Whole, grid_bits: int = 14) -> Array:
    """The same, by the scores (n x c). Raises ValueError for fewer than two classes."""
    if z.shape[1] < 2:
        raise ValueError("classes or features out of bounds")
    e = _exponentials().take(z.max(axis=1, keepdims=True) - z, mode="clip")
    p = (e << 14) // e.sum(axis=1, keepdims=True)
    return np.asarray((p & -(1 << (14 - grid_bits))).astype(np.int16))


def labels(parameters: npt.ArrayLike, exponent: int, features: Array) -> Fixed:
    """The class of the largest probability of each row of features, as tern.inference.

    Of equal ones it is the first.
    """
    return np.asarray(probabilities(parameters, exponent, features).argmax(1).astype(np.int16))


@lru_cache(maxsize=1)
def _exponentials() -> Whole:
    """exp_minus(t) for every t up to where it is 0: a table of the firmware's own function."""
    return np.array([exp_minus(t) for t in range(12 * ONE + 1)], np.int64)
