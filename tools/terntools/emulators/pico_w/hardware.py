"""Parts of a Pico W that rp2040py lacks: random bits, a flash in a file, and room temperature."""

import os
from typing import Any

from rp2040py.peripherals import ssi

from terntools.emulators.pico_w import FLASH_BYTES

# RP2040 datasheet: 2.2, the addresses without their last three digits, and 2.17.8, the registers of
# the ring oscillator.
_RING_OSCILLATOR = 0x40060
_FLASH_INTERFACE = 0x18000
_CTRL = 0x00
_STATUS = 0x18
_RANDOMBIT = 0x1C
_ENABLE_FIELD = 12  # the place of the field ENABLE in CTRL, which has 12 bits
_DISABLE = 0xD1E
_STABLE_AND_ENABLED = 1 << 31 | 1 << 12  # of STATUS

_SENSOR = 4  # the channel of the converter that has the temperature sensor
_ROOM_TEMPERATURE = round(0.706 / 3.3 * 4095)  # 27 degrees Celsius: 4.9.5


class RingOscillator:
    """The ring oscillator, whose random bits are those of this computer.

    In rp2040py it has no registers at all: every random bit would be 1.
    """

    def __init__(self) -> None:
        self._bits = 0
        self._bits_left = 0
        self._registers: dict[int, int] = {}

    def read_uint32(self, offset: int) -> int:
        """Return the content of a register."""
        if offset == _RANDOMBIT:
            return self._random_bit()
        if offset == _STATUS:
            return _STABLE_AND_ENABLED
        return self._registers.get(offset, 0)

    def _random_bit(self) -> int:
        """Return the next random bit, which is 1 while the oscillator is disabled."""
        if self._registers.get(_CTRL, 0) >> _ENABLE_FIELD & 0xFFF == _DISABLE:
            return 1
        if self._bits_left == 0:
            self._bits = int.from_bytes(os.urandom(512), "little")
            self._bits_left = 8 * 512
        self._bits_left -= 1
        return self._bits >> self._bits_left & 1

    def write_uint32(self, offset: int, value: int) -> None:
        """Write a register."""
        self._registers[offset] = value

    def write_uint32_atomic(self, offset: int, value: int, _atomic_type: int) -> None:
        """Write a register as a whole: no program sets single bits of these."""
        self._registers[offset] = value

    def reset(self) -> None:
        """Do nothing: no reset but power off stops the oscillator."""


class FlashInFile(ssi.RPSSI):  # type: ignore[misc]
    """The flash interface of an RP2040, which also writes each change of the flash to a file.

    A change is in the file before the board goes on. So to kill the emulator is to cut the power of
    the board.
    """

    def __init__(self, mcu: Any, file: int) -> None:
        """file: the descriptor of the file, which has FLASH_BYTES bytes."""
        super().__init__(mcu, "SSI")
        self._file = file

    def _apply_command(self) -> None:
        """Execute the command that the flash has received, and write what it changes to the file."""
        command = bytes(self._tx_buffer[:4])
        super()._apply_command()
        sizes = {
            ssi.CMD_PAGE_PROGRAM: ssi.FLASH_PAGE_SIZE,
            ssi.CMD_SECTOR_ERASE: ssi.FLASH_SECTOR_SIZE,
            ssi.CMD_BLOCK_ERASE: ssi.FLASH_BLOCK_SIZE,
        }
        if len(command) < 4 or command[0] not in sizes:
            return
        size = sizes[command[0]]
        start = int.from_bytes(command[1:], "big") // size * size
        stop = min(start + size, FLASH_BYTES)
        if start < stop:
            os.pwrite(self._file, bytes(self.rp2040.flash[start:stop]), start)


def complete(mcu: Any, flash_file: int | None) -> None:
    """Give an emulated RP2040 the parts that it lacks.

    flash_file: the descriptor of the file that keeps its flash; None: the flash is lost at the end.
    """
    mcu.peripherals[_RING_OSCILLATOR] = RingOscillator()
    mcu.adc.channel_values[_SENSOR] = _ROOM_TEMPERATURE
    if flash_file is not None:
        mcu.ssi = FlashInFile(mcu, flash_file)
        mcu.peripherals[_FLASH_INTERFACE] = mcu.ssi
