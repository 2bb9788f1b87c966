"""UF2 files for the emulated Pico: its MicroPython, and firmware that would cost it its files."""

import struct

from spec.files import uf2_file

from ternhost import cache
from terntools.boards import binary_info, uf2
from terntools.emulators.pico import FIRMWARE

INFO = (
    "UF2 Bootloader v3.0\nModel: Raspberry Pi RP2\nBoard-ID: RPI-RP2\n"  # of a boot loader's volume
)
START = uf2.FLASH_START


def image():
    """The MicroPython of the emulated Pico, as it is in flash."""
    return (cache.find_entry(FIRMWARE) / "firmware.bin").read_bytes()


def files_of(data):
    """Where the MicroPython in these bytes keeps its files."""
    return binary_info.file_system(
        lambda at, n: data[at - START : at - START + n] if at >= START else b""
    )


def with_files(data):
    """The firmware with a file system behind it, as dir2uf2 writes it."""
    behind = uf2_file(b"littlefs" * 512, start=files_of(data).start)
    return numbered(uf2_file(data) + behind)


def with_a_block_over_the_files(data):
    """The firmware, and 256 bytes of something else in the last sector of its files."""
    return numbered(uf2_file(data) + uf2_file(bytes(256), start=files_of(data).stop - 4096))


def with_another_place_for_files(data):
    """The firmware, whose files begin 64 KiB earlier."""
    files = files_of(data)
    entry = struct.pack("<II", files.start, len(files))
    assert data.count(entry) == 1
    return uf2_file(
        data.replace(entry, struct.pack("<II", files.start - 0x10000, len(files) + 0x10000))
    )


def numbered(blocks):
    """A UF2 file of these blocks, in their order."""
    count = len(blocks) // uf2.BLOCK_BYTES
    whole = bytearray(blocks)
    for number in range(count):
        struct.pack_into("<II", whole, number * uf2.BLOCK_BYTES + 20, number, count)
    return bytes(whole)


def volume_of_another_board(folder):
    """A folder as the boot loader of a Pico shows it."""
    folder.mkdir()
    (folder / "INFO_UF2.TXT").write_text(INFO)
    return folder


def content(volume):
    """The names of the files in a volume."""
    return [path.name for path in volume.iterdir()]
