"""Measures with an INA226 or INA228, power monitor chips of Texas Instruments.

The chip is on the I2C bus of a second Pico, which runs ina_logger.py. That program sends lines of
base64. Each holds several rows of 12 bytes: microseconds as u32, and the chip's registers of the
bus voltage and of the voltage across the shunt, both as i32. Bit 30 of the bus voltage is the
marker.
"""

import binascii
import contextlib
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from ternbench.meters.base import positive
from ternbench.meters.instrument import Instrument
from ternbench.traces import LOST_HINT, Trace
from ternhost.errors import DeviceError
from ternhost.options import Option
from ternhost.reach.ports import names
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
    """How the registers of a chip count, by the tables of its datasheet.

    bus, shunt: volts of one step of the registers of the bus voltage and of the shunt voltage.
    max_shunt: the largest shunt voltage, in steps. usual_ohms: the shunt resistor of most modules.
    """

    name: str
    bus: float
    shunt: float
    max_shunt: int
    usual_ohms: float


CHIPS = {
    "ina226": Chip("INA226", 1.25e-3, 2.5e-6, max_shunt=(1 << 15) - 1, usual_ohms=0.1),
    "ina228": Chip("INA228", 195.3125e-6, 312.5e-9, max_shunt=(1 << 19) - 1, usual_ohms=0.015),
}


_SHUNT = Option(
    "shunt", "shunt resistance in ohms", positive, "OHMS", shown="ina226: 0.1, ina228: 0.015"
)


class Ina226(Instrument):
    """A second Pico at the port `port`, whose program reads the chip at a shunt of `ohms`."""

    kind: ClassVar[str] = "ina226"
    about = "an INA226 that a second Pico reads, at the port of that Pico"
    place = "PORT"
    example = "a1"
    settings = (_SHUNT, *Instrument.settings)

    def __init__(self, port: str, ohms: float | None = None) -> None:
        self.chip = CHIPS[self.kind]
        self.source = f"measured with an {self.chip.name}"
        self._port = port
        self._ohms = self.chip.usual_ohms if ohms is None else ohms

    @classmethod
    def opened(cls, place: str, settings: Mapping[str, Any]) -> Self:
        return cls(names.resolve(place), settings.get("shunt"))

    def record(self, seconds: float) -> Trace:
        """Record for so many seconds with the program on the second Pico, and decode what it sends.

        Raises DeviceError if the program stops before its end.
        """
        output = bytearray()
        with Repl(self._port) as repl:
            repl.run(LOGGER.read_text())
            program = f"log({self.kind!r}, {_ADDRESS}, {round(1000 * seconds)})"
            # exchange(b"", b"\n") sends nothing, and returns what comes up to the end of a line.
            with repl.program(program, _READY, timeout=seconds + 10) as exchange:
                # The program ends by itself; if it does not, give up a little later.
                give_up_at = time.monotonic() + seconds + 5
                while not output.endswith(_END) and time.monotonic() < give_up_at:
                    output += exchange(b"", b"\n")
        if not output.endswith(_END):
            text = f"the logger on {self._port} stopped in its recording"
            raise DeviceError(text, hint=LOST_HINT)
        return decode(bytes(output), self.chip, self._ohms)


class Ina228(Ina226):
    """The same with an INA228, whose registers have more bits."""

    kind = "ina228"
    about = "an INA228 that a second Pico reads, at the port of that Pico"


def decode(output: bytes, chip: Chip, shunt_ohms: float) -> Trace:
    """Decode the recording that the program on the second Pico has sent.

    Each line is base64 of several rows; a row has the time in microseconds, the chip's register of
    the bus voltage, in which a bit is the marker, and that of the voltage across the shunt, from
    which the current follows. Damaged lines are left out.

    chip: what a step of the registers stands for. shunt_ohms: the resistance of the shunt. Raises
    DeviceError for fewer than two samples.
    """
    rows: list[tuple[int, int, int]] = []
    for line in output.splitlines():
        with contextlib.suppress(binascii.Error, struct.error):
            rows += ROW.iter_unpack(binascii.a2b_base64(line))
    if len(rows) < 2:
        hint = "check that the INA is wired to GP4 (SDA) and GP5 (SCL)"
        raise DeviceError("the logger sent no samples", hint)

    ticks, bus_registers, shunt_registers = np.array(rows, np.int64).T  # by column
    steps = np.diff(ticks) % _TICKS  # the counter of microseconds wraps
    microseconds = np.concatenate(([0], np.cumsum(steps)))
    volts = (bus_registers & (_MARKER - 1)) * chip.bus  # the bits below the marker
    amperes = shunt_registers * chip.shunt / shunt_ohms  # Ohm's law
    # A sample at the time of the one before it is left out, since the times of a trace increase.
    is_later = np.concatenate(([True], steps > 0))
    return Trace(
        seconds=microseconds[is_later] / 1e6,
        amperes=amperes.astype(np.float64)[is_later],
        volts=volts.astype(np.float64)[is_later],
        marker=(bus_registers[is_later] & _MARKER) != 0,
        clipped=abs(shunt_registers[is_later]) >= chip.max_shunt,
    )
