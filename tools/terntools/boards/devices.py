"""Boards on this machine's ports: found by USB id, named as mpremote names them, and asked for their identity."""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import serial
from serial.tools import list_ports

from ternhost import errors
from ternhost.command import add_command, add_option, print_result
from ternhost.errors import DeviceError, RefusedError, TernError, UsageError
from ternhost.reach.links import open_link
from ternhost.reach.ports.link import BAUD, open_port
from ternhost.text import visible

RP2 = "rp2"
ESP32 = "esp32"
INSTRUMENT = "instrument"

# USB vendor and product -> (family, what it is). A bridge chip does not identify its board: mostly an ESP32.
_USB = {
    (0x2E8A, 0x0005): (RP2, "Pico (MicroPython)"),
    (0x2E8A, 0x000A): (RP2, "Pico (SDK program)"),
    (0x303A, 0x1001): (ESP32, "ESP32 (USB serial/JTAG)"),
    (0x303A, 0x4001): (ESP32, "ESP32 (MicroPython, native USB)"),
    (0x10C4, 0xEA60): (ESP32, "CP210x bridge"),
    (0x1A86, 0x7523): (ESP32, "CH340 bridge"),
    (0x1A86, 0x55D4): (ESP32, "CH9102 bridge"),
    (0x0403, 0x6001): (ESP32, "FT232 bridge"),
    (0x0403, 0x6010): (ESP32, "FT2232 bridge"),
    (0x0403, 0x6015): (ESP32, "FT231X bridge"),
    (0x1915, 0xC00A): (INSTRUMENT, "Power Profiler Kit II"),
}
_SHORT = {"a": "/dev/ttyACM", "u": "/dev/ttyUSB", "c": "COM"}
_BANNER = re.compile(rb"MicroPython (\S+) on [^;]*; ([^\r\n]+)\r?\n")
NAMES = "auto (the only board), a0 (/dev/ttyACM0), u0 (/dev/ttyUSB0), c0 (COM0), id:SERIAL, a path or a socket:// URL"


@dataclass(frozen=True)
class Device:
    """A port with a board (or an instrument) on it; `firmware` and `tern` are None until the board was asked."""

    port: str
    family: str
    board: str
    usb_id: str
    serial_number: str | None
    firmware: str | None = None
    tern: str | None = None


def find() -> list[Device]:
    """The ports whose USB id is that of a board or an instrument, sorted."""
    devices = []
    for port in list_ports.comports():
        known = _USB.get((port.vid, port.pid))
        if known:
            usb_id = f"{port.vid:04x}:{port.pid:04x}"
            devices.append(Device(port.device, known[0], known[1], usb_id, port.serial_number or None))
    return sorted(devices, key=lambda device: device.port)


def resolve(name: str, devices: Sequence[Device] | None = None) -> str:
    """The port that `name` stands for (see NAMES). Raises DeviceError, and UsageError where it is ambiguous."""
    if devices is None:
        devices = find()
    boards = [device for device in devices if device.family != INSTRUMENT]
    if name == "auto":
        return _only(boards, "auto", "plug one in, or name its port")
    if short := re.fullmatch(r"([auc])(\d+)", name):
        return _SHORT[short[1]] + short[2]
    if name.startswith("id:"):
        wanted = name.removeprefix("id:")
        if not wanted:
            raise UsageError(
                "BOARD must have a serial number after id:",
                hint="such as id:e6614103e7452d2f; see `tern devices`",
            )
        matches = [device for device in devices if (device.serial_number or "").startswith(wanted)]
        return _only(matches, name, f"boards found: {_candidates(devices) or 'none'}")
    path = name.removeprefix("port:")
    if "://" in path or Path(path).exists() or re.fullmatch(r"COM\d+", path):
        return path
    if "/" in path:
        raise DeviceError(f"there is no port {path}", hint=f"boards found: {_candidates(devices) or 'none'}")
    raise UsageError(f"there is no board {name!r}", hint=f"a board is {NAMES}")


