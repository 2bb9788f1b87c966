"""INA226 and INA228 (Texas Instruments) on the I2C bus of a second Pico, which runs ina_logger.py.

Rows of 12 bytes, several in each line of base64, hold registers: microseconds u32, bus voltage i32,
shunt voltage i32. Bit 30 of the bus voltage is the marker.
"""

import binascii
import contextlib
import struct
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ternbench.energy import LOST_HINT, Trace
from ternhost.errors import DeviceError
from terntools.boards.repl import Repl

LOGGER = Path(__file__).with_name("ina_logger.py")
ROW = struct.Struct("<Iii")
_ADDRESS = 0x40  # of the chip on the bus
_MARKER = 1 << 30
_READY = "ready"
_END = b"end\n"
_TICKS = 1 << 30  # ticks_us wraps there


@dataclass(frozen=True)
class Chip:
    """How a chip's registers count (their tables in the two datasheets): volts a bit of bus and
    shunt voltage, and the largest shunt voltage.
    """

    name: str
    bus: float
    shunt: float
    full: int


CHIPS = {
    "ina226": Chip("INA226", 1.25e-3, 2.5e-6, (1 << 15) - 1),
    "ina228": Chip("INA228", 195.3125e-6, 312.5e-9, (1 << 19) - 1),
}


class Ina:
    """A logger on a Pico at `port`; `ohms` is the shunt of the breakout (0.1 on most for INA226,
    0.015 for INA228).
    """

    def __init__(self, port: str, chip: str, ohms: float) -> None:
        self.chip = CHIPS[chip]
        self.source = f"measured with an {self.chip.name}"
        self._kind = chip
        self._ohms = ohms
        self._port = port

    def record(self, seconds: float) -> Trace:
        with Repl(self._port) as repl:
            repl.run(LOGGER.read_text())
            data = bytearray()
            program = f"log({self._kind!r}, {_ADDRESS}, {round(1000 * seconds)})"
            with repl.program(program, _READY, timeout=seconds + 10) as exchange:
                end = time.monotonic() + seconds + 5
                while not data.endswith(_END) and time.monotonic() < end:
                    data += exchange(b"", b"\n")
        if not data.endswith(_END):
            raise DeviceError(
                f"the logger on {self._port} stopped in its recording", hint=LOST_HINT
            )
        return decode(bytes(data), self.chip, self._ohms)


def decode(data: bytes, chip: Chip, ohms: float) -> Trace:
    """The trace of the logger's lines of rows; damaged lines are left out. Raises DeviceError."""
    rows: list[tuple[int, int, int]] = []
    for line in data.splitlines():
        with contextlib.suppress(binascii.Error, struct.error):
            rows += ROW.iter_unpack(binascii.a2b_base64(line))
    if len(rows) < 2:
        raise DeviceError(
            "the logger sent no samples", hint="is the INA wired to GP4 (SDA) and GP5 (SCL)?"
        )
    table = np.array(rows, np.int64)
    ticks = np.cumsum(np.concatenate(([0], np.diff(table[:, 0]) % _TICKS)))
    keep = np.concatenate(([True], np.diff(ticks) > 0))
    marker = (table[:, 1] & _MARKER) != 0
    bus = (table[:, 1] & (_MARKER - 1)) * chip.bus
    amperes = (table[:, 2] * chip.shunt / ohms).astype(np.float64)
    clipped = abs(table[:, 2]) >= chip.full
    return Trace(
        ticks[keep] / 1e6,
        amperes[keep],
        bus.astype(np.float64)[keep],
        marker[keep],
        clipped=clipped[keep],
    )
