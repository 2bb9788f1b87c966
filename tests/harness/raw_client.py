"""MQTT clients made by hand, which send packets that a well-behaved library would not."""

import socket
import ssl
import struct
import time
from contextlib import closing

from tern.links import mqtt


class RawClient:
    """A client of the broker of `access`, under any name and password."""

    def __init__(self, access, user, password, client_id=None, timeout=60.0, will=None, clean=True):
        """will: (topic, payload), retained, which the broker publishes once this client is gone.
        clean: its session.
        """
        self.flooded, self._timeout = 0, timeout
        self._early = []  # messages that came before the answer to a request
        self._data = b""  # received bytes of the next packets
        context = ssl.create_default_context(cafile=access.authority)
        plain = socket.create_connection((access.host, access.port), timeout=timeout)
        try:
            self.socket = context.wrap_socket(plain, server_hostname=access.host)
        except BaseException:
            plain.close()
            raise
        flags = 0xC0 | 2 * clean | (0x2C if will else 0)
        body = field(b"MQTT") + struct.pack(">BBH", 4, flags, 600)  # keep-alive in seconds
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
        """Publish at QoS 1; return once the broker has acknowledged it."""
        body = field(topic.encode()) + b"\x00\x01" + payload
        self.socket.sendall(bytes((0x32 | retain,)) + length(len(body)) + body)
        return self._answer(0x40)

    def flood(self, topic, payload, seconds):
        """Publish at QoS 0, as fast as possible; return how often.

        `flooded` counts on when the broker hangs up.
        """
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
        """Return the broker's answer: 0 to 2 granted, 128 refused."""
        self.socket.sendall(
            b"\x82" + length(5 + len(topic)) + b"\x00\x02" + field(topic.encode()) + b"\x01"
        )
        return self._answer(0x90)[2]

    def arrived(self):
        """All (topic, payload) that the broker has for this client by now, retained ones among
        them.

        Mosquitto answers a ping after it has sent them, so this needs no waiting.
        """
        self.socket.sendall(b"\xc0\x00")
        self._answer(0xD0)
        messages, self._early = self._early, []
        return messages

    def _answer(self, wanted):
        # The body of the next packet of this type. Messages before it are kept for `messages` and
        # `arrived`.
        while True:
            kind, body = self.receive()
            if kind == wanted:
                return body
            if kind == 0x30:
                self._early.append(_message(body))

    def receive(self):
        """The next packet: (type, body)."""
        while not (packet := self._packet()):  # a time-out between two of its bytes loses neither
            part = self.socket.recv(4096)
            if not part:
                raise ConnectionError("closed by the broker")
            self._data += part
        return packet

    def messages(self, seconds, count=None):
        """All (topic, payload) received within this many seconds, or until there are `count`.

        On a busy machine, too, all messages that have arrived by then are returned.
        """
        messages = self._early[:count]
        del self._early[:count]
        end = time.monotonic() + seconds
        while len(messages) != count:
            self.socket.settimeout(max(end - time.monotonic(), 0.01))
            try:
                kind, body = self.receive()
            except TimeoutError:
                break
            if kind == 0x30:
                messages.append(_message(body))
        self.socket.settimeout(self._timeout)
        return messages

    def _packet(self):
        # Takes the next packet out of _data; None if it is not whole.
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


def retained(access, topic="#"):
    """The retained messages of these topics that the user of `access` may read: topic -> payload."""
    with closing(RawClient(access, access.user, access.password)) as client:
        client.subscribe(topic)
        # At QoS 1 each payload begins with the number of its packet.
        return {topic: payload[2:] for topic, payload in client.arrived()}


def _message(body):
    n = struct.unpack(">H", body[:2])[0]
    return body[2 : 2 + n].decode(), body[2 + n :]


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
    """A RawClient with the name and the password of a device."""
    return RawClient(access, mqtt.name(device), mqtt.password(keys[device]), **options)
