"""Reads SensIT Vehicle (Duarte and Hu 2004), a data set in libsvm format.

Its classes are what passed the sensors beside a road: one of two kinds of vehicle, or neither.

Zhao et al. have 98,528 records. These are the records of two files of the publishers, for training
(78,823) and for testing (19,705), one after the other. They also speak of a binary label for an SVM,
and do not say which classes they join. A model of two classes here tells the third class from the
other two. So it keeps all 98,528 records, whereas two of the three classes alone would be fewer.
"""

from pathlib import Path

import numpy as np

from ternhost.datasets.base import MULTICLASS, Dataset, bad_file, find_file, to_fixed, with_constant

FILES = (
    "combined_scale",
    "combined_scale.bz2",
    "combined_scale.gz",
    "vehicle",
    "SensIT_combined_scale",
)
SOURCE = (
    "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass.html (combined_scale in "
    "libsvm format, not ARFF; append combined_scale.t for all 98,528 records)"
)
_FEATURES = 100
_CLASSES = ("1", "2", "3")
_SLACK = 1e-6  # rounding of the last printed digit


def vehicle(path: Path | None = None, *, last: int = _FEATURES) -> Dataset:
    """Load records of 100 features, scaled to [-1, 1] by their publishers, in three classes.

    path: the file, or its folder; None for the folder of `data_folder()`. last: take only so many
    of the features, those at the end. The file may be packed with bzip2 or gzip. Raises UsageError
    if it is missing, or not in libsvm format with 100 scaled features.
    """
    from sklearn.datasets import load_svmlight_file

    dataset = "vehicle"
    if last != _FEATURES:
        dataset = f"vehicle-{last}"
    file = find_file(dataset, path, FILES, SOURCE)
    try:
        matrix, classes = load_svmlight_file(str(file), zero_based=False)
    except (ValueError, OSError, EOFError) as error:
        text = f"not in libsvm format with {_FEATURES} features ({error})"
        raise bad_file(file, text, SOURCE) from error
    features = matrix.toarray()
    if not len(features):
        raise bad_file(file, "it has no records", SOURCE)
    if features.shape[1] != _FEATURES:
        # A file of the last six features alone, too, would be read as one whose other 94 are 0.
        text = f"its records have {features.shape[1]} features, not {_FEATURES}"
        raise bad_file(file, text, SOURCE)
    if not np.isin(classes, [1, 2, 3]).all():
        raise bad_file(file, "the classes must be 1, 2 and 3", SOURCE)
    if not np.isfinite(features).all():
        raise bad_file(file, "it has a feature that is not a number", SOURCE)
    if np.abs(features).max() > 1 + _SLACK:
        raise bad_file(file, "features outside [-1, 1], so this is not the scaled file", SOURCE)
    names = [f"sensor{number}" for number in range(1, _FEATURES + 1)]
    kept_features = to_fixed(features[:, -last:])
    codes = classes - 1  # classes count from 1 in the file
    return with_constant(dataset, MULTICLASS, names[-last:], kept_features, codes, _CLASSES)
