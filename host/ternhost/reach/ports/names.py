"""Names of boards on ports: what every BOARD and every `port:` fleet may be.

Boards are known by their USB ids.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from serial.tools import list_ports

from ternhost.errors import DeviceError, UsageError
from ternhost.reach.links import scheme_of

RP2, ESP32, INSTRUMENT = "rp2", "esp32", "instrument"

# The family of a board and what it is, by "vendor:product". A bridge chip does not identify its
# board: it is mostly an ESP32.
_USB: dict[str, tuple[str, str]] = json.loads(Path(__file__).with_name("usb.json").read_text())
_SHORT = {"a": "/dev/ttyACM", "u": "/dev/ttyUSB", "c": "COM"}  # as mpremote has them
_SHORT_NAME = re.compile(r"([auc])(\d+)")
NAMES = (
    "auto (the only board), a0 (/dev/ttyACM0), u0 (/dev/ttyUSB0), c0 (COM0), id:SERIAL, a path or "
    "a socket:// URL"
)


@dataclass(frozen=True)
class Device:
    """A port with a board or an instrument on it."""

    port: str
    family: str
    board: str
    usb_id: str
    serial_number: str | None


def find() -> list[Device]:
    """List the ports with a board or an instrument that is known by its USB id, sorted."""
    devices = []
    for port in list_ports.comports():
        usb_id = f"{port.vid or 0:04x}:{port.pid or 0:04x}"
        if usb_id in _USB:
            family, board = _USB[usb_id]
            serial_number = port.serial_number or None
            devices.append(Device(port.device, family, board, usb_id, serial_number))
    return sorted(devices, key=lambda device: device.port)


def split(text: str) -> tuple[str, ...]:
    """Split `BOARD[,BOARD...]` into names.

    Raises UsageError for a name that no board can have, and for one that occurs twice.
    """
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        _check(name)
    if len(set(names)) < len(names):
        raise UsageError(f"{text!r} names a board twice", hint="name each board once")
    return names


def _check(name: str) -> None:
    """Raise UsageError for a name that no board can have."""
    if name == "id:":
        hint = "such as id:e6614103e7452d2f; see `tern devices`"
        raise UsageError("BOARD must have a serial number after id:", hint=hint)
    if name == "auto" or name.startswith("id:") or _SHORT_NAME.fullmatch(name):
        return
    path = name.removeprefix("port:")  # as mpremote also writes a path
    if not _may_be_path(path):
        raise UsageError(f"there is no board {name!r}", hint=f"a board is {NAMES}")


def _may_be_path(path: str) -> bool:
    """Return whether a text may be a port: a URL, a device path, or any file that exists."""
    if scheme_of(path) or "/" in path or re.fullmatch(r"COM\d+", path):
        return True
    return bool(path) and Path(path).exists()


def resolve(name: str, may_be_absent: bool = False) -> str:
    """Return the port that a name stands for (see NAMES).

    may_be_absent: a path need not be there yet. Raises DeviceError if there is no such board, and
    UsageError if the name is ambiguous.
    """
    _check(name)
    if name == "auto":
        boards = [device for device in find() if device.family != INSTRUMENT]
        return _only_port(boards, name, "plug one in, or name its port")
    short_name = _SHORT_NAME.fullmatch(name)
    if short_name:
        letter, number = short_name.groups()
        return _SHORT[letter] + number
    if name.startswith("id:"):
        return _port_of_serial_number(name)

    path = name.removeprefix("port:")
    is_path = "/" in path and "://" not in path and not scheme_of(path)
    if is_path and not may_be_absent and not Path(path).exists():
        raise no_port(path)
    return path


def _port_of_serial_number(name: str) -> str:
    """Return the port of the board whose serial number begins as `name` says, `id:...`."""
    beginning = name.removeprefix("id:")
    devices = find()
    matches = []
    for device in devices:
        if (device.serial_number or "").startswith(beginning):
            matches.append(device)
    return _only_port(matches, name, f"boards found: {_list(devices) or 'none'}")


def no_port(port: str) -> DeviceError:
    """Return the error for a port that is not there; its hint lists the ports that are."""
    ports = sorted(each.device for each in list_ports.comports())
    if ports:
        hint = f"ports found: {', '.join(ports)}"
    else:
        hint = "no serial port was found: is the board plugged in?"
    return DeviceError(f"there is no port {port}", hint=hint)


def _only_port(devices: list[Device], name: str, advice: str) -> str:
    """Return the port of the only device that a name fits.

    advice: the hint if there is none. Raises DeviceError then, and UsageError if there are several.
    """
    if not devices:
        raise DeviceError(f"no board found for {name!r}", hint=advice)
    if len(devices) > 1:
        hint = "name one by its port, or by id: and its serial number"
        text = f"{name!r} may be any of {len(devices)} boards: {_list(devices)}"
        raise UsageError(text, hint)
    return devices[0].port


def _list(devices: Iterable[Device]) -> str:
    """List devices for people: the port, the board, and its serial number if it has one."""
    texts = []
    for device in devices:
        serial_number = f", id:{device.serial_number}" if device.serial_number else ""
        texts.append(f"{device.port} ({device.board}{serial_number})")
    return ", ".join(texts)
