"""The flash of an emulated board with files in it, made here: quicker than to write them over its console."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from ternhost import extras
from terntools.emulators import machines as emulators
from terntools.emulators.qemu import BLOCK_BYTES, FLASH_BLOCKS

_VERSION = 0x00020000  # of LittleFS on disk, which every MicroPython reads


def write(name: str, flash: Path, files: Mapping[str, bytes]) -> None:
    """Make `flash` that of the emulated board `name`, holding `files` alone. Raises UsageError and DeviceError."""
    image = littlefs(files)
    if name != emulators.PICO:
        flash.write_bytes(image)
        return
    emulators.boot(name, flash).close()  # a new flash gets its firmware
    with flash.open("r+b") as file:
        file.seek(-len(image), 2)
        file.write(image)


def littlefs(files: Mapping[str, bytes]) -> bytes:
    """A LittleFS that holds `files`, by their paths. Raises UsageError where littlefs-python is not installed."""
    extras.require("littlefs")
    from littlefs import LittleFS

    made = LittleFS(block_size=BLOCK_BYTES, block_count=FLASH_BLOCKS, disk_version=_VERSION)
    for path, data in files.items():
        made.makedirs(str(PurePosixPath(path).parent), exist_ok=True)
        with made.open(path, "wb") as file:
            file.write(data)
    return bytes(made.context.buffer)
