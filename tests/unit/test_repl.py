"""Every wait for a board's console ends, and the error says what the port has printed."""

import time
from contextlib import suppress

import pytest
from harness.port import port_that_prints
from spec.files import uf2_file

from ternhost import errors
from ternhost.errors import DeviceError
from terntools.boards import heard, repl

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
    monkeypatch.setattr(repl, "MOST_TALK", 0.5)
    monkeypatch.setattr(repl, "HELLO_WAIT", 0.5)


@pytest.mark.parametrize(("every", "visits"), [(0.01, False), (0.3, True)])
def test_the_error_on_a_port_that_never_falls_silent_shows_what_it_prints(every, visits):
    with port_that_prints(GPS, every) as port:
        start = time.monotonic()
        with pytest.raises(DeviceError) as caught, repl.Repl(port, visits=visits):
            pass
    assert time.monotonic() - start < 20, "the board was waited for without a limit"
    assert "it prints '$GPGGA,123519," in caught.value.message
    assert "again and again" in caught.value.message


def test_the_error_on_a_board_that_restarts_for_ever_names_its_reason():
    with (
        port_that_prints(RESTART + SMALL_FLASH, 0.2) as port,
        pytest.raises(DeviceError) as caught,
        repl.Repl(port),
    ):
        pass
    cause = "it restarts again and again, its flash has 4 MB, and its firmware is for 8 MB"
    assert cause in caught.value.message


@pytest.mark.parametrize(
    ("printed", "description"),
    [
        (
            RESTART + b"\r\nBrownout detector was triggered\r\n\r\n",
            "its supply voltage drops too low (brownout)",
        ),
        (2 * RESTART, "it restarts again and again"),
        (b"invalid header: 0xffffffff\r\n" * 9, "or one for another chip (invalid header)"),
        (b"rst:0x1 (POWERON_RESET)\r\nwaiting for download\r\n", "it waits in its boot loader"),
        (b"hello\r\n", "it prints 'hello'"),
        (b"t=20.1\r\nt=20.2\r\nt=20.1\r\n", "it prints 't=20.1' again and again"),
        (b"\xff\xfe\x80" * 9, "it sends bytes that are no text"),
        (b"\r\x01" + repl._ARM, "it sends back what it is sent"),
        (2 * b"rst:0x8 (TG1WDT_SYS_RST),boot:0x13\r\n", "its watchdog resets it"),
        (
            SMALL_FLASH.replace(b"4096k", b"512k"),
            "its flash has 512 KB, and its firmware is for 8 MB",
        ),
        (
            b"E (59) flash_parts: partition 2 exceeds flash chip size 0x100000\r\n",
            "for a larger flash",
        ),
    ],
)
def test_what_a_board_prints_is_described_in_a_sentence(printed, description):
    assert description in heard.describe(printed)


@pytest.mark.parametrize(
    ("printed", "is_missing"),
    [
        (b"", True),
        (RESTART, True),
        (b"invalid header: 0xffffffff\r\n", True),
        (GPS, False),
        (b"\xff\xfe" * 9, False),
        (b"the status: waiting for download\r\n", False),
    ],
)
def test_a_board_needs_a_firmware_if_it_is_silent_or_only_its_boot_rom_prints(printed, is_missing):
    assert heard.is_firmware_missing(printed) is is_missing


COMMANDS = {
    "deploy": ["deploy", "PORT"],
    "flash": ["flash", "PORT", "--firmware", "FIRMWARE"],
    "up": ["up", "PORT", "--store", "STORE", "--device", "7", "--dataset", "flights", "--yes"],
    "provision": ["provision", "PORT", "--store", "STORE", "--device", "7", "--dataset", "flights"],
    "records": ["device", "records", "PORT"],
}
with suppress(ModuleNotFoundError):
    import ternbench  # noqa: F401, is it there?

    COMMANDS["bench"] = ["bench", "latency", "PORT"]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_waits_without_a_limit_for_a_port_that_prints(tern, tmp_path, command):
    firmware = tmp_path / "pico.uf2"
    firmware.write_bytes(uf2_file(bytes(4096)))
    with port_that_prints(GPS, 0.1) as port:
        values = {"PORT": port, "FIRMWARE": str(firmware), "STORE": str(tmp_path / "store.sqlite")}
        start = time.monotonic()
        words = [values.get(word, word) for word in COMMANDS[command]]
        ended = tern(*words, code=errors.NO_DEVICE)
    assert time.monotonic() - start < 60
    assert "it prints '$GPGGA,123519," in ended.err


@pytest.fixture
def answering():
    """A Repl whose board answers with these bytes."""

    def answer(output):
        board = repl.Repl.__new__(repl.Repl)
        board.name = "the port"
        board.run = lambda code, timeout=0: output
        return board

    return answer


def test_other_output_between_the_values_of_a_board_is_passed_over(answering):
    board = answering("a timer\r\n\x1f(1, 'a')\r\nanother one\x1f2\r\n")
    assert board.values("") == [(1, "a"), 2]


def test_output_within_a_value_is_an_error(answering):
    with pytest.raises(DeviceError, match="prints something else between its answers"):
        answering("\x1f(1, a timer\r\n'a')\r\n").values("")


def test_a_board_that_gives_no_value_is_an_error(answering):
    with pytest.raises(DeviceError, match="gave no answer"):
        answering("a timer\r\n").value("")
