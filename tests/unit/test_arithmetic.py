"""shared_specs/arithmetic.md, implemented from its text alone in unbounded integers, against the device library."""

import math
from array import array

import numpy as np
import pytest

from tern import wire
from tern.gradient import Gradient
from tern.inference import Classifier
from tern.local import LocalTrainer

ONE = 2**14
A = [round(2**14 / (1 + math.exp(i / 8))) for i in range(81)]
W = [round(2**15 * math.exp(-a)) for a in range(12)]
B = [round(2**14 * math.exp(-b / 64)) for b in range(65)]


def clamp(a, b):
    return max(-b, min(b, a))


def prediction(m, e, x):
    return (sum(a * b for a, b in zip(m, x, strict=True)) + 2 ** (-e - 1)) >> -e


def s(t):
    if t < 0:
        return 2**14 - s(-t)
    if t >= 10 * 2**14:
        return 0
    i = t >> 11
    f = t - 2**11 * i
    return A[i] - (((A[i] - A[i + 1]) * f + 2**10) >> 11)


def residual(model, m, e, x, y):
    z = prediction(m, e, x)
    if model == wire.LINEAR:
        return clamp(z - y, 1025 * 2**14)
    if model == wire.LOGISTIC:
        return -s(z) if y > 0 else s(-z)
    exact = sum(a * b for a, b in zip(m, x, strict=True))
    if y > 0:
        return -(2**14) if exact < 2 ** (14 - e) else 0
    return 2**14 if exact > -(2 ** (14 - e)) else 0


def mean_gradient(model, m, e, records):
    n = len(records)
    sums = [0] * len(m)
    for *x, y in records:
        r = residual(model, m, e, x, y)
        sums = [total + ((r * own + 2**13) >> 14) for total, own in zip(sums, x, strict=True)]
    return [clamp((total + (n >> 1)) // n, 2**14) for total in sums]


def local_training(model, m, e, records, epochs, batch, rate, tau):
    c = len(records)
    n = min(batch, c, 32) if batch else min(c, 32)
    fine, mantissas = [256 * own for own in m], list(m)
    h = -6 - e - rate
    for _ in range(epochs):
        for start in range(0, c, n):
            gradient = mean_gradient(model, mantissas, e, records[start : start + n])
            moves = [g * 2**h if h >= 0 else (g + 2 ** (-h - 1)) >> -h for g in gradient]
            fine = [clamp(own - u, 256 * 32767) for own, u in zip(fine, moves, strict=True)]
            mantissas = [(own + 128) >> 8 for own in fine]
    shares = []
    for own, before in zip(fine, m, strict=True):
        moved = own - 256 * before
        size = 2**14 if abs(moved) >= tau else (2**15 * abs(moved) + tau) // (2 * tau)
        shares.append(-size if moved < 0 else size)
    return shares


def probabilities(rows, e, x, q):
    z = [prediction(row, e, x) for row in rows]
    weights = []
    for own in z:
        t = max(z) - own
        if t >= 12 * 2**14:
            weights.append(0)
            continue
        a, b, f = t >> 14, (t >> 8) % 64, t % 256
        part = B[b] - (((B[b] - B[b + 1]) * f + 128) >> 8)
        weights.append((W[a] * part + 2**13) >> 14)
    step = 2 ** (14 - q)
    return [2**14 * weight // sum(weights) // step * step for weight in weights]


def some_records(rng, c, d):
    edges = rng.integers(0, 2)
    features = rng.choice([-ONE, 0, ONE], (c, d)) if edges else rng.integers(-ONE, ONE + 1, (c, d))
    labels = rng.choice([-ONE, ONE], (c, 1)) if rng.integers(0, 2) else rng.integers(-ONE, ONE + 1, (c, 1))
    return np.concatenate([features, labels], axis=1).tolist()


def some_mantissas(rng, d):
    most = int(rng.choice([3, 1000, 32767]))
    return rng.integers(-most, most + 1, d).tolist()


@pytest.mark.parametrize("model", [wire.LINEAR, wire.LOGISTIC, wire.SVM])
@pytest.mark.parametrize("seed", range(3))
def test_the_mean_gradient_is_the_specified_one(model, seed):
    rng = np.random.default_rng([model, seed])
    for _ in range(150):
        d, n, e = int(rng.integers(1, 30)), int(rng.integers(1, 33)), int(rng.integers(-30, -11))
        records, m = some_records(rng, n, d), some_mantissas(rng, d)
        gradient, out = Gradient(d), array("h", bytes(2 * d))
        gradient.reset()
        for row in records:
            gradient.add(model, array("h", m), e, array("h", row))
        gradient.finish(out)
        assert out.tolist() == mean_gradient(model, m, e, records)


@pytest.mark.parametrize("e", [-12, -13, -14])
@pytest.mark.parametrize("sign", [1, -1])
def test_the_kink_of_the_svm_is_where_it_is_specified(e, sign):
    for near, inside in (
        (-1, True),
        (0, False),
        (1, False),
    ):  # y w.x is one unit below 1, is 1, is one unit above
        m, x = [2**-e, 1], [sign * ONE, sign * near]
        gradient, out = Gradient(2), array("h", bytes(4))
        gradient.reset()
        gradient.add(wire.SVM, array("h", m), e, array("h", [*x, sign * ONE]))
        gradient.finish(out)
        assert out.tolist() == mean_gradient(wire.SVM, m, e, [[*x, sign * ONE]])
        assert bool(out[0]) == inside


@pytest.mark.parametrize("model", [wire.LINEAR, wire.LOGISTIC, wire.SVM])
def test_local_training_is_the_specified_one(model):
    rng = np.random.default_rng([model, 9])
    for _ in range(150):
        d, c, e = int(rng.integers(1, 8)), int(rng.integers(1, 40)), int(rng.integers(-16, -11))
        epochs, batch, rate = int(rng.integers(1, 4)), int(rng.integers(0, 40)), int(rng.integers(0, 17))
        tau = int(rng.choice([1, 7, 2**10, 2**18 + 1, 2**23]))
        records, m = some_records(rng, c, d), some_mantissas(rng, d)

        def read(i, row, records=records):
            row[:] = array("h", records[i])

        trainer, out = LocalTrainer(d), array("h", bytes(2 * d))
        trainer.train(model, array("h", m), e, read, c, epochs, min(batch or c, c, wire.MAX_BATCH), rate)
        trainer.report(tau, out)
        assert out.tolist() == local_training(model, m, e, records, epochs, batch, rate, tau)


def test_probabilities_are_the_specified_ones():
    rng = np.random.default_rng(4)
    for _ in range(300):
        classes, features, e = int(rng.integers(2, 12)), int(rng.integers(1, 20)), int(rng.integers(-30, -11))
        q = int(rng.integers(0, 15))
        rows = [some_mantissas(rng, features) for _ in range(classes)]
        x = some_records(rng, 1, features)[0][:-1]
        out = array("h", bytes(2 * classes))
        classifier = Classifier([own for row in rows for own in row], e, classes)
        classifier.probabilities(array("h", x), out, q)
        assert out.tolist() == probabilities(rows, e, x, q)
