"""Synthetic records with a known truth, the same for the same seed."""

import numpy as np

from ternhost.datasets import base
from ternhost.errors import UsageError

_DEVIATION = 0.25  # of Gaussian attributes
_NOISE = 0.05


def attributes(n: int, d: int = 16, *, shape: str = "gaussian", mean: float = 0, seed: int = 0) -> base.Table:
    """n records of d independent attributes in [-1, 1], to estimate means of.

    The shape is that of their distribution. gaussian: of this mean and standard deviation 1/4, where values outside
    [-1, 1] are drawn again (Zhao et al. 2021, with means 0, 1/3, 2/3 and 1, and 16 dimensions). uniform: over [-1, 1].
    power: density proportional to (x + 2)**-10 (Wang et al. 2019).
    Raises UsageError for another shape, or a mean that leaves hardly any value in [-1, 1]."""
    rng = np.random.default_rng(seed)
    if shape == "gaussian":
        if not abs(mean) <= 1 + _DEVIATION:
            raise UsageError(f"the mean of a Gaussian must be -1.25 to 1.25, not {mean}")
        values = rng.normal(mean, _DEVIATION, n * d)
        while (outside := np.flatnonzero(np.abs(values) > 1)).size:
            values[outside] = rng.normal(mean, _DEVIATION, outside.size)
    elif shape == "uniform":
        values = rng.uniform(-1, 1, n * d)
    elif shape == "power":
        # Inverse of F(x) = (1 - (x+2)**-9) / (1 - 3**-9).
        values = (1 - rng.random(n * d) * (1 - 3.0**-9)) ** (-1 / 9) - 2
    else:
        raise UsageError(f"there is no distribution {shape!r}", hint="one of: gaussian, uniform, power")
    return base.Table(shape, tuple(f"x{j}" for j in range(d)), base.to_fixed(values.reshape(n, d)))


def linear(n: int = 100_000, d: int = 16, *, seed: int = 0) -> base.Dataset:
    """n records of d features: the constant and uniform ones. The label is w.x for a hidden w of L1 norm 1, plus
    Gaussian noise. Raises UsageError for a d below 2."""
    rng = np.random.default_rng(seed)
    names, features, score = _scores(d, (n, rng))
    labels = base.to_fixed(score + rng.normal(0, _NOISE, n))
    return base.with_constant("synthetic-linear", base.REGRESSION, names, features, labels)


def logistic(n: int = 100_000, d: int = 16, *, seed: int = 0) -> base.Dataset:
    """The same with the sign of w.x plus logistic noise as the label, and after the n records 1,000 public rows,
    nobody's records. Raises UsageError for a d below 2."""
    draws = (n, np.random.default_rng(seed)), (base.PUBLIC, np.random.default_rng([seed, 1]))
    names, features, score = _scores(d, *draws)
    noise = np.concatenate([rng.logistic(0, _NOISE, count) for count, rng in draws])
    labels = base.to_fixed(np.where(score + noise > 0, 1, -1))
    data = base.with_constant("synthetic-logistic", base.CLASSIFICATION, names, features, labels)
    last = np.arange(len(labels)) >= n
    return data.divided(data.held_out & ~last, np.flatnonzero(last))


def _scores(d: int, *draws: tuple[int, np.random.Generator]) -> tuple[list[str], base.Fixed, base.Floats]:
    if d < 2:
        raise UsageError(f"a data set needs a feature beside the constant: 2 features or more, not {d}")
    features = np.concatenate([rng.uniform(-1, 1, (n, d - 1)) for n, rng in draws])
    weights = draws[0][1].uniform(-1, 1, d - 1)
    score = features @ (weights / np.abs(weights).sum())
    return [f"x{j}" for j in range(1, d)], base.to_fixed(features), score
