"""The small data sets that come with scikit-learn.

Their domains are the published ranges of the attributes.
"""

from ternhost.datasets.base import (
    MULTICLASS,
    REGRESSION,
    Dataset,
    Fixed,
    Floats,
    normalised,
    with_constant,
)
from ternhost.datasets.shipped.kept import kept

_VERSION = 2  # increase it when the features below change: cached ones are then made again
_PIXEL = 16  # the largest value of a pixel of digits


def diabetes() -> Dataset:
    """Load the data set of 442 patients with 10 measurements each (Efron et al. 2004).

    The label is the progression of the disease in a year, 0 to 350.
    """
    return kept(f"diabetes-{_VERSION}", _diabetes)


def _diabetes() -> Dataset:
    """Make the data set of `diabetes` from scikit-learn's files."""
    from sklearn.datasets import load_diabetes

    bunch = load_diabetes(scaled=False)
    features, labels = _normalised(bunch.data), normalised(bunch.target, 0, 350)
    return with_constant("diabetes", REGRESSION, bunch.feature_names, features, labels)


def multiclass(name: str) -> Dataset:
    """Load a small data set by its name; some of its records are public rows.

    breast-cancer: 569 tumours (170 public), 30 measurements, malignant or benign (Wolberg, Street,
    Mangasarian 1993). digits: 1,797 handwritten digits (539 public) of 8 x 8 pixels (Alpaydin and
    Kaynak 1998). iris: 150 flowers (45 public), 4 measurements, three species (Fisher 1936). wine:
    178 wines (53 public), 13 measurements, three growers (Aeberhard and Forina 1991).
    """
    return kept(f"{name}-{_VERSION}", lambda: _multiclass(name))


def _multiclass(name: str) -> Dataset:
    """Make the data set of `multiclass` from scikit-learn's files."""
    from sklearn import datasets

    load = getattr(datasets, f"load_{name.replace('-', '_')}")
    bunch = load()
    if name == "digits":
        features = normalised(bunch.data, 0, _PIXEL)
    else:
        features = _normalised(bunch.data)
    names = [str(feature) for feature in bunch.feature_names]
    classes = tuple(str(value) for value in bunch.target_names)
    dataset = with_constant(name, MULTICLASS, names, features, bunch.target, classes)
    return dataset.with_public_rows()


def _normalised(values: Floats) -> Fixed:
    """Scale each column so that its published range becomes [-1, 1].

    In these data sets the values of each column cover that range exactly.
    """
    return normalised(values, values.min(axis=0), values.max(axis=0))
