"""Where a Pico's firmware keeps its files, read from the firmware itself.

The Pico SDK's linker puts a table of "binary info" into each firmware: five words between two markers, of which two
point to a list of pointers. MicroPython adds a block device for its file system (`bi_block_device` in
ports/rp2/rp2_flash.c). The structures are those of pico-sdk, src/common/pico_binary_info: structure.h and defs.h."""

import struct
from collections.abc import Callable

from terntools.boards.uf2 import FLASH_START

Read = Callable[[int, int], bytes]  # the bytes from an address of flash on; fewer where there are no more

_SEARCHED = 0x300  # bytes: the table is behind the second-stage boot loader (RP2040) or the vectors (RP2350)
_MARKER_START, _MARKER_END = 0x7188EBF2, 0xE71AA390
_MOST_ENTRIES = 1000
_BLOCK_DEVICE = 7
_MICROPYTHON = int.from_bytes(b"MP", "little")
_NAME = b"MicroPython\0"  # of its file system; there may be others, such as "ROMFS"
_ENTRY = "<HHIII"  # type, tag, address of the name, first address, bytes


def file_system(read: Read) -> range | None:
    """The addresses in flash of the files of the MicroPython that `read` reads; None where it tells none."""
    head = read(FLASH_START, _SEARCHED)
    at = head.find(struct.pack("<I", _MARKER_START))
    if at < 0 or len(head) < at + 20:
        return None
    first, end, _, marker = struct.unpack_from("<IIII", head, at + 4)
    if marker != _MARKER_END or not 0 <= end - first <= 4 * _MOST_ENTRIES:
        return None
    pointers = read(first, end - first)
    for (pointer,) in struct.iter_unpack("<I", pointers[: len(pointers) // 4 * 4]):
        entry = read(pointer, struct.calcsize(_ENTRY))
        if len(entry) < struct.calcsize(_ENTRY):
            continue
        kind, tag, name, start, size = struct.unpack(_ENTRY, entry)
        if (kind, tag) == (_BLOCK_DEVICE, _MICROPYTHON) and read(name, len(_NAME)) == _NAME:
            return range(start, start + size)
    return None
