"""A command changes the board that is meant, and none of its files that matter: on an emulated Pico."""

import json
import struct

import pytest
import rig
from harness.port import port_that_prints
from spec.files import uf2_file

from ternhost import cache, errors
from ternhost.errors import DeviceError, UsageError
from ternhost.reach.ports import names
from terntools.boards import binary_info, deploy, esp32, flash, uf2
from terntools.boards.repl import Repl
from terntools.emulators import catalogue
from terntools.emulators.pico import FIRMWARE, boot_pico

INFO = "UF2 Bootloader v3.0\nModel: Raspberry Pi RP2\nBoard-ID: RPI-RP2\n"
START = uf2.FLASH_START
ANOTHER_PLACE = START + 0xF0000  # for files, behind a program that says nothing about them
BLOCK_NUMBER_AT = 20  # in a block of a UF2 file; the number of blocks is behind it


def micropython():
    """The firmware of the emulated Pico, as the bytes of its flash."""
    return (cache.find_entry(FIRMWARE) / "firmware.bin").read_bytes()


def place_of_files(firmware):
    """The addresses of flash where this MicroPython keeps its files."""

    def read(address, n):
        at = address - START
        return firmware[at : at + n] if at >= 0 else b""

    return binary_info.file_system(read)


@pytest.fixture
def box(tmp_path):
    """A folder with the firmware of the emulated Pico."""
    (tmp_path / "firmware.uf2").write_bytes(uf2_file(micropython()))
    return tmp_path


@pytest.fixture
def board(box):
    """A Pico that runs MicroPython. Its boot loader would be mounted in the folder `volume`."""
    with boot_pico(box / "flash.bin", volume=box / "volume") as pico:
        yield pico


def boot_loader(folder):
    """Make the volume of a Pico that waits in its boot loader."""
    folder.mkdir()
    (folder / "INFO_UF2.TXT").write_text(INFO)
    return folder


def is_untouched(volume):
    """Whether nothing was copied to a boot loader."""
    return [path.name for path in volume.iterdir()] == ["INFO_UF2.TXT"]


# UF2 files that would cost a board its files, made from the firmware of the emulated Pico


def with_files(firmware):
    """It has a file system behind it, as dir2uf2 writes it."""
    file_system = uf2_file(b"littlefs" * 512, start=place_of_files(firmware).start)
    return renumbered(uf2_file(firmware) + file_system)


def another_program_with_files(_):
    """A program that does not say where its files are, and a file system behind it."""
    superblock = struct.pack("<II", 1, 0xF0000000) + b"littlefs"
    file_system = uf2_file(superblock.ljust(4096, b"\xff"), start=ANOTHER_PLACE)
    return renumbered(uf2_file(bytes(65536)) + file_system)


def with_larger_file_system(firmware):
    """Its files begin 64 KiB earlier, by the entry of its binary info."""
    place = place_of_files(firmware)
    entry = struct.pack("<II", place.start, len(place))
    assert firmware.count(entry) == 1
    larger = struct.pack("<II", place.start - 0x10000, len(place) + 0x10000)
    return uf2_file(firmware.replace(entry, larger))


def renumbered(blocks):
    """A UF2 file of these blocks, in their order."""
    count = len(blocks) // uf2.BLOCK_BYTES
    file = bytearray(blocks)
    for number in range(count):
        struct.pack_into("<II", file, number * uf2.BLOCK_BYTES + BLOCK_NUMBER_AT, number, count)
    return bytes(file)


@pytest.fixture
def other(box, monkeypatch):
    """The volume of another Pico, which waits in its boot loader."""
    volume = boot_loader(box / "other")
    monkeypatch.setattr(flash, "_mount_points", lambda: [volume])
    return volume


def test_no_board_is_flashed_where_two_may_be_meant(box, board, other):
    refused = rig.tern("flash", board.url, "--firmware", box / "firmware.uf2", code=errors.USAGE)
    boards = f"one runs on {board.url}, and one waits in its boot loader in {other}"
    assert f"{boards}; nothing was changed" in refused.err
    assert is_untouched(other)


def test_tern_up_does_not_flash_another_board_that_waits(box, board, other):
    options = ["--store", box / "store.sqlite", "--device", 7, "--dataset", "flights", "--yes", "--json"]
    assert rig.tern("up", board.url, *options, code=0).json["flashed"] is False
    assert is_untouched(other)


@pytest.mark.parametrize(
    ("make", "reason"),
    [(with_files, "brings files of its own"), (with_larger_file_system, "keeps its files from 0x90000")],
    ids=["files behind the firmware", "another place for the files"],
)
def test_a_firmware_that_costs_a_board_its_files_is_refused_without_erase(box, board, make, reason):
    (box / "bad.uf2").write_bytes(make(micropython()))
    with Repl(board.url) as repl:
        repl.write_file("/ledger.bin", b"kept")
    command = ["flash", board.url, "--firmware", box / "bad.uf2", "--volume", box / "volume"]
    refused = rig.tern(*command, code=errors.USAGE)
    assert reason in refused.err
    assert "nothing was changed" in refused.err
    with Repl(board.url) as repl:
        assert repl.read_file("/ledger.bin") == b"kept"


