"""The differences between boards: one module each, with a class Board made from Base."""

import gc
import sys

from tern import __version__, compat
from tern.compat import TYPE_CHECKING
from tern.entropy import Generator
from tern.links import open_link
from tern.storage import FLEET, StorageError, read_fleet
from tern.wire import MIXED

if TYPE_CHECKING:
    from typing import Any


class Base:
    """A board with a console for its port.

    The modules of this package override what is different on theirs.
    """

    name = "board"
    directory = ""  # of clients.bin, records.bin and ledger/, without a slash at the end
    exceptions = restarts = 0  # how many since power on: see tern.supervisor
    program = ""  # the name and version of the user's program, such as "thermostat 2"
    last_error = ""  # the class of the last exception
    absence = None  # of a board with a broker: a tern.absence.Absence
    longest_pause = 300  # s, after an exception
    locked = False  # whether nobody gets the console
    assessed = MIXED  # what the health tests of its entropy see
    in_place = False  # whether a ledger may be written over (see Ledger)

    def text(self) -> str:
        """Return the text of a HELLO: "board; interpreter; tern version", and more where known.

        That is "; program NAME VERSION", "; last error", "; absence" and "; temperature".
        """
        interpreter = sys.implementation
        text = "%s; %s %d.%d.%d; tern %s" % (
            (self.name, interpreter.name) + interpreter.version[:3] + (__version__,)
        )
        program = "program " + self.program[:40] if self.program else ""
        for part in (program, self.last_error, self.absence):
            if part:
                text += "; %s" % part
        warmth = self.temperature()
        return text if warmth is None else text + "; %d C" % ((warmth + 500) // 1000)

    def generator(self) -> Generator:
        """Return the generator of the board's random bytes, tested and seeded."""
        return Generator()

    def link(self) -> "Any":
        """Return the link to the host, see tern.links; one with slots if fleet.bin says so."""
        try:
            slot = read_fleet(self.directory + "/" + FLEET)[2]
        except StorageError:  # then no round is answered
            slot = 0
        link = self.open_link()
        if slot:
            from tern.links.slot import Slotted

            return Slotted(link, slot, self.led)
        return link

    def open_link(self) -> "Any":
        """Return the link that a file on the board configures; without one, the console's link."""
        return open_link(self)

    def begin(self) -> None:
        """Give the console to the link: no byte of a frame interrupts the program (-1: none)."""
        import micropython

        micropython.kbd_intr(-1)

    def end(self) -> None:
        """Let Ctrl-C, which is byte 3, interrupt the program again."""
        import micropython

        micropython.kbd_intr(3)

    def keep(self, word: int = 0) -> int:
        """Keep `word` (u32, not 0) until power off, through resets.

        Returns the one kept last, 0 at first. Here nothing is kept.
        """
        return 0

    def failed(self, error: BaseException) -> None:
        """Count an exception, and keep the name of its class.

        Not its message, which may hold what is nobody's business.
        """
        gc.collect()
        self.exceptions = min(self.exceptions + 1, 0xFFFF)
        self.last_error = type(error).__name__[:32]

    def watch(self) -> None:
        """Start the watchdog, where there is one, to be fed by compat.feed()."""

    unwatch = watch  # stops the watchdog
    reset = watch  # starts as after power on, where there is a power

    def led(self, on: bool) -> None:
        """Show whether a frame is being answered, on a board with a slot."""

    def temperature(self) -> "int | None":
        """Thousandths of a degree Celsius of the chip, or None."""
        return None

    def fuses(self) -> "Any":
        """Return the fuses of tern.counter, or None.

        They have `count`, is_burnt(n), and burn(n), which may fail; n from 0.
        """
        return None

    def unique_id(self) -> bytes:
        """Bytes that no other board has."""
        import machine

        return machine.unique_id()


class PinBoard(Base):
    """A board with an LED and a watchdog."""

    watch_ms = 8388  # an RP2040 counts no further

    def __init__(self, led: "str | int | None" = None, directory: str = "") -> None:
        """led: name or number of its pin, None for none."""
        from machine import Pin

        self.directory = directory
        self.in_place = is_littlefs()
        self._led = None if led is None else Pin(led, Pin.OUT, value=0)

    def watch(self) -> None:
        """Start the watchdog; an emulated board has none."""
        try:
            from machine import WDT
        except ImportError:
            return
        compat.feed = WDT(timeout=self.watch_ms).feed

    def reset(self) -> None:
        import machine

        machine.reset()

    def led(self, on: bool) -> None:
        if self._led:
            self._led(on)


def is_littlefs() -> bool:
    """Return whether the root is LittleFS; before MicroPython 1.25 nobody can tell."""
    try:
        import vfs

        return isinstance({path: system for system, path in vfs.mount()}.get("/"), vfs.VfsLfs2)
    except (ImportError, TypeError):
        return False
