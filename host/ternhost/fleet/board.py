"""A fleet of boards on serial ports, provisioned by somebody else."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self


class PortFleet:
    """Boards on ports: nothing to start and nothing to end."""

    def __init__(self, ports: Sequence[str]) -> None:
        self.ports = list(ports)

    def check(self) -> None:
        """Nothing is known of a board but what its link says."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None
