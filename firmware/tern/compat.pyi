# Types for the checker: viper's pointers stand for whatever buffer a leaf function is given.
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

_T = TypeVar("_T")

MICROPYTHON: bool
ptr8: TypeAlias = Any
ptr16: TypeAlias = Any
ptr32: TypeAlias = Any

def const(value: _T) -> _T: ...
def ticks_ms() -> int: ...
def ticks_diff(later: int, earlier: int) -> int: ...
def sleep_ms(ms: int) -> None: ...

feed: Callable[[], object]

class micropython:
    @staticmethod
    def viper(function: Callable[..., Any]) -> Callable[..., Any]: ...
