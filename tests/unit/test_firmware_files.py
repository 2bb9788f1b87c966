"""Firmware files of many kinds: each is flashed only if the board's files, key and ledger survive."""

import contextlib

import pytest
from harness.esp32_images import FILES_AT, TABLE_AT, UNTIL_1_25, partition_table, superblock
from harness.firmware_files import BIN_FILES, PICO_FILES, UF2_FILES
from harness.rom_loader import FLASH_BYTES, RomLoader

from ternhost.errors import UsageError
from ternhost.reach.ports import names
from terntools.boards import pico_files, uf2
from terntools.boards.firmware import read_firmware
from terntools.boards.flash import flash
from terntools.boards.flash_options import BootLoader, FlashOptions


def save(folder, data):
    path = folder / "firmware"
    path.write_bytes(data)
    return path


def require_survival_on_pico(path):
    """Check a file for a Pico as `tern board flash` does; return its chip."""
    firmware = read_firmware(path)
    if firmware.family != names.RP2:
        raise UsageError("it is for another kind of board")
    pico_files.require_survival(path.name, uf2.read(firmware.data), PICO_FILES)
    return firmware.chip


@pytest.mark.parametrize(("data", "chip"), UF2_FILES.values(), ids=UF2_FILES)
def test_a_uf2_file_is_taken_only_if_a_pico_s_files_survive(tmp_path, data, chip):
    path = save(tmp_path, data)
    if chip:
        assert require_survival_on_pico(path) == chip
    else:
        with pytest.raises(UsageError):
            require_survival_on_pico(path)


@pytest.fixture
def board():
    """An ESP32 with MicroPython's partitions and files."""
    with contextlib.closing(RomLoader("esp32")) as board:
        board.flash[:] = b"\xff" * FLASH_BYTES
        for address, content in (
            (TABLE_AT, partition_table(UNTIL_1_25)),
            (FILES_AT, superblock() + b"the key and the ledger"),
        ):
            board.flash[address : address + len(content)] = content
        yield board


@pytest.mark.parametrize(("data", "chip"), BIN_FILES.values(), ids=BIN_FILES)
def test_a_bin_file_is_flashed_only_if_an_esp32_s_files_survive(board, tmp_path, data, chip):
    files_before = board.flash[FILES_AT:]
    refusal = contextlib.nullcontext() if chip else pytest.raises(UsageError)
    with refusal:
        firmware = read_firmware(save(tmp_path, data))
        result = flash(board.port, firmware, FlashOptions(boot_loader=BootLoader(reset=False)))
        assert (firmware.chip, result["verified"]) == (chip, True)
    assert board.flash[FILES_AT:] == files_before
    assert board.erased == bool(chip)


def test_more_than_sixty_kinds_of_files_are_tried():
    assert len(UF2_FILES) + len(BIN_FILES) > 60
