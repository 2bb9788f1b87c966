"""Computations of devices on their records, for many clients at once: gradients, local training,
probabilities.
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
    # sigmoid_tail(t) for every t up to where it is 0: the firmware's own function, tabulated once
    return np.array([sigmoid_tail(t) for t in range(10 * ONE + 1)], np.int64)


def residuals(model: int, parameters: Array, exponent: int, records: Fixed, fine: int = 0) -> Whole:
    """The residual r of each record (d features and a label a row), exactly tern.gradient's, in
    2**-14 units. parameters: d mantissas, or as many rows of d as there are records.
    """
    if (
        not wire.LINEAR <= model <= wire.SVM
        or not wire.MIN_EXPONENT <= exponent <= wire.MAX_EXPONENT
    ):
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
    if model == wire.SVM:
        one = ONE << shift
        return np.where(positive, np.where(total < one, -ONE, 0), np.where(total > -one, ONE, 0))
    z = ((total >> 8) + (1 << (shift - 9))) >> (shift - 8)
    if model == wire.LINEAR:
        most = (_MAX_RESIDUAL >> fine) * ONE
        return np.asarray(np.clip(z - label, -most, most))
    assert model == wire.LOGISTIC
    return sigmoids(z) - ONE * positive


def gradients(
    model: int,
    parameters: Array,
    exponent: int,
    records: Fixed,
    chosen: Array | None = None,
    batch: int = 1,
    range_: int = 0,
) -> Fixed:
    """Clients' clipped mean gradients times 2**range_, exactly tern.gradient's: clients x d, or
    only the `chosen` k. A client has `batch` rows of `records`; `parameters` are d mantissas, or a
    row of them a client. Raises ValueError.
    """
    n = len(records) // batch
    d = records.shape[1] - 1
    individual = np.ndim(parameters) == 2
    fits = n * batch == len(records) and np.shape(parameters) == ((n, d) if individual else (d,))
    if not 1 <= batch <= wire.MAX_BATCH or not fits:
        raise ValueError("records or parameters do not fit")
    if individual:
        parameters = np.repeat(parameters, batch, axis=0)
    r = residuals(model, parameters, exponent, records, min(range_, MAX_FINE)).reshape(n, batch)
    features = records[:, :d].reshape(n, batch, d)
    if chosen is not None:
        features = np.take_along_axis(features, chosen[:, None, :].astype(np.intp), axis=2)
    return _mean(features * r[:, :, None], batch, range_)


def _mean(products: Whole, batch: int, range_: int) -> Fixed:
    # clients x batch x values: each product is rounded, then the mean once more
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
    """Clients' clipped mean gradients of softmax regression, exactly tern.softmax's: clients x (c
    d), or the `chosen` k. parameters: c x d mantissas; `records` as of `gradients`, the label a
    class. Raises ValueError.
    """
    if not 1 <= batch <= wire.MAX_BATCH or len(records) % batch:
        raise ValueError("records do not fit")
    p = probabilities(parameters, exponent, records[:, :-1]).astype(np.int64)
    r = p - ONE * (records[:, -1:] == np.arange(p.shape[1]))
    d = records.shape[1] - 1
    if chosen is None:
        products = r[:, :, None] * records[:, None, :-1].astype(np.int64)
        return _mean(products.reshape(-1, batch, p.shape[1] * d), batch, range_)
    of_class, feature = np.divmod(np.repeat(chosen.astype(np.intp), batch, axis=0), d)
    features = np.take_along_axis(records, feature, axis=1).astype(np.int64)
    products = np.take_along_axis(r, of_class, axis=1) * features
    return _mean(products.reshape(-1, batch, chosen.shape[1]), batch, range_)


def train_locally(
    model: int, parameters: Array, exponent: int, records: Fixed, epochs: int, batch: int, rate: int
) -> Whole:
    """How far weights move (clients x weights, in units of 2**(exponent - 8)), exactly
    tern.local's. model: of the gradients. parameters: d mantissas, or c x d of softmax regression.
    records: n clients x their records x (d + 1). Raises ValueError where tern.local does.
    """
    n, count, width = records.shape
    size = batch or count
    if not 1 <= size <= wire.MAX_BATCH or count < 1 or epochs < 1 or not 0 <= rate <= wire.MAX_RATE:
        raise ValueError("records, epochs, batch or rate out of bounds")
    start = np.asarray(parameters, np.int64)
    several = model == wire.SOFTMAX_GRADIENT
    fits = start.ndim == 1 + several and start.shape[-1] == width - 1
    if not wire.MIN_LOCAL_EXPONENT <= exponent <= wire.MAX_EXPONENT or not fits:
        raise ValueError("parameters or exponent do not fit")
    weights = np.repeat(start[None], n, axis=0)
    fine = weights * 256
    shift = -6 - exponent - rate
    for _ in range(epochs):
        for first in range(0, count, size):
            rows = records[:, first : first + size]
            if several:
                g = _gradients_of_classes(weights, exponent, rows)
            else:
                flat = rows.reshape(-1, width)
                g = gradients(model, weights, exponent, flat, batch=rows.shape[1]).astype(np.int64)
            move = g << shift if shift >= 0 else (g + (1 << (-shift - 1))) >> -shift
            fine = np.clip(fine - move, -_MOST_FINE, _MOST_FINE)
            weights = (fine + 128) >> 8
    return (fine - start * 256).reshape(n, -1)


def _gradients_of_classes(parameters: Whole, exponent: int, records: Fixed) -> Whole:
    # Of softmax regression, for clients with weights of their own: clients x c x d. records:
    # clients x batch x (d + 1).
    totals = np.zeros_like(parameters)
    batch = records.shape[1]
    for i in range(batch):  # one after the other, for the memory
        features, label = records[:, i, :-1], records[:, i, -1:]
        p = probabilities(parameters, exponent, features).astype(np.int64)
        r = p - ONE * (label == np.arange(p.shape[1]))
        totals += (r[:, :, None] * features[:, None].astype(np.int64) + (1 << 13)) >> 14
    return np.asarray(np.clip((totals + batch // 2) // batch, -ONE, ONE))


def shares(moved: Whole, tau: Array) -> Fixed:
    """Moves as shares of each client's tau (fine units, n), Q1.14, rounded and clipped: exactly
    tern.local.
    """
    if (np.asarray(tau) < 1).any() or (np.asarray(tau) > wire.MAX_TAU).any():
        raise ValueError("tau does not fit")
    wide = np.asarray(tau, np.int64)[:, None]
    size = np.minimum(ONE, (np.abs(moved) * (2 * ONE) + wide) // (2 * wide))
    return np.asarray(np.where(moved < 0, -size, size).astype(np.int16))


def hashes(devices: npt.ArrayLike, number: int) -> Whole:
    """a and b (n x 2) of the hashes that these devices use in a round: exactly
    tern.collect.hash_of.
    """
    tail = number.to_bytes(4, "little")
    ids = np.asarray(devices, "<u4").tobytes()
    digests = [sha256(ids[at : at + 4] + tail).digest()[:8] for at in range(0, len(ids), 4)]
    return np.frombuffer(b"".join(digests), "<u4").reshape(-1, 2).astype(np.int64) % PRIME


def hashed(hashes: Whole, categories: npt.ArrayLike, buckets: int) -> Fixed:
    """The buckets of categories (n x m, or 1 x m) by `hashes` (n x 2): exactly those of
    tern.collect.
    """
    known = np.clip(np.asarray(categories, np.int64), 0, PRIME - 1)
    return ((hashes[:, :1] * known + hashes[:, 1:]) % PRIME % buckets).astype(np.int16)


def scores(parameters: npt.ArrayLike, exponent: int, features: Array) -> Whole:
    """w.x (n x c, in 2**-14 units) of features (n x d) and c x d mantissas, or as many of a row,
    exactly tern.model's. Raises ValueError.
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
    """Class probabilities (n x c, Q1.14), exactly those of tern.inference. parameters: as of
    scores(), which raises.
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
    """The class of the largest probability of each row of features, the first of equal ones, as
    tern.inference.
    """
    return np.asarray(probabilities(parameters, exponent, features).argmax(1).astype(np.int16))


@lru_cache(maxsize=1)
def _exponentials() -> Whole:
    # the firmware's own function, tabulated once
    return np.array([exp_minus(t) for t in range(12 * ONE + 1)], np.int64)
