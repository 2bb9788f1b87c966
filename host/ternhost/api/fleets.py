"""Fleets as objects: the devices that a run asks.

Each object stands for a name of a fleet, KIND:REST, which the command line and the store use. A
fleet of another package is given by its name, or by a subclass of `FleetChoice`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ternhost.api import arguments
from ternhost.errors import UsageError
from ternhost.reach import fleet


class FleetChoice:
    """The base of objects that stand for a fleet. Their text is the name of the fleet."""

    @property
    def name(self) -> str:
        """The name of the fleet, as --fleet takes it."""
        raise NotImplementedError

    @property
    def options(self) -> Mapping[str, Any]:
        """Options of a run that come with this fleet, by name; most fleets bring none."""
        return {}

    def __str__(self) -> str:
        return self.name


AnyFleet = FleetChoice | str
"""A fleet: an object, or its name, such as "port:a0"; `tern fleet kinds` lists all kinds."""


@dataclass(frozen=True)
class Simulated(FleetChoice):
    """Clients that are simulated with NumPy: no boards, no keys, and nobody is protected.

    devices: how many there are. Raises UsageError for a number that cannot be.
    """

    devices: int

    def __post_init__(self) -> None:
        fleet.parse(self.name)

    @property
    def name(self) -> str:
        return f"simulated:{arguments.whole(self.devices, 'devices')}"


@dataclass(frozen=True)
class Emulated(FleetChoice):
    """Emulated boards on this machine, which tern makes for the run, with keys and ledgers.

    - boards: how many there are; each has several clients
    - chip: None for processes of MicroPython; else the chip that is emulated: pico, rv32 (as in an
      ESP32-C3), xtensa (as in an ESP32) or m33 (as in a Pico 2)

    Raises UsageError for a number or a chip that cannot be.
    """

    boards: int = 2
    chip: str | None = None

    def __post_init__(self) -> None:
        if self.chip is not None:
            arguments.text(self.chip, "chip")
        fleet.parse(self.name)

    @property
    def name(self) -> str:
        kind = "emulated"
        if self.chip is not None:
            kind = f"{self.chip}-emulated"
        return f"{kind}:{arguments.whole(self.boards, 'boards')}"


@dataclass(frozen=True, init=False, repr=False)
class Ports(FleetChoice):
    """Boards on ports of this machine: `Ports("a0", "/dev/ttyACM1")`."""

    boards: tuple[str, ...]

    def __init__(self, *boards: str) -> None:
        """Name the boards: a0, auto, id:SERIAL, a path or a URL. Raises UsageError for no board."""
        names = tuple(arguments.text(board, "board") for board in boards)
        object.__setattr__(self, "boards", names)  # a frozen dataclass refuses assignment
        for board in self.boards:
            if "," in board:
                raise UsageError(f"{board!r} is not the name of one board", "name each by itself")
        fleet.parse(self.name)

    @property
    def name(self) -> str:
        return f"port:{','.join(self.boards)}"

    def __repr__(self) -> str:
        return f"Ports({', '.join(map(repr, self.boards))})"


@dataclass(frozen=True)
class Broker(FleetChoice):
    """Boards on an MQTT broker.

    directory: the one that `tern broker config` has set up. Raises UsageError for an empty name.
    """

    directory: str | os.PathLike[str]

    def __post_init__(self) -> None:
        fleet.parse(self.name)

    @property
    def name(self) -> str:
        return f"mqtt:{arguments.path(self.directory, 'directory')}"


def parsed(choice: AnyFleet | None) -> tuple[str | None, Mapping[str, Any]]:
    """Return the name of a fleet and the options that come with it; None for the default fleet.

    Raises UsageError if there is no such fleet.
    """
    if choice is None:
        return None, {}
    if isinstance(choice, FleetChoice):
        return choice.name, choice.options
    fleet.parse(arguments.text(choice, "fleet"))
    return choice, {}
