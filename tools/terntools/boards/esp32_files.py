"""Where in its flash an ESP32 keeps MicroPython's files, and whether they survive a new firmware."""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ternhost.errors import UsageError
from terntools.boards import littlefs

ReadFlash = Callable[[int, int], bytes]  # address, number of bytes -> bytes of the board's flash

TABLE = 0x8000  # the address of the partition table
TABLE_BYTES = 0xC00
_ROW = "<2sBBII16sI"  # magic, type, subtype, offset, size, label, flags
_ROW_BYTES = struct.calcsize(_ROW)
ROW_MAGIC = b"\xaa\x50"
_DATA = 1  # a type of partition
# Labels of the partitions in which MicroPython keeps its files; it takes the first one that exists.
_LABELS = ("vfs", "ffat")
_ERASED = b"\xff"  # a byte of flash after erasing
# At the start of a partition for files. They are erased where there is no file system.
_SUPERBLOCKS_BYTES = 2 * littlefs.BLOCK_BYTES
# Partitions of programs begin at multiples of this, and those with files follow them.
_PARTITION_STEP = 0x10000

_HINT = (
    "flash a firmware without files, of the MicroPython release that the board has; or, if the "
    "board is to become another device, erase everything: tern board flash --erase"
)


@dataclass(frozen=True)
class Partition:
    """A row of a partition table."""

    label: str
    region: range  # addresses in flash
    holds_data: bool  # and no program


@dataclass(frozen=True)
class FileSystem:
    """Where MicroPython looks for its files.

    The label of the partition tells their format: "ffat" is FAT.
    """

    label: str
    region: range  # addresses in flash

    def __str__(self) -> str:
        place = f"from {self.region.start:#x} to {self.region.stop:#x}"
        if self.label != "vfs":
            place += f" ({self.label})"
        return place


def partitions(table: bytes) -> list[Partition]:
    """Parse the partition table of an ESP32, in the format of ESP-IDF ("Partition Tables").

    table: the bytes from the start of the table on; those behind it are ignored.
    """
    rows = []
    table = table[:TABLE_BYTES]
    for offset in range(0, len(table) - _ROW_BYTES + 1, _ROW_BYTES):
        magic, partition_type, _, start, size, label, _ = struct.unpack_from(_ROW, table, offset)
        if magic != ROW_MAGIC:
            break
        name = label.rstrip(b"\0").decode(errors="replace")
        region = range(start, start + size)
        rows.append(Partition(name, region, holds_data=partition_type == _DATA))
    return rows


def file_system(rows: list[Partition], flash_bytes: int) -> FileSystem | None:
    """Find where MicroPython looks for its files, by the rows of a partition table.

    Without a partition for files, MicroPython takes what is left at the end of the flash
    (ports/esp32/main.c, since 1.26). The result is None if nothing is left. flash_bytes: the size
    of the flash.
    """
    for label in _LABELS:
        for partition in rows:
            if partition.label == label and partition.holds_data:
                return FileSystem(label, partition.region)
    end_of_partitions = max((partition.region.stop for partition in rows), default=flash_bytes)
    if end_of_partitions >= flash_bytes:
        return None
    return FileSystem("vfs", range(end_of_partitions, flash_bytes))


def require_survival(
    name: str, data: bytes, offset: int, flash_bytes: int, read_flash: ReadFlash
) -> None:
    """Raise UsageError for a firmware that would replace the board's files, or not find them.

    name, data: of the firmware's file, which is written to the address `offset`. flash_bytes: the
    size of the board's flash. read_flash: reads it.
    """
    files_on_board = _on_board(flash_bytes, read_flash)
    files_of_firmware = file_system(partitions(data[TABLE - offset :]), flash_bytes)
    if _brings_files(data, offset, files_of_firmware):
        raise _refusal(
            f"{name} brings files of its own, which would replace the board's files, with its key "
            "and its ledger"
        )
    if files_on_board is None:
        return
    firmware_end = offset + len(data)
    if firmware_end > files_on_board.region.start:
        raise _refusal(
            f"{name} reaches to {firmware_end:#x}, and the board's files are {files_on_board}: it would erase "
            "them, with the board's key and its ledger"
        )
    if files_of_firmware != files_on_board:
        raise _refusal(
            f"the MicroPython of {name} keeps its files {files_of_firmware or 'nowhere'}, and the board's "
            f"are {files_on_board}: it would not find them, nor the board's key and its ledger"
        )


def _refusal(why: str) -> UsageError:
    """Return the error for a firmware that would cost a board its files. why: a sentence."""
    return UsageError(f"{why}; nothing was changed", _HINT)


def _brings_files(data: bytes, offset: int, file_region: FileSystem | None) -> bool:
    """Return whether a firmware has files, or any bytes where its MicroPython looks for files.

    data: the firmware, which is written to the address `offset`. file_region: where its MicroPython
    looks for files; None if nowhere.
    """
    # The position in `data` of the first byte whose address is a multiple of the block size.
    first_block = -offset % littlefs.BLOCK_BYTES
    for position in range(first_block, len(data), littlefs.BLOCK_BYTES):
        if littlefs.begins(data[position : position + littlefs.HEAD_BYTES]):
            return True
    if file_region is None:
        return False
    region = file_region.region
    start = max(region.start - offset, 0)
    end = max(region.stop - offset, 0)
    return not _is_erased(data[start:end])


def _on_board(flash_bytes: int, read_flash: ReadFlash) -> FileSystem | None:
    """Find where the board has files; None if it has none.

    The partition table of its firmware says where to look. flash_bytes: the size of the flash.
    """
    rows = partitions(read_flash(TABLE, TABLE_BYTES))
    fits = all(partition.region.stop <= flash_bytes for partition in rows)
    if not rows or not fits:
        # Flashing broke off, or the firmware was for a larger flash. Files from before may still be
        # there, so the whole flash is searched.
        return next(_search(flash_bytes, read_flash), None)
    file_region = file_system(rows, flash_bytes)
    if file_region is None:
        return None
    start = file_region.region.start
    first_blocks = read_flash(start, _SUPERBLOCKS_BYTES)
    if _is_erased(first_blocks):
        return None
    size = littlefs.size_of(first_blocks)
    if size is None or start + size > flash_bytes:
        return file_region
    # A file system may be smaller than its partition, if another MicroPython has made it. The
    # firmware must fit the file system then, and not the partition.
    return FileSystem("vfs", range(start, start + size))


def _search(flash_bytes: int, read_flash: ReadFlash) -> Iterator[FileSystem]:
    """Yield the LittleFS file systems in a flash whose partition table says nothing about them."""
    for start in range(_PARTITION_STEP, flash_bytes, _PARTITION_STEP):
        # LittleFS writes its superblock to the first two blocks in turn.
        for block in (start, start + littlefs.BLOCK_BYTES):
            size = littlefs.size_of(read_flash(block, littlefs.HEAD_BYTES))
            if size is not None:
                yield FileSystem("vfs", range(start, start + size))
                break


def _is_erased(data: bytes) -> bool:
    """Return whether all of these bytes of flash are erased."""
    return not data.strip(_ERASED)
