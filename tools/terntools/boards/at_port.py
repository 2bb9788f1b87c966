"""Whether a board is at a port, and what it is: before, while and after it restarts."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from serial.tools import list_ports

from ternhost.errors import DeviceError, RefusedError, TernError, UsageError
from ternhost.reach.ports import names
from ternhost.reach.ports.link import BAUD, PORT_ERRORS, open_port
from terntools.boards import devices, running
from terntools.boards.firmware import DOWNLOADS, Firmware

_T = TypeVar("_T")
_RESTART_WAIT = 3.0  # seconds until a board that restarts is on its port again
_HANG_UP_WAIT = 0.5  # seconds until a URL behind which there is no board hangs up
FLASHED_WAIT = 30.0  # seconds until MicroPython answers after flashing


class OtherBoardError(DeviceError):
    """The board on a port is not the one that was there before."""


def wait_for(look: Callable[[], _T | None], seconds: float) -> _T | None:
    """Call `look` again and again until it returns something true, or `seconds` are over.

    Returns the last result of `look`.
    """
    give_up_at = time.monotonic() + seconds
    while True:
        result = look()
        if result or time.monotonic() >= give_up_at:
            return result
        time.sleep(0.25)


def is_board_on(port: str) -> bool:
    """Return whether a board is on `port` now.

    A Pico that waits in its boot loader has no port. A port may be a URL, such as that of an
    emulated board: then there is a board if the connection stays open for a moment.
    """
    if "://" not in port:
        listed_ports = [each.device for each in list_ports.comports()]
        return Path(port).exists() or port in listed_ports
    give_up_at = time.monotonic() + _HANG_UP_WAIT
    try:
        with open_port(port, BAUD) as line:
            while time.monotonic() < give_up_at:
                line.read()
    except (TernError, *PORT_ERRORS):
        return False
    return True


def comes_to(port: str) -> bool:
    """Return whether a board is on `port`, or comes to it within seconds.

    A board that restarts has no port for a moment.
    """
    return bool(wait_for(lambda: is_board_on(port), _RESTART_WAIT))


def wait_for_pico(port: str) -> str:
    """Return the port on which a Pico is after flashing.

    port: the one that the user has named. If that is names.AUTO, the board had no port yet: then
    this waits until the only Pico is on one. Raises DeviceError if none, or several, are.
    """
    if port != names.AUTO:
        return port

    def only_pico() -> str | None:
        """Return the port of the only Pico; None if there is none, or more than one."""
        picos = [device.port for device in names.find() if device.family == names.RP2]
        return picos[0] if len(picos) == 1 else None

    found = wait_for(only_pico, FLASHED_WAIT)
    if found is None:
        hint = "see 'tern board list', and name the board by its port from now on"
        raise DeviceError(
            "the file was written, but it is not clear which port the board has", hint
        )
    return found


def wait_for_micropython(port: str) -> devices.Identity | None:
    """Wait after flashing until the board on `port` answers, and return what it says that it is.

    The result is None if it does not answer in time.
    """

    def identify() -> devices.Identity | None:
        """Return the board's identity, None if nothing answers that runs MicroPython or tern."""
        try:
            identity = devices.identify(port)
        except TernError:
            return None
        if not identity.firmware and not identity.tern:
            return None
        return identity

    return wait_for(identify, FLASHED_WAIT)


def require_same_board(port: str, unique_id: str) -> None:
    """Raise OtherBoardError if another board is on `port` now than before it was flashed.

    unique_id: the number of the chip that was there before. Raises DeviceError if no MicroPython
    answers.
    """
    try:
        board = running.inspect(port)
    except RefusedError:  # it is locked, so it does not say which chip it has
        return
    if board.unique_id != unique_id:
        raise OtherBoardError(
            f"another board is on {port} than before, and tern cannot tell which of them was "
            "flashed",
            hint="see 'tern board list', and flash one board at a time",
        )


def require_chip(port: str, firmware: Firmware, board: running.RunningBoard) -> None:
    """Raise UsageError if the board has another chip than the firmware is for."""
    if firmware.chip not in board.description:
        family = names.ESP32
        if board.is_pico:
            family = names.RP2
        raise UsageError(
            f"{firmware.path.name} is for {firmware.chip}, and the board on {port} is a "
            f"{board.description}; nothing was changed",
            hint=DOWNLOADS[family],
        )
