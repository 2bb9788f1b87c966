"""Boards are found by USB id and named as mpremote names them; an ambiguous name lists the candidates."""

import os

import pytest
from serial.tools import list_ports
from serial.tools.list_ports_common import ListPortInfo

from ternhost.errors import DeviceError, UsageError
from terntools.boards import devices


def port(name, vid, pid, serial_number):
    info = ListPortInfo(name)
    info.vid, info.pid, info.serial_number = vid, pid, serial_number
    return info


PICO = port("/dev/ttyACM1", 0x2E8A, 0x0005, "e6614103e7452d2f")
ESP = port("/dev/ttyUSB0", 0x10C4, 0xEA60, "0001")
METER = port("/dev/ttyACM0", 0x1915, 0xC00A, "F00D")
MODEM = port("/dev/ttyACM2", 0x1234, 0x5678, "X")


@pytest.fixture
def plugged(monkeypatch):
    def plug(*ports):
        monkeypatch.setattr(list_ports, "comports", lambda: list(ports))

    return plug


def test_boards_and_instruments_are_found_by_usb_id(plugged):
    plugged(ESP, MODEM, METER, PICO)
    found = devices.find()
    assert [(one.port, one.family) for one in found] == [
        ("/dev/ttyACM0", "instrument"),
        ("/dev/ttyACM1", "rp2"),
        ("/dev/ttyUSB0", "esp32"),
    ]
    assert found[1].usb_id == "2e8a:0005"


def test_names_are_those_of_mpremote(plugged):
    plugged(METER, PICO)
    assert devices.resolve("auto") == "/dev/ttyACM1"
    assert devices.resolve("a3") == "/dev/ttyACM3"
    assert devices.resolve("u0") == "/dev/ttyUSB0"
    assert devices.resolve("c7") == "COM7"
    assert devices.resolve("id:e6614103e7452d2f") == "/dev/ttyACM1"
    assert devices.resolve("id:e66") == "/dev/ttyACM1"
    assert devices.resolve("socket://127.0.0.1:7777") == "socket://127.0.0.1:7777"
    assert devices.resolve("port:/dev/null") == "/dev/null"


@pytest.mark.parametrize("name", ["auto", "id:"])
def test_an_ambiguous_name_lists_the_candidates(plugged, name):
    plugged(ESP, PICO)
    with pytest.raises(UsageError) as caught:
        devices.resolve(name)
    if name == "auto":
        assert "/dev/ttyACM1" in caught.value.message
        assert "/dev/ttyUSB0" in caught.value.message


@pytest.mark.parametrize("name", ["auto", "id:77", "/dev/ttyACM99"])
def test_no_board_is_an_error_of_its_own(plugged, name):
    plugged(METER)
    with pytest.raises(DeviceError):
        devices.resolve(name)


def test_a_name_that_means_nothing_says_what_would(plugged):
    plugged(PICO)
    with pytest.raises(UsageError) as caught:
        devices.resolve("pico")
    assert "socket://" in caught.value.hint


def test_a_board_that_cannot_be_opened_stays_on_the_list(plugged):
    plugged(port("/dev/no-such-port", 0x2E8A, 0x0005, "1"))
    (found,) = devices.survey()
    assert found.firmware is None


def test_a_silent_port_has_no_identity():
    far, near = os.openpty()
    try:
        assert devices.identify(os.ttyname(near)) == devices.Identity(None, None, None)
    finally:
        os.close(far)
        os.close(near)
