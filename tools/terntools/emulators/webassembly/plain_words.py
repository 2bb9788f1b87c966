"""Bytes as the words that machine code sees, for MicroPython without machine code.

The device tests of WebAssembly copy this file beside the device library. MicroPython's memoryview
has no cast(), with which the library does the same on CPython.
"""

import struct


class Words:
    """Bytes as signed words of 4 bytes, in the processor's order."""

    def __init__(self, data: "bytes | bytearray | memoryview") -> None:
        self._data = data

    def __getitem__(self, index: int) -> int:
        word: int = struct.unpack_from("i", self._data, 4 * index)[0]
        return word

    def __setitem__(self, index: int, word: int) -> None:
        struct.pack_into("i", self._data, 4 * index, word)


def ptr32(buffer: object) -> object:
    """Return bytes as words of 4 bytes; anything else has words already."""
    if isinstance(buffer, (bytes, bytearray, memoryview)):
        return Words(buffer)
    return buffer


def ptr8(buffer: object) -> object:
    """Return the same buffer, whose items are used as they are."""
    return buffer


ptr16 = ptr8
