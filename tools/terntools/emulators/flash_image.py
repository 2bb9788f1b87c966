"""The flash of an emulated board with files in it, which is quicker than writing over its console."""

from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath

from ternhost import extras
from ternhost.files import private
from terntools.boards import deploy
from terntools.boards.repl import Repl
from terntools.emulators import catalogue
from terntools.emulators.qemu import BLOCK_BYTES, FLASH_BLOCKS

Files = Callable[[deploy.Machine], Mapping[str, bytes]]  # of a board: path -> content

# Versions of LittleFS on disk: one that every MicroPython reads, and the latest, to which a board
# that writes raises it.
_VERSION = 0x00020000
_LATEST = 0


def write(name: str, flash: Path, files: Mapping[str, bytes]) -> None:
    """Write a `flash` for the emulated board `name`, which holds these files and no others.

    Raises UsageError and DeviceError.
    """
    image = littlefs(files)
    if name != catalogue.PICO:
        with open(flash, "wb", opener=private) as file:
            file.write(image)
        return
    catalogue.boot(name, flash).close()  # a new flash gets its firmware
    _replace(flash, image)


def fill(name: str, flash: Path, files: Files) -> deploy.Machine:
    """Boot the board `name` with a new `flash`, and then add the files for its machine.

    files: returns them for the machine. Raises UsageError and DeviceError.
    """
    with catalogue.boot(name, flash, skip_idle=True) as board, Repl(board.url) as repl:
        machine = deploy.Machine.of(repl)
    add(flash, files(machine))
    return machine


def add(flash: Path, files: Mapping[str, bytes]) -> None:
    """Put `files` on the flash of an emulated board that is switched off, beside what is there.

    Raises UsageError.
    """
    with flash.open("rb") as file:
        file.seek(-FLASH_BLOCKS * BLOCK_BYTES, 2)
        image = file.read()
    _replace(flash, littlefs(files, image))


def _replace(flash: Path, image: bytes) -> None:
    """Replace the file system at the end of a flash. Before it a Pico has its firmware."""
    with flash.open("r+b") as file:
        file.seek(-len(image), 2)
        file.write(image)


def littlefs(files: Mapping[str, bytes], image: bytes | None = None) -> bytes:
    """Return an image of a LittleFS with these files by path, added to those of an older `image`.

    Raises UsageError without littlefs-python.
    """
    extras.require("littlefs")
    from littlefs import LittleFS

    is_new = image is None
    version = _VERSION if is_new else _LATEST
    file_system = LittleFS(
        block_size=BLOCK_BYTES, block_count=FLASH_BLOCKS, disk_version=version, mount=is_new
    )
    if image is not None:
        file_system.context.buffer[:] = image
        file_system.mount()
    for path, data in files.items():
        file_system.makedirs(str(PurePosixPath(path).parent), exist_ok=True)
        with file_system.open(path, "wb") as file:
            file.write(data)
    return bytes(file_system.context.buffer)
