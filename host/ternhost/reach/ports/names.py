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

# "vendor:product" -> (family, what it is). A bridge chip does not identify its board: mostly an
# ESP32.
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
    """The ports with a board or an instrument, known by its USB id; sorted."""
    devices = []
    for port in list_ports.comports():
        usb_id = f"{port.vid or 0:04x}:{port.pid or 0:04x}"
        if usb_id in _USB:
            family, board = _USB[usb_id]
            serial_number = port.serial_number or None
            devices.append(Device(port.device, family, board, usb_id, serial_number))
    return sorted(devices, key=lambda device: device.port)


def split(text: str) -> tuple[str, ...]:
    """The names in `BOARD[,BOARD...]`.

    Raises UsageError for one that no board can have, and for one named twice.
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
    if scheme_of(path) or "/" in path or re.fullmatch(r"COM\d+", path):
        return True
    return bool(path) and Path(path).exists()


def resolve(name: str, may_be_absent: bool = False) -> str:
    """The port that `name` stands for (see NAMES). may_be_absent: a path need not be there yet.

    Raises DeviceError, and UsageError where the name is ambiguous.
    """
    _check(name)
    if name == "auto":
        boards = [device for device in find() if device.family != INSTRUMENT]
        return _only(boards, name, "plug one in, or name its port")
    short = _SHORT_NAME.fullmatch(name)
    if short:
        letter, number = short.groups()
        return _SHORT[letter] + number
    if name.startswith("id:"):
        return _with_serial_number(name)
    path = name.removeprefix("port:")
    is_path = "/" in path and "://" not in path and not scheme_of(path)
    if is_path and not may_be_absent and not Path(path).exists():
        raise no_port(path)
    return path


def _with_serial_number(name: str) -> str:
    """The port of the board whose serial number begins as `name` says, `id:...`."""
    begin = name.removeprefix("id:")
    devices = find()
    matches = [device for device in devices if (device.serial_number or "").startswith(begin)]
    return _only(matches, name, f"boards found: {_candidates(devices) or 'none'}")


def no_port(port: str) -> DeviceError:
    """The error for a port that is not there."""
    ports = sorted(each.device for each in list_ports.comports())
    if ports:
        hint = f"ports found: {', '.join(ports)}"
    else:
        hint = "no serial port was found: is the board plugged in?"
    return DeviceError(f"there is no port {port}", hint=hint)


def _only(devices: list[Device], name: str, advice: str) -> str:
    if not devices:
        raise DeviceError(f"no board found for {name!r}", hint=advice)
    if len(devices) > 1:
        hint = "name one by its port, or by id: and its serial number"
        raise UsageError(
            f"{name!r} may be any of {len(devices)} boards: {_candidates(devices)}", hint
        )
    return devices[0].port


def _candidates(devices: Iterable[Device]) -> str:
    texts = []
    for device in devices:
        serial_number = f", id:{device.serial_number}" if device.serial_number else ""
        texts.append(f"{device.port} ({device.board}{serial_number})")
    return ", ".join(texts)
