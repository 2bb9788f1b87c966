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
_GZIP = b"\x1f\x8b"  # with which packed files begin
_IDX = b"\0\0"  # with which idx files begin; then come the type and the number of dimensions
_IDX_HEAD = 4  # bytes before the sizes of the dimensions
_UBYTE = 0x08  # the type of unsigned bytes
_SIDE = 7  # pixels of a pooled image
_WHITE = 255


def load(name: str, path: Path | None = None) -> base.Dataset:
    """Load handwritten digits ("mnist") or pieces of clothing ("fashion-mnist"), in ten classes.

    The 49 features are the brightness of 7 x 7 pixels. path: the folder of the two files, packed
    with gzip or not; None for the folder of that name in `data_folder()`. Raises UsageError if a
    file is missing or not in its format.
    """
    source = SOURCES[name]
    if path is None:
        path = base.data_folder() / name  # both sets have files of the same names
    if path.is_file():
        raise UsageError(
            f"{name} is two files, and {path} is one", f"name the folder of both: {name}:FOLDER"
        )
    images_file = base.find_file(name, path, _possible_names(_IMAGES), source, of_several=True)
    labels_file = base.find_file(name, path, _possible_names(_LABELS), source, of_several=True)
    images = read_idx(images_file, source)
    labels = read_idx(labels_file, source)
    if not _can_be_pooled(images.shape):
        raise base.bad_file(images_file, f"not images whose sides are multiples of {_SIDE}", source)
    if labels.shape != (len(images),) or labels.max() >= len(CLASSES[name]):
        text = f"not {len(images)} labels from 0 to {len(CLASSES[name]) - 1}"
        raise base.bad_file(labels_file, text, source)

    # Average the blocks of pixels: images x rows of blocks x rows x columns of blocks x columns.
    count, height, width = images.shape
    blocks = images.reshape(count, _SIDE, height // _SIDE, _SIDE, width // _SIDE)
    pooled = blocks.mean(axis=(2, 4)).reshape(count, -1)
    names = [f"pixel{row}{column}" for row in range(_SIDE) for column in range(_SIDE)]
    features = base.normalised(pooled, 0, _WHITE)
    return base.with_constant(name, base.MULTICLASS, names, features, labels, CLASSES[name])


def _can_be_pooled(shape: tuple[int, ...]) -> bool:
    """Return whether an array of this shape has images whose sides are multiples of _SIDE."""
    if len(shape) != 3 or 0 in shape:
        return False
    _, height, width = shape
    return height % _SIDE == 0 and width % _SIDE == 0


def _possible_names(file: str) -> tuple[str, ...]:
    """Return the names under which a file may be stored: as it is, packed, or with a dot."""
    return file, f"{file}.gz", file.replace("-idx", ".idx")


def read_idx(path: Path, source: str) -> npt.NDArray[Any]:
    """Read the array of unsigned bytes in an idx file, packed with gzip or not.

    source: where users get the file. Raises UsageError for any other file.
    """
    try:
        raw = path.read_bytes()
        if raw.startswith(_GZIP):
            raw = gzip.decompress(raw)
    except (OSError, EOFError, zlib.error) as error:
        raise base.bad_file(path, f"cannot be read ({error})", source) from error
    is_idx = len(raw) >= _IDX_HEAD and raw.startswith(_IDX)
    if not is_idx or raw[2] != _UBYTE:
        raise base.bad_file(path, "not an idx file of unsigned bytes", source)
    dimensions = raw[3]
    start = _IDX_HEAD + 4 * dimensions  # of the data: each dimension has a size of 4 bytes
    if not dimensions or len(raw) < start:
        raise base.bad_file(path, "the idx header is cut short", source)
    shape = struct.unpack(f">{dimensions}I", raw[_IDX_HEAD:start])  # big-endian uint32
    if math.prod(shape) != len(raw) - start:
        text = f"the header announces {math.prod(shape)} bytes of data, not {len(raw) - start}"
        raise base.bad_file(path, text, source)
    return np.frombuffer(raw, np.uint8, offset=start).reshape(shape)
