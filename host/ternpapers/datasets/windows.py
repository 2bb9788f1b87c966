"""Features of windows of a motion sensor's samples."""

import numpy as np
import numpy.typing as npt

from ternhost.datasets.base import Fixed, Floats, normalised

KINDS = ("mean", "deviation", "difference")


def statistics(windows: Floats, reach: npt.ArrayLike) -> Fixed:
    """Features of windows (n x samples x axes): n x (3 axes), Q1.14, in the order of KINDS.

    For each axis they are the mean, the standard deviation and the mean absolute difference from
    the mean. reach: the largest value that the sensor measures, for all axes or for each.
    """
    top = np.asarray(reach, np.float64)
    mean = windows.mean(axis=1)
    difference = np.abs(windows - mean[:, None]).mean(axis=1)
    spread = normalised(windows.std(axis=1), 0, top / 2)
    return np.concatenate(
        [normalised(mean, -top, top), spread, normalised(difference, 0, top / 2)], axis=1
    )


def lengths(windows: Floats, reach: float) -> Fixed:
    """The mean length of the vectors of each window (n x samples x axes): n x 1, Q1.14."""
    lengths = np.linalg.norm(windows, axis=2).mean(axis=1)[:, None]
    return normalised(lengths, 0, reach * windows.shape[2] ** 0.5)
