"""ESP32 and its relatives. Entropy: shared_specs/entropy.md.

os.urandom is truly random only while a radio runs (ESP-IDF, "Random Number Generation"), so a radio
is on for seeding. The chip mixes its noise before it can be read: the health tests see MIXED.
"""

import os
import sys

from tern import compat
from tern.boards import PinBoard
from tern.compat import feed
from tern.entropy import Generator


def radio():
    """Return the radio of this chip: an object with active().

    Raises ImportError where there is none.
    """
    try:
        import network

        return network.WLAN(network.STA_IF)
    except (ImportError, AttributeError):
        import bluetooth

        return bluetooth.BLE()


def with_radio(work, *arguments):
    """Return work(*arguments), done while the radio runs.

    Raises ImportError where there is none.
    """
    transmitter = radio()
    was_active = transmitter.active()
    if not was_active:
        transmitter.active(True)
    try:
        return work(*arguments)
    finally:
        if not was_active:
            transmitter.active(False)


def urandom(n):
    """Return n random bytes while the radio runs; none without a radio.

    Then the generator fails: better no report than one without true randomness.
    """
    try:
        return with_radio(os.urandom, n)
    except ImportError:
        return b""


class Board(PinBoard):
    """An ESP32 on its console UART or USB; which pin has an LED differs from board to board."""

    def __init__(self, led=None):
        super().__init__(led)
        self.name = sys.implementation._machine

    def keep(self, word=0):
        """Keep `word` in the memory of the RTC, see Base.keep()."""
        try:
            from machine import RTC
        except ImportError:  # an emulated board
            return 0
        kept = RTC().memory()  # empty after power on, which counts as 0
        if word:
            RTC().memory(word.to_bytes(4, "little"))
        return int.from_bytes(kept, "little")

    def unwatch(self):
        """Give who is at the console 35 minutes: a watchdog that is on cannot be stopped."""
        if compat.feed is not feed:
            self.watch_ms = 1 << 21  # 35 minutes
            self.watch()

    def generator(self):
        """Return the generator, tested and seeded while the radio runs, which is on just once."""
        try:
            return with_radio(Generator, urandom)
        except ImportError:
            return Generator(urandom)

    def temperature(self):
        """Return thousandths of a degree Celsius; an ESP32 has whole degrees Fahrenheit."""
        import esp32

        if hasattr(esp32, "mcu_temperature"):
            return 1000 * esp32.mcu_temperature()
        return (esp32.raw_temperature() - 32) * 5000 // 9

    def fuses(self):
        """Return the fuses of an ESP32 that leaves them to users; None on other chips.

        It is known by a word of its ROM. BLOCK3 must be neither protected against writing or
        reading nor coded, and the clock fit for burning.
        """
        import machine

        shown = machine.mem32
        # In this order: a word of the ROM of an ESP32; EFUSE_BLK0_RDATA0, whose bits 9 and 18
        # protect BLOCK3; EFUSE_BLK0_RDATA6, whose low two bits are the coding scheme.
        if shown[0x40001000] != 0x00F01D83 or shown[0x3FF5A000] & 0x40200 or shown[0x3FF5A018] & 3:
            return None
        return Efuses(shown) if machine.freq() >= 80_000_000 else None  # for the times of burning


class Efuses:
    """Words 2, 6 and 7 of BLOCK3 of an ESP32, which ESP-IDF leaves to users.

    (In its other chips a check spans each block, which can therefore be burnt only once.) Source:
    ESP32 Technical Reference Manual, eFuse Controller.
    """

    count = 96

    def __init__(self, registers):
        self._registers = registers

    def is_burnt(self, n):
        """Return 1 if fuse n is burnt, else 0.

        A word has 32 fuses; words 2, 6 and 7 follow the first one, at 0x3FF5A080, by 0, 16 and 20
        bytes.
        """
        return self._registers[0x3FF5A080 + (0, 16, 20)[n >> 5]] >> (n & 31) & 1

    def burn(self, n):
        """Burn fuse n, unless the registers say that other fuses would burn, too.

        The registers of all blocks are cleared, so that only this fuse burns; then a burn and a
        read are started, each by its code and command.
        """
        registers = self._registers
        mask = 1 << (n & 31)
        to_burn = list(range(0x3FF5A01C, 0x3FF5A038, 4))  # fuses of all blocks
        to_burn += range(0x3FF5A098, 0x3FF5A0F8, 4)
        for register in to_burn:
            registers[register] = 0
        registers[0x3FF5A0E0 + (0, 16, 20)[n >> 5]] = mask
        if [registers[register] for register in to_burn if registers[register]] != [mask]:
            return  # other fuses would burn, too
        registers[0x3FF5A0F8] = 80 | 128 << 8  # CLK and DAC_CONF, for a peripheral clock of 80 MHz
        registers[0x3FF5A118] = 100
        for code, command in ((0x5A5A, 2), (0x5AA5, 1)):  # CONF and CMD: burn, then read
            registers[0x3FF5A0FC] = code
            registers[0x3FF5A104] = command
            while registers[0x3FF5A104]:
                pass
