"""Names with which users name boards on ports: everywhere where a command takes a BOARD.

Ports with boards are recognized by their USB ids.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from serial.tools import list_ports

from ternhost.errors import DeviceError, UsageError
from ternhost.reach import named
from ternhost.reach.links import scheme_of

RP2, ESP32, INSTRUMENT, EMULATED = "rp2", "esp32", "instrument", "emulated"
AUTO = "auto"  # the name of the only board that is plugged in

# For a USB id "vendor:product", the family of the board (one of the above) and what it is. Some ids
# are those of a bridge chip between USB and the board, which in most cases is an ESP32.
_USB: dict[str, tuple[str, str]] = json.loads(Path(__file__).with_name("usb.json").read_text())
_SHORT = {"a": "/dev/ttyACM", "u": "/dev/ttyUSB", "c": "COM"}  # short names as in mpremote
_SHORT_NAME = re.compile("([auc])([0-9]+)")
NAMES = (
    "auto (the only board), a0 (/dev/ttyACM0), u0 (/dev/ttyUSB0), c0 (COM0), id:SERIAL, a path, or "
    "a socket:// or rfc2217:// URL"
)


@dataclass(frozen=True)
class Device:
    """A port with a board or an instrument on it."""

    port: str
    family: str  # RP2, ESP32, INSTRUMENT or EMULATED
    board: str  # what it is, for people
    usb_id: str | None  # "vendor:product", in hexadecimal digits
    serial_number: str | None  # the name of an emulated board


def find() -> list[Device]:
    """Return the ports with a board or an instrument, sorted by port.

    They are those whose USB id is known, and those of emulated boards that have a name and run.
    """
    return sorted((*_plugged_in(), *_emulated()), key=lambda device: device.port)


def _emulated() -> list[Device]:
    """Return the ports of the emulated boards that have a name and run."""
    devices = []
    for board in named.all_boards():
        if board.is_running:
            device = Device(
                port=board.url,
                family=EMULATED,
                board=f"emulated {board.kind}",
                usb_id=None,
                serial_number=board.name,
            )
            devices.append(device)
    return devices


def _plugged_in() -> list[Device]:
    """Return the ports with a board or an instrument whose USB id is known."""
    devices = []
    for port in list_ports.comports():
        usb_id = f"{port.vid or 0:04x}:{port.pid or 0:04x}"  # None: not a port on USB
        if usb_id not in _USB:
            continue
        family, board = _USB[usb_id]
        device = Device(
            port=port.device,
            family=family,
            board=board,
            usb_id=usb_id,
            serial_number=port.serial_number or None,
        )
        devices.append(device)
    return devices


def split(text: str) -> tuple[str, ...]:
    """Split a list of boards, `BOARD[,BOARD...]`, into their names.

    Raises UsageError for a name that no board can have, and for one that occurs twice.
    """
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        _check(name)
    if len(set(names)) < len(names):
        raise UsageError(f"{text!r} names a board twice", hint="name each board once")
    return names


def _check(name: str) -> None:
    """Raise UsageError for a name that no board can have: one that is not as NAMES says."""
    if name == "id:":
        hint = "such as id:e6614103e7452d2f; see 'tern board list'"
        raise UsageError("BOARD must have a serial number after id:", hint=hint)
    if name == AUTO or name.startswith("id:") or _SHORT_NAME.fullmatch(name):
        return
    path = name.removeprefix("port:")  # as mpremote also writes a path
    if not _may_be_path(path):
        raise UsageError(f"there is no board {name!r}", hint=f"a board is {NAMES}")


def _may_be_path(path: str) -> bool:
    """Return whether a text may be a port: a URL, a device path, or any file that exists."""
    is_windows_port = re.fullmatch("COM[0-9]+", path)
    if scheme_of(path) or "/" in path or is_windows_port:
        return True
    return bool(path) and Path(path).exists()


def resolve(name: str, may_be_absent: bool = False) -> str:
    """Return the port, a device path or a URL, that the name of a board stands for (see NAMES).

    may_be_absent: whether a path is returned even if nothing is there yet, and AUTO itself if no
    board is on a port yet. Raises DeviceError if there is no such board, and UsageError if the name
    is ambiguous or no board can have it.
    """
    _check(name)
    if name == AUTO:
        boards = [device for device in _plugged_in() if device.family != INSTRUMENT]
        if may_be_absent and not boards:
            return AUTO
        return _only_port(boards, name, advice="plug one in, or name its port")
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
    """Return the port of the only board whose serial number begins with the one in `name`.

    name: "id:" and a serial number, or its beginning; or the name of an emulated board. Raises
    DeviceError if there is no such board, and UsageError if there are several.
    """
    beginning = name.removeprefix("id:")
    devices = find()
    matches = [device for device in devices if device.serial_number == beginning]
    if not matches:
        for device in devices:
            serial_number = device.serial_number or ""
            if serial_number.startswith(beginning):
                matches.append(device)
    if devices:
        advice = f"boards found: {_list(devices)}"
    else:
        advice = (
            "plug it in, with a cable that carries data; or start an emulated board of this name: "
        )
        advice += f"tern emulator run --name {beginning}"
    return _only_port(matches, name, advice=advice)


def no_port(port: str) -> DeviceError:
    """Return the error for a port that is not there; its hint lists the ports that are."""
    ports = sorted(each.device for each in list_ports.comports())
    if ports:
        hint = f"ports found: {', '.join(ports)}"
    else:
        hint = "no serial port was found: is the board plugged in?"
    return DeviceError(f"there is no port {port}", hint=hint)


def _only_port(devices: list[Device], name: str, advice: str) -> str:
    """Return the port of the only one of these devices, all of which fit a name.

    Raises DeviceError if there is none, with `advice` as its hint, and UsageError if there are
    several. name: as the user has given it, for the messages.
    """
    if not devices:
        raise DeviceError(f"no board found for {name!r}", hint=advice)
    if len(devices) > 1:
        hint = "name one by its port, or by id: and its serial number"
        text = f"{name!r} may be any of {len(devices)} boards: {_list(devices)}"
        raise UsageError(text, hint)
    return devices[0].port


def _list(devices: Iterable[Device]) -> str:
    """Return a list of devices as text: of each the port, what it is, and its serial number."""
    texts = []
    for device in devices:
        description = device.board
        if device.serial_number:
            description += f", id:{device.serial_number}"
        texts.append(f"{device.port} ({description})")
    return ", ".join(texts)
