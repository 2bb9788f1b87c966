"""Draws synthetic records with a known truth, which are the same for the same seed."""

from collections.abc import Callable

import numpy as np

from ternhost.datasets import base
from ternhost.errors import UsageError

_MOST = 5  # the largest standard deviation of Gaussian attributes, and mean of exponential ones
_NOISE = 0.05  # scale of the noise of labels


def attributes(
    n: int,
    d: int = 16,
    *,
    shape: str = "gaussian",
    mean: float = 0,
    deviation: float = 0.25,
    seed: int = 0,
) -> base.Table:
    """Draw a table of n records with d independent attributes, whose means are to be estimated.

    shape: the distribution of each attribute; values outside of [-1, 1] are drawn again.

    - "gaussian": with this mean and standard deviation (Zhao et al. 2021: means 0, 1/3, 2/3 and 1,
      deviation 1/4, 16 dimensions; Hao et al. 2023: 0.3 and 0.2)
    - "exponential": with this mean (Hao et al.: 0.3)
    - "uniform": over [-1, 1]
    - "power": density proportional to (x + 2)**-10 (Wang et al. 2019)

    Raises UsageError for another shape, or a mean or deviation that leaves hardly any value in
    [-1, 1].
    """
    rng = np.random.default_rng(seed)
    draws: dict[str, Callable[[int], base.Floats]] = {
        "gaussian": lambda size: rng.normal(mean, deviation, size),
        "exponential": lambda size: rng.exponential(mean, size),
        "uniform": lambda size: rng.uniform(-1, 1, size),
        "power": lambda size: _power_law(rng.random(size)),
    }
    if shape not in draws:
        raise UsageError(f"there is no distribution {shape!r}", hint=f"one of: {', '.join(draws)}")
    if not 0 < deviation <= _MOST:
        raise UsageError(f"a deviation must be above 0 and at most {_MOST}, not {deviation}")
    most_mean = 1 + deviation
    if shape == "gaussian" and not abs(mean) <= most_mean:
        raise UsageError(f"the mean of a Gaussian must be -{most_mean} to {most_mean}, not {mean}")
    if shape == "exponential" and not 0 < mean <= _MOST:
        bounds = f"above 0 and at most {_MOST}"
        raise UsageError(f"the mean of an exponential must be {bounds}, not {mean}")

    draw = draws[shape]
    values = draw(n * d)
    outside = np.flatnonzero(np.abs(values) > 1)
    while outside.size:
        values[outside] = draw(outside.size)
        outside = np.flatnonzero(np.abs(values) > 1)
    names = tuple(f"x{j}" for j in range(d))
    return base.Table(shape, names, base.to_fixed(values.reshape(n, d)))


def _power_law(uniform: base.Floats) -> base.Floats:
    """Turn uniform numbers from [0, 1) into numbers of [-1, 1] of density ~ (x + 2)**-10.

    That is the inverse of the distribution function F(x) = (1 - (x + 2)**-9) / (1 - 3**-9).
    """
    powers: base.Floats = (1 - uniform * (1 - 3.0**-9)) ** (-1 / 9)
    return powers - 2


def linear(n: int = 100_000, d: int = 16, *, seed: int = 0) -> base.Dataset:
    """Draw n records of d features with a label to predict, which is linear in the features.

    The features x are the constant and uniform ones. The label is w.x for a hidden w of L1 norm 1,
    plus Gaussian noise. Raises UsageError for a d below 2.
    """
    rng = np.random.default_rng(seed)
    names, features, score = _scores(d, (n, rng))
    labels = base.to_fixed(score + rng.normal(0, _NOISE, n))
    return base.with_constant("synthetic-linear", base.REGRESSION, names, features, labels)


def logistic(n: int = 100_000, d: int = 16, *, seed: int = 0) -> base.Dataset:
    """Draw n records of d features of two classes, and 1,000 public rows after them.

    Features x and hidden weights w are as in `linear`. The label is the sign of w.x plus logistic
    noise. Public rows are nobody's records. Raises UsageError for a d below 2.
    """
    rng = np.random.default_rng(seed)
    public_rng = np.random.default_rng([seed, 1])
    names, features, score = _scores(d, (n, rng), (base.PUBLIC, public_rng))
    noise_of_parts = [rng.logistic(0, _NOISE, n), public_rng.logistic(0, _NOISE, base.PUBLIC)]
    noisy_score = score + np.concatenate(noise_of_parts)
    labels = base.to_fixed(np.where(noisy_score > 0, 1, -1))
    data = base.with_constant("synthetic-logistic", base.CLASSIFICATION, names, features, labels)
    is_public = np.arange(len(labels)) >= n
    return data.divided(data.held_out & ~is_public, np.flatnonzero(is_public))


def _scores(
    d: int, *draws: tuple[int, np.random.Generator]
) -> tuple[list[str], base.Fixed, base.Floats]:
    """Draw features and return their names, their values, and w.x of each record.

    d: the number of features, of which the constant is left out. draws: the number of records of
    each part, and its generator; the first one also draws the hidden weights w. The values have a
    row for each record and d - 1 columns. Raises UsageError for a d below 2.
    """
    if d < 2:
        raise UsageError(
            f"a data set needs a feature beside the constant: 2 features or more, not {d}"
        )
    parts = [rng.uniform(-1, 1, (count, d - 1)) for count, rng in draws]
    features = np.concatenate(parts)
    _, first_rng = draws[0]
    weights = first_rng.uniform(-1, 1, d - 1)
    scores = features @ (weights / np.abs(weights).sum())  # with weights of L1 norm 1
    names = [f"x{j}" for j in range(1, d)]
    return names, base.to_fixed(features), scores
