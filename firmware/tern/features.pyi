from array import array
from collections.abc import Sequence

def root(n: int) -> int:
    """Return the square root of n, 0 to 2**30 - 1, rounded down."""

class Window:
    """Collects samples and makes features of them."""

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
    ) -> None:
        """n: samples of a window, 2..256; hop: from one to the next, 1..n, by default n // 2; axes:
        1..3.
        """

    def push(self, x: int, y: int = 0, z: int = 0) -> bool:
        """Add a sample, an int16 for each axis; return whether a window is full."""

    def full(self) -> bool:
        """Return whether there is a window whose features can be had."""

    def features(self, out: array[int], start: int = 0) -> None:
        """Write the features and the constant, Q1.14, into the array('h') out from `start` on, and
        move on by a hop.
        """
