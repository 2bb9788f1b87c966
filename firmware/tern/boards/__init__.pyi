from collections.abc import Callable
from typing import Any

from tern.entropy import Generator

class Base:
    """A board with a console for its port."""

    name: str
    directory: str
    exceptions: int
    restarts: int
    last_error: str
    longest_pause: int
    locked: bool
    assessed: int
    in_place: bool
    ticks_us: Callable[[], int]
    ticks_diff: Callable[[int, int], int]

    def text(self) -> str:
        """What the board is, for people: `board; interpreter; tern version`, and where there is one `;
        last_error` and `; temperature`.
        """

    def generator(self) -> Generator:
        """A fresh Generator over this board's entropy source."""

    def link(self) -> Any:
        """The link to the host, see tern.links; slotted if fleet.bin says so."""

    def open_link(self) -> Any:
        """The link itself."""

    def begin(self) -> None:
        """Give the console to the link: no byte of a frame interrupts the program."""

    def end(self) -> None:
        """Give the console back."""

    def keep(self, word: int = 0) -> int:
        """Keep `word` (u32, not 0) until power off, through resets."""

    def failed(self, error: BaseException) -> None:
        """Count an exception and keep its class alone, since a message may hold what is nobody's
        business.
        """

    def watch(self) -> None:
        """Start the watchdog, where there is one, to be fed by compat.feed()."""

    def unwatch(self) -> None:
        """Stop the watchdog."""

    def reset(self) -> None:
        """Start as after power on, where there is a power."""

    def led(self, on: bool) -> None:
        """Show whether a frame is being answered."""

    def marker(self, on: bool) -> None:
        """Set the pin that marks a measured window for an energy meter."""

    def temperature(self) -> int | None:
        """Thousandths of a degree Celsius of the chip, or None."""

    def unique_id(self) -> bytes:
        """Bytes that no other board has."""

class PinBoard(Base):
    """A board with an LED, a marker pin and a watchdog."""

    watch_ms: int

    def __init__(
        self, led: str | int | None = None, marker: str | int | None = None, directory: str = ""
    ) -> None:
        """led, marker: names or numbers of pins, None for none."""

    def watch(self) -> None: ...
    def reset(self) -> None: ...
    def led(self, on: bool) -> None: ...
    def marker(self, on: bool) -> None: ...

def is_littlefs() -> bool:
    """Return whether the root is LittleFS; before MicroPython 1.25 nobody can tell."""
