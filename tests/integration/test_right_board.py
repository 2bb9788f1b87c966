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


def image():
    """The MicroPython of the emulated Pico."""
    return (cache.find_entry(FIRMWARE) / "firmware.bin").read_bytes()


def files_of(data):
    """Where the MicroPython in these bytes keeps its files."""
    return binary_info.file_system(lambda at, n: data[at - START : at - START + n] if at >= START else b"")


@pytest.fixture
def box(tmp_path):
    (tmp_path / "firmware.uf2").write_bytes(uf2_file(image()))
    return tmp_path


@pytest.fixture
def board(box):
    with boot_pico(box / "flash.bin", volume=box / "volume") as pico:
        yield pico


def with_files(data):
    """The firmware with a file system behind it, as dir2uf2 writes it: a UF2 file."""
    behind = uf2_file(b"littlefs" * 512, start=files_of(data).start)
    return numbered(uf2_file(data) + behind)


def another_program_with_files(data):
    """A program that tells nothing about its files, with a file system at an address of its own."""
    superblock = struct.pack("<II", 1, 0xF0000000) + b"littlefs"
    behind = uf2_file(superblock.ljust(4096, b"\xff"), start=START + 0xF0000)
    return numbered(uf2_file(bytes(65536)) + behind)


def numbered(blocks):
    """A UF2 file of these blocks, in their order."""
    count = len(blocks) // uf2.BLOCK_BYTES
    whole = bytearray(blocks)
    for number in range(count):
        struct.pack_into("<II", whole, number * uf2.BLOCK_BYTES + 20, number, count)
    return bytes(whole)


def with_larger_file_system(data):
    """The firmware, whose files begin 64 KiB earlier."""
    files = files_of(data)
    entry = struct.pack("<II", files.start, len(files))
    assert data.count(entry) == 1
    return data.replace(entry, struct.pack("<II", files.start - 0x10000, len(files) + 0x10000))


def test_no_board_is_flashed_where_two_may_be_meant(box, board, monkeypatch):
    other = box / "other"
    other.mkdir()
    (other / "INFO_UF2.TXT").write_text(INFO)
    monkeypatch.setattr(flash, "_mount_points", lambda: [other])
    refused = rig.tern("flash", board.url, "--firmware", box / "firmware.uf2", code=errors.USAGE)
    assert (
        f"one runs on {board.url}, and one waits in its boot loader in {other}; nothing was changed"
        in refused.err
    )
    assert [path.name for path in other.iterdir()] == ["INFO_UF2.TXT"]
    options = ["--store", box / "store.sqlite", "--device", 7, "--dataset", "flights", "--yes", "--json"]
    assert rig.tern("up", board.url, *options, code=0).json["flashed"] is False
    assert [path.name for path in other.iterdir()] == ["INFO_UF2.TXT"]


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (with_files, "brings files of its own"),
        (lambda data: uf2_file(with_larger_file_system(data)), "keeps its files from 0x90000"),
    ],
    ids=["files behind the firmware", "another place for the files"],
)
def test_a_firmware_that_costs_a_board_its_files_is_refused_without_erase(box, board, make, reason):
    (box / "bad.uf2").write_bytes(make(image()))
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
    (box / "bad.uf2").write_bytes(make(image()))
    volume = box / "boot loader"
    volume.mkdir()
    (volume / "INFO_UF2.TXT").write_text(INFO)
    with pytest.raises(UsageError, match="brings files of its own"):
        flash.flash("/dev/none", flash.read_firmware(box / "bad.uf2"), volume=volume)
    assert [path.name for path in volume.iterdir()] == ["INFO_UF2.TXT"]


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
    """Flash an ESP32 on a port as far as esptool goes, which then says this number of the chip."""
    firmware = flash.Firmware(tmp_path / "esp32.bin", b"", names.ESP32, "esp32c3")

    def flash_on(port, unique_id):
        done = {"chip": "ESP32-C3", "offset": 0, "bytes": 0, "verified": True, "unique_id": unique_id}
        monkeypatch.setattr(esp32, "flash", lambda *_, **__: done)
        monkeypatch.setattr(flash, "_PORT_WAIT", 5.0)
        return flash.flash(port, firmware)

    return flash_on


def test_the_same_esp32_has_to_start(flashed):
    with catalogue.boot("rv32") as board:
        with Repl(board.url) as repl:
            unique_id = repl.evaluate("__import__('machine').unique_id()").hex()
        assert flashed(board.url, unique_id)["firmware"]
        with pytest.raises(DeviceError, match="another board is on"):
            flashed(board.url, "00" * 6)


def test_an_esp32_that_restarts_for_ever_is_told_with_its_reason(flashed):
    restart = b"rst:0xc (RTC_SW_CPU_RST),boot:0x8 (SPI_FAST_FLASH_BOOT)\r\n"
    reason = b"E (301) spi_flash: Detected size(4096k) smaller than the size in the binary image header(8192k).\r\n"
    with port_that_prints(restart + reason, 0.3) as port, pytest.raises(DeviceError) as caught:
        flashed(port, "00" * 6)
    assert "was written and verified, but does not start" in caught.value.message
    assert (
        "it restarts again and again, its flash has 4 MB, and its firmware is for 8 MB"
        in caught.value.message
    )
