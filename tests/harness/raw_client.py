"""Clients that speak MQTT by hand: what a well-behaved library would not send."""

import socket
import ssl
import struct
import time

from tern.links import mqtt


class RawClient:
    """A client of the broker of `access` under any name and password; it sends what it is told to."""

    def __init__(self, access, user, password, client_id=None, timeout=60.0, will=None):
        """will: (topic, payload), retained, which the broker publishes once this client is gone."""
        self.flooded = 0
        self._timeout = timeout
        self._data = b""  # what has come of the next packets
        context = ssl.create_default_context(cafile=access.authority)
        plain = socket.create_connection((access.host, access.port), timeout=timeout)
        try:
            self.socket = context.wrap_socket(plain, server_hostname=access.host)
        except BaseException:
            plain.close()
            raise
        flags = 0xC2 | (0x2C if will else 0)
        body = field(b"MQTT") + struct.pack(">BBH", 4, flags, 600)  # seconds until it must say something
        body += field((client_id or user).encode())
        body += field(will[0].encode()) + field(will[1]) if will else b""
        body += field(user.encode()) + field(password.encode())
        try:
            self.socket.sendall(b"\x10" + length(len(body)) + body)
            self.code = self.receive()[1][1]
        except BaseException:
            self.close()
            raise

    def publish(self, topic, payload, retain=False):
        """At QoS 1; returns once the broker has acknowledged it."""
        body = field(topic.encode()) + b"\x00\x01" + payload
        self.socket.sendall(bytes((0x32 | retain,)) + length(len(body)) + body)
        while True:
            kind, packet = self.receive()
            if kind == 0x40:
                return packet

    def flood(self, topic, payload, seconds):
        """At QoS 0, as fast as can be; returns how many. `flooded` counts them all, also where the broker hangs up."""
        body = field(topic.encode()) + payload
        many = (b"\x30" + length(len(body)) + body) * 500
        end = time.monotonic() + seconds
        before = self.flooded
        while True:
            self.socket.sendall(many)
            self.flooded += 500
            if time.monotonic() >= end:
                return self.flooded - before

    def subscribe(self, topic):
        """Returns the broker's answer: 0 to 2 granted, 128 refused."""
        self.socket.sendall(b"\x82" + length(5 + len(topic)) + b"\x00\x02" + field(topic.encode()) + b"\x01")
        while True:
            kind, packet = self.receive()
            if kind == 0x90:
                return packet[2]

    def receive(self):
        """The next packet: (type, body)."""
        while not (packet := self._packet()):  # a time-out between two of its bytes loses none of them
            part = self.socket.recv(4096)
            if not part:
                raise ConnectionError("closed by the broker")
            self._data += part
        return packet

    def messages(self, seconds, count=None):
        """All (topic, payload) that come within so many seconds, or until `count` of them have come.

        What has come by then is taken, however busy this machine was.
        """
        found = []
        end = time.monotonic() + seconds
        while len(found) != count:
            self.socket.settimeout(max(end - time.monotonic(), 0.01))
            try:
                kind, body = self.receive()
            except TimeoutError:
                break
            if kind == 0x30:
                n = struct.unpack(">H", body[:2])[0]
                found.append((body[2 : 2 + n].decode(), body[2 + n :]))
        self.socket.settimeout(self._timeout)
        return found

    def _packet(self):
        # Takes the next packet out of _data; None where it is not whole.
        n = 0
        for at, byte in enumerate(self._data[1:5], 1):
            n |= (byte & 127) << 7 * (at - 1)
            if byte < 128:
                start = at + 1
                if len(self._data) < start + n:
                    return None
                packet = self._data[0] & 0xF0, self._data[start : start + n]
                self._data = self._data[start + n :]
                return packet
        return None

    def close(self):
        self.socket.close()


def field(data):
    return struct.pack(">H", len(data)) + data


def length(n):
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


def board_client(access, keys, device, **options):
    """The client that a thief of this device's password can make."""
    return RawClient(access, mqtt.name(device), mqtt.password(keys[device]), **options)


def wait_for(condition, seconds=60.0):
    """Wait until `condition()` is true, and return what it returned."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)
    return found
