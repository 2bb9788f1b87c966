"""Where on the USB a board is plugged in: it stays there when its boot loader starts."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from serial.tools import list_ports

MOUNTS = Path("/proc/mounts")
BLOCK_DEVICES = Path("/sys/class/block")
_DEVICE, _FOLDER, _FILE_SYSTEM = range(3)  # fields of a line there
_FAT_FILE_SYSTEMS = (b"vfat", b"msdos", b"fuseblk", b"exfat")  # their names in /proc/mounts


def place_of_port(port: str) -> str | None:
    """Return where on the USB a serial port is plugged in.

    "1-1.4" is bus 1, port 1, and port 4 of the hub there. The result is None if the system does not
    say.
    """
    device = os.path.realpath(port)  # it may be a link, such as /dev/serial/by-id/...
    for port_info in list_ports.comports():
        if port_info.device == device and port_info.location:
            # Behind the colon is the interface of the device.
            place, _, _ = port_info.location.partition(":")
            return str(place)
    return None


def is_elsewhere(volume: Path, place: str | None) -> bool:
    """Return whether a mounted volume is known to be at another place of the USB than `place`.

    place: as from `place_of_port`; None if it is not known.
    """
    if place is None:
        return False
    devices = _devices_of_volume(volume)
    return bool(devices) and place not in devices


def _devices_of_volume(volume: Path) -> tuple[str, ...]:
    """Return the devices by which a volume is connected, as Linux names them.

    Among them are places of the USB, such as "1-1.4". There are none if the system does not say.
    """
    table = b""
    if MOUNTS.exists():
        table = MOUNTS.read_bytes()
    for device, folder in mounts(table):
        block_device = BLOCK_DEVICES / Path(device).name
        if folder == volume and block_device.exists():
            return block_device.resolve().parts
    return ()


def mounts(table: bytes) -> Iterator[tuple[str, Path]]:
    """Yield the device and the folder of each mounted FAT file system.

    table: the content of Linux's /proc/mounts.
    """
    for line in table.split(b"\n"):  # a folder may have other ends of lines in its name
        fields = line.split(b" ")
        if len(fields) > _FILE_SYSTEM and fields[_FILE_SYSTEM] in _FAT_FILE_SYSTEMS:
            folder = re.sub(rb"\\([0-3][0-7]{2})", _unescaped, fields[_FOLDER])
            yield os.fsdecode(fields[_DEVICE]), Path(os.fsdecode(folder))


def _unescaped(digits: re.Match[bytes]) -> bytes:
    """Return the byte that a backslash and three octal digits stand for.

    So the kernel writes a space, a tab, a line feed and a backslash in /proc/mounts.
    """
    return bytes([int(digits[1], 8)])
