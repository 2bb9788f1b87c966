"""BasicMotions (Bagnall et al., UEA multivariate archive, 2018): a smart watch at 10 Hz.

80 records of 10 seconds, with three axes each of an accelerometer and a gyroscope, and one of four
activities, in the archive's ts format. The package aeon (BSD-3-Clause) contains both files. They
state no licence of their own, so tern does not contain them: it reads them from that package, or
from where the user has put them.
"""

import importlib.util
from pathlib import Path

import numpy as np

from ternhost.datasets.base import (
    MULTICLASS,
    Dataset,
    Floats,
    bad_file,
    find_file,
    held_out,
    with_constant,
)
from ternpapers.datasets.windows import KINDS, lengths, statistics

SOURCE = (
    "https://www.timeseriesclassification.com/description.php?Dataset=BasicMotions (the two .ts files), "
    "or install them with 'pip install --no-deps aeon'"
)
CLASSES = ("Badminton", "Running", "Standing", "Walking")
_PARTS = ("BasicMotions_TRAIN.ts", "BasicMotions_TEST.ts")
_AXES = ("x", "y", "z", "roll", "pitch", "yaw")
_ACCELERATION, _ROTATION = 30.0, 35.0  # m/s**2 and rad/s: ranges of the sensors
_WINDOW = 20  # samples of a window, which takes 2 s


def read_ts(path: Path) -> tuple[Floats, list[str]]:
    """Read the records (n x channels x length) of a ts file of equal lengths, and their labels.

    A record is a line `v,v,...:v,v,...:label`, with colons between the channels. Records follow the
    line @data; lines with # are comments. Raises UsageError for another file, or if a value is
    missing.
    """
    records, labels = [], []
    is_in_data = False  # whether the line @data has been read
    try:
        for line in path.read_text(encoding="utf-8").splitlines():
            text = line.strip()
            is_comment = text.startswith("#")
            if not is_in_data:
                is_in_data = text.lower() == "@data"
            elif text and not is_comment:
                *channels, label = text.split(":")
                record = []
                for channel in channels:
                    record.append([float(value) for value in channel.split(",")])
                records.append(record)
                labels.append(label)
        values = np.array(records, np.float64)
    except (OSError, ValueError) as error:  # a UnicodeDecodeError is a ValueError
        raise bad_file(path, f"not a ts file of equal lengths ({error})", SOURCE) from error
    if values.ndim != 3 or not np.isfinite(values).all():
        raise bad_file(path, "not a ts file of equal lengths without gaps", SOURCE)
    return values, labels


def motions(path: Path | None = None) -> Dataset:
    """Load windows of 2 seconds with 20 features, whose label is the activity.

    If a record is held out, all of its windows are, so that no model is judged on what it has seen.
    The features are the mean, the standard deviation and the mean absolute difference from the mean
    of each axis, and the mean lengths of acceleration and rotation. path: one of the two files, or
    the folder of both; None for that of the package aeon, or else the place where `find_file`
    looks. Raises UsageError if a file is missing or not in its format.
    """
    windows: list[Floats] = []  # those of each record: windows x samples x axes
    codes: list[int] = []  # the number of each record's class
    for file in _files(path):
        file_windows, labels = _read_windows(file)
        windows += file_windows
        codes += [CLASSES.index(label) for label in labels]

    samples = np.concatenate(windows)  # of all records
    ranges = [_ACCELERATION] * 3 + [_ROTATION] * 3  # of each axis
    columns = [
        statistics(samples, ranges),
        lengths(samples[..., :3], _ACCELERATION),
        lengths(samples[..., 3:], _ROTATION),
    ]
    names = [f"{kind}_{axis}" for kind in KINDS for axis in _AXES]
    names += ["acceleration", "rotation"]

    windows_per_record = [len(record) for record in windows]
    labels_of_windows = np.repeat(codes, windows_per_record)
    features = np.concatenate(columns, axis=1)
    data = with_constant("basic-motions", MULTICLASS, names, features, labels_of_windows, CLASSES)
    return data.divided(np.repeat(held_out(len(windows)), windows_per_record))


def _files(path: Path | None) -> list[Path]:
    """Return the files to read. path: as of `motions`. Raises UsageError if one is missing."""
    folder = path or _bundled()
    if folder and folder.is_file():
        return [folder]
    files = []
    for part in _PARTS:
        names = (part, f"BasicMotions/{part}")
        files.append(find_file("basic-motions", folder, names, SOURCE, of_several=True))
    return files


def _read_windows(file: Path) -> tuple[list[Floats], list[str]]:
    """Read the windows of each record (windows x samples x axes), and the label of each record.

    Raises UsageError.
    """
    values, labels = read_ts(file)
    records, channels, samples = values.shape
    count = samples // _WINDOW
    if channels != len(_AXES) or not count or not set(labels) <= set(CLASSES):
        text = f"not {len(_AXES)} channels and the classes {', '.join(CLASSES)}"
        raise bad_file(file, text, SOURCE)
    # Records x axes x windows x samples, without the samples that fill no window.
    divided = values[:, :, : count * _WINDOW].reshape(records, channels, count, _WINDOW)
    return list(divided.transpose(0, 2, 3, 1)), labels


def _bundled() -> Path | None:
    """Return the folder of the files in the package aeon, if it is installed.

    The package is not imported.
    """
    package = importlib.util.find_spec("aeon")
    if package is None:
        return None
    for place in package.submodule_search_locations or []:
        folder = Path(place) / "datasets" / "data" / "BasicMotions"
        if folder.is_dir():
            return folder
    return None
