"""Every wait for a board's console ends, and the error says what the port has printed."""

import sys
import time

import pytest
from harness.port import port_that_prints

from ternhost import errors
from ternhost.errors import DeviceError
from terntools.boards import console, heard, repl

GPS = b"$GPGGA,123519,4807.038,N,01131.000,E,1,08,0.9,545.4,M,46.9,M,,*47\r\n"
# What an ESP32 prints at a start, and when its firmware is for a larger flash.
RESTART = (
    b"ESP-ROM:esp32s3-20210327\r\nBuild:Mar 27 2021\r\nrst:0xc (RTC_SW_CPU_RST),boot:0x8 (SPI_FAST_FLASH_BOOT)\r\n"
    b"mode:DIO, clock div:1\r\nload:0x3fce3808,len:0x44c\r\nentry 0x403c98d0\r\n"
)
SMALL_FLASH = (
    b"E (301) spi_flash: Detected size(4096k) smaller than the size in the binary image header(8192k). "
    b"Probe failed.\r\n"
)


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch):
    monkeypatch.setattr(repl, "ENTER_TRIES", 1)
    monkeypatch.setattr(console, "MOST_TALK", 0.5)
    monkeypatch.setattr(repl, "LOCKED_PATIENCE", 0.5)


def test_the_error_on_a_port_that_never_falls_silent_shows_what_it_prints():
    with port_that_prints(GPS, 0.01) as port, pytest.raises(DeviceError) as caught, repl.Repl(port):
        pass
    assert "it prints '$GPGGA,123519," in caught.value.message
    assert "again and again" in caught.value.message


def test_the_error_on_a_board_that_restarts_for_ever_names_its_reason():
    """An ESP32 whose firmware is for a larger flash restarts before a prompt appears. The error
    translates the boot messages instead of saying that nothing answers.
    """
    with (
        port_that_prints(RESTART + SMALL_FLASH, 0.2) as port,
        pytest.raises(DeviceError) as caught,
        repl.Repl(port),
    ):
        pass
    cause = "it restarts again and again, its flash has 4 MB, and its firmware is for 8 MB"
    assert cause in caught.value.message


@pytest.mark.parametrize(
    ("printed", "is_missing"),
    [
        (b"", True),
        (b"invalid header: 0xffffffff\r\n", True),
        (GPS, False),
        (b"the status: waiting for download\r\n", False),  # of a program of its own
    ],
)
def test_a_board_needs_a_firmware_if_it_is_silent_or_only_its_boot_rom_prints(printed, is_missing):
    assert heard.is_firmware_missing(printed) is is_missing


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "command",
    [
        "board deploy PORT",
        "board up PORT --store s.sqlite --device 7 --data flights --yes",
        "board provision PORT --store s.sqlite --device 7 --data flights",
        "board records PORT",
    ],
)
def test_no_command_waits_without_a_limit_for_a_port_that_prints(tern, here, command):
    with port_that_prints(GPS, 0.1) as port:
        start = time.monotonic()
        ended = tern(*command.replace("PORT", port).split(), code=errors.NO_DEVICE)
    assert time.monotonic() - start < 60
    assert "it prints '$GPGGA,123519," in ended.err


def board_that_answers(output):
    board = repl.Repl.__new__(repl.Repl)
    board.name = "the port"
    board.run = lambda code, timeout=0: output
    return board


def test_other_output_between_the_values_of_a_board_is_passed_over():
    board = board_that_answers("a timer\r\n\x1f(1, 'a')\r\nanother one\x1f2\r\n")
    assert board.values("") == [(1, "a"), 2]


def test_other_output_within_a_value_of_a_board_is_an_error():
    board = board_that_answers("\x1f(1, a timer\r\n'a')\r\n")
    with pytest.raises(DeviceError, match="prints something else between its answers"):
        board.values("")


# The timer that restarts a board whose host was killed


class FakeMachine:
    """Stands in for MicroPython's module `machine`, on a board with or without software timers."""

    def __init__(self, has_software_timers):
        self._has_software_timers = has_software_timers
        self.timers = {}  # number -> period in milliseconds

    def Timer(self, number):
        if number < 0 and not self._has_software_timers:
            raise ValueError("invalid Timer number")
        return FakeTimer(self.timers, number)

    def reset(self):
        pass


class FakeTimer:
    def __init__(self, timers, number):
        self._timers = timers
        self._number = number

    def init(self, mode, period, callback):
        self._timers[self._number] = period


@pytest.mark.parametrize(("has_software_timers", "number"), [(True, -1), (False, 1)])
def test_a_visit_starts_a_timer_that_the_board_has(monkeypatch, has_software_timers, number):
    """An ESP32 has no software timers, number -1, before MicroPython 1.29."""
    machine = FakeMachine(has_software_timers)
    monkeypatch.setitem(sys.modules, "umachine", machine)
    exec(repl.TIMER_CODE.rstrip(b"\4"), {})
    assert machine.timers == {number: 12_000}


def test_the_code_of_the_timer_fits_the_buffer_of_an_esp32_with_what_stops_a_program():
    """A host sends it together with 65 zeros, two carriage returns, Ctrl-C and Ctrl-A."""
    assert 65 + 4 + len(repl.TIMER_CODE) <= 260
