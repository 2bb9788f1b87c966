"""UF2 files are checked block by block before a Pico sees them."""

import struct

import pytest

from ternhost.errors import DeviceError, InterruptedByUser, UsageError
from terntools.boards import flash, uf2

PROGRAM = bytes(range(256)) * 10


def changed(data, at, value):
    return data[:at] + value + data[at + len(value) :]


def test_a_binary_made_into_uf2_reads_back():
    data = uf2.from_binary(PROGRAM + b"tail")
    image = uf2.read(data)
    assert image.chip == "RP2040"
    assert b"".join(block for _, block in image.blocks).rstrip(b"\0") == (PROGRAM + b"tail").rstrip(b"\0")
    assert [address for address, _ in image.blocks] == list(range(0x10000000, 0x10000000 + image.size, 256))


def test_the_extra_block_of_an_rp2350_is_no_part_of_its_image():
    extra = changed(uf2.from_binary(bytes(256), uf2.RP2350_ARM), 28, struct.pack("<I", 0xE48BFF57))
    image = uf2.read(extra + uf2.from_binary(PROGRAM, uf2.RP2350_ARM))
    assert image.chip == "RP2350"
    assert image.size == len(PROGRAM)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "cut short"),
        (uf2.from_binary(PROGRAM)[:-1], "cut short"),
        (uf2.from_binary(PROGRAM)[:-512], "blocks are missing"),
        (uf2.from_binary(PROGRAM)[512:], "blocks are missing"),
        (bytes(512), "no UF2 file"),
        (changed(uf2.from_binary(PROGRAM), 512, b"\0"), "block 1 is damaged"),
        (changed(uf2.from_binary(PROGRAM), 1020, b"\0"), "block 1 is damaged"),
        (changed(uf2.from_binary(PROGRAM), 512 + 16, struct.pack("<I", 1000)), "block 1 is damaged"),
        (changed(uf2.from_binary(PROGRAM), 512 + 20, struct.pack("<I", 3)), "out of order|missing"),
        (changed(uf2.from_binary(PROGRAM), 512 + 28, struct.pack("<I", uf2.RP2350_ARM)), "several chips"),
        (uf2.from_binary(PROGRAM, 0x1C5F21B0), "another chip"),
        (uf2.from_binary(PROGRAM, start=0x20000000), "no flash"),
        (changed(uf2.from_binary(PROGRAM), 8, struct.pack("<I", 0x2001)), "not for the main flash"),
    ],
)
def test_files_that_are_not_whole_or_not_for_a_pico_are_refused(data, why):
    with pytest.raises(UsageError, match=why):
        uf2.read(data)


def test_a_volume_is_known_by_its_info_file(tmp_path):
    assert flash.find_volume(tmp_path) is None
    info = tmp_path / "INFO_UF2.TXT"
    info.write_text("UF2 Bootloader v3.0\nModel: Raspberry Pi RP2\nBoard-ID: RPI-RP2\n")
    assert flash.find_volume(tmp_path) == tmp_path
    assert flash.volume_chip(tmp_path) == "RP2040"
    info.write_text("UF2 Bootloader\nBoard-ID: SAMD21G18A-Feather-v0\n")
    with pytest.raises(UsageError, match="not the boot loader of a Pico"):
        flash.volume_chip(tmp_path)


@pytest.fixture
def waiting(tmp_path):
    """A Pico in its boot loader, and a firmware for it."""
    (tmp_path / "INFO_UF2.TXT").write_text("Board-ID: RPI-RP2\n")
    (tmp_path / "new.uf2").write_bytes(uf2.from_binary(bytes(200_000)))
    return tmp_path, flash.read_firmware(tmp_path / "new.uf2")


def test_ctrl_c_while_copying_says_how_to_recover(waiting):
    volume, firmware = waiting

    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(InterruptedByUser, match="flashing was interrupted") as caught:
        flash.flash("/dev/none", firmware, volume=volume, progress=stop)
    assert caught.value.exit_code == 130
    assert "Hold BOOTSEL" in caught.value.hint


def test_a_volume_that_goes_while_copying_says_how_to_recover(waiting):
    volume, firmware = waiting
    (volume / "firmware.uf2").symlink_to("/dev/full")
    with pytest.raises(DeviceError, match="flashing broke off: No space left") as caught:
        flash.flash("/dev/none", firmware, volume=volume)
    assert "Hold BOOTSEL" in caught.value.hint
