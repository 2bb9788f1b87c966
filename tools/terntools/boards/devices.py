"""`tern board list`: the boards on this machine's ports, and what each says that it is."""

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

DELTA = 1e-6  # a budget in rho is shown as the epsilon that it gives together with this delta
# What MicroPython prints at its prompt: its version, and after the date the board.
_BANNER = re.compile(rb"MicroPython (\S+) on [^;]*; ([^\r\n]+)\r?\n")


def add_board(parser: argparse.ArgumentParser) -> None:
    """Add the argument that names one board."""
    parser.add_argument("board", metavar="BOARD", help=names.NAMES)


def add_board_or_fleet(
    parser: argparse.ArgumentParser, fleets: str, default: str | None = None
) -> None:
    """Add the options that name one board, or a fleet.

    fleets: the help text of --fleet. default: the fleet that is meant if the user names neither;
    None if one must be named.
    """
    board_or_fleet = parser.add_mutually_exclusive_group(required=default is None)
    board_or_fleet.add_argument("board", nargs="?", metavar="BOARD", help=names.NAMES)
    add_option(board_or_fleet, "--fleet FLEET", fleets, default)


def fleet_of(args: argparse.Namespace) -> str:
    """Return the fleet that the options of `add_board_or_fleet` name."""
    if args.board is not None:
        return f"port:{args.board}"
    return str(args.fleet)


def heap(free: int | None) -> str:
    """Return words about the free memory that a board reports.

    free: bytes; None if the board does not report it, which a user's program need not do.
    """
    if not free:
        return "heap free: not told"
    return f"heap free {free:,} bytes"


def budget(hello: Any) -> dict[str, Any]:
    """Describe the privacy budget of a board's first device, for JSON.

    The amounts that are left and spent have the measure in their names, such as "epsilon_left".
    "guarantee" is the guarantee for life, None if the board cannot read its ledger. hello: the
    board's HELLO, decoded.
    """
    measure = MEASURES[hello.measure or 0]
    guarantee = guarantee_of(hello)
    guarantee_json = None
    if guarantee is not None:
        guarantee_json = guarantee.as_json()
    return {
        f"{measure}_left": (hello.budget or 0) / MICRO,
        f"{measure}_spent": (hello.spent or 0) / MICRO,
        "protects": protected(hello.unit or 0),
        "guarantee": guarantee_json,
    }


def guarantee_of(hello: Any) -> Guarantee | None:
    """Return the privacy guarantee for life of a board's first device.

    It follows from the whole budget. The result is None if the board cannot read its ledger.
    """
    whole_budget = (hello.budget or 0) + (hello.spent or 0)
    if not whole_budget:
        return None
    return Guarantee.of_budget(whole_budget, hello.measure or 0, hello.unit or 0, DELTA)


def budget_text(hello: Any) -> str:
    """Describe the budget of a board's first device, such as "epsilon left 1.5, spent 0.5"."""
    left = (hello.budget or 0) / MICRO
    spent = (hello.spent or 0) / MICRO
    text = f"{MEASURES[hello.measure or 0]} left {left:g}, spent {spent:g}"
    if hello.unit:
        text += f" for {protected(hello.unit)}"
    return text


def is_spent(hello: Any) -> bool:
    """Return whether a board's first device has paid for reports, and has no budget left."""
    return bool(hello.spent) and not hello.budget


@dataclass(frozen=True)
class Identity:
    """What a board says about itself; None for what it does not say."""

    board: str | None  # the kind of board
    firmware: str | None  # the version of MicroPython
    tern: str | None  # the version of tern, if it runs


_PATIENCE = 3.0  # seconds in which a board shows a sign that tern runs on it
_MOST_WAIT = 10.0  # seconds until it has said hello
_NOTHING = Identity(None, None, None)


def identify(port: str, patience: float = _PATIENCE, most: float = _MOST_WAIT) -> Identity:
    """Ask the board on `port` for its identity, without interrupting its program.

    MicroPython's prompt prints its version at Ctrl-B, and a running tern answers a hello. Whatever
    else is on the port says nothing that is understood here. patience, most: seconds to wait for
    the hello, as of `Link.hello`. Raises DeviceError and UsageError.
    """
    banner = find_prompt(port)
    if banner:
        version = visible(banner[1].decode(errors="replace"))
        board = visible(banner[2].decode(errors="replace"))
        return Identity(board.strip(), version, None)
    with closing(open_link(port, SimpleQueue())) as link:
        try:
            text = link.hello(patience, most).text or ""
        except RefusedError:
            return Identity(None, None, "another wire schema")
        except DeviceError:
            return _NOTHING
    # The text is "board; interpreter; version", of which a program may leave out the end.
    parts = [part.strip() for part in text.split(";")]
    board, firmware, version = [*parts, "", ""][:3]
    tern_version = version.removeprefix("tern ")
    return Identity(
        board=board,
        firmware=firmware.removeprefix("micropython "),
        tern=tern_version or None,
    )


def find_prompt(port: str) -> re.Match[bytes] | None:
    """Return what MicroPython's prompt prints about itself: its version, and the kind of board.

    The result is None if the board on `port` is not at its prompt, because a program runs there.
    Raises DeviceError if the board goes away.
    """
    return _BANNER.search(_answer_to_ctrl_b(port))


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
    """Return a row of the list for one device: what USB says about it, and what it says itself.

    asks_board: whether to open its port and ask it. Measuring instruments are never asked.
    """
    identity = _NOTHING
    if asks_board and device.family != names.INSTRUMENT:
        with suppress(TernError):  # a board that is busy or has gone stays on the list
            identity = identify(device.port)
    row = asdict(device)
    row["board"] = identity.board or device.board
    row["firmware"] = identity.firmware
    row["tern"] = identity.tern
    return row


_COLUMNS = ("port", "board", "firmware", "tern", "serial_number", "usb_id")


def add_parser(subparsers: Any) -> None:
    """Add `tern board list`."""
    summary = "list the boards that are connected, by their USB ids"
    parser = add_command(
        subparsers, "list", summary, "tern board list\ntern board list --no-ask --json", _run
    )
    add_option(parser, "--no-ask", "do not open the ports (opening one resets some boards)")


def _run(args: argparse.Namespace) -> int:
    """Print a table of the boards that are connected."""
    devices = []
    for device in names.find():
        devices.append(_row(device, asks_board=not args.no_ask))
    text = _table(devices)
    if not devices:
        text = "no board found: is it plugged in, with a cable that carries data?"
    print_result({"devices": devices}, text, args.json)
    return errors.OK


def _table(devices: list[dict[str, str | None]]) -> str:
    """Return a table with a line for each board, below the names of the columns."""
    rows: list[list[str]] = [list(_COLUMNS)]
    for device in devices:
        rows.append([device[name] or "-" for name in _COLUMNS])
    widths = []
    for column in zip(*rows, strict=True):
        widths.append(max(map(len, column)))
    lines = []
    for row in rows:
        line = ""
        for text, width in zip(row, widths, strict=True):
            line += f"{text:{width}}  "
        lines.append(line.rstrip())
    return "\n".join(lines)
