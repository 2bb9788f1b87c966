"""Sends and receives frames over a serial port, a pty or any URL of pyserial.

Bytes are sent with the flow control of shared_specs/wire.md: a board can buffer IN_FLIGHT bytes, and
sends a credit, an empty frame, whenever it has read a certain number of them.
"""

import contextlib
import errno
import os
import threading
import time
from typing import Any

import serial

from tern import frames, host_frames, wire
from ternhost.errors import DeviceError, UsageError
from ternhost.reach.links import Events, Link, hello_request, nonce_of
from ternhost.reach.patience import MOST_WAIT, patience_for
from ternhost.reach.ports import network
from ternhost.reach.ports.names import no_port

try:
    from termios import error as _TermiosError  # which is no OSError, and which pyserial lets pass
except ImportError:  # Windows
    _TermiosError = OSError  # type: ignore[assignment,misc]
# The errors of a port whose board vanishes. The exceptions of pyserial itself are OSErrors.
PORT_ERRORS = (OSError, _TermiosError)
BAUD = 115200
# Control characters of MicroPython's console: Ctrl-B leaves its raw mode, Ctrl-C interrupts the
# program, and Ctrl-D resets the interpreter.
_CONTROL = b"\x02\x03\x04"
_POLL = 0.1  # seconds that a read waits at most, and so after which the reader notices its end
_WRITE_TIMEOUT = 5.0  # seconds
# If bytes wait, and no credit has come for so many seconds, then credits were lost, because the
# board was reset or bytes were damaged. The host and the board then begin to count anew. A board
# with a slot gets the time of its slot in addition.
_STALL = 2.0
# So many requests for a HELLO are remembered until they are answered.
_MOST_REQUESTS = 64
_MOST_DAMAGED = 20  # damaged frames in a row that may come from a board
_MOST_UNREAD = 2 * wire.IN_FLIGHT  # bytes of earlier programs that a board may still read


