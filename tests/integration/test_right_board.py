"""A command flashes the board that is meant, and no other one; afterwards that board has to start."""

import pico_images
import pytest
import rig
from harness.port import port_that_prints
from spec.files import uf2_file

from ternhost import errors
from ternhost.errors import DeviceError
from ternhost.reach.ports import names
from terntools.boards import esp32, flash
from terntools.boards.repl import Repl
from terntools.emulators import catalogue
from terntools.emulators.pico import boot_pico


@pytest.fixture
def box(tmp_path):
    (tmp_path / "firmware.uf2").write_bytes(uf2_file(pico_images.image()))
    return tmp_path


@pytest.fixture
def board(box):
    """A Pico that runs MicroPython. Its boot loader would be mounted in the folder `volume`."""
    with boot_pico(box / "flash.bin", volume=box / "volume") as pico:
        yield pico


@pytest.fixture
def other(box):
    """The volume of another board, which waits in its boot loader. It stays as it is."""
    volume = pico_images.volume_of_another_board(box / "other")
    yield volume
    assert pico_images.content(volume) == ["INFO_UF2.TXT"]


def flash_board(board, box, code):
    return rig.tern("flash", board.url, "--firmware", box / "firmware.uf2", code=code)


def test_no_board_is_flashed_where_two_may_be_meant(box, board, other, monkeypatch):
    monkeypatch.setattr(flash, "_mount_points", lambda: [other])
    refused = flash_board(board, box, errors.USAGE)
    both = (
        f"one runs on {board.url}, and one waits in its boot loader in {other}; nothing was changed"
    )
    assert both in refused.err


def test_up_does_not_flash_a_board_that_runs_while_others_wait(box, board, other, monkeypatch):
    third = pico_images.volume_of_another_board(box / "third")
    monkeypatch.setattr(flash, "_mount_points", lambda: [other, third])
    options = [
        "--store",
        box / "store.sqlite",
        "--device",
        7,
        "--dataset",
        "flights",
        "--yes",
        "--json",
    ]
    assert rig.tern("up", board.url, *options, code=0).json["flashed"] is False


def test_a_silent_board_on_its_port_is_not_the_one_that_waits(box, board, other, monkeypatch):
    """Its program cannot be interrupted, and answers no question."""
    with Repl(board.url) as repl:
        program = b"import micropython\nmicropython.kbd_intr(-1)\nwhile True:\n    pass\n"
        repl.write_file("/main.py", program)
        repl.start_main()
    monkeypatch.setattr(flash, "_mount_points", lambda: [other])
    assert "nothing was changed" in flash_board(board, box, errors.USAGE).err


def test_a_volume_that_comes_while_the_board_is_asked_is_another_board_s(
    box, board, other, monkeypatch
):
    looks = []

    def mount_points():
        """The other board comes at the third look: the last one before the boot loader starts."""
        looks.append(1)
        return [other] if len(looks) > 2 else []

    monkeypatch.setattr(flash, "_mount_points", mount_points)
    assert "nothing was changed" in flash_board(board, box, errors.USAGE).err


def test_a_volume_is_not_the_board_s_while_the_board_is_still_on_its_port(
    box, board, other, monkeypatch
):
    """Such as a board that its watchdog restarts."""
    asked = []
    monkeypatch.setattr(flash, "_enter_boot_loader", lambda *_: asked.append(1))
    monkeypatch.setattr(flash, "_mount_points", lambda: [other] * len(asked))
    monkeypatch.setattr(flash, "_LEAVE_WAIT", 1.0)
    failed = flash_board(board, box, errors.NO_DEVICE)
    assert "did not start its boot loader; nothing was written" in failed.err


def test_nothing_is_written_where_two_volumes_come_at_the_same_time(box, board, other, monkeypatch):
    volume = box / "volume"
    monkeypatch.setattr(flash, "_mount_points", lambda: [volume, other] if volume.exists() else [])
    failed = flash_board(board, box, errors.NO_DEVICE)
    assert (
        f"several boards wait in their boot loaders: {volume}, {other}; nothing was written"
        in failed.err
    )


def test_a_board_that_runs_another_micropython_after_flashing_is_an_error(box, board, monkeypatch):
    monkeypatch.setattr(flash.uf2.Image, "contains", lambda self, text: False)
    monkeypatch.setattr(flash, "_mount_points", lambda: [box / "volume"])
    failed = flash_board(board, box, errors.NO_DEVICE)
    assert "which is not the file's" in failed.err


# What happens after an ESP32 was flashed: esptool's part is tested on the ROM loader of
# tests/unit/test_flash.py.


@pytest.fixture
def flashed(monkeypatch, tmp_path):
    """A function that does what follows after esptool has flashed a chip with the number
    `unique_id`.
    """
    firmware = flash.Firmware(tmp_path / "esp32.bin", b"", names.ESP32, "esp32c3")

    def flash_on(port, unique_id):
        done = {
            "chip": "ESP32-C3",
            "offset": 0,
            "bytes": 0,
            "verified": True,
            "unique_id": unique_id,
        }
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
