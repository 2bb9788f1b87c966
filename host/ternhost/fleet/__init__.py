"""Fleets: the devices of one aggregator, and the words on the command line that name them.

A fleet is a context manager that offers `ports` (URLs of pyserial, one a board) while it is open, and `check()`.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from ternhost.errors import UsageError

MAX_BOARDS = 1000  # more emulated boards than that need more processes and ptys than a machine likes to give

MAX_MACHINES = 16  # each takes a core while it computes
MAX_SIMULATED = 1_000_000_000

# Emulated boards that run a board's firmware: kind of fleet -> name of the board (terntools.emulators.machines).
FIRMWARE = {
    "pico-emulated": "pico",
    "rv32-emulated": "rv32",
    "xtensa-emulated": "xtensa",
    "m33-emulated": "m33",
}

_FORMS = (
    "emulated:N (N MicroPython processes on this machine), pico-emulated:N (N emulated Picos), rv32-emulated:N or "
    "xtensa-emulated:N (what an ESP32-C3 or an ESP32 executes), m33-emulated:N (an RP2350), simulated:N (N clients in "
    "NumPy) or port:PATH[,PATH...] (boards on serial ports)"
)


class Fleet(Protocol):
    """The boards of a fleet, reachable while the context is open."""

    @property
    def ports(self) -> list[str]: ...

    def check(self) -> None:
        """Raise DeviceError if a board is known to be gone for good."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


@dataclass(frozen=True)
class FleetSpec:
    """A fleet as named on the command line.

    `kind` is "emulated", one of FIRMWARE or "port" (boards) or "simulated" (clients).
    """

    kind: str
    count: int
    ports: tuple[str, ...] = ()

    @property
    def is_emulated(self) -> bool:
        """Whether its boards are processes of this machine, which tern provisions."""
        return self.kind == "emulated" or self.firmware is not None

    @property
    def firmware(self) -> str | None:
        """The emulated board whose firmware its boards run, if they run one."""
        return FIRMWARE.get(self.kind)


def parse(text: str) -> FleetSpec:
    """Read a fleet's name: `emulated:N`, `pico-emulated:N` and its like, `simulated:N`, `port:PATH[,PATH...]`.

    Raises UsageError.
    """
    kind, colon, rest = text.partition(":")
    if kind == "simulated":
        if not (rest.isascii() and rest.isdecimal() and 1 <= int(rest) <= MAX_SIMULATED):
            raise UsageError(
                f"fleet {text!r}: the number of clients must be 1 to {MAX_SIMULATED}",
                hint="such as simulated:100000",
            )
        return FleetSpec("simulated", int(rest))
    if kind == "emulated" or kind in FIRMWARE:
        most = MAX_BOARDS if kind == "emulated" else MAX_MACHINES
        if not (rest.isascii() and rest.isdecimal() and 1 <= int(rest) <= most):
            raise UsageError(
                f"fleet {text!r}: the number of boards must be 1 to {most}", hint=f"such as {kind}:2"
            )
        return FleetSpec(kind, int(rest))
    if kind == "port":
        ports = tuple(port.strip() for port in rest.split(","))
        if not colon or not all(ports):
            raise UsageError(f"fleet {text!r} names no port", hint="such as port:/dev/ttyACM0")
        if len(set(ports)) < len(ports):
            raise UsageError(f"fleet {text!r} names a port twice", hint="name each port once")
        return FleetSpec("port", len(ports), ports)
    raise UsageError(f"there is no fleet {text!r}", hint=f"a fleet is {_FORMS}")
