"""WISDM activity prediction v1.1 (Kwapisz, Weiss and Moore 2010): phones' accelerometers at 20 Hz.

The raw file has lines `user,activity,timestamp,x,y,z;`. A few are malformed: a comma too many, no
z, no record, or two records. Only complete records are read.

Zhao et al. speak of 35 subjects, but the file has 36 users. Their 43 columns also need 36: three
accelerations, 35 columns for the users and 5 for the six activities.
"""

import re
from itertools import pairwise
from pathlib import Path

import numpy as np

from ternhost.datasets import base
from ternpapers.datasets.windows import KINDS, lengths, statistics

FILES = ("WISDM_ar_v1.1_raw.txt", "WISDM_ar_v1.1/WISDM_ar_v1.1_raw.txt")
SOURCE = "https://www.cis.fordham.edu/wisdm/dataset.php (Activity Prediction, WISDM_ar_v1.1)"
USERS = tuple(str(user) for user in range(1, 37))
ACTIVITIES = ("Downstairs", "Jogging", "Sitting", "Standing", "Upstairs", "Walking")
_RANGE = 20.0  # the sensors measure -20 to 20 m/s**2
_WINDOW = 200  # samples of a window, which takes 10 s
_BINS = 10
_MOST_MALFORMED = 0.05  # the largest share of malformed records
_EMPTY = " \r\n\t\0,"  # characters that are no record

_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_RECORD = re.compile(
    rf"\s*(\d+),({'|'.join(ACTIVITIES)}),(\d+),({_NUMBER}),({_NUMBER}),({_NUMBER}),?\s*"
)


def read(file: Path) -> tuple[base.Indices, base.Indices, base.Floats]:
    """Read the users (n), activities (n) and accelerations (n x 3, m/s**2) of a raw file.

    Activities are positions in ACTIVITIES. Raises UsageError if the file cannot be read, or more
    than a twentieth of its records are malformed.
    """
    users, activities, values = [], [], []
    malformed = 0
    codes = {name: code for code, name in enumerate(ACTIVITIES)}
    try:
        with file.open(encoding="utf-8") as lines:
            for line in lines:
                for text in line.split(";"):
                    match = _RECORD.fullmatch(text)
                    if match:
                        user, activity, _time, x, y, z = match.groups()
                        users.append(int(user))
                        activities.append(codes[activity])
                        values.append((float(x), float(y), float(z)))
                    elif text.strip(_EMPTY):
                        malformed += 1
    except (OSError, UnicodeDecodeError) as error:
        raise base.bad_file(file, f"cannot be read ({error})", SOURCE) from error
    records = len(values) + malformed
    if not values or malformed > _MOST_MALFORMED * records:
        problem = f"{malformed} of {records} records are malformed"
        raise base.bad_file(file, problem, SOURCE)
    return np.array(users), np.array(activities), np.array(values)


def table(path: Path | None = None) -> base.Table:
    """Load every sample without its time, as Zhao et al. (IEEE IoT J. 8, 2021) have them.

    A sample has the acceleration along three axes, the user and the activity. Raises UsageError if
    the file is missing or not in its format.
    """
    file = base.find_file("wisdm-records", path, FILES, SOURCE)
    users, activities, acceleration = read(file)
    if users.min() < 1 or users.max() > len(USERS):
        raise base.bad_file(file, f"the users must be 1 to {len(USERS)}", SOURCE)
    return base.Table(
        name="wisdm-records",
        numeric_names=("x", "y", "z"),
        numeric=base.normalised(acceleration, -_RANGE, _RANGE),
        categorical_names=("user", "activity"),
        codes=np.stack([users - 1, activities], axis=1).astype(np.int16),
        categories=(USERS, ACTIVITIES),
    )


def records(path: Path | None = None) -> base.Dataset:
    """Load the samples of `table`, whose label is the activity."""
    return table(path).classification("activity")


def wisdm(path: Path | None = None) -> base.Dataset:
    """Load windows of 10 seconds of one user and activity, whose label is the activity.

    They have 40 of the 43 features of Kwapisz et al. (The 43 attributes of Zhao et al. are others:
    see `table`.) The features are the mean, the standard deviation, the mean absolute difference
    from the mean and the shares of ten equal bins of each axis, and the mean length of the
    acceleration. The times between peaks are left out, since their paper does not define them where
    a window has fewer than three peaks, nor where the search for peaks begins. Raises UsageError if
    the file is missing or not in its format.
    """
    file = base.find_file("wisdm", path, FILES, SOURCE)
    users, activities, acceleration = read(file)
    starts = _window_starts(users, activities)
    if not starts:
        raise base.bad_file(file, f"not one window of {_WINDOW} samples", SOURCE)
    windows_of_samples = [acceleration[start : start + _WINDOW] for start in starts]
    windows = np.stack(windows_of_samples)  # windows x samples x axes
    columns = [
        statistics(windows, _RANGE),
        base.normalised(_shares(windows), 0, 1),
        lengths(windows, _RANGE),
    ]
    names = [f"{kind}_{axis}" for kind in KINDS for axis in "xyz"]
    names += [f"bin{number}_{axis}" for axis in "xyz" for number in range(_BINS)]
    names.append("length")
    features = np.concatenate(columns, axis=1)
    labels = activities[starts]
    return base.with_constant("wisdm", base.MULTICLASS, names, features, labels, ACTIVITIES)


def _window_starts(users: base.Indices, activities: base.Indices) -> list[int]:
    """Return where windows of _WINDOW samples begin, so that each has one user and one activity.

    users, activities: those of each sample.
    """
    changes = (np.diff(users) != 0) | (np.diff(activities) != 0)
    starts_of_parts = np.flatnonzero(changes) + 1  # of samples with the same user and activity
    bounds = [0, *starts_of_parts.tolist(), len(users)]
    starts: list[int] = []
    for first, end in pairwise(bounds):
        last_start = end - _WINDOW  # the rest, which fills no window, is left out
        starts += range(first, last_start + 1, _WINDOW)
    return starts


def _shares(windows: base.Floats) -> base.Floats:
    """Return the shares of samples in ten equal bins of a window's range, for each axis (n x 30).

    windows: n x samples x axes.
    """
    low = windows.min(axis=1, keepdims=True)
    high = windows.max(axis=1, keepdims=True)
    width = np.where(high > low, high - low, 1)
    bins = (_BINS * (windows - low) / width).astype(int)
    bins = np.minimum(bins, _BINS - 1)  # the largest value is in the last one
    is_in_bin = bins[..., None] == np.arange(_BINS)  # n x samples x axes x bins
    shares: base.Floats = is_in_bin.mean(axis=1)
    return shares.reshape(len(windows), -1)
