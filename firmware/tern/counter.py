"""The counter of a chip: fuses, which only ever burn, tell an old copy of the flash from the last one (ledger.md).

A ledger whose step is not 0 is bound to it: each write of it burns two fuses. Nothing undoes that. Fuses have a
`count`, is_burnt(n), and burn(n), which may fail; n from 0: two for each step, begun and done. Whatever is wrong is
ERR_LEDGER.
"""

import os
import sys
from array import array
from binascii import crc32
from struct import pack_into, unpack_from

from tern import rom, wire
from tern.compat import const
from tern.frames import FrameError

_STEP = const(52)  # offset in a ledger


def count(fuses):
    """Return (last step begun, last step done, number of steps). Raises FrameError if a later fuse is burnt."""
    begun = done = 0
    total = fuses.count // 2
    while begun < total and fuses.is_burnt(2 * begun):
        begun += 1
        if fuses.is_burnt(2 * begun - 1):
            done = begun
    if any(fuses.is_burnt(n) for n in range(2 * begun, fuses.count)):
        raise FrameError(wire.ERR_LEDGER, "the fuses hold something else")
    return begun, done, total


def mark(fuses, step, done):
    """Burn a fuse of `step`: begun (done 0) or done (1). Raises FrameError if it did not burn."""
    n = 2 * step - 2 + done
    if n < fuses.count:
        fuses.burn(n)
    if n >= fuses.count or not fuses.is_burnt(n):
        raise FrameError(wire.ERR_LEDGER, "a fuse did not burn")


class File:
    """Fuses of an emulated board: a file beside its directory, so that no copy contains it, a byte for each fuse."""

    def __init__(self, path):
        self._path = path
        try:
            self.count = len(self._read())
        except OSError as error:
            raise FrameError(wire.ERR_LEDGER, "no counter: %s" % error)

    def _read(self):
        with open(self._path, "rb") as file:
            return bytearray(file.read())

    def is_burnt(self, n):
        return self._read()[n]

    def burn(self, n):
        data = self._read()
        data[n] = 1
        with open(self._path + ".new", "wb") as file:
            file.write(data)
        os.rename(self._path + ".new", self._path)


class Efuses:
    """Words 2, 6 and 7 of BLOCK3 of an ESP32, which ESP-IDF leaves to users. (In its other chips a check spans each
    block, which can therefore be burnt only once.) Source: ESP32 Technical Reference Manual, eFuse Controller.
    """

    count = 96

    def __init__(self):
        import machine

        self._registers = shown = machine.mem32
        # A word in the ROM of an ESP32; BLOCK3 is protected against writing or reading, or coded; times of burning.
        if (
            shown[0x40001000] != 0x00F01D83
            or shown[0x3FF5A000] & 0x40200
            or shown[0x3FF5A018] & 3
            or machine.freq() < 80_000_000
        ):
            raise FrameError(wire.ERR_LEDGER, "no fuses for a counter")

    def is_burnt(self, n):
        return self._registers[0x3FF5A080 + (0, 16, 20)[n >> 5]] >> (n & 31) & 1

    def burn(self, n):
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


class Otp:
    """Pages 48 and 49 of the OTP of an RP2350. Three rows hold the same and vote, as for the counters of its boot ROM.

    Source: RP2350 datasheet, 13 (OTP) and 5.4.8 (otp_access).
    """

    count = 42 * 24

    def __init__(self):
        import machine

        self._memory = machine
        if "RP2350" not in sys.implementation._machine:
            raise FrameError(wire.ERR_LEDGER, "no fuses for a counter")

    def _rows(self, n):
        return [self._memory.mem32[0x40137000 + n // 24 * 12 + row] & 0xFFFFFF for row in (0, 4, 8)]

    def is_burnt(self, n):
        return sum([row >> n % 24 & 1 for row in self._rows(n)]) > 1

    def burn(self, n):
        locks = self._memory.mem32
        rows = array("I", [row | 1 << n % 24 for row in self._rows(n)])
        otp_access = rom.call(self._memory.mem16[0x16], 0x414F, 4, 0)  # look up "OA" for Arm, secure
        if otp_access and locks[0x400E0814]:  # reading it takes the boot ROM's lock of the OTP
            rom.call(otp_access, rows, 12, 0x10C00 + n // 24 * 3)  # write, row
            locks[0x400E0814] = 0


def of(directory):
    """Return the fuses of this chip, or of the emulated board with these files. Raises FrameError if it has none."""
    if sys.platform == "esp32":
        return Efuses()
    return Otp() if sys.platform == "rp2" else File(directory + ".count")


def attach_counter(ledger, path):
    """Compare `ledger`, just loaded from `path`, with its counter, and have each write count. Raises FrameError."""
    fuses = of(path.rsplit("/", 2)[0])  # of DIRECTORY/ledger/ID
    begun, done, total = count(fuses)
    (step,) = unpack_from("<H", ledger._view, _STEP)
    if step == begun + 1 and not ledger.state:  # new, and idle
        mark(fuses, step, 0)
        begun = step
    if step == begun > done:  # the power failed after it was written
        mark(fuses, step, 1)
    elif step != done:
        raise FrameError(wire.ERR_LEDGER, "not the last one of its counter", wire.OLD_LEDGER)

    def limit():
        if begun == total:  # nothing more can be paid for than is paid for
            ledger.budget = ledger.spent

    def write(path):
        nonlocal begun
        # First of all, so that no two ledgers have one step, even if the flash is restored between them.
        begun += 1
        mark(fuses, begun, 0)
        pack_into("<H", ledger._view, _STEP, begun)
        pack_into("<I", ledger._view, len(ledger._checked), crc32(ledger._checked))
        ledger._write_alone(path)
        mark(fuses, begun, 1)
        limit()

    limit()
    ledger._write = write
