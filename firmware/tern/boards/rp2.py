"""Raspberry Pi Pico and its relatives (RP2040, RP2350). Entropy: shared_specs/entropy.md.

On an RP2040, os.urandom looks random even with the ring oscillator stopped, and is only hashed in.
The health tests see the oscillator itself: 64 samples about two microseconds apart, folded into a
byte. On an RP2350, os.urandom mixes the hardware TRNG; before MicroPython 1.28 its generator counts
as failed, and it reports nothing.
"""

import os
import sys

import machine  # once: each import looks through the flash for another one, 7 ms

from tern.boards import PinBoard
from tern.compat import const, micropython, ptr8, ptr32
from tern.entropy import Generator
from tern.wire import MIXED, RAW

_PAUSE = const(16)  # turns of a loop of about 8 cycles, at 125 to 150 MHz


@micropython.viper
def read_oscillator(out: ptr8, n: int):
    """Fill out[:n] with noise of the ring oscillator, 8 bits to a byte.

    Each bit is the parity (XOR) of 8 reads of the register RANDOMBIT, with a pause after each, so
    that reads depend less on one another (RP2040 datasheet, 2.17).
    """
    random_bit = ptr32(int(0x4006001C))  # noqa: RUF046 - viper takes such a literal only so
    i = 0
    while i < n:
        value = 0
        bits = 8
        while bits:
            parity = 0
            reads = 8
            while reads:
                parity ^= random_bit[0] & 1
                pause = _PAUSE
                while pause:
                    pause -= 1
                reads -= 1
            value = value << 1 | parity
            bits -= 1
        out[i] = value
        i += 1


_one = bytearray(1)


def oscillator(n):
    """Return n raw bytes of the ring oscillator; a single one is valid until the next call."""
    data = _one if n == 1 else bytearray(n)
    read_oscillator(data, n)
    return data


class Board(PinBoard):
    """A Pico with the LED of its board."""

    def __init__(self, led="LED"):
        """led: name or number of its pin. Which source of entropy it has depends on the chip."""
        super().__init__(led)
        self.name = "rp2040"
        self.assessed = RAW
        self._source = oscillator
        self._watchdog = 0x40058000
        if "RP2350" in sys.implementation._machine:
            self.name = "rp2350"
            self._watchdog = 0x400D8000
            self.assessed = MIXED
            self._source = os.urandom
            if sys.implementation.version[:2] < (1, 28):
                self._source = bytes  # zeros: the generator fails at once
                self.name = "rp2350, needs MicroPython 1.28"

    def keep(self, word=0):
        """Keep `word` in a scratch register of the watchdog, see Base.keep()."""
        kept = machine.mem32[self._watchdog + 12]  # SCRATCH0
        if word:
            machine.mem32[self._watchdog + 12] = word
        return kept

    def unwatch(self):
        """Stop the watchdog: clear ENABLE in its register CTRL (RP2040 datasheet, 4.7.6)."""
        # A write to an address 0x3000 higher clears the bits that are 1 (2.1.2).
        machine.mem32[self._watchdog + 0x3000] = 1 << 30

    def generator(self):
        return Generator(self._source, portion=1, also=os.urandom)

    def temperature(self):
        """Return thousandths of a degree Celsius (RP2040 datasheet, 4.9.5).

        The sensor has .706 V at 27 degrees, and 1.721 mV less for each degree more.
        """
        microvolts = machine.ADC(machine.ADC.CORE_TEMP).read_u16() * 3_300_000 // 65535
        return 27_000 - (microvolts - 706_000) * 1000 // 1721

    def fuses(self):
        return Otp() if "RP2350" in sys.implementation._machine else None


class Otp:
    """Pages 48 and 49 of the OTP of an RP2350.

    Three rows hold the same and vote, as for the counters of its boot ROM.

    Source: RP2350 datasheet, 13 (OTP) and 5.4.8 (otp_access).
    """

    count = 42 * 24

    def _rows(self, n):
        """Return the three copies of the 24 fuses with fuse n.

        A row is a word with 24 fuses; three rows, 12 bytes, hold the same.
        """
        return [machine.mem32[0x40137000 + n // 24 * 12 + row] & 0xFFFFFF for row in (0, 4, 8)]

    def is_burnt(self, n):
        """Return whether at least two of the three copies of fuse n are burnt."""
        return sum([row >> n % 24 & 1 for row in self._rows(n)]) > 1

    def burn(self, n):
        """Burn fuse n in its three copies, by the boot ROM's function otp_access.

        Burning again what is burnt already changes nothing.
        """
        from array import array

        from tern import rom

        rows = array("I", [row | 1 << n % 24 for row in self._rows(n)])
        otp_access = rom.call(machine.mem16[0x16], 0x414F, 4, 0)  # look up "OA" for Arm, secure
        # Reading it takes the boot ROM's lock of the OTP.
        if otp_access and machine.mem32[0x400E0814]:
            rom.call(otp_access, rows, 12, 0x10C00 + n // 24 * 3)  # write, row
            machine.mem32[0x400E0814] = 0
