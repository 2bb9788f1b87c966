"""UF2 files: read and checked. Format: github.com/microsoft/uf2, README.md."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from ternhost.errors import UsageError

BLOCK_BYTES = 512
_SECTOR_BYTES = 4096  # a file system begins with a sector of a Pico's flash
_HEAD = "<IIIIIIII"  # magic 0, magic 1, flags, address, bytes of data, number, number of blocks, family
_DATA_AT = struct.calcsize(_HEAD)
_MAGIC = (0x0A324655, 0x9E5D5157)
_MAGIC_END = 0x0AB16F30
_MAGIC_END_AT = BLOCK_BYTES - 4
_MAX_DATA_BYTES = 476
_NOT_MAIN_FLASH = 0x1  # a flag
_FAMILY_PRESENT = 0x2000  # a flag

RP2040 = 0xE48BFF56
RP2350_ARM = 0xE48BFF59
RP2350_RISCV = 0xE48BFF5A
_ABSOLUTE = 0xE48BFF57  # blocks that are no part of the image: erratum RP2350-E10 asks for one
CHIPS = {RP2040: "RP2040", RP2350_ARM: "RP2350", RP2350_RISCV: "RP2350"}

FLASH_START = 0x10000000  # the address of a Pico's flash
FLASH_END = FLASH_START + (16 << 20)  # of the largest one

_ERASED = b"\xff"  # a byte of flash after erasing
_SUPERBLOCK_MAGIC = b"littlefs"
_SUPERBLOCK_MAGIC_AT = 8  # behind a revision and a tag of four bytes each


@dataclass(frozen=True)
class Image:
    """The content of a UF2 file: the chip's name, and (address, bytes) block by block."""

    chip: str
    blocks: tuple[tuple[int, bytes], ...]

    @property
    def size(self) -> int:
        """The bytes of all blocks."""
        return sum(len(data) for _, data in self.blocks)

    def read(self, address: int, n: int) -> bytes:
        """The n bytes from an address of flash on. Those that no block holds are 0xff, as after erasing."""
        content = bytearray(_ERASED * n)
        for start, data in self.blocks:
            first = max(start, address)
            end = min(start + len(data), address + n)
            if first < end:
                content[first - address : end - address] = data[first - start : end - start]
        return bytes(content)

    def writes_into(self, region: range) -> bool:
        """Whether a block lies, at least in part, in this region of flash."""
        block_regions = (range(start, start + len(data)) for start, data in self.blocks)
        return any(block.start < region.stop and region.start < block.stop for block in block_regions)

    @property
    def has_file_system(self) -> bool:
        """Whether a block at the start of a sector begins as a file system of LittleFS does (SPEC.md, superblock)."""
        for start, data in self.blocks:
            if start % _SECTOR_BYTES == 0 and data[_SUPERBLOCK_MAGIC_AT:].startswith(_SUPERBLOCK_MAGIC):
                return True
        return False


@dataclass(frozen=True)
class _Block:
    """One block of a UF2 file."""

    family: int  # of chips
    address: int  # in flash
    data: bytes
    number: int  # among the blocks for its family, from 0 on
    count: int  # of the blocks for its family


def read(data: bytes, name: str = "the file") -> Image:
    """The image in a UF2 file for a chip of the Pico family; `name`: of the file, for messages.

    Raises UsageError if a block is damaged, missing, out of order, or for another chip or for no flash."""
    family, blocks = _blocks_of_one_family(data, name)
    for position, block in enumerate(blocks):
        if block.number != position or block.count != len(blocks):
            claim = f"block {position} of {len(blocks)} says that it is {block.number} of {block.count}"
            raise _bad(name, f"{claim}: blocks are missing or out of order")
        end = block.address + len(block.data)
        if block.address < FLASH_START or end > FLASH_END:
            raise _bad(name, f"block {position} is for address {block.address:#x}, which is no flash")
    if family not in CHIPS:
        raise _bad(name, f"it is for another chip (family {family:#x})")
    if all(block.address != FLASH_START for block in blocks):
        raise _bad(name, f"nothing in it is for address {FLASH_START:#x}, where a Pico's program starts")
    return Image(CHIPS[family], tuple((block.address, block.data) for block in blocks))


def _blocks_of_one_family(data: bytes, name: str) -> tuple[int, list[_Block]]:
    """The family that a UF2 file is for, and its blocks. Raises UsageError for none and for several families."""
    if not data or len(data) % BLOCK_BYTES:
        raise _bad(name, "its length is not a multiple of 512 bytes: was the download cut short?")
    blocks_by_family: dict[int, list[_Block]] = {}
    for block in _blocks(data, name):
        if block.family != _ABSOLUTE:
            blocks_by_family.setdefault(block.family, []).append(block)
    if not blocks_by_family:
        raise _bad(name, "it holds no program")
    if len(blocks_by_family) > 1:
        chips = {CHIPS.get(family, f"family {family:#x}") for family in blocks_by_family}
        raise _bad(name, f"it mixes several chips ({', '.join(sorted(chips))})")
    return blocks_by_family.popitem()


def _blocks(data: bytes, name: str) -> Iterator[_Block]:
    """The blocks of a UF2 file, whose length has been checked. Raises UsageError for a damaged one."""
    for at in range(0, len(data), BLOCK_BYTES):
        position = at // BLOCK_BYTES
        magic0, magic1, flags, address, size, number, count, family = struct.unpack_from(_HEAD, data, at)
        (magic_end,) = struct.unpack_from("<I", data, at + _MAGIC_END_AT)
        if (magic0, magic1) != _MAGIC or magic_end != _MAGIC_END:
            raise _bad(name, "it is no UF2 file" if position == 0 else f"block {position} is damaged")
        if not 0 < size <= _MAX_DATA_BYTES or not flags & _FAMILY_PRESENT:
            raise _bad(name, f"block {position} is damaged")
        if flags & _NOT_MAIN_FLASH:
            raise _bad(name, "it is not for the main flash")
        block_data = data[at + _DATA_AT : at + _DATA_AT + size]
        yield _Block(family, address, block_data, number, count)


def _bad(name: str, why: str) -> UsageError:
    """The error for a file that cannot be flashed."""
    return UsageError(f"{name} cannot be flashed: {why}", hint="get the .uf2 file of your board again")
