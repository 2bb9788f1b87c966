"""UF2 files: read and checked. Format: github.com/microsoft/uf2, README.md."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from ternhost.errors import UsageError

BLOCK_BYTES = 512
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
_FLASH_END = FLASH_START + (16 << 20)


@dataclass(frozen=True)
class Image:
    """The content of a UF2 file: the chip's name, and (address, bytes) block by block."""

    chip: str
    blocks: tuple[tuple[int, bytes], ...]

    @property
    def size(self) -> int:
        return sum(len(data) for _, data in self.blocks)


def read(data: bytes, name: str = "the file") -> Image:
    """Check every block of a UF2 file for a chip of the Pico family. Raises UsageError."""
    if not data or len(data) % BLOCK_BYTES:
        raise _bad(name, "its length is not a multiple of 512 bytes: was the download cut short?")
    families: set[int] = set()
    blocks: list[tuple[int, bytes]] = []
    for number, (family, address, payload, its_number, count) in enumerate(_blocks(data, name)):
        if family == _ABSOLUTE:
            continue
        if families and family not in families:
            raise _bad(name, "it mixes several chips")
        if its_number != len(blocks) or count != len(data) // BLOCK_BYTES - (number - its_number):
            raise _bad(name, f"block {number} says that it is {its_number} of {count}: blocks are missing")
        if not FLASH_START <= address < address + len(payload) <= _FLASH_END:
            raise _bad(name, f"block {number} is for address {address:#x}, which is no flash")
        families.add(family)
        blocks.append((address, payload))
    if not blocks:
        raise _bad(name, "it holds no program")
    (family,) = families
    if family not in CHIPS:
        raise _bad(name, f"it is for another chip (family {family:#x})")
    return Image(CHIPS[family], tuple(blocks))


def _blocks(data: bytes, name: str) -> Iterator[tuple[int, int, bytes, int, int]]:
    for at in range(0, len(data), BLOCK_BYTES):
        magic0, magic1, flags, address, size, number, count, family = struct.unpack_from(_HEAD, data, at)
        (end,) = struct.unpack_from("<I", data, at + BLOCK_BYTES - 4)
        if (magic0, magic1) != _MAGIC or end != _MAGIC_END:
            raise _bad(name, "it is no UF2 file" if at == 0 else f"block {at // BLOCK_BYTES} is damaged")
        if size == 0 or size > _MAX_PAYLOAD or not flags & _FAMILY_PRESENT:
            raise _bad(name, f"block {at // BLOCK_BYTES} is damaged")
        if flags & _NOT_MAIN_FLASH:
            raise _bad(name, "it is not for the main flash")
        yield family, address, data[at + 32 : at + 32 + size], number, count


def _bad(name: str, why: str) -> UsageError:
    return UsageError(f"{name} cannot be flashed: {why}", hint="get the .uf2 file of your board again")
