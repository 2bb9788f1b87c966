"""Flashing: esptool talks to a chip of the tests; UF2 files are checked and copied to a volume."""

import contextlib
import os
import struct
from pathlib import Path

import pytest
from esptool.loader import ESPLoader
from harness.esp32_images import (
    FILES_AT,
    SINCE_1_26,
    TABLE_AT,
    UNTIL_1_25,
    application,
    files,
    firmware_for,
    partition_table,
    superblock,
    with_bytes_at,
)
from harness.network_ports import Rfc2217Server
from harness.rom_loader import CHIPS, FLASH_BYTES, RomLoader
from spec.files import uf2_file

from ternhost.errors import DeviceError, InterruptedByUser, UsageError
from terntools.boards import esp32, uf2, usb, volumes
from terntools.boards.firmware import read_firmware
from terntools.boards.flash import flash
from terntools.boards.flash_options import BootLoader, FlashOptions


@pytest.fixture
def rom(monkeypatch):
    """Make RomLoaders, which are closed at the end of the test."""
    command = ESPLoader.command

    # A chip answers within 0.1 to 3 s; the loader's thread may take longer on a busy machine.
    def patient(*args, timeout=0, **kwargs):
        return command(*args, timeout=max(timeout, 60), **kwargs)

    monkeypatch.setattr(ESPLoader, "command", patient)
    with contextlib.ExitStack() as stack:

        def make(*args, **options):
            return stack.enter_context(contextlib.closing(RomLoader(*args, **options)))

        yield make


def write(board, address, data):
    """Write to the flash of a board."""
    board.flash[address : address + len(data)] = data


def save(folder, data, name="firmware.bin"):
    path = folder / name
    path.write_bytes(data)
    return path


def flash_esp32(board, tmp_path, data=None, **options):
    """Flash the board with this firmware, by default one for it."""
    firmware = read_firmware(save(tmp_path, data or firmware_for()))
    boot_loader = BootLoader(reset=False)
    return flash(board.port, firmware, FlashOptions(boot_loader=boot_loader, **options))


def test_an_esp32_at_another_computer_is_reset_by_the_lines_of_rfc_2217(rom, tmp_path):
    """esptool pulls RTS, which resets the chip, and DTR, which makes it wait in its boot loader. The
    server of RFC 2217 gets both. Nothing is written, since the file is for another chip.
    """
    board = rom("esp32")
    firmware = read_firmware(save(tmp_path, firmware_for("esp32s3")))
    with Rfc2217Server(board.port) as server:
        with pytest.raises(UsageError, match="ESP32-S3"):
            esp32.flash(server.url, firmware, FlashOptions())
        assert ("rts", True) in server.lines
        assert ("dtr", True) in server.lines


@pytest.mark.exhaustive  # it takes 90 s: esptool agrees with the server on a timeout for each block
def test_an_esp32_at_another_computer_is_flashed_by_rfc_2217(rom, tmp_path):
    board, data = rom("esp32"), firmware_for(size=32_000)
    firmware = read_firmware(save(tmp_path, data))
    with Rfc2217Server(board.port) as server:
        esp32.flash(server.url, firmware, FlashOptions())
    assert board.flash[board.offset : board.offset + len(data)] == data


@pytest.mark.sampled(3)
@pytest.mark.parametrize("chip", CHIPS)
def test_the_firmware_is_in_flash_at_the_chip_s_offset(rom, tmp_path, chip):
    board, data, offset = rom(chip), firmware_for(chip), CHIPS[chip][5]
    result = flash_esp32(board, tmp_path, data)
    assert (result["verified"], result["offset"]) == (True, offset)
    assert board.flash[offset : offset + len(data)] == data
    assert not any(board.flash[:offset])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"not a firmware", "not a firmware that tern can flash"),
        (b"\xe9" + bytes(10), "not a firmware for an ESP32"),
        (firmware_for()[:0x7000], "no partition table"),
        (with_bytes_at(firmware_for(), 12, b"\x63\x00"), "does not know"),
    ],
)
def test_a_wrong_file_is_refused_without_a_board(tmp_path, content, message):
    with pytest.raises(UsageError, match=message):
        read_firmware(save(tmp_path, content))


@pytest.mark.skipif(os.name != "posix", reason="Windows has no pseudo-terminals")
def test_esptool_prints_nothing_of_its_own_about_a_port_without_reset_lines(tmp_path, capfd):
    master, port = os.openpty()
    try:
        with pytest.raises(DeviceError, match="no ESP32 answers"):
            esp32.flash(
                os.ttyname(port), read_firmware(save(tmp_path, firmware_for())), FlashOptions()
            )
    finally:
        os.close(master)
        os.close(port)
    assert capfd.readouterr() == ("", "")


# Whether a board's files survive. On 4 MB, from 2 MB to the end is the same place, whether the
# table says so or not.


def board_with(rom, partitions, files_bytes=None, chip="esp32"):
    """A board with this partition table, and a file system of so many bytes."""
    board = rom(chip)
    write(board, 0, b"\xff" * FLASH_BYTES)
    write(board, TABLE_AT, partition_table(partitions))
    if files_bytes:
        write(board, FILES_AT, superblock(files_bytes))
    return board