def add_board_or_fleet(parser: argparse.ArgumentParser, fleets: str, default: str | None = None) -> None:
    """Options that name one board, or a fleet. fleets: the help of --fleet; default: a fleet where neither is named."""
    named = parser.add_mutually_exclusive_group(required=default is None)
    named.add_argument("board", nargs="?", metavar="BOARD", help=NAMES)
    add_option(named, "--fleet FLEET", fleets, default)


def fleet_of(args: argparse.Namespace) -> str:
    """The fleet that these options name. Raises as `resolve` does."""
    return f"port:{resolve(args.board)}" if args.board is not None else str(args.fleet)


def _only(devices: Sequence[Device], name: str, advice: str) -> str:
    if not devices:
        raise DeviceError(f"no board found for {name!r}", hint=advice)
    if len(devices) > 1:
        raise UsageError(
            f"{name!r} may be any of {len(devices)} boards: {_candidates(devices)}",
            hint="name one by its port, or by id: and its serial number",
        )
    return devices[0].port


def _candidates(devices: Iterable[Device]) -> str:
    return ", ".join(
        f"{device.port} ({device.board}{', id:' + device.serial_number if device.serial_number else ''})"
        for device in devices
    )


@dataclass(frozen=True)
class Identity:
    """A board's own description: MicroPython's version and board, and tern's version if it runs."""

    board: str | None
    firmware: str | None
    tern: str | None


def identify(port: str, patience: float = 1.5) -> Identity:
    """Ask the board on `port` for its identity, without interrupting its program. Raises DeviceError and UsageError.

    MicroPython's prompt prints its version at Ctrl-B, a running tern answers a hello within `patience` seconds;
    anything else stays silent.
    """
    answer = b""
    try:
        with open_port(port, BAUD) as line:
            line.write(b"\r\x02")
            end = time.monotonic() + 0.6
            while time.monotonic() < end and not _BANNER.search(answer):
                answer += line.read(line.in_waiting or 1)
    except (OSError, serial.SerialException) as error:
        raise DeviceError(f"the board on {port} went away", hint="check its cable") from error
    if banner := _BANNER.search(answer):
        version, board = (visible(part.decode(errors="replace")) for part in banner.groups())
        return Identity(board.strip(), version, None)
    with closing(open_link(port, SimpleQueue())) as link:
        try:
            text = link.hello(patience).text or ""
        except RefusedError:
            return Identity(None, None, "another wire schema")
        except DeviceError:
            return Identity(None, None, None)
    board, firmware, version = (part.strip() for part in (text + ";;").split(";")[:3])
    return Identity(board, firmware.removeprefix("micropython "), version.removeprefix("tern ") or None)


def _identified(device: Device) -> Device:
    try:
        identity = identify(device.port)
    except TernError:  # busy, or gone meanwhile: it is still on the list
        return device
    board = identity.board or device.board
    return replace(device, board=board, firmware=identity.firmware, tern=identity.tern)


_COLUMNS = ("port", "board", "firmware", "tern", "serial_number", "usb_id")


def add_parser(subparsers: Any) -> None:
    parser = add_command(
        subparsers,
        "devices",
        "list the boards that are connected, by their USB ids",
        "tern devices\ntern devices --no-ask --json",
        _run,
    )
    add_option(parser, "--no-ask", "do not open the ports (opening one resets some boards)")


def _run(args: argparse.Namespace) -> int:
    asked = () if args.no_ask else (RP2, ESP32)
    devices = [_identified(one) if one.family in asked else one for one in find()]
    rows = [_COLUMNS] + [tuple(str(getattr(one, name) or "-") for name in _COLUMNS) for one in devices]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_COLUMNS))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    if not devices:
        lines = ["no board found: is it plugged in, with a cable that carries data?"]
    print_result({"devices": [asdict(one) for one in devices]}, "\n".join(lines), args.json)
    return errors.OK
