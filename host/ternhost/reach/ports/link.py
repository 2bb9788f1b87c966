"""Frames over a serial port, a pty or any URL of pyserial, with the flow control of wire.md."""

import contextlib
import errno
import os
import socket
import threading
import time
from typing import Any

import serial
from serial.urlhandler import protocol_socket

from tern import frames, host_frames, wire
from ternhost.errors import DeviceError, UsageError
from ternhost.reach.links import Events, Link, hello_request
from ternhost.reach.ports.names import no_port

try:
    from termios import error as _TermiosError  # which is no OSError, and which pyserial lets pass
except ImportError:  # Windows
    _TermiosError = OSError  # type: ignore[assignment,misc]
# Of a port whose board vanishes; pyserial's own are OSErrors.
PORT_ERRORS = (OSError, _TermiosError)
BAUD = 115200
# A console leaves its raw mode, interrupts the program, resets its interpreter.
_CONTROL = b"\x02\x03\x04"
_POLL = 0.1  # seconds that a read waits, and so the reader takes at most to notice its end
_WRITE_TIMEOUT = 5.0
_LAST_WORDS = 0.5  # seconds for a board to end its answer before its port is closed
_PAUSE = 0.05  # seconds of silence after which the answer has ended
_CHUNK = 4096  # bytes
# Seconds without a credit for waiting bytes: then credits were lost, by a reset of the board or
# with damaged bytes, and the host begins to count anew.
_STALL = 2.0


