"""`tern data scale`: finds the scale of tern.features.Window from public recordings.

A fleet's measurements are never used, since the scale is public. The file is any table that
ternhost.datasets.tables.reading understands, with a sample per line, in one to three columns; an empty
line ends a recording. A scale runs from the 2 % quantile over all windows to the 98 % quantile.
"""

import argparse
import itertools
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tern.features import Window
from ternhost.command import add_command, add_option, print_result
from ternhost.datasets.tables import reading
from ternhost.errors import OK, UsageError

LOW, HIGH = 0.02, 0.98  # the quantiles between which a scale lies
KINDS = ("mean", "deviation", "jerk", "crossings")
_AXES = "xyz"
_LEAST, _MOST = -32768, 32767  # of the integers of 16 bits that sensors give


def read(path: Path, factor: float = 1.0) -> Iterator[list[tuple[int, ...]]]:
    """Read the recordings in a table, and yield the samples of each.

    A sample is a tuple with a value for each axis: the number in the file times `factor`, rounded
    to an integer of 16 bits. Raises UsageError for a file that is not as described above.
    """
    table = reading.read(path)
    if len(table.columns) > len(_AXES):
        raise UsageError(
            f"{path} has {len(table.columns)} columns: {', '.join(table.columns)}",
            hint="a sample has 1 to 3 numbers, one for each axis",
        )
    axes = []
    for name in table.columns:
        values = np.rint(table.numbers(name) * factor)
        fits = (values >= _LEAST) & (values <= _MOST)  # which nan does not
        wrong = np.flatnonzero(~fits)
        if wrong.size:
            row = int(wrong[0])
            where = table.where(row, name)
            cell = table.texts(name)[row]
            text = f"{where}: {cell} times {factor:g} is not from {_LEAST} to {_MOST}"
            raise UsageError(text, hint="--times turns units into the sensor's integers")
        axes.append(values.astype(int).tolist())
    samples = list(zip(*axes, strict=True))
    for start, end in itertools.pairwise([0, *table.breaks, len(samples)]):
        yield samples[start:end]


def scale_of(
    recordings: Iterator[list[tuple[int, ...]]],
    samples_per_window: int,
    hop: int | None = None,
    with_length: bool = False,
) -> list[tuple[int, int]]:
    """Return for each feature the range (low, high) of most of its values in these recordings.

    The range is from the 2 % quantile to the 98 % quantile over all windows. A device maps it to
    [-1, 1].

    recordings: samples, as from `read`. hop: samples from the start of a window to that of the next
    one; None for half a window. with_length: whether to compute also the features of the length of
    the vector that the axes make. Raises UsageError if there are too few windows, and ValueError
    for impossible numbers.
    """
    raw_features = []
    for samples in recordings:
        if len(samples) < samples_per_window:
            continue
        window = Window(samples_per_window, hop, axes=len(samples[0]), length=with_length)
        scaled_features = array("h", bytes(2 * window.d))  # which features() needs
        for sample in samples:
            is_complete = window.push(*sample)
            if is_complete:
                window.features(scaled_features)
                raw_features.append(list(window.raw))
    fewest = 1 / LOW  # with fewer windows, nothing lies below the quantile
    if len(raw_features) < fewest:
        raise UsageError(
            f"{len(raw_features)} windows of {samples_per_window} samples are too few",
            hint=f"record {fewest:.0f} or more",
        )
    lows, highs = np.quantile(np.array(raw_features), (LOW, HIGH), axis=0)
    scale = []
    for low, high in zip(np.floor(lows), np.ceil(highs), strict=True):
        scale_low = int(low)
        scale_high = max(int(high), scale_low + 1)  # a range is never empty
        scale.append((scale_low, scale_high))
    return scale


def names(count: int, with_length: bool) -> list[str]:
    """Return the names of features in their order, such as "mean of x".

    count: of the features, which are all of KINDS for each axis. with_length: whether the length of
    the vector counts as the last axis.
    """
    axis_count = count // len(KINDS)
    if with_length:
        axes = [*_AXES[: axis_count - 1], "the length"]
    else:
        axes = list(_AXES[:axis_count])
    names_of_features = []
    for axis in axes:
        for kind in KINDS:
            names_of_features.append(f"{kind} of {axis}")
    return names_of_features


def add_parser(subparsers: Any) -> None:
    """Add `tern data scale` to the verbs of `tern data`."""
    summary = (
        "compute the ranges of a sensor's features from public recordings, for tern.features.Window"
    )
    example = "tern data scale recordings.csv --times 8192 --length"
    parser = add_command(subparsers, "scale", summary, example, _run)
    text = "one sample per line, in one to three columns of numbers; an empty line ends a recording"
    parser.add_argument("file", type=Path, metavar="FILE.csv", help=text)
    add_option(parser, "--samples N", "samples in a window", 128)
    add_option(
        parser, "--hop N", "samples from window to window (default: half a window)", type=int
    )
    add_option(parser, "--length", "also compute features of the vector's length")
    add_option(parser, "--times X", "factor from the file's unit to the sensor's integers", 1.0)


def _run(args: argparse.Namespace) -> int:
    """Print the scale of the recordings in a file, as a Python tuple."""
    try:
        scale = scale_of(
            read(args.file, args.times),
            samples_per_window=args.samples,
            hop=args.hop,
            with_length=args.length,
        )
    except ValueError as error:  # of the Window
        raise UsageError(str(error)) from error
    lines = ["SCALE = (  # public: from recordings that everybody may see"]
    for (low, high), name in zip(scale, names(len(scale), args.length), strict=True):
        lines.append(f"    ({low}, {high}),  # {name}")
    text = "\n".join([*lines, ")"])
    print_result({"scale": scale}, text, args.json)
    return OK
