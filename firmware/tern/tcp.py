"""A TCP connection, with or without TLS, for MicroPython and CPython. Only wait() waits.

It uses MicroPython's C module `tls`, which is there even where its wrapper `ssl` is not.
"""

import errno
import select
import socket

from tern import absence, compat
from tern.compat import MICROPYTHON, const, sleep_ms

try:
    if MICROPYTHON:
        import tls
    else:
        import ssl as tls
except ImportError:
    tls = None

_SLICE_MS = const(2000)  # of a wait, for the watchdog
_STEP_MS = const(10)  # between two steps of connecting
_TLS = -1000  # numbers of errors below this are those of Mbed TLS
_BROKEN = select.POLLERR | select.POLLHUP
# The exceptions by which CPython says that a call would have to wait; MicroPython returns None.
_WAIT = ()
if not MICROPYTHON:
    _WAIT = (
        (BlockingIOError, tls.SSLWantReadError, tls.SSLWantWriteError) if tls else BlockingIOError
    )


class Lost(OSError):
    """The connection could not be made, was closed or reset, or took too long.

    reason: one of tern.absence.
    """

    def __init__(self, text, reason=absence.LOST):
        super().__init__(text)
        self.reason = reason


def client_context(authority):
    """Return a TLS context that trusts only the certificate `authority` (bytes, DER).

    It checks the server's name. Raises Lost without TLS.
    """
    if tls is None:
        raise Lost("no TLS", absence.FAULT)
    context = tls.SSLContext(tls.PROTOCOL_TLS_CLIENT)
    context.verify_mode = tls.CERT_REQUIRED  # type: ignore[attr-defined]
    # on CPython it is the third argument, cadata
    context.load_verify_locations(*(() if MICROPYTHON else (None, None)), authority)
    return context


class Connection:
    """One connection to a host, without waiting: each write() goes a step further to make it.

    Every method raises Lost once the connection is of no more use.
    """

    def __init__(self, host, port, context=None, name=None, query=None):
        """Prepare to connect to any address of `host`.

        context: for TLS, else None; then `name` is the one that the server's certificate must have.
        query: a dns.Query for `host`; None to let the interpreter look it up.
        """
        self.host = host  # its address, once that has been asked for
        self._port = port
        self._context = context
        self._name = name
        self._query = query
        # The addresses that are still to be tried; the socket under way; how to read, once it is
        # connected.
        self._addresses = self._socket = self._read = None
        self._reason = absence.SILENT  # why the last address did not serve

    def _step(self):
        """Go on to connect; return whether it is done. Raises Lost."""
        if self._query:
            address = self._query.step()
            if not address:
                return False
            self._query.close()
            self._query = None
            self.host = address
        if not self._socket and not self._try_next():
            return False
        # A connected socket can be written to; one that failed has an error instead.
        for _, event in self._poll.poll(0):
            if event & select.POLLOUT and not event & _BROKEN:
                self._begin(self._socket)
                return True
            self._give_up()
        return False

    def _try_next(self):
        """Begin to connect to the next address of the host; return whether a socket was free.

        Raises Lost after the last address.
        """
        try:  # that of an address asks nobody; that of a name waits for the answer
            if self._addresses is None:
                self._addresses = socket.getaddrinfo(self.host, self._port, 0, socket.SOCK_STREAM)
        except OSError:
            raise Lost("no address of " + self.host, absence.NO_NAME)
        if not self._addresses:
            raise Lost("cannot connect to %s port %d" % (self.host, self._port), self._reason)
        try:
            line = socket.socket(*self._addresses[0][:3])
        except OSError:  # while the last ones are closing, lwIP has no other
            return False
        self._socket = line
        address = self._addresses.pop(0)[4]
        line.setblocking(False)
        self._poll = select.poll()
        self._poll.register(line, select.POLLOUT)
        try:
            line.connect(address)
        except OSError:  # in progress, or refused: the poll tells
            pass
        return True

    def _give_up(self):
        """Close the socket of an address that does not serve, and remember why."""
        try:
            self._socket.recv(1)
        except OSError as error:
            if error.errno in (errno.ECONNREFUSED, errno.ECONNRESET):
                self._reason = absence.REFUSED
        self._socket.close()
        self._socket = None

    def _begin(self, line):
        """Begin to read and write on the connected socket `line`, by TLS with a context."""
        if self._context:  # the handshake is done by the first reads and writes
            try:
                line = self._context.wrap_socket(
                    line, server_hostname=self._name, do_handshake_on_connect=False
                )
            except (OSError, ValueError) as error:
                raise Lost("no TLS: %s" % error, absence.FAULT)
        self._socket = line
        self._poll = select.poll()
        self._poll.register(line, select.POLLIN)
        self._send = line.write if MICROPYTHON else line.send
        self._read = line.readinto if MICROPYTHON else line.recv_into

    def read_into(self, view):
        """Read into `view` what is there; return how many bytes, 0 where there is none now."""
        if not self._read:
            return 0
        n = self._try(self._read, view)
        if n == 0:
            raise Lost("connection closed", absence.CLOSED)
        return n or 0

    def write(self, view):
        """Write what the socket takes of `view` now; return how many bytes.

        Offer what is left of the same bytes again.
        """
        if not self._read and not self._step():
            return 0
        return self._try(self._send, view) or 0

    def _try(self, act, view):
        """Return act(view), or None where it would have to wait. Raises Lost.

        act: the function of the socket that reads or writes.
        """
        try:
            return act(view)
        except _WAIT:
            return None
        except (OSError, ValueError) as error:
            # ValueError: MicroPython does not accept the certificate.
            text = str(error).strip()
            raise Lost("connection lost: " + text, _why(text, getattr(error, "errno", None) or 0))

    def wait(self, timeout_ms):
        """Wait until there is something to read, or the end of it.

        It waits `timeout_ms` or 2 seconds at most.
        """
        compat.feed()
        if self._read:
            self._poll.poll(min(timeout_ms, _SLICE_MS))
        else:
            sleep_ms(min(timeout_ms, _STEP_MS))

    def close(self):
        """Close what there is of the connection."""
        for part in (self._query, self._socket):
            if part:
                try:
                    part.close()
                except OSError:
                    pass


def _why(text, number):
    """Return why the other end, or Mbed TLS, ended a connection: a reason of tern.absence.

    text, number: of the error. The reason tells most before a broker has accepted the connection.
    """
    # "certificate", with a capital letter or not. Mbed TLS lists all that is wrong with it: only
    # its dates, or whom it is from, or for which name it is.
    if "ertificate" in text:
        dates = "validity" in text and "trusted" not in text and "Name" not in text
        return absence.DATES if dates else absence.CERTIFICATE
    if "ALLOC" in text or number == errno.ENOMEM:
        return absence.FAULT
    # Any error of Mbed TLS but its CONN_EOF, -29312: what answered is no broker with TLS.
    return absence.NO_BROKER if -29312 != number < _TLS else absence.CLOSED