class SerialLink(Link):
    """A link to the board on a port.

    A thread reads the port, and writes waiting bytes whenever the board has room for them.
    """

    def __init__(self, port: str, events: Events) -> None:
        """Open a port for this process alone. Raises DeviceError and UsageError.

        port: a device path or a URL. events: the queue that gets the board's frames.
        """
        super().__init__(port, events)
        self._port = open_port(port)
        self._lock = threading.Lock()  # guards the next attributes, and writing to the port
        self._waiting = bytearray()  # encoded frames that the board has no room for yet
        self._within_frame = False  # whether the last byte written was not the end of a frame
        self._closing = False

        # Flow control: a board has a small buffer, and sends a credit (an empty frame) whenever it
        # has read so many bytes. The host never has more bytes in flight than fit into the buffer.
        self._credit = wire.CREDIT  # how many bytes a credit stands for
        self._in_flight = 0  # bytes written that the board has not read yet, as far as is known
        self._last_credit = 0.0  # when the last credit came, by the monotonic clock
        self._written = 0  # bytes written since the port was opened
        self._credits = 0  # credits that have come since then
        self._damaged = 0  # damaged frames that have come in a row
        # The requests for a HELLO that are not answered yet, in their order: how many bytes had been
        # written at the end of each, by its nonce.
        self._requests: dict[int, int] = {}
        # Until one of them is answered, nobody knows how much the board has read.
        self._counts_anew = False

        self._thread = threading.Thread(target=self._read, name=f"link {port}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread, and close the port."""
        self._closing = True
        # Some kinds of ports cannot cancel a read; then it ends after _POLL seconds.
        with contextlib.suppress(AttributeError, *PORT_ERRORS):
            self._port.cancel_read()
        if self._thread is not threading.current_thread():
            self._thread.join()
        self._port.close()

    def send(self, frame: bytes) -> None:
        """Encode a frame with COBS, and write as much of it as the board has room for."""
        encoded = bytearray(frames.cobs_size(len(frame)))
        size = frames.cobs_encode(frame, len(frame), encoded)
        with self._lock:
            if not self._waiting:
                self._last_credit = time.monotonic()  # no credit was due so far
            self._waiting += memoryview(encoded)[:size]
            self._pump()

    def backlog(self) -> int:
        with self._lock:
            return len(self._waiting)

    def _pump(self) -> None:
        """Write as many waiting bytes as the board has room for. The caller holds the lock."""
        room = wire.IN_FLIGHT - self._in_flight
        size = min(room, len(self._waiting))
        if size > 0 and self._write(self._waiting[:size]):
            self._within_frame = self._waiting[size - 1] != 0  # a zero ends a frame
            del self._waiting[:size]
            self._in_flight += size

    def _write(self, data: bytes | bytearray) -> bool:
        """Write bytes to the port, and return whether that was possible.

        If it fails, the link is lost. The caller holds the lock.
        """
        if self._lost or self._closing:
            return False
        try:
            self._port.write(data)
        except PORT_ERRORS as error:
            self.lose(_reason(error))
            return False
        self._written += len(data)
        return True

    def ask_hello(self) -> int:
        with self._lock:
            return self._start_anew()

    def _start_anew(self) -> int:
        """Ask the board for its HELLO, and return the nonce that the answer will repeat.

        With the HELLO, both sides begin to count anew the bytes that the board has room for. A
        frame that was sent in part is given up. Nothing else is sent until the HELLO comes. The
        caller holds the lock.
        """
        # So many zeros that the board gives a credit as soon as it begins to read the request.
        zeros = wire.AT_ONCE if self._in_flight else wire.CREDIT
        nonce, request = safe_hello_request(zeros)
        if self._within_frame and self._waiting:
            # Drop the rest of that frame. The zeros at the beginning of the request end it.
            end_of_frame = self._waiting.index(0)
            del self._waiting[: end_of_frame + 1]
        self._within_frame = False
        self._write(request)
        self._requests[nonce] = self._written
        if len(self._requests) > _MOST_REQUESTS:
            del self._requests[next(iter(self._requests))]
        self._counts_anew = True
        self._in_flight = wire.IN_FLIGHT  # as if the board had no room
        self._last_credit = time.monotonic()
        return nonce

    def _read(self) -> None:
        """Read the port until the link is closed or lost. It runs in a thread of its own.

        If frames wait to be sent and the board has not said for long that it has room for them (by
        a credit), both sides begin to count anew.
        """
        receiver = frames.Receiver()
        try:
            while not self._closing:
                size = self._port.in_waiting or 1  # if nothing is there, wait for a byte
                data = self._port.read(size)
                if data:
                    self._take(receiver, data)
                with self._lock:
                    seconds_without_credit = time.monotonic() - self._last_credit
                    stall = patience_for(self.answer_seconds, _STALL)
                    if self._waiting and seconds_without_credit > stall:
                        self._start_anew()
        except PORT_ERRORS as error:
            with self._lock:
                self.lose(_reason(error))

    def _take(self, receiver: frames.Receiver, data: bytes) -> None:
        """Pass on the frames in bytes from the port, and note the credits among them.

        A credit is an empty frame, with which a board says that it has read `_credit` more of the
        bytes that were sent to it, and so has room for as many.

        receiver: decodes the bytes. It has the beginning of a frame that is not complete yet.
        """
        received = []
        receiver.give(data)
        with self._lock:
            size = receiver.next()
            while size != frames.MORE:  # until there is no further complete frame
                is_credit = size == 0
                if is_credit:
                    self._take_credit()
                else:
                    # A damaged frame has a size below 0, and is passed on as an empty one.
                    frame = bytes(receiver.frame[: max(size, 0)])
                    self._note_damage(size < 0)
                    received.append(frame)
                    is_hello = bool(frame) and frame[0] == wire.HELLO
                    if is_hello:
                        self._count_from(frame)
                size = receiver.next()
        self.heard(received)

    def _note_damage(self, is_damaged: bool) -> None:
        """Count the damaged frames that come in a row. The caller holds the lock.

        So many of them are not from a board.
        """
        self._damaged = self._damaged + 1 if is_damaged else 0
        if self._damaged > _MOST_DAMAGED:
            self._is_noise = True

    def _take_credit(self) -> None:
        """Note that the board has read `_credit` more bytes. The caller holds the lock."""
        self._credits += 1
        if not self._counts_anew:
            self._grant(self._in_flight - self._credit)
            return
        # A board gives a credit only for what was sent to it, here or by an earlier program. More
        # of them are zeros of another device.
        bytes_for_credits = self._credits * self._credit
        if bytes_for_credits > self._written + _MOST_UNREAD:
            self._is_noise = True
        self.heard_credit()

    def _count_from(self, hello: bytes) -> None:
        """Count anew the bytes in flight, as the board does with this HELLO.

        A board sends a HELLO before it reads what follows the request. So what was written after the
        request is in flight. The caller holds the lock.
        """
        nonce = nonce_of(hello)
        if nonce in self._requests:
            in_flight = self._written - self._requests[nonce]
            for earlier in list(self._requests):  # they are answered in their order, or were lost
                del self._requests[earlier]
                if earlier == nonce:
                    break
        elif self._counts_anew:  # an answer to an earlier program: the requests are still unread
            return
        else:  # an answer to a frame other than a request, after which nothing was sent
            in_flight = 0
        self._counts_anew = False
        self._grant(in_flight)

    def _grant(self, in_flight: int) -> None:
        """Note how many written bytes the board has not read yet, and write more.

        The caller holds the lock.
        """
        self._in_flight = max(0, in_flight)
        self._last_credit = time.monotonic()
        self._pump()

    def lose(self, why: str) -> None:
        """Note that the board can no longer be reached. The caller holds the lock."""
        if not self._closing:
            self._waiting.clear()
            super().lose(why)

    def hello(self, patience: float = 5.0, most: float = MOST_WAIT) -> host_frames.Hello:
        hello = super().hello(patience, most)
        self._credit = hello.credit or wire.CREDIT  # bytes
        return hello


def safe_hello_request(zeros: int) -> tuple[int, bytes]:
    """Encode a HELLO_REQUEST that does not stop a board which is just starting.

    Until tern runs on the board, MicroPython's console reads the bytes, so none of them may be a
    control character of the console. The request begins with zeros, which end a frame that was sent
    in part. Return the nonce of the request, and the bytes to write.

    zeros: how many; at least wire.AT_ONCE.
    """
    while True:  # with another nonce each time
        nonce, request = hello_request()
        encoded = bytearray(zeros + frames.cobs_size(len(request)))
        body = memoryview(encoded)[zeros:]
        size = zeros + frames.cobs_encode(request, len(request), body)
        has_control_character = any(byte in encoded for byte in _CONTROL)
        if not has_control_character:
            return nonce, bytes(encoded[:size])


def _reason(error: Exception) -> str:
    """Return in words what has happened to a port, from the error of a read or a write."""
    if isinstance(error, serial.SerialTimeoutException):
        return "it takes no more bytes"
    if "returned no data" in str(error):  # what pyserial says when a port hangs up
        return "it was unplugged"
    if "socket disconnected" in str(error) or "reader thread died" in str(error):
        return "the connection was closed; another program may use the board"
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    if isinstance(error, _TermiosError):
        return str(error.args[-1])  # the first argument is a number
    return str(error)


def open_port(port: str, baud: int = BAUD) -> serial.Serial:
    """Open a device path or a URL of pyserial, for this process alone.

    baud: the speed in bits per second. Raises DeviceError and UsageError.
    """
    make: Any = network.CLASSES.get(_scheme_of(port), serial.serial_for_url)
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


def _scheme_of(port: str) -> str:
    """Return the scheme of a port that is a URL, in lower case; "" for a path."""
    scheme, separator, _rest = port.lower().partition("://")
    return scheme if separator else ""


def _open_error(port: str, error: Exception) -> DeviceError:
    """Return the error for a port that cannot be opened, with what to do as its hint.

    error: what the operating system or pyserial has raised.
    """
    code = None
    if error.args:
        code = error.args[0]  # a number of errno
    description = str(error)  # on Windows only this says what the error is
    if code == errno.ENOENT or "FileNotFoundError" in description:
        return no_port(port)
    if code in (errno.EAGAIN, errno.EBUSY) or "PermissionError" in description:
        text = f"{port} is busy: another program has it open"
        return DeviceError(text, hint="end that program first")
    if code in (errno.EACCES, errno.EPERM):
        return DeviceError(f"you may not open {port}", hint=_permission_hint(port))
    if _scheme_of(port) in network.CLASSES:
        return network.open_error(port, error)
    has_no_speed = "ioctl" in description  # it was opened, and is no serial port
    if has_no_speed:
        hint = "name a device such as /dev/ttyACM0"
        return DeviceError(f"{port} is not a serial port", hint=hint)
    hint = "check its cable, and run 'tern board list'"
    return DeviceError(f"cannot open {port}: {_reason(error)}", hint=hint)


def _permission_hint(port: str) -> str:
    """Return what users can do to be allowed to open a port: on Unix, to join its group."""
    try:
        import grp  # Windows does not have it

        group = grp.getgrgid(os.stat(port).st_gid).gr_name
    except (ImportError, KeyError, OSError):
        return "ask for permission to use it"
    return f"join the group that may: sudo usermod -aG {group} $USER, then log in again"
