"""The fleets of emulated boards, by the names that they have on the command line.

pyproject.toml registers them with the host.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from ternhost.reach.fleet import Boards
from ternhost.reach.ports.fleet import BoardFleet
from terntools.emulators.firmware_fleet import FirmwareFleet
from terntools.emulators.micropython import find_micropython
from terntools.emulators.unix_fleet import EmulatedFleet


class Emulated(BoardFleet):
    """A fleet of MicroPython processes on this machine, each with a directory of its own."""

    form = "emulated:N"
    about = "N emulated boards: MicroPython processes on this machine"
    provisions = True
    knows_records = True
    MOST: ClassVar[int] = 1000  # more need more processes and ptys than a machine likes to give
    most_clients = 1000  # by default

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.count = self.number("boards", self.MOST)

    def boards(
        self, directories: Sequence[Path], modules: Sequence[str] = (), whole: bool = False
    ) -> Boards:
        return EmulatedFleet(find_micropython(), directories)


class OnFirmware(Emulated):
    """A fleet of emulated boards that run a board's firmware, each from a flash of its own."""

    firmware: ClassVar[str]  # the board's name in terntools.emulators.catalogue
    MOST: ClassVar[int] = 16  # each takes a core while it computes

    def boards(
        self, directories: Sequence[Path], modules: Sequence[str] = (), whole: bool = False
    ) -> Boards:
        return FirmwareFleet(self.firmware, directories, whole=whole, more=modules)


class Pico(OnFirmware):
    form = "pico-emulated:N"
    about = "N emulated Picos"
    firmware = "pico"


class Rv32(OnFirmware):
    form = "rv32-emulated:N"
    about = "N emulated boards with an ESP32-C3's instruction set"
    firmware = "rv32"


class Xtensa(OnFirmware):
    form = "xtensa-emulated:N"
    about = "N emulated boards with an ESP32's instruction set"
    firmware = "xtensa"


class M33(OnFirmware):
    form = "m33-emulated:N"
    about = "N emulated boards with a Pico 2's instruction set"
    firmware = "m33"
