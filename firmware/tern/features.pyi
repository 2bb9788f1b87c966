from array import array
from collections.abc import Sequence

def root(n: int) -> int: ...

class Window:
    n: int
    hop: int
    d: int
    lost: int
    raw: array[int]
    def __init__(
        self,
        n: int,
        hop: int | None = None,
        axes: int = 3,
        length: bool = False,
        scale: Sequence[tuple[int, int]] | None = None,
    ) -> None: ...
    def push(self, x: int, y: int = 0, z: int = 0) -> bool: ...
    def full(self) -> bool: ...
    def features(self, out: array[int], start: int = 0) -> None: ...
