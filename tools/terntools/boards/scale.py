"""`tern scale`: finds the scale of tern.features.Window from public recordings.

A fleet's measurements are never used, since the scale is public. FILE.csv has a sample per line,
one to three columns; a first line may name them, and an empty line ends a recording. A scale runs
from the 2 % quantile over all windows to the 98 % quantile.
"""

import argparse
import csv
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tern.features import Window
from ternhost.command import add_command, add_option, print_result
from ternhost.errors import OK, UsageError

LOW, HIGH = 0.02, 0.98
KINDS = ("mean", "deviation", "jerk", "crossings")
_AXES = "xyz"


def read(path: Path, factor: float = 1.0) -> Iterator[list[tuple[int, ...]]]:
    """Yield the recordings of a file: samples times `factor`, rounded to int16.

    A sample is a tuple with a value for each axis. Raises UsageError.
    """
    try:
        lines = list(csv.reader(path.read_text(encoding="utf-8").splitlines()))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    recording: list[tuple[int, ...]] = []
    column_count = len(lines[0]) if lines else 0
    for number, fields in enumerate(lines, 1):
        try:
            sample = tuple(round(float(field) * factor) for field in fields)
        except (ValueError, OverflowError):  # words, nan, infinity
            if number == 1:
                continue  # names of the columns
            raise UsageError(
                f"{path}: line {number} has a word, nan or inf", hint="correct it"
            ) from None
        if not sample:  # an empty line ends a recording
            yield recording
            recording = []
            continue
        if len(sample) != column_count or column_count > len(_AXES):
            raise UsageError(
                f"{path}: line {number} has {len(sample)} columns", hint="1 to 3, as line 1"
            )
        if min(sample) < -32768 or max(sample) > 32767:
            hint = "--times turns units into the sensor's integers"
            raise UsageError(f"{path}: line {number} is beyond int16", hint)
        recording.append(sample)
    yield recording


def scale_of(
    recordings: Iterator[list[tuple[int, ...]]],
    samples_per_window: int,
    hop: int | None = None,
    with_length: bool = False,
) -> list[tuple[int, int]]:
    """Return the scale (low, high) of each feature over the windows of these recordings.

    hop: samples from window to window; None for half a window. with_length: also the features of
    the vector's length. Raises UsageError if there are too few windows, and ValueError for a window
    that is impossible.
    """
    raw_features = []
    for samples in recordings:
        if len(samples) < samples_per_window:
            continue
        window = Window(samples_per_window, hop, axes=len(samples[0]), length=with_length)
        scaled_features = array("h", bytes(2 * window.d))
        for sample in samples:
            if window.push(*sample):
                window.features(scaled_features)
                raw_features.append(list(window.raw))
    fewest = 1 / LOW
    if len(raw_features) < fewest:
        raise UsageError(
            f"{len(raw_features)} windows of {samples_per_window} samples are too few",
            hint=f"record {fewest:.0f} or more",
        )
    lows, highs = np.quantile(np.array(raw_features), (LOW, HIGH), axis=0)
    scale = []
    for low, high in zip(np.floor(lows), np.ceil(highs), strict=True):
        scale.append((int(low), max(int(low) + 1, int(high))))  # never empty
    return scale


def names(count: int, with_length: bool) -> list[str]:
    """Return the names of `count` features, in their order."""
    axes = list(_AXES[: count // len(KINDS) - with_length])
    if with_length:
        axes.append("the length")
    return [f"{kind} of {axis}" for axis in axes for kind in KINDS]


def add_parser(subparsers: Any) -> None:
    """Add `tern scale` to the commands."""
    summary = (
        "compute the ranges of a sensor's features from public recordings, for tern.features.Window"
    )
    example = "tern scale recordings.csv --times 8192 --length"
    parser = add_command(subparsers, "scale", summary, example, _run)
    text = "one sample per line, in one to three columns of numbers; an empty line ends a recording"
    parser.add_argument("file", type=Path, metavar="FILE.csv", help=text)
    add_option(parser, "--window N", "samples in a window", 128)
    add_option(
        parser, "--hop N", "samples from window to window (default: half a window)", type=int
    )
    add_option(parser, "--length", "also compute features of the vector's length")
    add_option(parser, "--times X", "factor from the file's unit to the sensor's integers", 1.0)


def _run(args: argparse.Namespace) -> int:
    """Print the scale of the recordings in a file, as a Python tuple."""
    try:
        scale = scale_of(read(args.file, args.times), args.window, args.hop, args.length)
    except ValueError as error:  # of the Window
        raise UsageError(str(error)) from error
    lines = ["SCALE = (  # public: from recordings that everybody may see"]
    for (low, high), name in zip(scale, names(len(scale), args.length), strict=True):
        lines.append(f"    ({low}, {high}),  # {name}")
    text = "\n".join([*lines, ")"])
    print_result({"scale": scale}, text, args.json)
    return OK