HALF, QUARTER = 0x200000, 0x100000  # bytes of a file system
FOR_A_LARGER_FLASH = (application(), files(0x800000, start=0x800000))


@pytest.mark.parametrize(
    ("old", "files_bytes", "new"),
    [
        (UNTIL_1_25, HALF, {"partitions": SINCE_1_26}),
        (SINCE_1_26, HALF, {"partitions": UNTIL_1_25}),
        ((), HALF, {}),
        # The board's own, whose files would end with the flash, cannot read such a file system.
        (SINCE_1_26, QUARTER, {"partitions": (application(), files(QUARTER))}),
        (FOR_A_LARGER_FLASH, None, {}),
    ],
    ids=[
        "newer firmware",
        "older firmware",
        "interrupted flash, which leaves no table",
        "smaller files",
        "partitions of a larger flash, with which a board restarts for ever",
    ],
)
def test_a_firmware_that_finds_the_files_again_is_flashed(rom, tmp_path, old, files_bytes, new):
    board = board_with(rom, old, files_bytes)
    assert flash_esp32(board, tmp_path, firmware_for(**new))["verified"]
    if files_bytes:
        assert board.flash[FILES_AT : FILES_AT + 4096] == superblock(files_bytes)


# MicroPython would take files that begin where this application ends.
FILES_ELSEWHERE, FILES_NOWHERE = [application(0x2F0000)], [application(0x3F0000)]


@pytest.mark.parametrize(
    ("old", "files_bytes", "new"),
    [
        (SINCE_1_26, QUARTER, {}),
        (UNTIL_1_25, HALF, {"partitions": FILES_NOWHERE}),
        ((), HALF, {"partitions": FILES_ELSEWHERE}),
        (UNTIL_1_25, HALF, {"size": HALF, "partitions": FILES_ELSEWHERE}),
        # In a partition "ffat", MicroPython looks for FAT.
        (UNTIL_1_25, HALF, {"partitions": (application(), files(label=b"ffat"))}),
        ((), None, {"megabytes": 8}),
        # ESP-IDF's boot loader compares header and partitions at each start.
        ((), None, {"megabytes": 1}),
        ((), None, {"chip": "esp32s3"}),
    ],
    ids=[
        "larger files",
        "no files",
        "files elsewhere, no table",
        "reaches into the files",
        "FAT",
        "board flash of 8 MB",
        "header of 1 MB",
        "another chip",
    ],
)
def test_a_firmware_that_would_not_start_or_find_the_files_is_refused(
    rom, tmp_path, old, files_bytes, new
):
    board = board_with(rom, old, files_bytes)
    with pytest.raises(UsageError, match="nothing was changed"):
        flash_esp32(board, tmp_path, firmware_for(**new))
    assert not board.erased


DUMP = firmware_for(size=FLASH_BYTES - 0x1000)  # of a whole flash, from the chip's offset on


@pytest.mark.parametrize("files_bytes", [HALF, None], ids=["files", "erased"])
def test_a_dump_of_a_whole_flash_is_refused(rom, tmp_path, files_bytes):
    """It would make the board a copy of another one, with its key and with a ledger of the past."""
    board = board_with(rom, UNTIL_1_25 if files_bytes else (), files_bytes)
    with pytest.raises(UsageError, match="brings files of its own"):
        flash_esp32(board, tmp_path, DUMP)
    assert not board.erased


def test_a_flash_of_unknown_size_is_flashed_only_if_it_may_be_erased(rom, tmp_path, monkeypatch):
    monkeypatch.setattr("esptool.cmds.detect_flash_size", lambda loader: None)
    board = board_with(rom, UNTIL_1_25, HALF)
    with pytest.raises(UsageError, match="does not say its size"):
        flash_esp32(board, tmp_path)
    assert not board.erased
    assert flash_esp32(board, tmp_path, erase=True)["verified"]


# Errors say how to recover


def test_the_error_after_a_pulled_cable_says_how_to_recover(rom, tmp_path, monkeypatch):
    monkeypatch.setattr("esptool.cmds.DEFAULT_CONNECT_ATTEMPTS", 1)  # an attempt takes a second
    board = rom("esp32", cut_after=3)
    with pytest.raises(DeviceError, match="flashing broke off") as caught:
        flash_esp32(board, tmp_path)
    assert "hold boot" in caught.value.hint.lower()


# UF2 files are checked block by block before they are copied to a Pico

PROGRAM = bytes(range(256)) * 10
ONE_CHIP = uf2_file(PROGRAM)


def word(number):
    return struct.pack("<I", number)


TWO_CHIPS = ONE_CHIP + uf2_file(PROGRAM, uf2.RP2350_ARM)  # as picotool makes them
# The boot ROM of an RP2350 writes blocks for absolute addresses, too.
CHIP_AND_ABSOLUTE = uf2_file(PROGRAM, uf2.RP2350_ARM) + uf2_file(PROGRAM, 0xE48BFF57, 0x10200000)


def test_a_written_uf2_file_has_the_whole_firmware():
    assert uf2.file_of(PROGRAM) == ONE_CHIP


