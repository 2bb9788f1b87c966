"""Boots an emulated Pico W: a firmware of the user's in the emulator rp2040py, with its Wi-Fi chip.

tern cannot build such a firmware as it builds that of the emulated Pico, since the software of the
Wi-Fi chip is not free to pass on. The board's network ends at this computer.
"""

import sys
from pathlib import Path

from ternhost import extras
from ternhost.errors import DeviceError, UsageError
from terntools.boards import uf2
from terntools.emulators.process import EmulatedMachine, start

NAME = "pico-w"  # of the board, for users
FLASH_BYTES = 2 << 20
DOWNLOAD = "https://micropython.org/download/RPI_PICO_W/ (the .uf2 file)"
# What a MicroPython for the RP2040 has in it if it knows the Wi-Fi chip: the type of the chip, which
# the chip's own software names.
_WIRELESS_CHIP = b"43439"
_BOOT_SECONDS = 120  # to wait for the board's port


def boot_pico_w(firmware: Path | None, flash: Path | None = None) -> EmulatedMachine:
    """Boot an emulated Pico W.

    firmware: the UF2 file with MicroPython that a new flash gets; None if the flash has one. flash:
    the file that keeps the flash; None: the flash is lost at the end. Raises UsageError for a
    firmware that is missing or for another board, for a flash in use, and if rp2040py is not
    installed. Raises DeviceError if the board does not start.
    """
    require_firmware(firmware, flash)
    return boot(firmware, flash)


def require_firmware(firmware: Path | None, flash: Path | None) -> None:
    """Raise UsageError unless a board would have a firmware for a Pico W.

    The parameters are those of `boot_pico_w`.
    """
    if flash is not None and flash.exists() and flash.stat().st_size > 0:
        if firmware is None:
            return
        text = f"{flash} has a firmware already"
        raise UsageError(text, hint="leave --firmware out, or name another --flash or --name")
    if firmware is None:
        text = "an emulated Pico W needs MicroPython for it: --firmware FILE"
        raise UsageError(text, hint=f"get it from {DOWNLOAD}")
    from terntools.boards.firmware import (
        read_firmware,  # knows serial ports, which emulators need not
    )

    image = read_firmware(firmware)
    if image.chip != "RP2040" or not _has_wireless_chip(image.data, firmware.name):
        text = f"{firmware.name} is not MicroPython for a Pico W"
        raise UsageError(text, hint=f"get it from {DOWNLOAD}")


def _has_wireless_chip(data: bytes, name: str) -> bool:
    """Return whether a UF2 file is for boards with the Wi-Fi chip of a Pico W. name: of the file."""
    return uf2.read(data, name).contains(_WIRELESS_CHIP)


def boot(firmware: Path | None, flash: Path | None = None) -> EmulatedMachine:
    """Boot the emulated board with any firmware for the RP2040.

    The parameters are those of `boot_pico_w`. Raises UsageError and DeviceError.
    """
    extras.require("rp2040py")
    command: list[str | Path] = [sys.executable, "-m", f"{__name__}.runner"]
    if firmware is not None:
        command += ["--firmware", firmware]
    if flash is not None:
        command += ["--flash", flash]
    board = start(command, flash, FLASH_BYTES, _BOOT_SECONDS)
    if board is None:
        text = "the emulated Pico W does not start"
        raise DeviceError(text, hint="its messages are above; is the firmware whole?")
    return board
