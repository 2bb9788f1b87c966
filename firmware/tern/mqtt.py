"""An MQTT 3.1.1 session (OASIS, 2014) for a device, at QoS 0 and 1.

Why not umqtt or mqtt_as: umqtt's reads block without a limit and it forgets what was not acknowledged; mqtt_as
needs asyncio and an allocation for each message. Here every wait has an end, all buffers are made once (a message
then costs at most 1 KiB of garbage), and a session outlives the connections that carry it.
"""

import struct
from array import array

from tern.compat import const, ticks_diff, ticks_ms
from tern.tcp import Lost

_CONNECT = const(0x10)
_CONNACK = const(0x20)
_PUBLISH = const(0x30)
_PUBACK = const(0x40)
_SUBSCRIBE = const(0x82)
_SUBACK = const(0x90)
_PINGREQ = const(0xC0)
_PINGRESP = const(0xD0)
_DISCONNECT = const(0xE0)
_DUP = const(8)
_QOS_1 = const(2)
_RETAIN = const(1)

_REFUSALS = (
    "",
    "protocol version",
    "client id",
    "server unavailable",
    "user name or password",
    "not authorised",
)
_TAIL = const(64)  # the end of a buffer, into which the rest of a packet that is too long is read


class MqttError(Exception):
    """The broker refused, or broke the protocol."""