@pytest.mark.parametrize(
    "data",
    [
        ONE_CHIP[:-1],
        ONE_CHIP[:-512],  # the last block is missing
        with_bytes_at(ONE_CHIP, 512, b"\0"),  # the magic number of block 1
        with_bytes_at(ONE_CHIP, 512 + 20, word(3)),  # its number
        with_bytes_at(ONE_CHIP, 512 + 28, word(uf2.RP2350_ARM)),  # its chip
        TWO_CHIPS,
        CHIP_AND_ABSOLUTE,
        uf2_file(PROGRAM, 0x1C5F21B0),  # for an ESP32
        uf2_file(PROGRAM, start=0x20000000),  # into RAM
        with_bytes_at(ONE_CHIP, 8, word(0x2001)),  # a flag: not for the main flash
        # A Pico's boot ROM takes 256 bytes for a multiple of 256, and ignores the rest.
        with_bytes_at(ONE_CHIP, 16, word(128)),
    ],
)
def test_uf2_files_that_are_not_whole_or_not_for_a_pico_are_refused(data):
    with pytest.raises(UsageError):
        uf2.read(data)


# Volumes of boot loaders


@pytest.fixture
def volume(tmp_path):
    """The volume of a Pico's boot loader."""
    folder = tmp_path / "RPI-RP2"
    folder.mkdir()
    (folder / "INFO_UF2.TXT").write_text("UF2 Bootloader\nBoard-ID: RPI-RP2\n")
    return folder


ESCAPES = (("\\", "\\134"), (" ", "\\040"), ("\t", "\\011"), ("\n", "\\012"), ("#", "\\043"))


@pytest.mark.parametrize(
    "name",
    [
        "RPI-RP2",
        "jörg",
        "with space",
        "你好",
        "tab\tx",
        "line\nend",
        "carriage\rreturn",
        "back\\slash",
        "\\040",  # a folder whose name looks like an escaped space
        "user#1/RPI-RP2",
        "no break\u00a0space",
        "\udcff",  # a byte that is no UTF-8
        "a/b c/ü",
    ],
)
def test_a_volume_is_found_whatever_the_name_of_its_folder(tmp_path, monkeypatch, name):
    """The kernel escapes some characters in its table of mounts, and writes others as they are."""
    folder = tmp_path / name
    folder.mkdir(parents=True)
    (folder / "INFO_UF2.TXT").write_text("UF2 Bootloader\nBoard-ID: RPI-RP2\n")
    written = str(folder)
    for character, escape in ESCAPES:
        written = written.replace(character, escape)
    table = tmp_path / "mounts"
    table.write_bytes(os.fsencode(f"sysfs /sys sysfs rw 0 0\n/dev/sdb1 {written} vfat rw 0 0\n"))
    monkeypatch.setattr(usb, "MOUNTS", table)

    assert volumes.find_volumes() == [folder]
    assert volumes.volume_chip(folder) == "RP2040"


@pytest.fixture
def disks(tmp_path, monkeypatch):
    """Linux's files about disks at 1-1.4 and 1-1.3 of the USB, and about one that is at no USB."""
    folder = tmp_path / "class" / "block"
    folder.mkdir(parents=True)
    for name, place in (("sda1", "1-1.4"), ("sdb1", "1-1.3")):
        disk = tmp_path / "devices" / "usb1" / "1-1" / place / f"{place}:1.0" / "block" / name
        disk.mkdir(parents=True)
        (folder / name).symlink_to(disk)
    lines = [f"/dev/{name} /media/{name} vfat rw 0 0\n" for name in ("sda1", "sdb1", "sdc1")]
    mounts = tmp_path / "mounts"
    mounts.write_text("".join(lines))
    monkeypatch.setattr(usb, "MOUNTS", mounts)
    monkeypatch.setattr(usb, "BLOCK_DEVICES", folder)


@pytest.mark.parametrize(
    ("disk", "elsewhere"),
    [("sda1", False), ("sdb1", True), ("sdc1", False)],
    ids=["the same place", "another place", "unknown place"],
)
def test_a_volume_is_at_another_place_of_the_usb_than_a_port(disks, disk, elsewhere):
    assert usb.is_elsewhere(Path("/media") / disk, "1-1.4") is elsewhere


def test_the_volume_of_another_board_is_refused(volume):
    (volume / "INFO_UF2.TXT").write_text("UF2 Bootloader\nBoard-ID: SAMD21G18A-Feather-v0\n")
    with pytest.raises(UsageError, match="not the boot loader of a Pico"):
        volumes.volume_chip(volume)


def test_the_error_after_ctrl_c_in_a_copy_says_how_to_recover(volume):
    """The user interrupts the copy of a firmware to a Pico half-way: the board may not start any
    more.
    """

    def press_ctrl_c_half_way(done, total):
        if done >= total // 2:
            raise KeyboardInterrupt

    with pytest.raises(InterruptedByUser, match="flashing was interrupted") as caught:
        volumes.copy(uf2_file(bytes(200_000)), volume, press_ctrl_c_half_way)

    assert "Hold BOOTSEL" in caught.value.hint
