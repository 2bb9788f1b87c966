"""The small sets that come with scikit-learn. Their domains are the published ranges of the attributes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ternhost.datasets.base import MULTICLASS, REGRESSION, Dataset, normalised, with_constant
from ternhost.datasets.kept import kept

_VERSION = 1  # of the features below: count up to make those in the cache anew
_PIXEL = 16  # the largest value of a pixel of the digits


def _kept(make: Callable[[], Dataset]) -> Callable[[], Dataset]:
    """Make it once, and have it in the cache from then on."""
    key = f"{make.__name__.replace('_', '-')}-{_VERSION}"
    return functools.wraps(make)(lambda: kept(key, make))


@_kept
def breast_cancer() -> Dataset:
    """569 tumours, 30 measurements, malignant or benign (Wolberg, Street and Mangasarian 1993)."""
    from sklearn.datasets import load_breast_cancer

    return _classes("breast-cancer", load_breast_cancer())


@_kept
def iris() -> Dataset:
    """150 flowers, 4 measurements, three species (Fisher 1936)."""
    from sklearn.datasets import load_iris

    return _classes("iris", load_iris())


@_kept
def wine() -> Dataset:
    """178 wines, 13 measurements, three growers (Aeberhard and Forina 1991)."""
    from sklearn.datasets import load_wine

    return _classes("wine", load_wine())


@_kept
def digits() -> Dataset:
    """1,797 handwritten digits of 8 x 8 pixels (Alpaydin and Kaynak 1998)."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return _multiclass("digits", bunch, normalised(bunch.data, 0, _PIXEL))


@_kept
def diabetes() -> Dataset:
    """442 patients, 10 measurements, how the disease had moved after a year, 0 to 350 (Efron et al. 2004)."""
    from sklearn.datasets import load_diabetes

    bunch = load_diabetes(scaled=False)
    features = normalised(bunch.data, bunch.data.min(axis=0), bunch.data.max(axis=0))
    labels = normalised(bunch.target, 0, 350)
    return with_constant("diabetes", REGRESSION, bunch.feature_names, features, labels)


def _classes(name: str, bunch: Any) -> Dataset:
    return _multiclass(name, bunch, normalised(bunch.data, bunch.data.min(axis=0), bunch.data.max(axis=0)))


def _multiclass(name: str, bunch: Any, features: Any) -> Dataset:
    names = [str(feature) for feature in bunch.feature_names]
    plain = with_constant(name, MULTICLASS, names, features, bunch.target.astype(np.int16))
    return Dataset(**{**vars(plain), "classes": tuple(str(value) for value in bunch.target_names)})
