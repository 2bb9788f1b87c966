"""After an ESP32 was flashed, its port must be that of the same chip. esptool's part is tested in
tests/unit/test_flash.py.
"""

import pytest

from ternhost.errors import DeviceError
from ternhost.reach.ports import names
from terntools.boards import at_port, console, esp32, flash, repl
from terntools.boards.firmware import Firmware
from terntools.boards.repl import Repl
from terntools.emulators import catalogue


@pytest.fixture(scope="module")
def port():
    """The port of an emulated board that stands for an ESP32."""
    with catalogue.boot("rv32") as machine:
        yield machine.url


@pytest.fixture
def flash_chip(port, monkeypatch, tmp_path):
    """A function that does all that follows once esptool has flashed the chip of an id."""
    firmware = Firmware(tmp_path / "esp32.bin", b"", names.ESP32, "esp32c3")
    # Seconds to wait for a board.
    monkeypatch.setattr(at_port, "FLASHED_WAIT", 5.0)
    monkeypatch.setattr(console, "MOST_TALK", 0.5)
    monkeypatch.setattr(repl, "LOCKED_PATIENCE", 0.5)
    monkeypatch.setattr(repl, "ENTER_TRIES", 1)

    def flash_chip(unique_id):
        summary = {"chip": "ESP32-C3", "unique_id": unique_id}
        monkeypatch.setattr(esp32, "flash", lambda *_, **__: summary)
        return flash.flash(port, firmware)

    return flash_chip


def test_the_version_of_a_chip_that_starts_again_is_told(flash_chip, port):
    with Repl(port) as prompt:
        unique_id = prompt.evaluate("__import__('machine').unique_id()").hex()

    assert flash_chip(unique_id)["firmware"]


def test_another_chip_on_the_port_after_flashing_is_an_error(flash_chip):
    with pytest.raises(DeviceError, match="another board is on"):
        flash_chip("00" * 6)
