"""Reads and checks UF2 files, the firmware files of Picos (github.com/microsoft/uf2, README.md)."""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ternhost.errors import UsageError
from terntools.boards import littlefs

BLOCK_BYTES = 512
# magic 0, magic 1, flags, address, bytes of data, number, number of blocks, family
_HEAD = "<IIIIIIII"
_DATA_AT = struct.calcsize(_HEAD)
_MAGIC = (0x0A324655, 0x9E5D5157)
_MAGIC_END = 0x0AB16F30
_MAGIC_END_AT = BLOCK_BYTES - 4
_MAX_DATA_BYTES = 476
_PAGE_BYTES = 256  # the boot ROM of a Pico takes blocks of one page of flash each
_NOT_MAIN_FLASH = 0x1  # a flag
_FAMILY_PRESENT = 0x2000  # a flag

RP2040 = 0xE48BFF56
RP2350_ARM = 0xE48BFF59
RP2350_RISCV = 0xE48BFF5A
CHIPS = {RP2040: "RP2040", RP2350_ARM: "RP2350", RP2350_RISCV: "RP2350"}
_NAMES = {
    RP2040: "RP2040",
    RP2350_ARM: "RP2350 (Arm)",
    RP2350_RISCV: "RP2350 (RISC-V)",
    0xE48BFF57: "absolute addresses",
    0xE48BFF58: "data",
}
# Erratum RP2350-E10 asks for one block that is no part of the image: of this family, for this
# address.
_EXTRA_BLOCK = (0xE48BFF57, 0x10FFFF00)

FLASH_START = 0x10000000  # the address of a Pico's flash
FLASH_END = FLASH_START + (16 << 20)  # of the largest one

_ERASED = b"\xff"  # a byte of flash after erasing


@dataclass(frozen=True)
class Image:
    """The content of a UF2 file: what is written to the flash of a Pico."""

    chip: str  # "RP2040" or "RP2350"
    pages: Mapping[int, bytes]  # 256 bytes each, by their address in flash

    @property
    def size(self) -> int:
        """The bytes of all pages."""
        return sum(len(page) for page in self.pages.values())

    def read(self, address: int, count: int) -> bytes:
        """Return the `count` bytes from an address of flash on.

        Bytes of which the file says nothing are 0xff, as after erasing.
        """
        page_start = address - address % _PAGE_BYTES
        content = bytearray()
        for start in range(page_start, address + count, _PAGE_BYTES):
            content += self.pages.get(start, _ERASED * _PAGE_BYTES)
        offset = address - page_start
        return bytes(content[offset : offset + count])

    def contains(self, text: bytes) -> bool:
        """Return whether the program has this text in it."""
        program = b"".join(self.pages[start] for start in sorted(self.pages))
        return text in program

    def writes_into(self, region: range) -> bool:
        """Return whether a page of the file lies in a region of flash (a range of addresses)."""
        return any(start in region for start in self.pages)

    @property
    def has_file_system(self) -> bool:
        """Whether a LittleFS file system begins in the image, at the start of a block of flash."""
        for start, page in self.pages.items():
            starts_block = start % littlefs.BLOCK_BYTES == 0
            if starts_block and littlefs.begins(page):
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


def file_of(firmware: bytes) -> bytes:
    """Return a UF2 file for an RP2040.

    firmware: the content of its flash, from the start of the flash on.
    """
    starts = range(0, len(firmware), _PAGE_BYTES)
    blocks = []
    for number, start in enumerate(starts):
        page = firmware[start : start + _PAGE_BYTES].ljust(_PAGE_BYTES, _ERASED)
        head = struct.pack(
            _HEAD,
            *_MAGIC,
            _FAMILY_PRESENT,
            FLASH_START + start,
            _PAGE_BYTES,
            number,
            len(starts),
            RP2040,
        )
        blocks.append((head + page).ljust(_MAGIC_END_AT, b"\0") + struct.pack("<I", _MAGIC_END))
    return b"".join(blocks)


