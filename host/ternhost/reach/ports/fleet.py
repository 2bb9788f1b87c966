"""Fleets whose boards are reached by ports."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

from ternhost.errors import DeviceError
from ternhost.provision.boards import board_directories
from ternhost.reach.fleet import Boards, Fleet, RunContext
from ternhost.reach.ports import names

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

        boards = self.boards(board_directories(context.directory, self.count), context.modules)
        return BoardsDriver(context.store, boards, context.terms, **context.driver_options)


class OnPorts(BoardFleet):
    """Boards on ports that are already provisioned."""

    form = "port:BOARD[,BOARD...]"
    about = "boards on ports: a0, auto, id:SERIAL, a path or a URL"
    may_move = True
    way = "Frames travel over a cable, unencrypted."

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.names = names.split(self.rest)
        self.count = len(self.names)

    @property
    def anywhere(self) -> str:
        names = []
        for name in self.names:
            path = Path(name)
            names.append(str(path.absolute()) if path.exists() else name)
        return f"{self.word}:{','.join(names)}"

    @property
    def ports(self) -> list[str]:
        """The ports of its boards now. Raises DeviceError and UsageError."""
        return [names.resolve(name) for name in self.names]

    def boards(
        self, directories: Sequence[Path], modules: Sequence[str] = (), whole: bool = False
    ) -> Boards:
        return Ports(self.ports)
