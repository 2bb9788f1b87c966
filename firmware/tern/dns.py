"""Look-ups of IPv4 addresses that never wait (RFC 1035).

Names in .local are looked up by multicast (RFC 6762, 5.1).
"""

import os
import socket

try:
    import network
except ImportError:
    network = None

from tern import absence
from tern.compat import const, ticks_diff, ticks_ms
from tern.tcp import Lost

_PORT = const(53)
_TRIES = const(4)  # how often a query is sent,
_TRY_MS = const(2000)  # and how long each time an answer is waited for
_ANSWER = const(512)  # bytes of one over UDP, at most
_HEADER = const(12)  # bytes: id, flags, and four numbers of records


def query(host):
    """Return a Query for `host`, or None where nothing has to be looked up here.

    It is None if `host` is an address, or if the operating system, not MicroPython, has the
    network.
    """
    # An IPv6 address has colons, an IPv4 one digits and dots alone.
    if network and ":" not in host and host.strip("0123456789."):
        return Query(host, network.WLAN(network.STA_IF).ifconfig()[3])
    return None


class Query:
    """One look-up of the IPv4 address of a name; step() does it."""

    def __init__(self, name, server, port=_PORT):
        """Make the packet, and the socket that sends it.

        server: the address of the name server, which is not asked for a name in .local. port: the
        UDP port; tests use another one than 53. Raises Lost if `name` cannot be a host name.
        """
        self._name = name
        # Whether one server is asked, and nobody else may answer; a name in .local is asked of all.
        self._alone = not name.endswith(".local")
        # A random id; flags (recursion desired); one question, no other records. The question is
        # the labels of the name, each after its length, a zero, type A (1) and class IN (1).
        packet = os.urandom(2) + b"\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00"
        for label in name.encode().rstrip(b".").split(b"."):
            if not 0 < len(label) < 64:
                raise Lost("no host name: " + name, absence.NO_NAME)
            packet += bytes((len(label),)) + label
        self._packet = packet + b"\x00\x00\x01\x00\x01"
        if not self._alone:
            server = "224.0.0.251"
            port = 5353
        self._server = socket.getaddrinfo(server, port)[0][-1]
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self.close = self._socket.close
        self._left = _TRIES
        # When it was sent last: so long ago that it is due.
        self._since = ticks_ms() - _TRY_MS

    def step(self):
        """Send the query if it is due and look for an answer, without waiting.

        Returns the address, such as "10.0.0.7", or None before it is known. A query is sent again
        every two seconds. Raises Lost after four of them without an answer, or if the answer has no
        address.
        """
        now = ticks_ms()
        packet = self._packet
        try:
            if ticks_diff(now, self._since) >= _TRY_MS:
                if not self._left:
                    raise Lost("no name server tells " + self._name, absence.NAME_SILENT)
                self._left -= 1
                self._since = now
                self._socket.sendto(packet, self._server)
            answer, source = self._socket.recvfrom(_ANSWER)
        except Lost:
            raise
        except OSError:  # nothing yet, or it could not be sent: once more, later
            return None
        end = len(packet)
        # The answer to this query: from the server, unless all were asked; the same id, the same
        # question, and the bit that marks an answer.
        if (
            (self._alone and source != self._server)
            or answer[:2] + answer[_HEADER:end] != packet[:2] + packet[_HEADER:]
            or not answer[2] & 0x80
        ):
            return None
        address = _address(answer, end)
        if not address:
            raise Lost("no address of " + self._name, absence.NO_NAME)
        return address


def _address(answer, at):
    """Return the first IPv4 address among the records of `answer`, or None.

    at: where its records begin, behind the question. A record is a name, type and class (2 bytes
    each), time to live (4 bytes), length (2 bytes) and data. Records before the address may be
    other names of the host.
    """
    try:
        # Bytes 6 and 7 are the number of records.
        for _ in range(answer[6] << 8 | answer[7]):
            # Skip the name: labels, each after its length (below 64), up to a zero or a reference
            # of two bytes, the first of which is 192 or more.
            while 0 < answer[at] < 64:
                at += 1 + answer[at]
            at += 2 if answer[at] else 1
            end = at + 10 + (answer[at + 8] << 8 | answer[at + 9])
            # type A, class IN, four bytes of data
            if answer[at : at + 4] == b"\x00\x01\x00\x01" and end == at + 14:
                return "%d.%d.%d.%d" % tuple(answer[at + 10 : end])
            at = end
    except (IndexError, TypeError):  # it ends too early
        pass
    return None
