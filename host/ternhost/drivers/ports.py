"""Boards that a driver reaches by ports: what it has to know of them beside their links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Protocol, Self

from ternhost.errors import DeviceError


class Boards(Protocol):
    """Boards, reachable while the context is open: `ports` are URLs that ternhost.links opens, one a board."""

    @property
    def ports(self) -> Sequence[str]: ...

    def failed(self) -> Mapping[str, DeviceError]:
        """The ports of boards that are known to be gone for good, and why."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Ports:
    """Boards that somebody else started: nothing to start and nothing to end."""

    def __init__(self, ports: Sequence[str]) -> None:
        self.ports = list(ports)

    def failed(self) -> dict[str, DeviceError]:
        """Nothing is known of a board but what its link says."""
        return {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None
