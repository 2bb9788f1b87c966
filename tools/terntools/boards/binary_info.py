"""Where a Pico's MicroPython keeps its files, as its firmware says.

The Pico SDK's linker puts a header of "binary info" near the start of each firmware: five words,
namely a marker, the first address and the end of a list of pointers, the address of a table of
copies, and another marker. Each pointer of the list leads to an entry. MicroPython adds an entry
for the block device of its file system (`bi_block_device` in ports/rp2/rp2_flash.c). The structures
are those of pico-sdk, src/common/pico_binary_info: structure.h and defs.h.
"""

import struct
from collections.abc import Callable, Iterator

from terntools.boards.uf2 import FLASH_END, FLASH_START

# From an address of flash and a number of bytes, the bytes there; fewer where there are no more.
Read = Callable[[int, int], bytes]

# The header is in these bytes: behind the second-stage boot loader (RP2040), or behind the interrupt
# vectors (RP2350).
_SEARCHED_BYTES = 0x500
# marker, first address of the list, its end, address of the table of copies, marker
_HEADER = "<IIIII"
_MARKER_START = 0x7188EBF2
_MARKER_END = 0xE71AA390
_POINTER = "<I"
_MOST_POINTERS = 200  # a header that announces more is none
_ENTRY = "<HHIII"  # type, tag, address of the name, first address, bytes
_BLOCK_DEVICE = 7  # a type
_MICROPYTHON = int.from_bytes(b"MP", "little")  # a tag
_NAME = b"MicroPython\0"  # of the block device with its files; there may be others, such as "ROMFS"


def file_system(read_flash: Read) -> range | None:
    """Find the addresses of flash where a Pico's MicroPython keeps its files.

    A firmware for a Pico has a list of entries about itself, which is called binary info. The entry
    for the block device of its file system has the first address and the size. The result is None
    if the firmware has no such entry.

    read_flash: returns bytes of the flash, or of a file with the firmware, from an address on.
    """
    for entry_address in _entry_addresses(read_flash):
        entry = read_flash(entry_address, struct.calcsize(_ENTRY))
        if len(entry) < struct.calcsize(_ENTRY):  # a pointer that leads out of the flash
            continue
        entry_type, tag, name_address, first_address, size = struct.unpack(_ENTRY, entry)
        if entry_type != _BLOCK_DEVICE or tag != _MICROPYTHON:
            continue
        is_in_flash = FLASH_START <= first_address < first_address + size <= FLASH_END
        if is_in_flash and read_flash(name_address, len(_NAME)) == _NAME:
            return range(first_address, first_address + size)
    return None


def _entry_addresses(read_flash: Read) -> Iterator[int]:
    """Yield the addresses of the entries by which a firmware describes itself.

    The header of the firmware says where there is a list of pointers; each of them is the address
    of an entry. A firmware without a header has no entries.
    """
    list_region = _region_of_pointers(read_flash(FLASH_START, _SEARCHED_BYTES))
    if list_region is None:
        return
    pointers = read_flash(list_region.start, len(list_region))
    # The list may be cut off in the middle of a pointer.
    rest_bytes = len(pointers) % struct.calcsize(_POINTER)
    whole_bytes = len(pointers) - rest_bytes
    for (pointer,) in struct.iter_unpack(_POINTER, pointers[:whole_bytes]):
        yield pointer


def _region_of_pointers(first_bytes: bytes) -> range | None:
    """Find the header in the first bytes of a firmware, and return where its list of pointers is.

    The header is five words: a marker, the first address and the end of the list, another address
    that is not needed here, and a second marker. The result is a range of addresses, or None if
    there is no header.
    """
    last_offset = len(first_bytes) - struct.calcsize(_HEADER)
    for offset in range(0, last_offset + 1, 4):  # it begins at a whole word
        marker_start, list_start, list_end, _, marker_end = struct.unpack_from(
            _HEADER, first_bytes, offset
        )
        if (marker_start, marker_end) != (_MARKER_START, _MARKER_END):
            continue
        most_bytes = _MOST_POINTERS * struct.calcsize(_POINTER)
        if 0 <= list_end - list_start <= most_bytes:
            return range(list_start, list_end)
    return None
