"""`tern devices`: the boards on this machine's ports, and what each says that it is."""

from __future__ import annotations

import argparse
import re
import time
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from queue import SimpleQueue
from typing import Any

from ternhost import errors
from ternhost.command import add_command, add_option, print_result
from ternhost.errors import DeviceError, RefusedError, TernError
from ternhost.privacy.accounting import MEASURES
from ternhost.privacy.base import MICRO
from ternhost.privacy.guarantee import Guarantee
from ternhost.privacy.units import protected
from ternhost.reach.links import open_link
from ternhost.reach.ports import names
from ternhost.reach.ports.link import BAUD, PORT_ERRORS, open_port
from ternhost.text import visible

DELTA = 1e-6  # of the epsilons of a budget in rho
_BANNER = re.compile(rb"MicroPython (\S+) on [^;]*; ([^\r\n]+)\r?\n")


def add_board(parser: argparse.ArgumentParser) -> None:
    """The argument that names one board."""
    parser.add_argument("board", metavar="BOARD", help=names.NAMES)


def add_board_or_fleet(
    parser: argparse.ArgumentParser, fleets: str, default: str | None = None
) -> None:
    """Add the options that name one board, or a fleet.

    fleets: the help of --fleet. default: the fleet if neither is named.
    """
    board_or_fleet = parser.add_mutually_exclusive_group(required=default is None)
    board_or_fleet.add_argument("board", nargs="?", metavar="BOARD", help=names.NAMES)
    add_option(board_or_fleet, "--fleet FLEET", fleets, default)


def fleet_of(args: argparse.Namespace) -> str:
    """The fleet that these options name."""
    return f"port:{args.board}" if args.board is not None else str(args.fleet)


def heap(free: int | None) -> str:
    """The free heap in bytes that a board tells, for people; a program of one's own may not tell it."""
    return f"heap free {free:,} bytes" if free else "heap free: not told"


def budget(hello: Any) -> dict[str, Any]:
    """Describe the budget of a board's first device, for JSON.

    It has what is left and spent in the device's measure, what it protects, and its guarantee,
    which is None if the board cannot read its ledger.
    """
    measure = MEASURES[hello.measure or 0]
    guarantee = guarantee_of(hello)
    return {
        f"{measure}_left": (hello.budget or 0) / MICRO,
        f"{measure}_spent": (hello.spent or 0) / MICRO,
        "protects": protected(hello.unit or 0),
        "guarantee": None if guarantee is None else guarantee.as_json(),
    }


def guarantee_of(hello: Any) -> Guarantee | None:
    """Return the guarantee for life of a board's first device.

    It is None if the board cannot read its ledger.
    """
    whole_budget = (hello.budget or 0) + (hello.spent or 0)
    if not whole_budget:
        return None
    return Guarantee.of_budget(whole_budget, hello.measure or 0, hello.unit or 0, DELTA)


def budget_text(hello: Any) -> str:
    """Describe the budget of a board's first device: "epsilon left 1.5, spent 0.5"."""
    left, spent = (hello.budget or 0) / MICRO, (hello.spent or 0) / MICRO
    text = f"{MEASURES[hello.measure or 0]} left {left:g}, spent {spent:g}"
    if hello.unit:
        text += f" for {protected(hello.unit)}"
    return text


def is_spent(hello: Any) -> bool:
    """Whether a board's first device has paid for reports, and nothing is left of its budget."""
    return bool(hello.spent) and not hello.budget


@dataclass(frozen=True)
class Identity:
    """A board's own description: MicroPython's version and board, and tern's version if it runs."""

    board: str | None
    firmware: str | None
    tern: str | None


_NOTHING = Identity(None, None, None)


def identify(port: str, patience: float = 1.5) -> Identity:
    """Ask the board on `port` for its identity, without interrupting its program.

    MicroPython's prompt prints its version at Ctrl-B, and a running tern answers a hello within
    `patience` seconds; anything else stays silent. Raises DeviceError and UsageError.
    """
    banner = _BANNER.search(_answer_to_ctrl_b(port))
    if banner:
        version = visible(banner[1].decode(errors="replace"))
        board = visible(banner[2].decode(errors="replace"))
        return Identity(board.strip(), version, None)
    with closing(open_link(port, SimpleQueue())) as link:
        try:
            text = link.hello(patience).text or ""
        except RefusedError:
            return Identity(None, None, "another wire schema")
        except DeviceError:
            return _NOTHING
    # The text is "board; interpreter; version", of which a program may leave out the end.
    board, firmware, version = (part.strip() for part in (text + ";;").split(";")[:3])
    firmware = firmware.removeprefix("micropython ")
    return Identity(board, firmware, version.removeprefix("tern ") or None)


def _answer_to_ctrl_b(port: str) -> bytes:
    """Send Ctrl-B to the board, and return what it prints within 0.6 s.

    Raises DeviceError if the board goes away.
    """
    answer = b""
    try:
        with open_port(port, BAUD) as line:
            line.write(b"\r\x02")
            give_up_at = time.monotonic() + 0.6
            while time.monotonic() < give_up_at and not _BANNER.search(answer):
                answer += line.read(line.in_waiting or 1)
    except PORT_ERRORS as error:
        raise DeviceError(f"the board on {port} went away", hint="check its cable") from error
    return answer


def _row(device: names.Device, asks_board: bool) -> dict[str, str | None]:
    """Return a board of the list: what USB says of it, and what it says itself if it is asked."""
    identity = _NOTHING
    if asks_board and device.family != names.INSTRUMENT:
        with suppress(TernError):  # busy, or gone meanwhile: it is still on the list
            identity = identify(device.port)
    row = asdict(device)
    row["board"] = identity.board or device.board
    row["firmware"] = identity.firmware
    row["tern"] = identity.tern
    return row


_COLUMNS = ("port", "board", "firmware", "tern", "serial_number", "usb_id")


def add_parser(subparsers: Any) -> None:
    """Add `tern devices` to the commands."""
    summary = "list the boards that are connected, by their USB ids"
    parser = add_command(
        subparsers, "devices", summary, "tern devices\ntern devices --no-ask --json", _run
    )
    add_option(parser, "--no-ask", "do not open the ports (opening one resets some boards)")


def _run(args: argparse.Namespace) -> int:
    devices = [_row(device, not args.no_ask) for device in names.find()]
    text = _table(devices)
    if not devices:
        text = "no board found: is it plugged in, with a cable that carries data?"
    print_result({"devices": devices}, text, args.json)
    return errors.OK


def _table(devices: list[dict[str, str | None]]) -> str:
    """Return a line for each board, below the names of the columns."""
    rows: list[tuple[str, ...]] = [_COLUMNS]
    for device in devices:
        rows.append(tuple(device[name] or "-" for name in _COLUMNS))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        line = ""
        for cell, width in zip(row, widths, strict=True):
            line += f"{cell:{width}}  "
        lines.append(line.rstrip())
    return "\n".join(lines)
