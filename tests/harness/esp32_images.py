"""Firmware files for ESP32s with the marks of real ones, and the file systems of their boards."""

import hashlib
import struct

from littlefs import LittleFS

from harness.rom_loader import CHIPS, FLASH_BYTES

TABLE_AT = 0x8000  # in the flash of an ESP32
FILES_AT = 0x200000


def with_bytes_at(data, at, value):
    """The data with these bytes at this position."""
    return data[:at] + value + data[at + len(value) :]


# Partitions: type, subtype, offset, size and label


def application(size=FILES_AT - 0x10000):
    """The partition of MicroPython. By default it ends at FILES_AT."""
    return 0, 0, 0x10000, size, b"factory"


def files(size=FLASH_BYTES - FILES_AT, start=FILES_AT, label=b"vfs"):
    """The partition of its files. By default it ends with the flash."""
    return 1, 0x81, start, size, label


UNTIL_1_25 = (application(), files())  # the partitions of these releases of MicroPython
SINCE_1_26 = (application(),)  # its files have what is left of the flash


def partition_table(partitions):
    rows = [struct.pack("<2sBBII16sI", b"\xaa\x50", *partition, 0) for partition in partitions]
    return b"".join(rows).ljust(0xC00, b"\xff")


def firmware_for(chip="esp32", size=150_000, partitions=UNTIL_1_25, megabytes=4):
    """A file with the marks of a whole firmware: header with flash size and chip id, partitions."""
    chip_id, *_, offset = CHIPS[chip]
    flash_size = (megabytes.bit_length() - 1) << 4
    fields = (0xE9, 1, 2, flash_size, 0x40081000, 0xEE, 0, 0, 0, chip_id, 0, 0, 0xFFFF, 0)
    header = struct.pack("<BBBBIB3BHBHH4xB", *fields)
    data = header + hashlib.shake_128(chip.encode()).digest(min(size, 150_000) - len(header))
    return with_bytes_at(data, TABLE_AT - offset, partition_table(partitions)).ljust(size, b"\0")


def superblock(size=FLASH_BYTES - FILES_AT):
    """The first block of an empty file system of so many bytes."""
    return bytes(LittleFS(block_size=4096, block_count=size // 4096).context.buffer[:4096])
