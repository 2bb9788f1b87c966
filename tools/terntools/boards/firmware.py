"""Firmware files: which chip each is for, and where MicroPython's are to be had. The file is the user's."""

from dataclasses import dataclass
from pathlib import Path

from ternhost import files
from ternhost.errors import UsageError
from ternhost.reach.ports import names
from terntools.boards import esp32, uf2

DOWNLOADS = {
    names.RP2: (
        "https://micropython.org/download/RPI_PICO/ (the .uf2 file; Pico W, Pico 2: see its list)"
    ),
    names.ESP32: (
        "https://micropython.org/download/ESP32_GENERIC/ (the .bin file; other chips: see its list)"
    ),
}
_LINES = [f"{family}: {url}" for family, url in DOWNLOADS.items()]
SOURCES = "\n  ".join(["get it from", *_LINES])  # a hint for the user


@dataclass(frozen=True)
class Firmware:
    """A firmware file that was read and checked."""

    path: Path
    data: bytes
    family: str  # of chips: names.RP2 or names.ESP32
    chip: str  # "RP2040" or "RP2350"; esptool's name for an ESP32, such as "esp32s3"


def read_firmware(path: str | Path) -> Firmware:
    """Read a firmware file, and find out for which chip it is.

    Raises UsageError for a file that cannot be read or that is not a firmware for a known chip.
    """
    path = Path(path)
    try:
        data = files.read_whole(path)
    except OSError as error:
        raise UsageError(
            f"cannot read {path}: {error.strerror}", hint="get a firmware file first"
        ) from error
    if data[:4] == b"UF2\n":
        image = uf2.read(data, path.name)
        return Firmware(path, data, family=names.RP2, chip=image.chip)
    if data[:1] == b"\xe9":  # with which each image for an ESP32 begins
        chip = esp32.image_chip(data, path.name)
        return Firmware(path, data, family=names.ESP32, chip=chip)
    hint = "an ESP32 takes a .bin file, a Pico a .uf2 file, of MicroPython's download page"
    raise UsageError(f"{path.name} is not a firmware that tern can flash", hint)
