"""An MQTT 3.1.1 session (OASIS, 2014) for a device, at QoS 1.

umqtt's reads block without a limit and it forgets unacknowledged messages; mqtt_as needs asyncio
and allocates for each message. Here only wait() waits, a message costs at most 1 KiB of garbage,
and a session outlives its connections.
"""

import struct
from array import array

from tern import absence
from tern.compat import const, sleep_ms, ticks_diff, ticks_ms
from tern.tcp import Lost

# The first byte of a packet: its type in the high four bits, and flags (MQTT 3.1.1, 2.2).
_CONNECT = const(0x10)
_CONNACK = const(0x20)
_PUBLISH = const(0x30)
_PUBACK = const(0x40)
_SUBSCRIBE = const(0x82)
_SUBACK = const(0x90)
_PINGRESP = const(0xD0)
_PINGREQ = b"\xc0\x00"
_DISCONNECT = b"\xe0\x00"
# Flags of a PUBLISH.
_DUP = const(8)
_QOS_1 = const(2)
_RETAIN = const(1)

_TAIL = const(64)  # the end of a buffer, into which the rest of a packet that is too long is read
_PACKETS = const(8)  # in one step
_STEP_MS = const(10)  # between two steps while something cannot be written
_PAUSE_MS = const(100)  # and without a connection
_IDS = const(65000)  # of publications; above them, those of subscriptions


