"""How a LittleFS file system is recognised in flash: by its superblock (littlefs, SPEC.md)."""

import struct

BLOCK_BYTES = 4096  # MicroPython's, on a Pico and on an ESP32
HEAD_BYTES = 32  # what size_of() needs
_MAGIC = b"littlefs"
_MAGIC_AT = 8  # behind a revision and a tag of four bytes each
_SIZE = "<II"  # bytes of a block, number of blocks
_SIZE_AT = 24  # behind a tag and a version


def begins(data: bytes) -> bool:
    """Return whether these bytes of flash are the start of a LittleFS file system."""
    return data[_MAGIC_AT : _MAGIC_AT + len(_MAGIC)] == _MAGIC


def size_of(head: bytes) -> int | None:
    """Return the size in bytes of the file system that starts with `head`.

    head: the first HEAD_BYTES bytes, or more. The result is None if no file system starts there.
    """
    if len(head) < HEAD_BYTES or not begins(head):
        return None
    block_bytes, blocks = struct.unpack_from(_SIZE, head, _SIZE_AT)
    size: int = block_bytes * blocks
    return size