def test_files_survive_a_flash(box, board):
    with Repl(board.url) as repl:
        repl.write_file("/ledger.bin", b"kept")
    rig.tern("flash", board.url, "--firmware", box / "firmware.uf2", "--volume", box / "volume", code=0)
    with Repl(board.url) as repl:
        assert repl.read_file("/ledger.bin") == b"kept"


@pytest.mark.parametrize("make", [with_files, another_program_with_files])
def test_a_file_system_in_a_uf2_file_is_refused_by_a_board_in_its_boot_loader(box, make):
    (box / "bad.uf2").write_bytes(make(micropython()))
    volume = boot_loader(box / "boot loader")
    with pytest.raises(UsageError, match="brings files of its own"):
        flash.flash("/dev/none", flash.read_firmware(box / "bad.uf2"), volume=volume)
    assert is_untouched(volume)


# Latin-1, no encoding, UTF-8, a long name
NAMES = (b"/l\xe4rm.csv", b"/\xff\xfe", "/日本".encode(), b"/" + b"x" * 200)


def test_a_board_with_names_in_any_bytes_serves_and_can_be_deployed_to(box):
    with boot_pico(box / "flash.bin") as pico:
        rig.tern("deploy", pico.url, code=0)
        with Repl(pico.url) as repl:
            for name in NAMES:
                repl.run(f"open({name!r}, 'w').close()")
            repl.run("import os\nos.mkdir(b'/\\xe4')")
    with boot_pico(box / "flash.bin") as pico:
        assert deploy.wait_for_hello(pico.url, 60).text
        rig.tern("deploy", pico.url, "--whole", code=0)
        with Repl(pico.url) as repl:
            assert {name.decode(errors="surrogateescape") for name in NAMES} <= set(repl.directory("/"))


def test_a_folder_that_hides_the_library_is_renamed_if_the_user_agrees(box, board):
    rig.tern("deploy", board.url, code=0)
    with Repl(board.url) as repl:
        repl.write_file("/tern/__init__.py", b'__version__ = "0.0.9"\n')
        repl.write_file("/hashlib.py", b"own = 1\n")
        assert deploy.plan(repl)[1].move == ("/hashlib.py", "/tern")
    refused = rig.tern("deploy", board.url, code=errors.USAGE)
    assert "rename /hashlib.py, /tern on the board" in refused.err
    assert "--yes" in refused.err
    deployed = json.loads(rig.tern("deploy", board.url, "--yes", "--json", code=0).out)
    assert deployed["moved"] == ["/hashlib.py", "/tern"]
    assert "tern 0.0.9" not in deployed["hello"]
    with Repl(board.url) as repl:
        assert repl.read_file("/tern.hidden/__init__.py") == b'__version__ = "0.0.9"\n'
        assert deploy.plan(repl)[1].move == ()


# What happens after an ESP32 was flashed: esptool's part is tested on the ROM loader of tests/unit/test_flash.py.


@pytest.fixture
def flashed(monkeypatch, tmp_path):
    """A function that does what follows after esptool has flashed a chip with the number `unique_id`."""
    firmware = flash.Firmware(tmp_path / "esp32.bin", b"", names.ESP32, "esp32c3")

    def flash_on(port, unique_id):
        done = {"chip": "ESP32-C3", "offset": 0, "bytes": 0, "verified": True, "unique_id": unique_id}
        monkeypatch.setattr(esp32, "flash", lambda *_, **__: done)
        monkeypatch.setattr(flash, "_PORT_WAIT", 5.0)
        return flash.flash(port, firmware)

    return flash_on


def test_an_esp32_that_starts_tells_its_version(flashed):
    with catalogue.boot("rv32") as board:
        with Repl(board.url) as repl:
            unique_id = repl.evaluate("__import__('machine').unique_id()").hex()
        assert flashed(board.url, unique_id)["firmware"]


def test_another_esp32_on_the_port_is_an_error(flashed):
    with catalogue.boot("rv32") as board, pytest.raises(DeviceError, match="another board is on"):
        flashed(board.url, "00" * 6)


def test_the_error_on_an_esp32_that_restarts_for_ever_names_its_reason(flashed):
    restart = b"rst:0xc (RTC_SW_CPU_RST),boot:0x8 (SPI_FAST_FLASH_BOOT)\r\n"
    reason = b"E (301) spi_flash: Detected size(4096k) smaller than the size in the binary image header(8192k).\r\n"
    with port_that_prints(restart + reason, 0.3) as port, pytest.raises(DeviceError) as caught:
        flashed(port, "00" * 6)
    assert "was written and verified, but does not start" in caught.value.message
    cause = "it restarts again and again, its flash has 4 MB, and its firmware is for 8 MB"
    assert cause in caught.value.message
