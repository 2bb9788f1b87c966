"""Kinds of firmware files that people have: those that suit a board with files, and others.

The boards have MicroPython and files with a key and a ledger: a Pico whose files are at PICO_FILES,
and an ESP32 with 4 MB of flash, whose files are its second half. A file is refused unless it leaves
them alone, and is whole and for this board.
"""

import struct

from harness.esp32_images import (
    FILES_AT,
    SINCE_1_26,
    TABLE_AT,
    application,
    files,
    firmware_for,
    superblock,
    with_bytes_at,
)
from harness.rom_loader import FLASH_BYTES

START = 0x10000000  # of a Pico's flash
PICO_FILES = range(START + 0xA0000, START + 0x200000)
RP2040, RP2350_ARM, RP2350_RISCV = 0xE48BFF56, 0xE48BFF59, 0xE48BFF5A
ABSOLUTE, DATA = 0xE48BFF57, 0xE48BFF58  # families that are no chip


def block(number, count, address, family=RP2040, *, data=None, flags=0x2000, tail=b""):
    """A block of a UF2 file. tail: what follows its data."""
    if data is None:
        data = b"\xaa" * 256
    head = struct.pack(
        "<8I", 0x0A324655, 0x9E5D5157, flags, address, len(data), number, count, family
    )
    return (head + data + tail).ljust(508, b"\0") + struct.pack("<I", 0x0AB16F30)


def program(files_at=PICO_FILES):
    """The first bytes of a MicroPython for a Pico, which say where it keeps its files."""
    header = struct.pack("<5I", 0x7188EBF2, START + 0x40, START + 0x44, 0, 0xE71AA390)
    pointer = struct.pack("<I", START + 0x80)
    entry = struct.pack("<HHIII", 7, 0x504D, START + 0xC0, files_at.start, len(files_at))
    content = bytearray(1024)
    content[: len(header)] = header
    content[0x40:0x44] = pointer
    content[0x80 : 0x80 + len(entry)] = entry
    content[0xC0:0xCC] = b"MicroPython\0"
    return bytes(content)


def image(family=RP2040, content=None, start=START, **more):
    """A UF2 file of this content, by default of a MicroPython whose files are at PICO_FILES."""
    pages = [(start + at, page) for at, page in _pages(program() if content is None else content)]
    return uf2(pages, family, **more)


def _pages(content):
    return [(at, content[at : at + 256]) for at in range(0, len(content), 256)]


def uf2(pages, family=RP2040, first=0, **more):
    """A UF2 file of these pages: pairs of an address and 256 bytes. first: the first number."""
    count = len(pages)
    blocks = []
    for number, (address, page) in enumerate(pages, first):
        blocks.append(block(number, count, address, family, data=page, **more))
    return b"".join(blocks)


def with_page(address, page=b"\x55" * 256):
    """The MicroPython of a Pico, and one more page at an address."""
    return uf2([(START + at, content) for at, content in _pages(program())] + [(address, page)])


MICROPYTHON = image()
COUNT = len(MICROPYTHON) // 512
EXTRA = block(0, 2, 0x10FFFF00, ABSOLUTE, data=b"\xef" * 256)  # erratum RP2350-E10 asks for it
LITTLEFS = bytes(8) + b"littlefs" + bytes(240)
MOVED = range(PICO_FILES.start - 0x10000, PICO_FILES.stop)
LARGER = range(PICO_FILES.start, PICO_FILES.stop + 0x200000)

