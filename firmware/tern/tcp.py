"""A TCP connection, with TLS or without, on which no call ever blocks for longer than it was told to.

The same on MicroPython and CPython. MicroPython's `ssl` wraps the C module `tls`, which is there even where `ssl`
is not, so that is what is used.
"""

import select
import socket

from tern import compat
from tern.compat import MICROPYTHON, const, ticks_diff, ticks_ms

try:
    import tls
except ImportError:
    try:
        import ssl as tls  # type: ignore[no-redef]
    except ImportError:
        tls = None

_SLICE_MS = const(2000)  # of a wait, for the watchdog
_BROKEN = select.POLLERR | select.POLLHUP
# How CPython says that it would have to wait; MicroPython returns None.
_WAIT_READ = _WAIT_WRITE = ()
if not MICROPYTHON:
    _WAIT_READ = (BlockingIOError, tls.SSLWantReadError) if tls else BlockingIOError
    _WAIT_WRITE = (BlockingIOError, tls.SSLWantWriteError) if tls else BlockingIOError


class Lost(OSError):
    """The connection could not be made, was closed or reset, or took too long."""


def client_context(authority):
    """Return a TLS context that trusts only the certificate `authority` (bytes, DER) and checks the server's name."""
    if tls is None:
        raise Lost("this interpreter has no TLS")
    context = tls.SSLContext(tls.PROTOCOL_TLS_CLIENT)
    context.verify_mode = tls.CERT_REQUIRED  # type: ignore[attr-defined]
    if MICROPYTHON:
        context.load_verify_locations(authority)
    else:
        context.load_verify_locations(cadata=authority)
    return context


def _wait(poll, timeout_ms):
    compat.feed()
    return poll.poll(min(timeout_ms, _SLICE_MS))


class Connection:
    """One connection. Raises Lost, from every method, once it is of no more use."""

    def __init__(self, host, port, timeout_ms, context=None, name=None):
        """Connect to `host`, any of its addresses, within `timeout_ms`. `context`: TLS, with the server's `name`."""
        self._socket = None
        start = ticks_ms()
        compat.feed()
        try:
            addresses = socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM)
        except OSError as error:
            raise Lost("no address of %s: %s" % (host, error))
        for family, kind, protocol, _, address in addresses:
            left = timeout_ms - ticks_diff(ticks_ms(), start)
            if left > 0 and self._connect(socket.socket(family, kind, protocol), address, left):
                break
        if self._socket is None:
            raise Lost("cannot connect to %s port %d" % (host, port))
        if context:
            plain = self._socket
            try:  # the handshake is done by the first reads and writes
                self._socket = context.wrap_socket(plain, server_hostname=name, do_handshake_on_connect=False)
            except (OSError, ValueError, MemoryError) as error:
                plain.close()
                raise Lost("no TLS: %s" % error)
        if MICROPYTHON:
            self._read = self._socket.readinto
            self._send = self._socket.write
        else:
            self._read = self._socket.recv_into
            self._send = self._socket.send
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)

    def _connect(self, plain, address, timeout_ms):
        plain.setblocking(False)
        try:
            plain.connect(address)
        except OSError:  # in progress, or refused: the poll tells
            pass
        poll = select.poll()
        poll.register(plain, select.POLLOUT)
        while timeout_ms > 0:
            for _, event in _wait(poll, timeout_ms):
                if event & select.POLLOUT and not event & _BROKEN:
                    self._socket = plain
                    return True
                timeout_ms = 0
            timeout_ms -= _SLICE_MS
        plain.close()
        return False

    def read_into(self, view):
        """Read into `view` what is there, at most all of it; return how many bytes, 0 where there is none now."""
        try:
            n = self._read(view)
        except _WAIT_READ:
            return 0
        except _WAIT_WRITE:
            return 0
        except (OSError, ValueError) as error:  # ValueError: a certificate that MicroPython does not accept
            raise Lost("connection lost: %s" % str(error).strip())
        if n == 0:
            raise Lost("connection closed")
        return n or 0

    def write(self, view, timeout_ms):
        """Write all of `view`; where the other end does not take it within `timeout_ms`, the connection is lost."""
        at = 0
        start = ticks_ms()
        while True:
            event = select.POLLOUT
            try:
                n = self._send(view[at:])
            except _WAIT_WRITE:
                n = 0
            except _WAIT_READ:  # TLS, in its handshake
                n = 0
                event = select.POLLIN
            except (OSError, ValueError) as error:
                raise Lost("connection lost: %s" % str(error).strip())
            at += n or 0
            if at == len(view):
                break
            left = timeout_ms - ticks_diff(ticks_ms(), start)
            if left <= 0:
                raise Lost("nothing can be sent")
            if not n:
                self._poll.modify(self._socket, event)
                _wait(self._poll, left)
                self._poll.modify(self._socket, select.POLLIN)

    def wait(self, timeout_ms):
        """Wait until there is something to read, or the end of it, or `timeout_ms`, or 2 seconds, have passed."""
        _wait(self._poll, timeout_ms)

    def close(self):
        """Close the connection, at once."""
        try:
            self._socket.close()
        except OSError:
            pass
