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

_ID_BYTES = 4  # of a device id in a frame
_FASTEST = 1  # compression level of zlib


def integers(devices: Devices) -> Integers:
    """Return device ids as an array, in their order."""
    if isinstance(devices, range):
        return np.arange(devices.start, devices.stop, devices.step, dtype=np.int64)
    if not isinstance(devices, (np.ndarray, Sequence)):
        devices = list(devices)
    return np.asarray(devices, np.int64)


def distinct(groups: Iterable[Devices]) -> Integers:
    """Return each id of these groups of devices once, ascending.

    Ids that ascend already are not sorted. np.unique would take twenty times as long as a sort.
    """
    ids = np.concatenate([integers(()), *(integers(group) for group in groups)])
    if np.all(ids[1:] > ids[:-1]):
        return ids
    ids = np.sort(ids)
    is_new = np.append(True, ids[1:] > ids[:-1])
    once: Integers = ids[is_new]
    return once


def id_bytes(devices: Integers) -> npt.NDArray[np.uint8]:
    """Return n device ids as frames have them: n x 4 bytes, the least significant byte first."""
    return devices.astype("<u4").view(np.uint8).reshape(-1, _ID_BYTES)


class Members:
    """A set of devices: their `ids`, ascending, and a fast way to find the index of an id."""

    def __init__(self, devices: Devices) -> None:
        """Sort the ids of these devices. Raises ValueError if an id is there twice."""
        ids = integers(devices)
        if np.any(ids[1:] <= ids[:-1]):  # they do not ascend
            ids = np.sort(ids)
            if np.any(ids[1:] == ids[:-1]):
                raise ValueError("a device is named twice")
        self.ids = ids
        # Whether no id between the first and the last one is missing.
        self._in_a_row = len(ids) > 0 and int(ids[-1] - ids[0]) == len(ids) - 1

    def __len__(self) -> int:
        return len(self.ids)

    def find(self, devices: Integers) -> Positions:
        """Return the index in `ids` of each of these devices, or -1 if it is not a member."""
        ids = self.ids
        if self._in_a_row:  # the index follows from the id alone
            indices: Positions = devices - ids[0]
            indices[(indices < 0) | (indices >= len(ids))] = -1
            return indices
        indices = np.searchsorted(ids, devices)  # where a device would be inserted
        indices[indices == len(ids)] = -1
        if len(ids):
            indices[ids[indices] != devices] = -1
        return indices


class Keyring:
    """The keys of devices, by device and as an array.

    members: the devices. keys: row i is the key (32 bytes) of the device `members.ids[i]`.
    by_device: the keys by the id of the device.
    """

    def __init__(self, keys: Mapping[int, bytes]) -> None:
        """Put the keys, which are given by the ids of their devices, into an array."""
        self.by_device = keys
        self.members = Members(keys)
        in_order = b"".join([keys[device] for device in self.members.ids.tolist()])
        self.keys = np.frombuffer(in_order, np.uint8).reshape(len(self.members), wire.KEY_BYTES)


def pack_ids(devices: Devices) -> bytes:
    """Pack device ids, in their order, into few bytes; `unpack_ids` unpacks them.

    Of each id, the difference to the one before (of the first one, to 0) is taken modulo 2**32. The
    differences are mostly small, so their higher bytes are mostly 0. All lowest bytes are put
    first, then all second ones, and so on, so that the zeros are next to each other and deflate
    well.
    """
    differences = np.diff(integers(devices), prepend=0).astype("<u4")
    bytes_of_differences = differences.view(np.uint8).reshape(-1, _ID_BYTES)
    byte_planes = bytes_of_differences.T.tobytes()
    deflate = zlib.compressobj(_FASTEST, strategy=zlib.Z_RLE)  # only runs are looked for
    return deflate.compress(byte_planes) + deflate.flush()


def inflate(packed: bytes, most: int) -> bytes:
    """Return bytes that were deflated (zlib), where they may come from an attacker.

    Raises ValueError for invalid data, and for data that inflate to more than `most` bytes.
    """
    stream = zlib.decompressobj()
    try:
        # Stop after one byte too many: a few bytes could inflate to gigabytes.
        data = stream.decompress(packed, most + 1)
    except zlib.error as error:
        raise ValueError(f"this was not deflated: {error}") from error
    if len(data) > most or not stream.eof or stream.unused_data:
        raise ValueError(f"this is not deflated, or more than {most} bytes")
    return data


def unpack_ids(packed: bytes, most: int | None = None) -> "array[int]":
    """Return the ids that `pack_ids` packed.

    most: how many ids there may be, if the bytes may come from an attacker; then more ids, and
    invalid data, raise ValueError. None: the bytes are trusted.
    """
    if most is None:
        data = zlib.decompress(packed)
    else:
        data = inflate(packed, _ID_BYTES * most)
    byte_planes = np.frombuffer(data, np.uint8).reshape(_ID_BYTES, -1)
    differences = np.ascontiguousarray(byte_planes.T).view("<u4")
    ids = np.cumsum(differences, dtype=np.uint32)  # modulo 2**32, as they were packed
    return array("I", ids.tobytes())
