"""Where on the USB a board is plugged in: it stays there when its boot loader starts."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from serial.tools import list_ports

MOUNTS = Path("/proc/mounts")
BLOCK_DEVICES = Path("/sys/class/block")
_FAT_FILE_SYSTEMS = (b"vfat", b"msdos", b"fuseblk", b"exfat")  # their names in /proc/mounts


def place_of_port(port: str) -> str | None:
    """Return where on the USB a serial port is: "1-1.4" is bus 1, port 1, port 4 of the hub there.

    The result is None if nobody knows.
    """
    device = os.path.realpath(port)  # it may be a link, such as /dev/serial/by-id/...
    for port_info in list_ports.comports():
        if port_info.device == device and port_info.location:
            # Behind the colon is the interface of the device.
            place, _, _ = port_info.location.partition(":")
            return str(place)
    return None


def is_elsewhere(volume: Path, place: str | None) -> bool:
    """Whether a mounted volume is known to be at another place of the USB than this one."""
    if place is None:
        return False
    devices = _devices_of_volume(volume)
    return bool(devices) and place not in devices


def _devices_of_volume(volume: Path) -> tuple[str, ...]:
    """The devices between this machine and a volume, as Linux names them; none if it does not say."""
    for device, folder in mounts(MOUNTS.read_bytes() if MOUNTS.exists() else b""):
        block_device = BLOCK_DEVICES / Path(device).name
        if folder == volume and block_device.exists():
            return block_device.resolve().parts
    return ()


def mounts(table: bytes) -> Iterator[tuple[str, Path]]:
    """Yield the device and the folder of each FAT file system. table: Linux's /proc/mounts."""
    for line in table.splitlines():
        device, escaped_folder, file_system, *_ = line.split(b" ")
        if file_system in _FAT_FILE_SYSTEMS:
            # The kernel writes a space, a tab, a line feed and a backslash as a backslash and three
            # octal digits.
            folder = re.sub(
                rb"\\([0-7]{3})", lambda digits: bytes([int(digits[1], 8)]), escaped_folder
            )
            yield os.fsdecode(device), Path(os.fsdecode(folder))