def read(data: bytes, name: str = "the file") -> Image:
    """Read the image in a UF2 file for a Pico.

    data: the content of the file. name: of the file, for messages. Raises UsageError if a block is
    damaged, missing or out of order, or if it is for another chip or not for flash.
    """
    family, blocks = _blocks_of_one_family(data, name)
    for position, block in enumerate(blocks):
        if block.number != position or block.count != len(blocks):
            claim = (
                f"block {position} of {len(blocks)} says that it is {block.number} of {block.count}"
            )
            raise _bad(name, f"{claim}: blocks are missing or out of order")
        end = block.address + len(block.data)
        if block.address < FLASH_START or end > FLASH_END:
            raise _bad(
                name, f"block {position} is for address {block.address:#x}, which is no flash"
            )
        if len(block.data) != _PAGE_BYTES or block.address % _PAGE_BYTES:
            claim = f"block {position} has {len(block.data)} bytes for address {block.address:#x}"
            raise _bad(name, f"{claim}, and a Pico takes 256 bytes for a multiple of 256")
    if family not in CHIPS:
        raise _bad(name, f"it is for {_name(family)}, and not for a Pico")
    if all(block.address != FLASH_START for block in blocks):
        raise _bad(
            name, f"nothing in it is for address {FLASH_START:#x}, where a Pico's program starts"
        )
    return Image(CHIPS[family], {block.address: block.data for block in blocks})


def _blocks_of_one_family(data: bytes, name: str) -> tuple[int, list[_Block]]:
    """Return the number of the family of chips that a UF2 file is for, and its blocks in order.

    Raises UsageError if a block is damaged, or if there is no family or several.
    """
    if not data or len(data) % BLOCK_BYTES:
        raise _bad(name, "its length is not a multiple of 512 bytes: was the download cut short?")
    blocks_by_family: dict[int, list[_Block]] = {}
    for block in _blocks(data, name):
        if (block.family, block.address) != _EXTRA_BLOCK:
            blocks_by_family.setdefault(block.family, []).append(block)
    if not blocks_by_family:
        raise _bad(name, "it holds no program")
    if len(blocks_by_family) > 1:
        families = sorted(map(_name, blocks_by_family))
        raise _bad(name, f"it mixes several chips ({', '.join(families)})")
    return blocks_by_family.popitem()


def _name(family: int) -> str:
    """Return the name of a family of UF2 blocks, for people."""
    return _NAMES.get(family, f"family {family:#x}")


def _blocks(data: bytes, name: str) -> Iterator[_Block]:
    """Yield the blocks of a UF2 file. Raises UsageError for a damaged block.

    data: the content of the file, a multiple of 512 bytes.
    """
    for offset in range(0, len(data), BLOCK_BYTES):
        position = offset // BLOCK_BYTES
        magic0, magic1, flags, address, size, number, count, family = struct.unpack_from(
            _HEAD, data, offset
        )
        (magic_end,) = struct.unpack_from("<I", data, offset + _MAGIC_END_AT)
        is_block = (magic0, magic1) == _MAGIC and magic_end == _MAGIC_END
        if not is_block and position == 0:
            raise _bad(name, "it is no UF2 file")
        if not is_block:
            raise _bad(name, f"block {position} is damaged")
        if not 0 < size <= _MAX_DATA_BYTES:
            raise _bad(name, f"block {position} is damaged")
        if not flags & _FAMILY_PRESENT:
            raise _bad(name, f"block {position} does not say for which chip it is")
        if flags & _NOT_MAIN_FLASH:
            raise _bad(name, "it is not for the main flash")
        block_data = data[offset + _DATA_AT : offset + _DATA_AT + size]
        yield _Block(family=family, address=address, data=block_data, number=number, count=count)


def _bad(name: str, why: str) -> UsageError:
    """Return the error for a file that cannot be flashed. why: the reason, as a sentence."""
    return UsageError(
        f"{name} cannot be flashed: {why}", hint="get the .uf2 file of your board again"
    )
