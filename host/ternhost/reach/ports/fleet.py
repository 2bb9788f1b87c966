"""Kinds of fleets whose boards are reached at ports, such as USB."""

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
    """Boards that run already, so that there is nothing to start or to end."""

    def __init__(self, ports: Sequence[str]) -> None:
        """ports: a device path or URL for each board."""
        self.ports = list(ports)

    def failed(self) -> dict[str, DeviceError]:
        """Return no errors: whether such a board has failed only shows on its link."""
        return {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        return None


class BoardFleet(Fleet):
    """The base class of fleets whose boards are reached at ports."""

    def driver(self, context: RunContext) -> Driver:
        """Make the driver that reaches the boards at their ports. Raises TernError."""
        from ternhost.reach.ports.driver import BoardsDriver

        directories = board_directories(context.directory, self.count)
        boards = self.boards(directories, context.modules)
        return BoardsDriver(context.store, boards, context.terms, **context.driver_options)


class OnPorts(BoardFleet):
    """The fleet `port:BOARD,...`: boards that are already provisioned and plugged in."""

    form = "port:BOARD[,BOARD...]"
    about = "boards on ports: a0, auto, id:SERIAL, a path or a URL"
    may_move = True
    way = "Frames travel over a cable, unencrypted."

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.names = names.split(self.rest)
        self.count = len(self.names)

    @property
    def absolute_name(self) -> str:
        """The name of the fleet, with the paths of boards made absolute."""
        absolute_names = []
        for name in self.names:
            path = Path(name)
            if path.exists():
                name = str(path.absolute())
            absolute_names.append(name)
        return f"{self.word}:{','.join(absolute_names)}"

    @property
    def ports(self) -> list[str]:
        """The ports at which its boards are now. Raises DeviceError and UsageError."""
        return [names.resolve(name) for name in self.names]

    def boards(
        self, directories: Sequence[Path], modules: Sequence[str] = (), whole: bool = False
    ) -> Boards:
        return Ports(self.ports)
