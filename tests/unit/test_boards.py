"""The entropy sources of boards, without their chips: which source a board takes, and when it
switches a radio on.
"""

import importlib
import io
import os
import sys
from types import SimpleNamespace

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


@pytest.fixture
def esp32_with_radio(monkeypatch):
    """`esp32_with_radio(kind, was_on)`: the module of ESP32 boards, a radio, and the reads of the
    chip's generator, which needs a radio that is on.
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
        return board_module, radio, reads

    return make


RADIOS = pytest.mark.parametrize("kind", ["network", "bluetooth"])


@RADIOS
@pytest.mark.parametrize("was_on", [False, True])
def test_an_esp32_reads_its_generator_with_a_radio_on(esp32_with_radio, kind, was_on):
    """The random number generator of an ESP32 is only good while Wi-Fi or Bluetooth is on. The
    board switches it on to take a seed, and leaves it as it was.
    """
    board_module, radio, reads = esp32_with_radio(kind, was_on)
    board = board_module.Board()
    assert board.generator().state != FAILED
    assert len(reads) >= 8
    assert radio.on == was_on
    assert radio.switched == (0 if was_on else 2), "on and off, once for all of the start-up"
    assert board.assessed == wire.MIXED


@RADIOS
def test_an_esp32_switches_its_radio_on_again_for_another_seed(esp32_with_radio, kind):
    """The random number generator of an ESP32 is only good while a radio is on: it is switched on
    for each new seed, and off afterwards.
    """
    board_module, radio, reads = esp32_with_radio(kind, was_on=False)
    generator = board_module.Board().generator()
    reads_before = len(reads)
    for _ in range(512):  # as many reports as a seed lasts for
        generator.end_report()
    assert len(reads) > reads_before
    assert not radio.on


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
