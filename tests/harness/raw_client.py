"""Clients that speak MQTT by hand: what a well-behaved library would not send."""

import socket
import ssl
import struct
import time

from tern.links import mqtt


class RawClient:
    """A client of the broker of `access` under any name and password; it sends what it is told to."""

    def __init__(self, access, user, password, client_id=None, timeout=5.0):
        self.flooded = 0
        context = ssl.create_default_context(cafile=access.authority)
        plain = socket.create_connection((access.host, access.port), timeout=timeout)
        self.socket = context.wrap_socket(plain, server_hostname=access.host)
        body = field(b"MQTT") + b"\x04\xc2" + struct.pack(">H", 60)
        body += field((client_id or user).encode()) + field(user.encode()) + field(password.encode())
        self.socket.sendall(b"\x10" + length(len(body)) + body)
        self.code = self._exactly(4)[3]

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
        while time.monotonic() < end:
            self.socket.sendall(many)
            self.flooded += 500
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
        first = self._exactly(1)[0]
        n = shift = 0
        while True:
            byte = self._exactly(1)[0]
            n |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return first & 0xF0, self._exactly(n)

    def messages(self, seconds, count=None):
        """All (topic, payload) that come within so many seconds, or until `count` of them have come."""
        found = []
        end = time.monotonic() + seconds
        while len(found) != count and (left := end - time.monotonic()) > 0:
            self.socket.settimeout(left)
            try:
                kind, body = self.receive()
            except TimeoutError:
                break
            if kind == 0x30:
                n = struct.unpack(">H", body[:2])[0]
                found.append((body[2 : 2 + n].decode(), body[2 + n :]))
        self.socket.settimeout(5.0)
        return found

    def _exactly(self, n):
        data = b""
        while len(data) < n:
            part = self.socket.recv(n - len(data))
            if not part:
                raise ConnectionError("closed by the broker")
            data += part
        return data

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


def wait_for(condition, seconds=20.0):
    """Wait until `condition()` is true, and return what it returned."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)
    return found