class Session:
    """A session with a broker, connected from `open` until a method raises Lost.

    Publications of QoS 1 are kept until the broker acknowledges them, and are sent again over the
    next connection. topic, payload: memoryviews of the message that receive() has found. connected:
    whether a broker has accepted, and has not been lost.
    """

    def __init__(
        self,
        connect,
        client_id,
        user,
        password,
        keep_alive=60,
        clean=True,
        will=None,
        patience_ms=10000,
        largest=2688,
        window=4,
        slot=384,
    ):
        """Allocate all buffers; open() connects.

        connect: a function that returns a fresh tcp.Connection, or None while there is none.
        client_id, user, password: bytes. keep_alive: the longest time without a packet, in seconds.
        clean: whether the broker forgets an earlier session. will: (topic, payload), which the
        broker publishes, retained, when the connection breaks; or None. patience_ms: how long the
        broker may take for anything before Lost. largest: bytes of a packet from the broker; longer
        ones are acknowledged and dropped. window: how many publications are kept until they are
        acknowledged; of more, the oldest is dropped. slot: bytes of each, at most.
        """
        self._connect = connect
        self._greeting = _connect_packet(client_id, user, password, keep_alive, clean, will)
        self._topics = 0  # that are subscribed to
        self._keep_alive_ms = 500 * keep_alive  # half of it
        self._patience_ms = patience_ms
        self._connection = None

        # The packet that is read. Bytes of it in the buffer, and how many must be there next; where
        # its body begins, 0 while its length is unknown; bytes of its end that do not fit.
        self._in = memoryview(bytearray(largest))
        self._have = self._need = self._body = self._skip = 0
        self._long = False  # whether there are such bytes

        # The publications: a ring of slots in one buffer, which are used in turn. Of each slot the
        # packet id (0: free), the length, and when it was published.
        self._small = memoryview(bytearray(4))  # for a PUBACK
        self._slot = slot
        self._out = memoryview(bytearray(slot * window))
        self._window = window
        self._ids = array("H", bytes(2 * window))
        self._lengths = array("H", self._ids)
        self._since = array("i", self._ids)
        self._oldest = 0  # the slot that is used next
        self._unsent = 0  # how many slots before it are still to be sent, unless they are free
        self._id = 0  # the last packet id

        self._going = b""  # what is left of the packet that is being written
        self._subscriptions = 0  # not acknowledged yet
        # Times (ms): when a broker accepted; of the last byte sent; of the last one received; of
        # the last PINGREQ.
        self._began = self._sent = self._heard = self._pinged = 0
        self._ping = self._ping_due = False  # whether one is unanswered; whether one is to be sent
        # The packet id of the caller's message, to be acknowledged once the caller is done with it,
        # and the one to acknowledge now; 0 for none.
        self._owed = 0
        self._ack = 0
        self.topic = self.payload = self._in[:0]
        self.connected = False

    def open(self):
        """Go on to connect, without waiting; return whether the broker has accepted.

        An accepted connection sends unacknowledged messages again. Raises Lost.
        """
        now = ticks_ms()
        if not self._connection:
            self._connection = self._connect()
            if not self._connection:
                return False
            # Begin with CONNECT and the SUBSCRIBEs; forget what was read from the last connection.
            self._release()
            self._have = self._owed = self._ack = 0
            self._ping = self._ping_due = False
            self._subscriptions = self._topics
            self._going = self._greeting
            self._sent = self._heard = now

        self._pump()
        if not self._packet():
            if ticks_diff(now, self._sent) >= self._patience_ms:
                raise Lost("the broker does not answer", absence.SILENT)
            return False
        # A CONNACK has four bytes, the last of which says whether the broker accepts.
        if self._in[0] != _CONNACK or self._need != 4:
            raise Lost("not an MQTT 3.1.1 broker", absence.NO_BROKER)
        if self._in[3]:
            # 4: bad user name or password, 5: not authorised (3.2.2.3)
            reason = absence.CREDENTIALS if self._in[3] in (4, 5) else absence.DECLINED
            raise Lost("refused by the broker: code %d" % self._in[3], reason)
        self._have = 0
        self.connected = True
        self._began = now
        # Send all unacknowledged publications again, marked as duplicates.
        self._unsent = self._window
        for at in range(self._window):
            self._out[at * self._slot] |= _DUP
            self._since[at] = now
        self._pump()
        return True

    def close(self):
        """Drop the connection, as a power cut would: the will is published."""
        self.connected = False
        if self._connection:
            self._connection.close()
            self._connection = None

    def disconnect(self):
        """Disconnect from the broker.

        It publishes the will only if a packet that was begun cannot be completed.
        """
        try:
            if self.connected:
                self._pump()
                if not self._going:
                    self._connection.write(_DISCONNECT)
        except Lost:
            pass
        self.close()

    def wait(self, timeout_ms):
        """Wait until there is something to read or to do, at most `timeout_ms`."""
        if self._going:
            timeout_ms = min(timeout_ms, _STEP_MS)
        if self._connection:
            self._connection.wait(timeout_ms)
        else:
            sleep_ms(min(timeout_ms, _PAUSE_MS))

    def publish(self, topic, payload, n, retain=False):
        """Publish payload[:n] on `topic` (bytes) as far as the connection takes it; the rest later.

        It takes the place of the oldest publication. retain: whether the broker keeps it for later
        subscribers. Raises Lost if the oldest one is being written, and ValueError if the new one
        is too long for a slot.
        """
        # The remaining length of a packet counts the topic with its length, the packet id, and the
        # payload. In front of it are the type and up to two bytes of length.
        head = 4 + len(topic)
        length = head + n
        if 3 + length > self._slot:
            raise ValueError("too long to publish")

        slot = self._oldest
        if self.connected:
            self._drain()  # acknowledgements may free the slot
        # What is being written may be the oldest publication, whose place is needed. It cannot be
        # completed then, and half a packet breaks the connection.
        stuck = (
            self.connected and self._going and self._unsent >= self._window - 1 and self._ids[slot]
        )
        if stuck:
            self.close()
        self._oldest = (slot + 1) % self._window
        self._ids[slot] = self._next_id()
        self._since[slot] = ticks_ms()

        out = self._out[slot * self._slot : (slot + 1) * self._slot]
        out[0] = _PUBLISH | _QOS_1 | (_RETAIN if retain else 0)
        # The remaining length, 7 bits to a byte: one byte, or two.
        header_bytes = 2
        out[1] = length & 127
        if length > 127:
            out[1] |= 128
            out[2] = length >> 7
            header_bytes = 3
        struct.pack_into(">H", out, header_bytes, len(topic))
        out[header_bytes + 2 : header_bytes + 2 + len(topic)] = topic
        struct.pack_into(">H", out, header_bytes + head - 2, self._ids[slot])
        out[header_bytes + head : header_bytes + length] = memoryview(payload)[:n]
        self._lengths[slot] = header_bytes + length
        if stuck:
            raise Lost("nothing can be sent")
        if self.connected:
            self._unsent = min(self._unsent + 1, self._window)
            self._pump()

    def subscribe(self, topic):
        """Subscribe to `topic` (bytes) with each connection that is opened from now on.

        SUBSCRIBE follows CONNECT at once, without waiting for its answer (3.1.4).
        """
        n = len(topic)
        # Packet ids count down from 65535, above those of publications; QoS 1.
        packet = bytearray(7 + n)
        struct.pack_into(">BBHH", packet, 0, _SUBSCRIBE, 5 + n, 0xFFFF - self._topics, n)
        packet[6 : 6 + n] = topic
        packet[6 + n] = 1
        self._topics += 1
        self._greeting += packet

    def waiting(self):
        """Return a number above 0 if packets are still to be sent or acknowledged, else 0."""
        return sum(map(bool, self._ids)) or bool(self._going or self._owed or self._ack)

    def _next_id(self):
        """Return a packet id that no unacknowledged publication has."""
        while True:
            self._id = self._id % _IDS + 1
            if self._id not in tuple(self._ids):
                return self._id

    def _pump(self):
        """Write what waits, packet by packet, as far as the connection takes it.

        What is left over of a packet is a view of the very same bytes, as TLS wants.
        """
        while self._going or self._choose():
            n = self._connection.write(self._going)
            if not n:
                return
            self._going = self._going[n:]
            self._sent = ticks_ms()

    def _choose(self):
        """Choose what is written next; return whether there is something.

        A publication goes before the acknowledgement of a message, so that the answer to a question
        is on its way before the question is acknowledged.
        """
        while self._unsent:
            at = (self._oldest - self._unsent) % self._window
            self._unsent -= 1
            if self._ids[at]:
                start = at * self._slot
                self._going = self._out[start : start + self._lengths[at]]  # type: ignore[assignment]
                break
        else:
            if self._ack:
                struct.pack_into(">BBH", self._small, 0, _PUBACK, 2, self._ack)
                self._ack = 0
                self._going = self._small  # type: ignore[assignment]
            elif self._ping_due:
                self._ping_due = False
                self._going = _PINGREQ
            else:
                return False
        self._sent = ticks_ms()
        return True

    def receive(self):
        """Read and write without waiting; return whether there is a message.

        `topic` and `payload` are then memoryviews of it. They stay until take() or the next call,
        which alone acknowledges the message. This also keeps the session alive: call it at least
        twice in `keep_alive` seconds. Raises Lost.
        """
        self._release()
        if self._owed:
            self._ack = self._owed
            self._owed = 0
        for _ in range(_PACKETS):
            self._pump()
            if self._ack or not self._packet():
                break
            if self._handle():
                return True
        self._check()
        return False

    def take(self, out):
        """Copy the payload, cut to fit, into `out` (memoryview); return its length.

        The buffer is then free, so that publish() can read on.
        """
        n = min(len(self.payload), len(out))
        out[:n] = self.payload[:n]
        self._release()
        return n

    def _release(self):
        """Free the buffer of the last message."""
        if self.topic:
            self.topic = self.payload = self._in[:0]
            self._have = 0

    def _drain(self):
        """Take the acknowledgements that have come, up to the next message, which receive() takes.

        Each frees the slot of a publication.
        """
        for _ in range(self._window):
            if self.topic or not self._packet() or self._in[0] & 0xF0 == _PUBLISH:
                return
            self._handle()

    def _packet(self):
        """Read on without waiting; return whether a packet is whole.

        Then it is _in[:_need], its body begins at _body, and _long says whether its end did not
        fit. First the type and the length are read, byte by byte, then the rest.
        """
        if self._have == 0:  # begin another one: type and first byte of the length
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
            if self._body:  # the length was known, and all is there
                break
            # The length has 1 to 4 bytes of 7 bits each; all but the last have their highest bit
            # set.
            if not self._in[self._need - 1] & 128:
                self._body = self._need
                for i in range(1, self._body):
                    self._need += (self._in[i] & 127) << 7 * (i - 1)
                # What does not fit the buffer is read into its end, and forgotten.
                self._skip = max(0, self._need - len(self._in))
                self._need -= self._skip
                self._long = self._skip > 0
            elif self._need < 5:
                self._need += 1
            else:
                raise Lost("malformed length", absence.NO_BROKER)
        if self._skip:  # a piece of it in each call, so that none takes long
            n = self._connection.read_into(self._in[len(self._in) - min(self._skip, _TAIL) :])
            if n:
                self._skip -= n
                self._heard = ticks_ms()
        return not self._skip

    def _handle(self):
        """Handle the packet in the buffer; return whether it is a message for the caller.

        Raises Lost if it makes no sense here.
        """
        kind = self._in[0] & 0xF0
        if kind == _PUBLISH:
            return self._message()
        self._have = 0
        length = self._need - self._body
        if kind == _PUBACK and length == 2:
            packet_id = self._in[2] << 8 | self._in[3]
            for i in range(self._window):
                if packet_id == self._ids[i]:
                    self._ids[i] = 0
        elif kind == _SUBACK and length == 3 and self._subscriptions:
            self._subscriptions -= 1
            # a return code above the highest QoS: refused
            if self._in[4] > 2:
                raise Lost("subscription refused", absence.DECLINED)
        elif kind == _PINGRESP and not length:
            self._ping = False
        else:
            raise Lost("unexpected packet 0x%02x" % self._in[0], absence.NO_BROKER)
        return False

    def _message(self):
        """Take the PUBLISH in the buffer; return whether it is a message for the caller.

        One that did not fit is acknowledged and dropped. Raises Lost if it is malformed.
        """
        # The body: length of the topic (2 bytes), topic, packet id (2 bytes, with QoS 1), payload.
        qos = self._in[0] >> 1 & 3
        topic_at = self._body + 2
        end = len(self._in) - _TAIL if self._long else self._need
        if topic_at <= end:
            topic_bytes = self._in[topic_at - 2] << 8 | self._in[topic_at - 1]
            start = topic_at + topic_bytes + 2 * qos
        if qos > 1 or topic_at > end or start > end or not topic_bytes:
            raise Lost("message malformed", absence.NO_BROKER)
        packet_id = (
            self._in[topic_at + topic_bytes] << 8 | self._in[topic_at + topic_bytes + 1]
            if qos
            else 0
        )
        if self._long:
            self._have = 0
            self._ack = packet_id
            return False
        self._owed = packet_id
        self.topic = self._in[topic_at : topic_at + topic_bytes]
        self.payload = self._in[start : self._need]
        return True

    def _check(self):
        """Raise Lost if the broker takes too long; send a PINGREQ if it is due."""
        now = ticks_ms()
        patience = self._patience_ms
        unsent = ticks_diff(now, self._sent)
        unheard = ticks_diff(now, self._heard)
        # Late is a packet that stops halfway, a write, an answer to a PINGREQ or a SUBSCRIBE, or
        # the acknowledgement of a publication.
        is_late = (self._have and unheard >= patience) or (self._going and unsent >= patience)
        is_late = is_late or (self._ping and ticks_diff(now, self._pinged) >= patience)
        is_late = is_late or (self._subscriptions and ticks_diff(now, self._began) >= patience)
        for i in range(self._window):
            is_late = is_late or (self._ids[i] and ticks_diff(now, self._since[i]) >= patience)
        if is_late:
            raise Lost("the broker does not answer")

        # Half of the keep-alive time without a packet: ask the broker for one.
        if max(unsent, unheard) >= self._keep_alive_ms > 0 and not self._ping:
            self._ping = self._ping_due = True
            self._pinged = now
            self._pump()


def _connect_packet(client_id, user, password, keep_alive, clean, will):
    """Return a CONNECT packet (MQTT 3.1.1, 3.1).

    will: (topic, payload), published retained at QoS 1, or None.
    """
    flags = 0xC2 if clean else 0xC0  # bits 7 and 6: a user and a password; bit 1: a clean session
    if will:
        flags |= 0x2C  # bit 5: retained; bit 3: QoS 1; bit 2: there is a will
    # The name and the level (4) of the protocol, then fields, each after its length in two bytes.
    body = b"\x00\x04MQTT\x04" + struct.pack(">BH", flags, keep_alive)
    for field in (client_id,) + (will or ()) + (user, password):
        body += struct.pack(">H", len(field)) + field
    # The remaining length, 7 bits to a byte, the lowest first; bit 7: another byte follows.
    n = len(body)
    length = bytes((n,)) if n < 128 else bytes((n & 127 | 128, n >> 7))
    return bytes((_CONNECT,)) + length + body