class SerialLink(Link):
    """A link to the board on a port.

    A thread reads the port and, as credits come, writes waiting bytes.
    """

    def __init__(self, port: str, events: Events) -> None:
        """Open `port`, for this process alone. Raises DeviceError and UsageError."""
        super().__init__(port, events)
        self._port = open_port(port)
        self._lock = threading.Lock()  # guards what follows, and writing
        self._waiting = bytearray()
        self._within_frame = False  # whether the last byte written was not the end of a frame
        self._in_flight = 0  # bytes written that the board has not read yet, as far as is known
        self._credit = wire.CREDIT  # bytes that the board has read when it sends a credit
        self._last_credit = 0.0  # by the monotonic clock
        self._closing = False
        self._thread = threading.Thread(target=self._read, name=f"link {port}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread, and close the port."""
        self._closing = True
        with contextlib.suppress(AttributeError, *PORT_ERRORS):  # it ends within _POLL anyway
            self._port.cancel_read()
        if self._thread is not threading.current_thread():
            self._thread.join()
        self._port.close()

    def send(self, frame: bytes) -> None:
        """Encode a frame with COBS, and write what the board has room for."""
        encoded = bytearray(frames.cobs_size(len(frame)))
        size = frames.cobs_encode(frame, len(frame), encoded)
        with self._lock:
            if not self._waiting:
                self._last_credit = time.monotonic()
            self._waiting += memoryview(encoded)[:size]
            self._pump()

    def backlog(self) -> int:
        with self._lock:
            return len(self._waiting)

    def _pump(self) -> None:
        """Write as many bytes as the board has room for; the rest waits. Holds the lock."""
        room = wire.IN_FLIGHT - self._in_flight
        size = min(room, len(self._waiting))
        if size > 0 and self._write(self._waiting[:size]):
            self._within_frame = self._waiting[size - 1] != 0
            del self._waiting[:size]
            self._in_flight += size

    def _write(self, data: bytes | bytearray) -> bool:
        """Write bytes; return whether it was possible. Holds the lock."""
        if self._lost or self._closing:
            return False
        try:
            self._port.write(data)
        except PORT_ERRORS as error:
            self.lose(_reason(error))
            return False
        return True

    def ask_hello(self) -> int:
        with self._lock:
            return self._start_anew()

    def _start_anew(self) -> int:
        """End a half-sent frame, and ask for the HELLO; return its nonce. Holds the lock.

        Nothing else is sent until the HELLO comes, from which on both sides count from zero.
        """
        nonce, request = _safe_hello_request()
        if self._within_frame and self._waiting:
            end_of_frame = self._waiting.index(0)
            del self._waiting[: end_of_frame + 1]
        self._within_frame = False
        self._write(request)
        self._in_flight = wire.IN_FLIGHT
        self._last_credit = time.monotonic()
        return nonce

    def _read(self) -> None:
        """Read the port until the link is closed or lost. Runs in a thread of its own."""
        receiver = frames.Receiver()
        try:
            while not self._closing:
                data = self._port.read(self._port.in_waiting or 1)
                if data:
                    self._take(receiver, data)
                with self._lock:
                    if self._waiting and time.monotonic() - self._last_credit > _STALL:
                        self._start_anew()
        except PORT_ERRORS as error:
            with self._lock:
                self.lose(_reason(error))

    def _take(self, receiver: frames.Receiver, data: bytes) -> None:
        """Take the frames and credits in bytes from the port. An empty frame is a credit."""
        received = []
        receiver.give(data)
        with self._lock:
            size = receiver.next()
            while size != frames.MORE:
                frame = bytes(receiver.frame[: max(size, 0)])  # empty if it was damaged
                if size == 0:
                    self._grant(self._in_flight - self._credit)
                else:
                    received.append(frame)
                    if frame and frame[0] == wire.HELLO:  # both sides count from zero
                        self._grant(0)
                size = receiver.next()
        self.heard(received)

    def _grant(self, in_flight: int) -> None:
        """Note how many bytes the board has not read yet, and write more. Holds the lock."""
        self._in_flight = max(0, in_flight)
        self._last_credit = time.monotonic()
        self._pump()

    def lose(self, why: str) -> None:
        """Note that the board can no longer be reached. Holds the lock."""
        if not self._closing:
            self._waiting.clear()
            super().lose(why)

    def hello(self, timeout: float = 5.0) -> host_frames.Hello:
        hello = super().hello(timeout)
        self._credit = hello.credit or wire.CREDIT  # bytes
        return hello


def _safe_hello_request() -> tuple[int, bytes]:
    """Encode a HELLO_REQUEST that does not stop a board which is just starting.

    Until tern runs, the console of MicroPython takes the bytes, so none may be a control character
    of it. The request begins with zeros, which end a frame that was half sent. Return its nonce
    and the bytes to write.
    """
    while True:
        nonce, request = hello_request()
        encoded = bytearray(wire.AT_ONCE + frames.cobs_size(len(request)))
        body = memoryview(encoded)[wire.AT_ONCE :]
        size = wire.AT_ONCE + frames.cobs_encode(request, len(request), body)
        if not any(byte in encoded for byte in _CONTROL):
            return nonce, bytes(encoded[:size])


def _reason(error: Exception) -> str:
    """Say in words what has happened to a port."""
    if isinstance(error, serial.SerialTimeoutException):
        return "it takes no more bytes"
    if "returned no data" in str(error):  # how pyserial puts a hang-up
        return "it was unplugged"
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    return str(error.args[-1] if isinstance(error, _TermiosError) else error)


class _SocketPort(protocol_socket.Serial):
    """pyserial's port on a socket, which is closed even if the other end has gone first.

    Beside socket://HOST:PORT it takes socket:///PATH, a Unix socket.
    """

    _socket: Any = None

    def open(self) -> None:
        """Connect. Raises SerialException."""
        path = str(self.portstr).partition("//")[2]
        if not path.startswith("/"):
            super().open()
            return
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(path)
        except OSError as error:
            connection.close()
            raise serial.SerialException(error.errno, error.strerror) from error
        connection.setblocking(False)
        self.logger = None
        self._socket = connection
        self.is_open = True

    def close(self) -> None:
        """Disconnect, once the board has ended its answer."""
        connection = self._socket
        if connection and connection.family == socket.AF_UNIX:
            self._hear_out(connection)
        try:
            super().close()
        finally:
            if connection:
                connection.close()

    @staticmethod
    def _hear_out(connection: socket.socket) -> None:
        """Let the board end its answer.

        Unlike TCP, this socket fails at once for a board that is still answering, which QEMU may
        not survive.
        """
        end = time.monotonic() + _LAST_WORDS
        with contextlib.suppress(OSError):  # silence, or the other end has gone
            connection.settimeout(_PAUSE)
            while time.monotonic() < end and connection.recv(_CHUNK):
                pass


def open_port(port: str, baud: int = BAUD) -> serial.Serial:
    """Open a device path or a URL of pyserial, for this process alone.

    Raises DeviceError and UsageError.
    """
    is_socket = port.lower().startswith("socket://")
    make: Any = _SocketPort if is_socket else serial.serial_for_url
    try:
        opened: serial.Serial = make(
            port, baudrate=baud, timeout=_POLL, write_timeout=_WRITE_TIMEOUT, exclusive=True
        )
        return opened
    except ValueError as error:
        text = f"{port} is not a port: {error}"
        raise UsageError(text, hint="name a device, or a pyserial URL") from error
    except PORT_ERRORS as error:
        raise _open_error(port, error) from error


def _open_error(port: str, error: Exception) -> DeviceError:
    """Return the error for a port that cannot be opened, with a remedy."""
    code = error.args[0] if error.args else None  # of errno
    description = str(error)  # on Windows only this names the error
    if code == errno.ENOENT or "FileNotFoundError" in description:
        return no_port(port)
    if code in (errno.EAGAIN, errno.EBUSY) or "PermissionError" in description:
        text = f"{port} is busy: another program has it open"
        return DeviceError(text, hint="end that program first")
    if code in (errno.EACCES, errno.EPERM):
        return DeviceError(f"you may not open {port}", hint=_permission_hint(port))
    if port.startswith("socket://"):
        hint = "start the board, or check the address"
        return DeviceError(f"nothing listens at {port}", hint=hint)
    if "ioctl" in description:  # it was opened, but has no speed to set
        hint = "name a device such as /dev/ttyACM0"
        return DeviceError(f"{port} is not a serial port", hint=hint)
    hint = "check its cable: `tern devices`"
    return DeviceError(f"cannot open {port}: {_reason(error)}", hint=hint)


def _permission_hint(port: str) -> str:
    """Say what to do to be allowed to open a port."""
    try:
        import grp

        group = grp.getgrgid(os.stat(port).st_gid).gr_name
    except (ImportError, KeyError, OSError):
        return "ask for permission to use it"
    return f"join the group that may: sudo usermod -aG {group} $USER, then log in again"
