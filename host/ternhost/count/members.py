"""Sets of devices and their keys as arrays, so that thousands of devices are handled at once."""

import zlib
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tern import wire

Devices = Iterable[int] | npt.NDArray[Any]
Integers = npt.NDArray[np.int64]
Positions = npt.NDArray[np.intp]

_ID_BYTES = 4
_FASTEST = 1  # level of zlib


def integers(devices: Devices) -> Integers:
    """Turn device ids into an array, in their order."""
    if isinstance(devices, range):
        return np.arange(devices.start, devices.stop, devices.step, dtype=np.int64)
    if not isinstance(devices, (np.ndarray, Sequence)):
        devices = list(devices)
    return np.asarray(devices, np.int64)


def id_bytes(devices: Integers) -> npt.NDArray[np.uint8]:
    """Device ids in the format of frames, n x 4."""
    return devices.astype("<u4").view(np.uint8).reshape(-1, _ID_BYTES)


class Members:
    """Distinct devices, ascending in `ids`, and their indices."""

    def __init__(self, devices: Devices) -> None:
        """Raises ValueError where a device is named twice."""
        ids = integers(devices)
        if np.any(ids[1:] <= ids[:-1]):
            ids = np.sort(ids)
            if np.any(ids[1:] == ids[:-1]):
                raise ValueError("a device is named twice")
        self.ids = ids
        self._in_a_row = len(ids) > 0 and int(ids[-1] - ids[0]) == len(ids) - 1

    def __len__(self) -> int:
        return len(self.ids)

    def find(self, devices: Integers) -> Positions:
        """Find the index of each of these devices in `ids`; -1 for devices that are no members."""
        ids = self.ids
        if self._in_a_row:
            indices: Positions = devices - ids[0]
            indices[(indices < 0) | (indices >= len(ids))] = -1
            return indices
        indices = np.searchsorted(ids, devices)  # where a device would be inserted
        indices[indices == len(ids)] = -1
        if len(ids):
            indices[ids[indices] != devices] = -1
        return indices


class Keyring:
    """Devices and their keys: row i of `keys` is the key (32 bytes) of `members.ids[i]`."""

    def __init__(self, keys: Mapping[int, bytes]) -> None:
        self.members = Members(keys)
        in_order = b"".join([keys[device] for device in self.members.ids.tolist()])
        self.keys = np.frombuffer(in_order, np.uint8).reshape(len(self.members), wire.KEY_BYTES)
        self.by_device = keys


def pack_ids(devices: Devices) -> bytes:
    """Pack device ids, in their order, into few bytes.

    Their differences modulo 2**32 (the first to 0) are deflated: first all lowest bytes, then all
    second ones, and so on, since the higher bytes of small differences are runs of zeros.
    """
    differences = np.diff(integers(devices), prepend=0).astype("<u4")
    bytes_of_differences = differences.view(np.uint8).reshape(-1, _ID_BYTES)
    planes = bytes_of_differences.T.tobytes()
    deflate = zlib.compressobj(_FASTEST, strategy=zlib.Z_RLE)
    return deflate.compress(planes) + deflate.flush()


def inflate(packed: bytes, most: int) -> bytes:
    """Inflate untrusted bytes.

    Raises ValueError for more than `most` bytes and for invalid data.
    """
    stream = zlib.decompressobj()
    try:
        # At most one byte too many, however much the bytes would inflate to.
        data = stream.decompress(packed, most + 1)
    except zlib.error as error:
        raise ValueError(f"this was not deflated: {error}") from error
    if len(data) > most or not stream.eof or stream.unused_data:
        raise ValueError(f"this is not deflated, or more than {most} bytes")
    return data


def unpack_ids(packed: bytes, most: int | None = None) -> "array[int]":
    """Unpack the ids that `pack_ids` packed.

    most: the largest number of ids in untrusted bytes; more ids, or invalid data, raise ValueError.
    """
    if most is None:
        data = zlib.decompress(packed)
    else:
        data = inflate(packed, _ID_BYTES * most)
    planes = np.frombuffer(data, np.uint8).reshape(_ID_BYTES, -1)
    differences = np.ascontiguousarray(planes.T).view("<u4")
    return array("I", np.cumsum(differences, dtype=np.uint32).tobytes())
