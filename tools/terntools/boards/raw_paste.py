"""Send code to a board by raw paste ("Raw mode and raw-paste mode" of MicroPython's manual).

The board says how much it can take at once, so that the code does not overrun it.
"""

import time

from ternhost.errors import DeviceError
from terntools.boards import mpy
from terntools.boards.console import Console

_HANDSHAKE = 10.0  # seconds that an answer may take


def paste(console: Console, code: str) -> None:
    """Send code to a board that waits for it at its raw prompt, and which then runs it.

    Raises DeviceError if the board does not answer, or has no raw paste.
    """
    if not code:
        code = "\n"  # so that there is something to send
    window_bytes = _begin(console)
    if _send_in_windows(console, code.encode(), window_bytes):
        _end(console)


def _begin(console: Console) -> int:
    """Start raw paste, and return the size of a window: the bytes that the board takes at once.

    Raises DeviceError if the board does not answer, or has no raw paste.
    """
    console.write(b"\x05A\x01")  # the request for raw paste
    # "R" and 1: the board has raw paste. A slow board may first answer earlier attempts to get
    # its prompt, so all up to that is skipped.
    answer = console.read_until(b"R\x01", _HANDSHAKE)
    if not answer:
        raise console.silence("its prompt")
    if not answer.endswith(b"R\x01"):
        raise DeviceError(
            f"the MicroPython on {console.name} is too old: it has no raw-paste mode",
            hint=f"flash MicroPython {mpy.OLDEST_MICROPYTHON} or later: tern board flash",
        )
    header = console.read(3, _HANDSHAKE)  # the size of a window, and the sign for a second one
    window_bytes = int.from_bytes(header[:2], "little")
    if not window_bytes:
        raise console.silence("its prompt", header)
    return window_bytes


def _send_in_windows(console: Console, data: bytes, window: int) -> bool:
    """Send the code, and return False if the board stops it early because of a syntax error.

    The board grants room for two windows at first, and for another one whenever it has read one,
    by the byte 1. Each part is sent only when both are free, so that its size does not depend
    on timing. window: bytes.
    """
    room_bytes = 2 * window
    bytes_sent = 0
    while bytes_sent < len(data):
        while room_bytes < 2 * window:
            sign = console.read(1, _HANDSHAKE)
            if sign != b"\x01":  # Ctrl-D: the board takes no more
                console.write(b"\x04")
                return False
            room_bytes += window
        part = data[bytes_sent : bytes_sent + room_bytes]
        room_bytes = 0
        bytes_sent += len(part)
        if bytes_sent == len(data):
            part += b"\x04"  # Ctrl-D ends the code
        console.write(part)
    return True


def _end(console: Console) -> None:
    """Wait until the board has read all of the code, which it says by Ctrl-D.

    Raises SilenceError if it does not.
    """
    give_up_at = time.monotonic() + _HANDSHAKE
    room_for_a_window = b"\x01"  # which the board may still offer, but nothing is left to send
    sign = room_for_a_window
    while sign == room_for_a_window and time.monotonic() < give_up_at:
        sign = console.read(1, _HANDSHAKE)
    if sign != b"\x04":
        raise console.silence("the end of the code", sign)
