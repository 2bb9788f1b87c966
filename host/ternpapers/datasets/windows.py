"""Computes features of windows: parts of the samples of a motion sensor, of equal length."""

import numpy as np
import numpy.typing as npt

from ternhost.datasets.base import Fixed, Floats, normalised

KINDS = ("mean", "deviation", "difference")


def statistics(windows: Floats, reach: npt.ArrayLike) -> Fixed:
    """Return the features of windows (n x samples x axes), as n x (3 axes) in Q1.14.

    For each axis they are the mean, the standard deviation and the mean absolute difference from
    the mean, in the order of KINDS. reach: the largest value that the sensor measures, for all axes
    or for each.
    """
    largest = np.asarray(reach, np.float64)
    mean = windows.mean(axis=1)
    deviation = windows.std(axis=1)
    difference = np.abs(windows - mean[:, None]).mean(axis=1)
    columns = [
        normalised(mean, -largest, largest),
        normalised(deviation, 0, largest / 2),
        normalised(difference, 0, largest / 2),
    ]
    return np.concatenate(columns, axis=1)


def lengths(windows: Floats, reach: float) -> Fixed:
    """Return the mean length of a window's vectors, as n x 1 in Q1.14.

    windows: n x samples x axes. reach: the largest value of an axis.
    """
    mean_lengths = np.linalg.norm(windows, axis=2).mean(axis=1)
    longest = reach * windows.shape[2] ** 0.5
    return normalised(mean_lengths[:, None], 0, longest)
