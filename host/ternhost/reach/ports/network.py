"""Ports that are reached by a connection: a board of another computer, or an emulated one.

A plain connection (`socket://HOST:PORT`, or `socket:///PATH` for a Unix socket) carries bytes alone.
RFC 2217 (`rfc2217://HOST:PORT`) also carries the speed of the port, and the lines DTR and RTS by which
a board is reset.
"""

import contextlib
import os
import socket
import time
import warnings
from typing import Any

import serial
import serial.rfc2217
from serial.urlhandler import protocol_socket

from ternhost.errors import DeviceError

_LAST_WORDS = 0.5  # seconds for a board to end its answer before its port is closed
_PAUSE = 0.05  # seconds of silence after which the answer has ended
_CHUNK = 4096  # bytes to read at a time


class SocketPort(protocol_socket.Serial):
    """pyserial's port on a socket, with two changes.

    Beside socket://HOST:PORT it also opens socket:///PATH, a Unix socket. And its socket is closed
    even if the other end was closed first.
    """

    _socket: Any = None

    def open(self) -> None:
        """Connect to the socket of the port. Raises SerialException."""
        _scheme, _slashes, path = str(self.portstr).partition("//")
        is_unix_socket = path.startswith("/")
        if not is_unix_socket:
            super().open()
            return
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(os.path.realpath(path))  # a path of a socket must be short
        except OSError as error:
            connection.close()
            raise serial.SerialException(error.errno, error.strerror) from error
        # What pyserial's own `open` sets.
        connection.setblocking(False)
        self.logger = None
        self._socket = connection
        self.is_open = True

    def close(self) -> None:
        """Disconnect; from a Unix socket, only once the board has ended its answer."""
        connection = self._socket
        if connection and connection.family == socket.AF_UNIX:
            self._read_rest_of_answer(connection)
        try:
            super().close()
        finally:
            if connection:
                connection.close()

    @staticmethod
    def _read_rest_of_answer(connection: socket.socket) -> None:
        """Read what an emulated board still sends, until it is silent for a moment.

        Otherwise a Unix socket, unlike TCP, would fail at once for a board that is still answering,
        and QEMU, which emulates it, may not survive that.
        """
        end = time.monotonic() + _LAST_WORDS
        with contextlib.suppress(OSError):  # the board is silent, or the other end is closed
            connection.settimeout(_PAUSE)
            while time.monotonic() < end:
                received = connection.recv(_CHUNK)
                if not received:
                    return


_PyserialRfc2217Port: Any = serial.rfc2217.Serial


class Rfc2217Port(_PyserialRfc2217Port):  # type: ignore[misc]
    """pyserial's port on a server of RFC 2217, with three changes.

    It opens without a warning of Python. It takes a timeout of writes, which pyserial refuses here: a
    write always ends after 5 s. And its thread ends quietly if the server closes the connection while
    both agree on settings.
    """

    def __init__(
        self, *arguments: Any, write_timeout: float | None = None, **settings: Any
    ) -> None:
        super().__init__(*arguments, **settings)

    def open(self) -> None:
        """Connect to the server, and agree on settings. Raises SerialException."""
        with warnings.catch_warnings():
            # pyserial names its thread in a way that Python calls old.
            warnings.simplefilter("ignore", DeprecationWarning)
            super().open()

    def _telnet_read_loop(self) -> None:
        try:
            super()._telnet_read_loop()
        except OSError:
            self._read_buffer.put(None)  # wakes who reads, as pyserial does it otherwise


CLASSES: dict[str, Any] = {"socket": SocketPort, "rfc2217": Rfc2217Port}
"""The classes of ports, by the scheme of their URLs."""


def open_error(port: str, error: Exception) -> DeviceError:
    """Return the error for a port of CLASSES that cannot be opened, with what to do as its hint.

    error: what the operating system or pyserial has raised.
    """
    description = str(error)
    if "waiting for option" in description:
        text = f"the server at {port} does not set the lines DTR and RTS"
        return DeviceError(text, hint=f"if it does everything else, name {port}?ign_set_control")
    is_hung_up = isinstance(error, ConnectionError) and not isinstance(
        error, ConnectionRefusedError
    )
    if is_hung_up or "support RFC2217" in description:
        text = f"{port} does not answer as a server of RFC 2217"
        hint = "end the other program that uses it; or it carries bytes alone: name it socket://"
        return DeviceError(text, hint)
    return DeviceError(f"nothing listens at {port}", hint="start the board, or check the address")
