"""Fleets whose boards are reached by ports."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

from ternhost.errors import DeviceError, UsageError
from ternhost.provision.boards import board_directories
from ternhost.reach.fleet import Boards, Fleet, RunContext

if TYPE_CHECKING:
    from ternhost.reach.driver import Driver


class Ports:
    """Boards that run already: there is nothing to start or to end."""

    def __init__(self, ports: Sequence[str]) -> None:
        self.ports = list(ports)

    def failed(self) -> dict[str, DeviceError]:
        """None: only a link notices a failure."""
        return {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        return None


class BoardFleet(Fleet):
    """The base of fleets whose boards are reached by ports."""

    def driver(self, context: RunContext) -> Driver:
        from ternhost.reach.ports.driver import BoardsDriver

        return BoardsDriver(
            context.store,
            self.boards(board_directories(context.directory, self.count), context.modules),
            context.terms,
            **context.driver_options,
        )


class OnPorts(BoardFleet):
    """Boards on ports that are already provisioned."""

    form = "port:PATH[,PATH...]"
    about = "boards on serial ports or at URLs"
    may_move = True

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.ports = tuple(port.strip() for port in self.rest.split(","))
        if not all(self.ports):
            raise UsageError(f"fleet {text!r} names no port", hint="such as port:/dev/ttyACM0")
        if len(set(self.ports)) < len(self.ports):
            raise UsageError(f"fleet {text!r} names a port twice", hint="name each port once")
        self.count = len(self.ports)

    @property
    def anywhere(self) -> str:
        files = {port: str(Path(port).absolute()) for port in self.ports if Path(port).exists()}
        return f"{self.word}:{','.join(files.get(port, port) for port in self.ports)}"

    def boards(self, directories: Sequence[Path], modules: Sequence[str] = (), whole: bool = False) -> Boards:
        return Ports(self.ports)
