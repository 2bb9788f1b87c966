"""The entropy sources of boards, without their chips: which source a board takes, and when it
switches a radio on.
"""

import importlib
import io
import os
import sys
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from tern import wire
from tern.boards import Base
from tern.entropy import FAILED, EntropyError


class Radio:
    """Records when it was on, and what was read meanwhile."""

    def __init__(self, on):
        self.on, self.switched = on, 0

    def active(self, on=None):
        if on is not None and on != self.on:
            self.on = on
            self.switched += 1
        return self.on


class Thermometer:
    """The RP2040's, at 27 C: 0.706 V of 3.3 V."""

    CORE_TEMP = 4

    def __init__(self, channel):
        pass

    def read_u16(self):
        return round(0.706 / 3.3 * 65535)


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    """The module `machine` of every board, as far as Board uses it."""
    module = SimpleNamespace(Pin=SimpleNamespace(OUT=1, __call__=None), ADC=Thermometer)
    monkeypatch.setitem(sys.modules, "machine", module)
    yield module
    for name in ("tern.boards.esp32", "tern.boards.rp2"):
        sys.modules.pop(name, None)


def esp32_board(monkeypatch, modules):
    for name in ("network", "bluetooth"):
        monkeypatch.setitem(sys.modules, name, modules.get(name))
    monkeypatch.setattr(sys.implementation, "_machine", "ESP32 module", raising=False)
    sys.modules.pop("tern.boards.esp32", None)
    return importlib.import_module("tern.boards.esp32")


class Esp32(NamedTuple):
    """An ESP32, and what happens to its radio and to the random number generator of its chip."""

    board: Base
    radio: Radio
    reads: list[int]  # how many bytes each read of the chip's generator took


# Every start-up tests so many raw bytes of a chip (SP 800-90B, 4.3), 128 at a time.
READS_OF_A_START = 1024 // 128
# A generator takes one raw byte in 4 reports, and a new seed of 128 such bytes.
REPORTS_OF_A_SEED = 4 * 128


@pytest.fixture
def esp32_with_radio(monkeypatch):
    """A function that makes an Esp32 whose radio is of a kind, and was on or off before.

    The chip's generator may only be read while the radio is on: any other read fails the test.
    """

    def make(kind, was_on):
        radio, reads = Radio(was_on), []
        module = SimpleNamespace(STA_IF=0, WLAN=lambda _: radio, BLE=lambda: radio)
        board_module = esp32_board(monkeypatch, {kind: module})

        def urandom(n):
            assert radio.on
            reads.append(n)
            return os.urandom(n)

        monkeypatch.setattr(board_module, "os", SimpleNamespace(urandom=urandom))
        return Esp32(board_module.Board(), radio, reads)

    return make


RADIOS = pytest.mark.parametrize("kind", ["network", "bluetooth"])


@RADIOS
@pytest.mark.parametrize("was_on", [False, True])
def test_an_esp32_reads_its_generator_with_a_radio_on(esp32_with_radio, kind, was_on):
    """An ESP32's random number generator is only good while Wi-Fi or Bluetooth is on."""
    esp32 = esp32_with_radio(kind, was_on)
    generator = esp32.board.generator()
    assert len(esp32.reads) >= READS_OF_A_START
    assert generator.state != FAILED
    assert esp32.board.assessed == wire.MIXED, "the chip mixes its raw bits before they are tested"


@RADIOS
def test_an_esp32_switches_a_radio_that_was_off_on_and_off_once(esp32_with_radio, kind):
    esp32 = esp32_with_radio(kind, was_on=False)
    esp32.board.generator()
    assert not esp32.radio.on
    assert esp32.radio.switched == 2, "on and off, once for all reads of the start-up"


@RADIOS
def test_an_esp32_leaves_a_radio_on_that_was_on(esp32_with_radio, kind):
    esp32 = esp32_with_radio(kind, was_on=True)
    esp32.board.generator()
    assert esp32.radio.on
    assert esp32.radio.switched == 0


@RADIOS
def test_an_esp32_switches_its_radio_on_again_for_another_seed(esp32_with_radio, kind):
    esp32 = esp32_with_radio(kind, was_on=False)
    generator = esp32.board.generator()
    reads_of_first_seed = len(esp32.reads)
    for _ in range(REPORTS_OF_A_SEED):
        generator.end_report()
    assert len(esp32.reads) > reads_of_first_seed
    assert not esp32.radio.on, "it is off again"


def test_an_esp32_without_a_radio_reports_nothing(monkeypatch):
    generator = esp32_board(monkeypatch, {}).Board().generator()
    assert generator.state == FAILED
    with pytest.raises(EntropyError):
        generator.byte()


def rp2_board(monkeypatch, chip, version):
    board_module = importlib.import_module("tern.boards.rp2")
    implementation = SimpleNamespace(version=version, _machine=f"Raspberry Pi Pico with {chip}")
    monkeypatch.setattr(board_module, "sys", SimpleNamespace(implementation=implementation))
    return board_module, board_module.Board(led=None)


def test_a_newer_rp2350_takes_pico_rand(monkeypatch):
    board_module, board = rp2_board(monkeypatch, "RP2350", (1, 28, 0))
    monkeypatch.setattr(board_module, "read_oscillator", None)  # an RP2350 has none at that address
    assert board.generator().state != FAILED
    assert board.assessed == wire.MIXED


@pytest.mark.parametrize(
    ("oscillator", "has_failed"), [(os.urandom, False), (bytes, True)], ids=["random", "zeros"]
)
def test_an_rp2040_reads_the_oscillator_and_notices_a_constant_one(
    monkeypatch, oscillator, has_failed
):
    """An RP2040 takes entropy from its ring oscillator. One that gives only zeros fails the health
    tests.
    """
    board_module, board = rp2_board(monkeypatch, "RP2040", (1, 28, 0))

    def fill(out, n):
        out[:n] = oscillator(n)

    monkeypatch.setattr(board_module, "read_oscillator", fill)
    assert (board.generator().state == FAILED) == has_failed
    assert board.assessed == wire.RAW


def test_an_rp2040_hashes_urandom_with_the_oscillator(monkeypatch):
    """With the same bytes of the oscillator, the generator depends on what os.urandom gives, too."""
    board_module, _ = rp2_board(monkeypatch, "RP2040", (1, 28, 0))
    oscillator = os.urandom(1 << 16)

    def first_bytes(urandom_byte):
        """The first bytes of a generator whose urandom repeats this byte."""
        bits = io.BytesIO(oscillator)

        def read_oscillator(out, n):
            bits.readinto(memoryview(out)[:n])

        monkeypatch.setattr(board_module, "read_oscillator", read_oscillator)
        constant = SimpleNamespace(urandom=lambda n: urandom_byte * n)
        monkeypatch.setattr(board_module, "os", constant)
        generator = board_module.Board(led=None).generator()
        return [generator.byte() for _ in range(32)]

    assert first_bytes(b"a") == first_bytes(b"a")
    assert first_bytes(b"a") != first_bytes(b"b")


def test_an_older_rp2350_reports_nothing_and_says_why(monkeypatch):
    _, board = rp2_board(monkeypatch, "RP2350", (1, 25, 0))
    assert board.generator().state == FAILED
    assert "1.28" in board.text()


def test_the_text_of_a_board_names_the_program_of_its_user():
    """The host shows which program, in which version, runs on each board."""
    board = Base()
    assert "program" not in board.text()
    board.program = "thermostat 2"
    assert board.text().split("; ")[3] == "program thermostat 2"
