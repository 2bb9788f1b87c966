"""The volumes that Picos show while they wait in their boot loaders.

Copying a UF2 file to such a volume flashes the board (RP2040 datasheet, "USB Mass Storage
Interface").
"""

import errno
import os
from collections.abc import Iterable
from pathlib import Path

from ternhost.errors import DeviceError, InterruptedByUser, UsageError
from terntools.boards import usb
from terntools.boards.flash_options import Progress

RECOVER = (
    "nothing is lost: its boot loader is in ROM. Hold BOOTSEL while you plug the board in, "
    "and run the same command again"
)
_INFO = "INFO_UF2.TXT"  # a file on each of these volumes
_CHIP_BY_BOARD_ID = {"RPI-RP2": "RP2040", "RP2350": "RP2350"}  # by the Board-ID in this file
_CHUNK = 64 * 1024  # bytes between two reports of progress


def find_volumes(named: str | Path | None = None) -> list[Path]:
    """Return the volumes of the Picos that wait in their boot loaders.

    named: the folder to look at, instead of all mounted volumes.
    """
    folders: Iterable[Path]
    if named is None:
        folders = mount_points()
    else:
        folders = [Path(named)]
    return [folder for folder in folders if is_boot_loader(folder)]


def is_boot_loader(folder: Path) -> bool:
    """Return whether the boot loader of a Pico is mounted in a folder."""
    try:
        return (folder / _INFO).is_file()
    except OSError:  # it belongs to another user, or its device is gone
        return False


def mount_points() -> Iterable[Path]:
    """Yield the folders where volumes may be mounted, on Linux, macOS and Windows."""
    if usb.MOUNTS.exists():
        for _, folder in usb.mounts(usb.MOUNTS.read_bytes()):
            yield folder
    elif Path("/Volumes").is_dir():
        yield from Path("/Volumes").iterdir()
    else:
        for letter in "DEFGHIJKLMNOPQRSTUVWXYZ":
            yield Path(f"{letter}:/")


def volume_chip(volume: Path) -> str:
    """Return the chip of the board whose boot loader shows a volume, "RP2040" or "RP2350".

    Raises UsageError if it is not the volume of a boot loader.
    """
    text = (volume / _INFO).read_text(errors="replace")
    for line in text.splitlines():
        key, _, value = line.partition(":")
        board_id = value.strip()
        if key == "Board-ID" and board_id in _CHIP_BY_BOARD_ID:
            return _CHIP_BY_BOARD_ID[board_id]
    hint = f"see its {_INFO}, or name another folder with --volume"
    raise UsageError(f"{volume} is not the boot loader of a Pico", hint)


def copy(data: bytes, volume: Path, progress: Progress | None) -> None:
    """Write a firmware to the volume of a boot loader, which flashes the board.

    The board leaves its boot loader as soon as it has the last block, and the volume disappears; so
    errors after that do not matter. Raises DeviceError for earlier ones, and InterruptedByUser
    after Ctrl-C.
    """
    sent = 0
    try:
        with open(volume / "firmware.uf2", "wb", buffering=0) as file:
            while sent < len(data):
                sent += file.write(data[sent : sent + _CHUNK])
                if progress:
                    progress(sent, len(data))
            os.fsync(file.fileno())
    except KeyboardInterrupt as error:
        raise InterruptedByUser("flashing was interrupted", hint=RECOVER) from error
    except OSError as error:
        was_refused = error.errno in (errno.ENOSPC, errno.EROFS, errno.EACCES)
        if sent < len(data) or was_refused:
            raise DeviceError(f"flashing broke off: {error.strerror}", hint=RECOVER) from error
