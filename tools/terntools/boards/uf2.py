"""UF2 files: read and checked. Format: github.com/microsoft/uf2, README.md."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from ternhost.errors import UsageError

BLOCK_BYTES = 512
_SECTOR_BYTES = 4096  # of a Pico's flash
_HEAD = "<IIIIIIII"  # magic 0, magic 1, flags, address, payload, number, blocks, family
_MAGIC = (0x0A324655, 0x9E5D5157)
_MAGIC_END = 0x0AB16F30
_MAX_PAYLOAD = 476
_NOT_MAIN_FLASH = 0x1
_FAMILY_PRESENT = 0x2000

RP2040 = 0xE48BFF56
RP2350_ARM = 0xE48BFF59
RP2350_RISCV = 0xE48BFF5A
_ABSOLUTE = 0xE48BFF57  # blocks that are no part of the image: erratum RP2350-E10 asks for one
CHIPS = {RP2040: "RP2040", RP2350_ARM: "RP2350", RP2350_RISCV: "RP2350"}

FLASH_START = 0x10000000
FLASH_END = FLASH_START + (16 << 20)


@dataclass(frozen=True)
class Image:
    """The content of a UF2 file: the chip's name, and (address, bytes) block by block."""

    chip: str
    blocks: tuple[tuple[int, bytes], ...]

    @property
    def size(self) -> int:
        return sum(len(data) for _, data in self.blocks)

    def read(self, address: int, n: int) -> bytes:
        """The n bytes from an address of flash on; those that no block holds are 0xff, as after erasing."""
        read = bytearray(b"\xff" * n)
        for start, data in self.blocks:
            first, end = max(start, address), min(start + len(data), address + n)
            if first < end:
                read[first - address : end - address] = data[first - start : end - start]
        return bytes(read)

    def reaches(self, region: range) -> bool:
        """Whether a block writes into this region of flash."""
        return any(start < region.stop and region.start < start + len(data) for start, data in self.blocks)

    @property
    def has_file_system(self) -> bool:
        """Whether a sector of flash begins as a file system of LittleFS does (its SPEC.md: the superblock)."""
        name = slice(8, 16)  # behind a revision and a tag of four bytes each
        return any(data[name] == b"littlefs" for start, data in self.blocks if start % _SECTOR_BYTES == 0)


def read(data: bytes, name: str = "the file") -> Image:
    """Check every block of a UF2 file for a chip of the Pico family. Raises UsageError."""
    if not data or len(data) % BLOCK_BYTES:
        raise _bad(name, "its length is not a multiple of 512 bytes: was the download cut short?")
    blocks_by_family: dict[int, list[_Block]] = {}
    for block in _blocks(data, name):
        if block.family != _ABSOLUTE:
            blocks_by_family.setdefault(block.family, []).append(block)
    if not blocks_by_family:
        raise _bad(name, "it holds no program")
    if len(blocks_by_family) > 1:
        chips = sorted(CHIPS.get(family, f"family {family:#x}") for family in blocks_by_family)
        raise _bad(name, f"it mixes several chips ({', '.join(dict.fromkeys(chips))})")
    ((family, blocks),) = blocks_by_family.items()
    for place, block in enumerate(blocks):
        if (block.number, block.count) != (place, len(blocks)):
            text = f"block {place} of {len(blocks)} says that it is {block.number} of {block.count}: "
            raise _bad(name, text + "blocks are missing or out of order")
        if not FLASH_START <= block.address < block.address + len(block.data) <= FLASH_END:
            raise _bad(name, f"block {place} is for address {block.address:#x}, which is no flash")
    if family not in CHIPS:
        raise _bad(name, f"it is for another chip (family {family:#x})")
    if all(block.address != FLASH_START for block in blocks):
        raise _bad(name, f"nothing in it is for address {FLASH_START:#x}, where a Pico's program starts")
    return Image(CHIPS[family], tuple((block.address, block.data) for block in blocks))


@dataclass(frozen=True)
class _Block:
    """One block of a UF2 file; number and count: of the blocks for its family."""

    family: int
    address: int
    data: bytes
    number: int
    count: int


def _blocks(data: bytes, name: str) -> Iterator[_Block]:
    for at in range(0, len(data), BLOCK_BYTES):
        magic0, magic1, flags, address, size, number, count, family = struct.unpack_from(_HEAD, data, at)
        (end,) = struct.unpack_from("<I", data, at + BLOCK_BYTES - 4)
        if (magic0, magic1) != _MAGIC or end != _MAGIC_END:
            raise _bad(name, "it is no UF2 file" if at == 0 else f"block {at // BLOCK_BYTES} is damaged")
        if size == 0 or size > _MAX_PAYLOAD or not flags & _FAMILY_PRESENT:
            raise _bad(name, f"block {at // BLOCK_BYTES} is damaged")
        if flags & _NOT_MAIN_FLASH:
            raise _bad(name, "it is not for the main flash")
        yield _Block(family, address, data[at + 32 : at + 32 + size], number, count)


def _bad(name: str, why: str) -> UsageError:
    return UsageError(f"{name} cannot be flashed: {why}", hint="get the .uf2 file of your board again")
