"""What CPython lacks, so that the library runs on both interpreters.

MicroPython compiles a function with `@micropython.viper` to machine code, in which int, ptr8, ptr16
and ptr32 are machine words and addresses. On CPython the decorator does nothing: the function is
its plain twin. A `leaf` is such a function that does an inner loop and allocates nothing.

Compilers in MicroPython have errors that a leaf avoids (docs/guides/emulators.md):

- It stores at index 0 or at one in a variable: 1.25 for Xtensa stores the wrong register at any
  other constant.
- The index of a ptr16 or ptr32 is none of its first three variables, parameters counted: 1.26 and
  1.27 for Thumb and RISC-V spoil these registers.
- It loads at constants below 256 only: 1.26 to 1.29 for Xtensa.
- It negates no variable.
"""

import sys
import time

MICROPYTHON = sys.implementation.name == "micropython"
TYPE_CHECKING = False  # a type checker takes it for True; what it guards is never deployed


def feed():
    """Tell the watchdog that work goes on; a board that has one puts its own here.

    Call it as `compat.feed()`.
    """


if MICROPYTHON:
    import gc

    import micropython
    from micropython import const

    ticks_ms: "Any" = time.ticks_ms  # of types of their own
    ticks_diff: "Any" = time.ticks_diff
    sleep_ms = time.sleep_ms

    # Collect garbage after each 4 KiB while modules are loaded: otherwise what loading leaves
    # behind lies scattered among what stays. Client ends this.
    gc.threshold(4096)
else:

    def ptr32(buffer):
        """Return bytes as words of 4 bytes, as viper sees them; anything else has words already."""
        if isinstance(buffer, (bytes, bytearray, memoryview)):
            return memoryview(buffer).cast("i")
        return buffer

    def const(value: "T") -> "T":
        return value

    def ticks_ms() -> int:
        return time.monotonic_ns() // 1_000_000

    def ticks_diff(later: int, earlier: int) -> int:
        return later - earlier

    def sleep_ms(ms: int) -> None:
        time.sleep(ms / 1000)

    class micropython:
        @staticmethod
        def viper(function: "T") -> "T":
            return function


if TYPE_CHECKING:
    from typing import Any, TypeAlias, TypeVar

    T = TypeVar("T")
    Buffer: TypeAlias = bytes | bytearray | memoryview
    ptr8: TypeAlias = Any  # whatever buffer a leaf is given
    ptr16: TypeAlias = Any
    ptr32: TypeAlias = Any
elif MICROPYTHON:
    ptr8 = ptr16 = ptr32 = None  # known to the viper compiler
else:

    def ptr16(buffer):
        """Return a buffer of bytes or of numbers as it is: its elements are those viper sees."""
        return buffer

    ptr8 = ptr16
