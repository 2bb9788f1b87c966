"""The computations of a device, from shared_specs/arithmetic.md alone, in integers of any size."""

import hashlib
import math
import struct

ONE = 2**14
LINEAR, LOGISTIC, SVM, INFERENCE, LOCAL, VALUES, CATEGORIES, SOFTMAX, LOCAL_SOFTMAX = (
    1,
    2,
    3,
    4,
    4,
    8,
    9,
    10,
    11,
)

A = [round(2**14 / (1 + math.exp(i / 8))) for i in range(81)]
W = [round(2**15 * math.exp(-a)) for a in range(12)]
B = [round(2**14 * math.exp(-b / 64)) for b in range(65)]


def clamp(a, b):
    return max(-b, min(b, a))


def product(m, x):
    return sum(a * b for a, b in zip(m, x, strict=True))


def prediction(m, e, x):
    return (product(m, x) + 2 ** (-e - 1)) >> -e


def sigmoid(t):
    if t < 0:
        return ONE - sigmoid(-t)
    if t >= 10 * ONE:
        return 0
    i = t >> 11
    f = t - 2**11 * i
    return A[i] - (((A[i] - A[i + 1]) * f + 2**10) >> 11)


def residual(model, m, e, x, y, fine):
    z = prediction(m, e, x)
    if model == LINEAR:
        return clamp(z - y, (2047 >> fine) * ONE)
    if model == LOGISTIC:
        return -sigmoid(z) if y > 0 else sigmoid(-z)
    if y > 0:
        return -ONE if product(m, x) < 2 ** (14 - e) else 0
    return ONE if product(m, x) > -(2 ** (14 - e)) else 0


def mean_of(products, n, range_, fine):
    """products: for each record, r x_j for every j."""
    columns = zip(*products, strict=True)
    sums = [
        sum((value + 2 ** (13 - fine)) >> (14 - fine) for value in column) for column in columns
    ]
    return [clamp((2 ** (range_ - fine) * total + (n >> 1)) // n, ONE) for total in sums]


def mean_gradient(model, m, e, records, range_=0):
    fine = min(range_, 10)
    products = []
    for *x, y in records:
        r = residual(model, m, e, x, y, fine)
        products.append([r * feature for feature in x])
    return mean_of(products, len(records), range_, fine)


def softmax_gradient(rows, e, records, range_=0):
    fine = min(range_, 10)
    products = []
    for *x, y in records:
        p = probabilities(rows, e, x, 14)
        products.append(
            [(p[i] - ONE * (i == y)) * feature for i in range(len(rows)) for feature in x]
        )
    return mean_of(products, len(records), range_, fine)


def chosen(c, batch, number):
    """The indices of the records, of c, that a gradient uses."""
    n = min(batch, c) if batch else c
    return [((number - 1) * n + i) % c for i in range(n)]


def local_training(model, m, e, records, epochs, batch, rate, tau, classes=1):
    """model: of the gradients. m: classes x d mantissas, row by row."""
    c, d = len(records), len(m) // classes
    n = min(batch, c, 32) if batch else min(c, 32)
    fine, mantissas = [256 * mantissa for mantissa in m], list(m)
    h = -6 - e - rate
    for _ in range(epochs):
        for start in range(0, c, n):
            of_batch = records[start : start + n]
            if model == SOFTMAX:
                rows = [mantissas[i * d : i * d + d] for i in range(classes)]
                gradient = softmax_gradient(rows, e, of_batch)
            else:
                gradient = mean_gradient(model, mantissas, e, of_batch)
            moves = [g * 2**h if h >= 0 else (g + 2 ** (-h - 1)) >> -h for g in gradient]
            fine = [clamp(weight - u, 256 * 32767) for weight, u in zip(fine, moves, strict=True)]
            mantissas = [(weight + 128) >> 8 for weight in fine]
    shares = []
    for weight, before in zip(fine, m, strict=True):
        moved = weight - 256 * before
        size = ONE if abs(moved) >= tau else (2**15 * abs(moved) + tau) // (2 * tau)
        shares.append(-size if moved < 0 else size)
    return shares


def probabilities(rows, e, x, q):
    z = [prediction(row, e, x) for row in rows]
    weights = []
    for score in z:
        t = max(z) - score
        if t >= 12 * ONE:
            weights.append(0)
            continue
        a, b, f = t >> 14, (t >> 8) % 64, t % 256
        part = B[b] - (((B[b] - B[b + 1]) * f + 128) >> 8)
        weights.append((W[a] * part + 2**13) >> 14)
    step = 2 ** (14 - q)
    return [ONE * weight // sum(weights) // step * step for weight in weights]


def bin_of(x, e):
    """The bin of a number: of 2**e equal bins of [-1, 1], of which the last one holds 1 as well."""
    return min((clamp(x, ONE) + ONE) >> (15 - e), 2**e - 1)


def collected(model, asked, x, range_, symbols, device, number, e=0):
    features = [value for value, is_asked in zip(x, asked, strict=True) if is_asked]
    if e:
        features = [bin_of(value, e) for value in features]
    if model == CATEGORIES and range_:
        a, b = struct.unpack("<II", hashlib.sha256(struct.pack("<II", device, number)).digest()[:8])
        return [(a * max(0, min(value, 8190)) + b) % 8191 % symbols for value in features]
    if model == CATEGORIES:
        return [max(0, min(value, symbols - 1)) for value in features]
    return [clamp(value * 2**range_, ONE) for value in features]