# Of each file, the chip that it is flashed to; None: it is refused.
UF2_FILES = {
    "MicroPython": (MICROPYTHON, "RP2040"),
    "RP2350": (image(RP2350_ARM), "RP2350"),
    "RP2350, RISC-V": (image(RP2350_RISCV), "RP2350"),
    "RP2350 with E10 first": (EXTRA + image(RP2350_ARM), "RP2350"),
    "RP2350 with E10 last": (image(RP2350_ARM) + EXTRA, "RP2350"),
    "RP2350 with E10 between": (
        image(RP2350_ARM)[:512] + EXTRA + image(RP2350_ARM)[512:],
        "RP2350",
    ),
    "E10 alone": (EXTRA, None),
    "tags behind the data": (image(flags=0xA000, tail=bytes([8, 0xBF, 0xFC, 0x9E])), "RP2040"),
    "MD5": (image(flags=0x6000), "RP2040"),
    "file container": (image(flags=0x3000), "RP2040"),
    "another program below the files": (with_page(PICO_FILES.start - 256), "RP2040"),
    "two chips": (MICROPYTHON + image(RP2350_ARM), None),
    "Arm and RISC-V": (image(RP2350_ARM) + image(RP2350_RISCV), None),
    "data": (image(DATA), None),
    "absolute addresses": (image(ABSOLUTE), None),
    "ESP32-S3": (image(0xC47E5767), None),
    "nRF52840": (image(0xADA52840), None),
    "SAMD51": (image(0x55114460), None),
    "no family": (image(0, flags=0), None),
    "RAM": (image(start=0x20000000), None),
    "below the flash": (with_page(START - 256), None),
    "behind the flash": (with_page(0x11000000), None),
    "cut within a block": (MICROPYTHON[:-100], None),
    "cut after a block": (MICROPYTHON[:-512], None),
    "first block missing": (MICROPYTHON[512:], None),
    "junk behind": (MICROPYTHON + bytes(512), None),
    "twice": (MICROPYTHON * 2, None),
    "numbered from 1": (uf2([(START + at, page) for at, page in _pages(program())], first=1), None),
    "out of order": (MICROPYTHON[512:1024] + MICROPYTHON[:512] + MICROPYTHON[1024:], None),
    "damaged block": (with_bytes_at(MICROPYTHON, 512, b"\0"), None),
    "damaged end of a block": (with_bytes_at(MICROPYTHON, 508, b"\0"), None),
    "half a page": (with_bytes_at(MICROPYTHON, 16, struct.pack("<I", 128)), None),
    "not for the main flash": (MICROPYTHON[:-512] + block(3, 4, START + 768, flags=0x2001), None),
    "UF2 mark alone": (b"UF2\n", None),
    "files alone": (image(content=LITTLEFS, start=PICO_FILES.start), None),
    "with its own files": (with_page(PICO_FILES.start, LITTLEFS), None),
    "with its own files elsewhere": (with_page(START + 0x90000, LITTLEFS), None),
    "over the last files": (with_page(PICO_FILES.stop - 256), None),
    "behind the files, where a smaller flash starts anew": (
        with_page(PICO_FILES.stop + 4096),
        None,
    ),
    "files elsewhere": (image(content=program(MOVED)), None),
    "more files": (image(content=program(LARGER)), None),
    "no MicroPython": (image(content=bytes(1024)), None),
}

BIN = firmware_for()
DUMP = firmware_for(size=FLASH_BYTES - 0x1000)
# Address of the files in a file for an ESP32, which is written to 0x1000.
FILES_IN_FILE = FILES_AT - 0x1000

BIN_FILES = {
    "MicroPython until 1.25": (BIN, "esp32"),
    "MicroPython since 1.26": (firmware_for(partitions=SINCE_1_26), "esp32"),
    "larger program": (firmware_for(size=0x180000), "esp32"),
    "up to the files": (firmware_for(size=FILES_IN_FILE), "esp32"),
    "one byte into the files": (firmware_for(size=FILES_IN_FILE + 1), None),
    "a dump of a flash": (DUMP, None),
    "a dump with files": (with_bytes_at(DUMP, FILES_IN_FILE, superblock()), None),
    "with files elsewhere": (
        with_bytes_at(firmware_for(size=0x180000), 0x17F000, superblock()),
        None,
    ),
    "files elsewhere": (firmware_for(partitions=[application(0x2F0000)]), None),
    "no files": (firmware_for(partitions=[application(0x3F0000)]), None),
    "fewer files": (firmware_for(partitions=(application(), files(0x100000))), None),
    "FAT": (firmware_for(partitions=(application(), files(label=b"ffat"))), None),
    "8 MB": (firmware_for(megabytes=8), None),
    "16 MB": (firmware_for(megabytes=16), None),
    "1 MB": (firmware_for(megabytes=1), None),
    "ESP32-S3": (firmware_for("esp32s3"), None),
    "unknown chip": (with_bytes_at(BIN, 12, b"\x63\x00"), None),
    "ESP8266": (b"\xe9" + bytes(3) + BIN[4:12] + b"\xff" * 20, None),
    "application alone": (BIN[0xF000:], None),
    "boot loader alone": (BIN[: TABLE_AT - 0x1000], None),
    "no partition table": (with_bytes_at(BIN, TABLE_AT - 0x1000, b"\xff" * 0xC00), None),
    "header alone": (b"\xe9" + bytes(10), None),
    "cut after the table": (BIN[: TABLE_AT - 0x1000 + 2], None),
    "a dump from address 0": (b"\xff" * 0x1000 + BIN, None),
    "Intel HEX": (b":020000040000FA\n", None),
    "ELF": (b"\x7fELF" + bytes(100), None),
    "ZIP": (b"PK\x03\x04" + bytes(100), None),
    "a page of HTML": (b"<!DOCTYPE html><html>404</html>", None),
    "JSON": (b'{"message": "Not Found"}', None),
    "empty": (b"", None),
    "zeros": (bytes(4096), None),
    "erased": (b"\xff" * 4096, None),
}