class Session:
    """A session with a broker. Between `open` and the first Lost or MqttError it has a connection.

    connect: called without arguments for a fresh transport.Connection. largest: bytes of the longest packet that is
    taken; longer ones are acknowledged, dropped and counted. window: how many publications at QoS 1, of at most
    `slot` bytes each, are kept until they are acknowledged, to be sent again over the next connection; where more
    are under way the oldest is no longer kept. will: (topic, payload), retained, which the broker publishes once the
    device is gone.
    """

    def __init__(
        self, connect, client_id, user=None, password=None, keep_alive=60, clean=True, will=None,
        patience_ms=10000, largest=2688, window=4, slot=384,
    ):  # fmt: skip
        self._connect = connect
        self._hello = _connect_packet(client_id, user, password, keep_alive, clean, will)
        self._keep_alive_ms = 500 * keep_alive  # half of it
        self._patience_ms = patience_ms
        self._connection = None
        self._in = memoryview(bytearray(largest))
        self._have = self._need = self._body = self._skip = 0
        self._long = False
        self._small = memoryview(bytearray(4))
        self._slot = slot
        self._out = memoryview(bytearray(slot * (window + 1)))  # the last one for QoS 0
        self._window = window
        self._ids = array("H", (0 for _ in range(window)))  # 0: free
        self._lengths = array("H", (0 for _ in range(window)))
        self._since = array("i", (0 for _ in range(window)))  # when each was sent
        self._oldest = 0  # the slots are used in turn
        self._id = 0
        self._subscriptions = 0  # not acknowledged yet
        self._sent = self._heard = self._pinged = self._subscribed = 0
        self._ping = False
        self._owed = 0  # packet id of the caller's message, acknowledged once the caller is done with it
        self.topic = self.payload = self._in[:0]
        self.retained = False
        self.dropped = 0  # messages that were longer than `largest`
        self.opened = 0  # connections that the broker accepted

    @property
    def connected(self):
        """Whether there is a connection."""
        return self._connection is not None

    def open(self):
        """Connect, and send again what was not acknowledged. Return whether the broker has kept the session.

        Raises Lost, and MqttError where the broker refuses.
        """
        self.close()
        self._connection = self._connect()
        self.topic = self.payload = self._in[:0]
        self._have = self._owed = self._subscriptions = 0
        self._ping = False
        self._write(self._hello)
        start = self._heard = self._sent
        while not self._packet():
            left = self._patience_ms - ticks_diff(ticks_ms(), start)
            if left <= 0:
                raise Lost("the broker does not answer")
            self._connection.wait(left)
        if self._in[0] != _CONNACK or self._need != 4 or self._in[3] >= len(_REFUSALS):
            raise MqttError("not an MQTT 3.1.1 broker")
        if self._in[3]:
            raise MqttError("refused by the broker: " + _REFUSALS[self._in[3]])
        kept = bool(self._in[2])
        self._have = 0
        self.opened += 1
        for i in range(self._window):
            at = (self._oldest + i) % self._window
            if self._ids[at]:
                self._out[at * self._slot] |= _DUP
                self._send_slot(at)
        return kept

    def close(self):
        """Drop the connection, as a power cut would: the will is published."""
        if self._connection:
            self._connection.close()
            self._connection = None

    def disconnect(self):
        """Take leave of the broker: the will is not published."""
        self._bare(_DISCONNECT)
        self.close()

    # --- sending ----------------------------------------------------------------------------------------------------

    def publish(self, topic, payload, n, qos=0, retain=False):
        """Publish payload[:n] on `topic` (bytes). Without a connection, what has QoS 1 is sent over the next one.

        Raises Lost, and MqttError where there is no connection for QoS 0.
        """
        head = 2 + len(topic) + 2 * qos
        length = head + n
        if length > 16383 or 3 + (length if qos else head) > self._slot:
            raise ValueError("too long to publish")
        at = self._window
        if qos:
            if self.connected:
                self._drain()
            at = self._oldest
            self._oldest = (at + 1) % self._window
            self._ids[at] = self._next_id()
        out = self._out[at * self._slot : (at + 1) * self._slot]
        out[0] = _PUBLISH | (_QOS_1 if qos else 0) | (_RETAIN if retain else 0)
        to = 2
        out[1] = length & 127
        if length > 127:
            out[1] |= 128
            out[2] = length >> 7
            to = 3
        struct.pack_into(">H", out, to, len(topic))
        out[to + 2 : to + 2 + len(topic)] = topic
        if qos:
            struct.pack_into(">H", out, to + head - 2, self._ids[at])
            out[to + head : to + length] = memoryview(payload)[:n]
            self._lengths[at] = to + length
            if self.connected:
                self._send_slot(at)
        else:
            self._write(out[: to + head])
            if n:
                self._write(memoryview(payload)[:n])

    def subscribe(self, topic, qos=1):
        """Ask for the messages of `topic` (bytes). The answer is awaited by receive()."""
        n = len(topic)
        packet = bytearray(7 + n)
        struct.pack_into(">BBHH", packet, 0, _SUBSCRIBE, 5 + n, self._next_id(), n)
        packet[6 : 6 + n] = topic
        packet[6 + n] = qos
        self._subscriptions += 1
        self._subscribed = ticks_ms()
        self._write(packet)

    def waiting(self):
        """Return how many publications wait for their acknowledgement."""
        return sum(1 for number in self._ids if number)

    def _next_id(self):
        while True:
            self._id = self._id % 65535 + 1
            if not any(number == self._id for number in self._ids):
                return self._id

    def _send_slot(self, at):
        self._since[at] = ticks_ms()
        self._write(self._out[at * self._slot : at * self._slot + self._lengths[at]])

    def _bare(self, kind):
        self._small[0] = kind
        self._small[1] = 0
        self._write(self._small[:2])

    def _write(self, data):
        if not self._connection:
            raise MqttError("no connection")
        self._connection.write(data, self._patience_ms)
        self._sent = ticks_ms()

    # --- receiving --------------------------------------------------------------------------------------------------

    def receive(self, timeout_ms=-1):
        """Wait for a message (-1: for ever). Return whether there is one: `topic`, `payload` (memoryviews), `retained`.

        They stay until take() or the next call, and only that call acknowledges the message. This also keeps the
        session alive: call it at least twice in `keep_alive` seconds. Raises Lost and MqttError.
        """
        start = ticks_ms()
        self._release()
        if self._owed:
            self._acknowledge()
        while True:
            if self._packet():
                if self._handle():
                    return True
                continue
            wait = self._check()
            if timeout_ms >= 0:
                left = timeout_ms - ticks_diff(ticks_ms(), start)
                if left <= 0:
                    return False
                wait = min(wait, left)
            self._connection.wait(wait)

    def take(self, out):
        """Copy the payload into `out` (memoryview) and return its length, cut to that of `out`.

        While the caller works on it, publish() can then see acknowledgements.
        """
        n = min(len(self.payload), len(out))
        out[:n] = self.payload[:n]
        self._release()
        return n

    def _release(self):
        if self.topic:
            self.topic = self.payload = self._in[:0]
            self._have = 0

    def _acknowledge(self):
        struct.pack_into(">BBH", self._small, 0, _PUBACK, 2, self._owed)
        self._owed = 0
        self._write(self._small)

    def _drain(self):
        # Takes the acknowledgements that are there, as far as the next message, which stays for receive().
        while not self.topic and self._packet() and self._in[0] & 0xF0 != _PUBLISH:
            self._handle()

    def _packet(self):
        # Reads on, without waiting, to the end of a packet. Returns whether it is whole: _in[:_need], its body from
        # _body on; of one that is longer than _in the end is left out, and _long is set.
        if self._have == 0:
            self._need = 2
            self._body = self._skip = 0
            self._long = False
        while True:
            while self._have < self._need:
                n = self._connection.read_into(self._in[self._have : self._need])
                if not n:
                    return False
                self._have += n
                self._heard = ticks_ms()
            if self._body:
                break
            if not self._in[self._need - 1] & 128:
                self._measure()
            elif self._need < 5:
                self._need += 1
            else:
                raise MqttError("length of a packet malformed")
        while self._skip:
            n = self._connection.read_into(self._in[len(self._in) - min(self._skip, _TAIL) :])
            if not n:
                return False
            self._skip -= n
            self._heard = ticks_ms()
        return True

    def _measure(self):
        length = 0
        for i in range(self._need - 1, 0, -1):
            length = length << 7 | self._in[i] & 127
        self._body = self._need
        self._need += length
        if self._need > len(self._in):
            self._long = True
            self._skip = self._need - len(self._in)
            self._need = len(self._in)

    def _handle(self):
        # Returns whether the packet is a message for the caller.
        kind = self._in[0] & 0xF0
        if kind == _PUBLISH:
            return self._message()
        self._have = 0
        length = self._need - self._body
        if kind == _PUBACK and length == 2:
            number = self._in[2] << 8 | self._in[3]
            for i in range(self._window):
                if number == self._ids[i]:
                    self._ids[i] = 0
        elif kind == _SUBACK and length == 3 and self._subscriptions:
            self._subscriptions -= 1
            if self._in[4] > 2:
                raise MqttError("subscription refused by the broker")
        elif kind == _PINGRESP and not length:
            self._ping = False
        else:
            raise MqttError("unexpected packet 0x%02x" % self._in[0])
        return False

    def _message(self):
        qos = self._in[0] >> 1 & 3
        at = self._body + 2
        end = len(self._in) - _TAIL if self._long else self._need
        if at <= end:
            n = self._in[at - 2] << 8 | self._in[at - 1]
            start = at + n + 2 * qos
        if qos > 1 or at > end or start > end or not n:
            raise MqttError("message malformed")
        if qos:
            self._owed = self._in[at + n] << 8 | self._in[at + n + 1]
        if self._long:
            self.dropped += 1
            self._have = 0
            if qos:
                self._acknowledge()
            return False
        self.topic = self._in[at : at + n]
        self.payload = self._in[start : self._need]
        self.retained = bool(self._in[0] & _RETAIN)
        return True

    def _check(self):
        # Sees that the broker is there. Returns for how long, at most, to wait until this is called again.
        now = ticks_ms()
        patience = self._patience_ms
        late = self._have and ticks_diff(now, self._heard) >= patience
        late = late or (self._ping and ticks_diff(now, self._pinged) >= patience)
        late = late or (self._subscriptions and ticks_diff(now, self._subscribed) >= patience)
        for i in range(self._window):
            late = late or (self._ids[i] and ticks_diff(now, self._since[i]) >= patience)
        if late:
            raise Lost("the broker does not answer")
        if not self._keep_alive_ms:
            return patience
        idle = max(ticks_diff(now, self._sent), ticks_diff(now, self._heard))
        if idle >= self._keep_alive_ms and not self._ping:
            self._ping = True
            self._pinged = now
            self._bare(_PINGREQ)
            return patience
        return patience if self._ping else min(patience, self._keep_alive_ms - idle)


def _connect_packet(client_id, user, password, keep_alive, clean, will):
    flags = 2 if clean else 0
    fields = [client_id]
    if will:
        flags |= 0x2C  # retained, QoS 1
        fields += will
    if user is not None:
        flags |= 0x80
        fields.append(user)
        if password is not None:
            flags |= 0x40
            fields.append(password)
    body = b"\x00\x04MQTT\x04" + struct.pack(">BH", flags, keep_alive)
    for field in fields:
        body += struct.pack(">H", len(field)) + field
    n = len(body)
    length = bytes((n,)) if n < 128 else bytes((n & 127 | 128, n >> 7))
    return bytes((_CONNECT,)) + length + body
