"""Opens the boards of a fleet by its name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ternhost.fleet import Fleet, FleetSpec
from ternhost.fleet.board import PortFleet
from terntools.emulators.firmware_fleet import FirmwareFleet
from terntools.emulators.micropython import find_micropython
from terntools.emulators.unix_fleet import EmulatedFleet


@contextmanager
def open_boards(spec: FleetSpec, directories: Sequence[Path], modules: Sequence[str] = ()) -> Iterator[Fleet]:
    """The boards of a fleet that is not simulated, while the context is open.

    directories: of emulated boards. modules: what those with a firmware need beside their client (mpy.ON_DEMAND).
    Raises DeviceError and StorageError.
    """
    fleet: EmulatedFleet | FirmwareFleet | PortFleet
    if spec.kind == "emulated":
        fleet = EmulatedFleet(find_micropython(), directories)
    elif spec.firmware:
        fleet = FirmwareFleet(spec.firmware, directories, more=modules)
    else:
        fleet = PortFleet(spec.ports)
    with fleet:
        yield fleet
