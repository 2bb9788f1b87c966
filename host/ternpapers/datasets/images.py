"""MNIST (LeCun et al. 1998) and Fashion-MNIST (Xiao et al. 2017), in idx format.

A device's model has at most 128 features, so images of 28 x 28 pixels are averaged to 7 x 7."""

import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ternhost.datasets import base
from ternhost.errors import UsageError

SOURCES = {
    "mnist": "https://yann.lecun.com/exdb/mnist/ or https://storage.googleapis.com/cvdf-datasets/mnist/ "
    "(train-images-idx3-ubyte.gz and train-labels-idx1-ubyte.gz)",
    "fashion-mnist": "https://github.com/zalandoresearch/fashion-mnist (the same file names as MNIST)",
}
CLASSES = {
    "mnist": tuple("0123456789"),
    "fashion-mnist": (
        "t-shirt",
        "trouser",
        "pullover",
        "dress",
        "coat",
        "sandal",
        "shirt",
        "sneaker",
        "bag",
        "ankle boot",
    ),
}
_IMAGES = "train-images-idx3-ubyte"
_LABELS = "train-labels-idx1-ubyte"
_UBYTE = 0x08
_SIDE = 7
_WHITE = 255


def load(name: str, path: Path | None = None) -> base.Dataset:
    """Handwritten digits ("mnist") or pieces of clothing ("fashion-mnist"): 49 features, ten
    classes.

    path: the folder of the two files, packed with gzip or not (default: the folder of that name in
    `data_folder()`). Raises UsageError if a file is missing or not in its format.
    """
    source = SOURCES[name]
    if path is None:
        path = base.data_folder() / name  # both sets have files of the same names
    if path.is_file():
        raise UsageError(
            f"{name} is two files, and {path} is one", f"name the folder of both: {name}:FOLDER"
        )
    images_file = base.find_file(name, path, _names(_IMAGES), source)
    labels_file = base.find_file(name, path, _names(_LABELS), source)
    images, labels = read_idx(images_file, source), read_idx(labels_file, source)
    if images.ndim != 3 or images.shape[1] % _SIDE or images.shape[2] % _SIDE or 0 in images.shape:
        raise base.bad_file(images_file, f"not images whose sides are multiples of {_SIDE}", source)
    if labels.shape != (len(images),) or labels.max() >= len(CLASSES[name]):
        text = f"not {len(images)} labels from 0 to {len(CLASSES[name]) - 1}"
        raise base.bad_file(labels_file, text, source)
    n, height, width = images.shape
    pooled = images.reshape(n, _SIDE, height // _SIDE, _SIDE, width // _SIDE).mean(axis=(2, 4))
    names = [f"pixel{row}{column}" for row in range(_SIDE) for column in range(_SIDE)]
    features = base.normalised(pooled.reshape(n, -1), 0, _WHITE)
    return base.with_constant(name, base.MULTICLASS, names, features, labels, CLASSES[name])


def _names(file: str) -> tuple[str, ...]:
    return file, f"{file}.gz", file.replace("-idx", ".idx")


def read_idx(path: Path, source: str) -> npt.NDArray[Any]:
    """The array of unsigned bytes in an idx file, packed with gzip or not.

    Raises UsageError for any other file.
    """
    try:
        raw = path.read_bytes()
        if raw[:2] == b"\x1f\x8b":
            raw = gzip.decompress(raw)
    except (OSError, EOFError, zlib.error) as error:
        raise base.bad_file(path, f"cannot be read ({error})", source) from error
    if len(raw) < 4 or raw[:2] != b"\0\0" or raw[2] != _UBYTE:
        raise base.bad_file(path, "not an idx file of unsigned bytes", source)
    dimensions = raw[3]
    start = 4 + 4 * dimensions
    if not dimensions or len(raw) < start:
        raise base.bad_file(path, "the idx header is cut short", source)
    shape = struct.unpack(f">{dimensions}I", raw[4:start])
    if math.prod(shape) != len(raw) - start:
        text = f"the header announces {math.prod(shape)} bytes of data, not {len(raw) - start}"
        raise base.bad_file(path, text, source)
    return np.frombuffer(raw, np.uint8, offset=start).reshape(shape)
