"""Puts files on the flash of an emulated board directly.

That is quicker than sending them over the board's console. The file system of the flash is
LittleFS, at the end of the flash file.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath

from ternhost import extras
from ternhost.files import private
from terntools.boards import machines
from terntools.boards.repl import Repl
from terntools.emulators import catalogue
from terntools.emulators.qemu import BLOCK_BYTES, FLASH_BLOCKS

Files = Callable[[machines.Machine], Mapping[str, bytes]]
"""Returns the files for a board, as contents by path, when it is told what kind of board it is."""

# Versions of LittleFS. A new file system has one that every MicroPython reads. A board that writes
# to it raises the version, so that an older file system needs the latest, which 0 stands for.
_VERSION = 0x00020000
_LATEST = 0


def write(name: str, flash: Path, files: Mapping[str, bytes]) -> None:
    """Write the file `flash` for an emulated board, with these files and no others on it.

    name: of the board, see catalogue. files: contents by path. Raises UsageError and DeviceError.
    """
    image = littlefs(files)
    if name != catalogue.PICO:
        with open(flash, "wb", opener=private) as file:
            file.write(image)
        return
    catalogue.boot(name, flash).close()  # a new flash gets its firmware
    _replace(flash, image)


def fill(name: str, flash: Path, files: Files) -> machines.Machine:
    """Boot an emulated board with a new `flash`, and then put files on the flash.

    name: of the board, see catalogue. files: returns the files for the board. Returns what kind of
    board it is. Raises UsageError and DeviceError.
    """
    with catalogue.boot(name, flash, skip_idle=True) as board, Repl(board.url) as repl:
        machine = machines.Machine.of(repl)
    add(flash, files(machine))
    return machine


def add(flash: Path, files: Mapping[str, bytes]) -> None:
    """Put files on the flash of an emulated board that is switched off, beside what is there.

    files: contents by path. Raises UsageError.
    """
    with flash.open("rb") as file:
        file.seek(-FLASH_BLOCKS * BLOCK_BYTES, os.SEEK_END)
        image = file.read()
    _replace(flash, littlefs(files, image))


def _replace(flash: Path, image: bytes) -> None:
    """Replace the file system at the end of a flash. A Pico has its firmware before it."""
    with flash.open("r+b") as file:
        file.seek(-len(image), os.SEEK_END)
        file.write(image)


def littlefs(files: Mapping[str, bytes], image: bytes | None = None) -> bytes:
    """Return the image of a LittleFS file system with these files.

    files: contents by path. image: of an older file system, to which the files are added; None: the
    file system is new. Raises UsageError if littlefs-python is not installed.
    """
    extras.require("littlefs")
    from littlefs import LittleFS

    if image is None:
        file_system = LittleFS(
            block_size=BLOCK_BYTES, block_count=FLASH_BLOCKS, disk_version=_VERSION
        )
    else:
        file_system = LittleFS(
            block_size=BLOCK_BYTES, block_count=FLASH_BLOCKS, disk_version=_LATEST, mount=False
        )
        file_system.context.buffer[:] = image
        file_system.mount()
    for path, data in files.items():
        folder = str(PurePosixPath(path).parent)
        file_system.makedirs(folder, exist_ok=True)
        with file_system.open(path, "wb") as file:
            file.write(data)
    return bytes(file_system.context.buffer)
