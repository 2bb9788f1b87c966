"""How a board is flashed, whatever its kind: what `tern board flash` and `tern board up` let the user choose."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

Progress = Callable[[int, int], None]  # bytes written, bytes in all
Tell = Callable[[str], None]  # a line for the user

FLASH_BAUD = 460800
ATTEMPTS = 7  # to reach the boot loader, 0.7 s each


def _tell_nobody(line: str) -> None:
    """Do nothing with a line."""


@dataclass(frozen=True)
class BootLoader:
    """How esptool talks to the boot loader of an ESP32.

    reset: use the reset lines; without them the board is in its boot loader already, and stays
    there. baud: bits/s of esptool's flasher. attempts: how often the boot loader is called.
    """

    reset: bool = True
    baud: int = FLASH_BAUD
    attempts: int = ATTEMPTS


@dataclass(frozen=True)
class FlashOptions:
    """How a board is flashed, and where its progress is shown.

    erase: erase files and ledger, too, so that the board becomes another device. volume: the folder
    where the boot loader of a Pico is mounted; None to look for it. boot_loader: of an ESP32.
    progress: is called while the firmware is written. tell: is called with a line for each step.
    """

    erase: bool = False
    volume: str | Path | None = None
    boot_loader: BootLoader = BootLoader()
    progress: Progress | None = None
    tell: Tell = _tell_nobody


DEFAULT = FlashOptions()
