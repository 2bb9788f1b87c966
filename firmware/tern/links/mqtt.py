"""The MQTT link of a device: rounds from a broker, reports to it. Topics: shared_specs/mqtt.md.

A broker that is gone is the normal case: the link connects again and again, each time after a longer pause, and every
connection begins with the board's hello.
"""

import json
import os

from tern import frames, wire
from tern.compat import const, sleep_ms, ticks_diff, ticks_ms
from tern.mqtt import MqttError, Session
from tern.storage import CLIENTS, Clients, StorageError
from tern.tcp import Connection, Lost, client_context

CONFIG = "mqtt.json"  # among the files of a board

ROUND = "%s/round"  # down, retained: what the whole fleet is asked
DOWN = "%s/down/%s"  # down: what this board is asked
UP = "%s/up/%s"  # up: its reports and errors
HELLO = "%s/hello/%s"  # up, retained: its hello, empty once it is gone

_PASSWORD_LABEL = b"tern mqtt "
_PATIENCE_MS = const(10000)  # how long a broker may take to answer
_MAX_WINDOW = const(29)
_FIRST_PAUSE_MS = const(500)
_SLICE_MS = const(1000)
_BROKEN = (Lost, MqttError, MemoryError)  # a TLS handshake wants much memory: later there may be enough


def name(device):
    """Return how a board is called, to the broker and in topics: by the id of its first client, as 8 hex digits."""
    return "%08x" % device


def password(key):
    """Return the broker's password of the board whose first client has `key`; it does not tell the key."""
    digest = frames.tag(key, _PASSWORD_LABEL + b"1") + frames.tag(key, _PASSWORD_LABEL + b"2")
    return "".join("%02x" % byte for byte in digest)


def open_link(board):
    """Return the link of `board`, as the mqtt.json among its files says.

    Raises StorageError or OSError where a file is missing or makes no sense.
    """
    directory = board.directory
    try:
        with open(directory + "/" + CONFIG) as file:
            config = json.load(file)
    except ValueError as error:
        raise StorageError("%s: %s" % (CONFIG, error))
    clients = Clients(directory + "/" + CLIENTS)
    called = name(clients.first)
    prefix = config.get("prefix", "tern")
    context = None
    if config.get("authority"):
        with open(directory + "/" + config["authority"], "rb") as file:
            context = client_context(file.read())

    if "ssid" in config:
        from tern.wifi import join  # now, while there is memory for it

    def connect():
        if "ssid" in config:
            join(config["ssid"], config.get("wifi_password"))
        return Connection(
            config["host"], config["port"], _PATIENCE_MS, context, config.get("server", config["host"])
        )

    session = Session(
        connect,
        called.encode(),
        config.get("user", called).encode(),
        config.get("password", password(clients.key)).encode(),
        config.get("keep_alive", 60),
        config.get("clean", True),
        ((HELLO % (prefix, called)).encode(), b""),
        _PATIENCE_MS,
        window=min(clients.count, _MAX_WINDOW) + 3,
        slot=384 if clients.count == 1 else 704,
    )
    return Mqtt(session, prefix, called, config.get("longest_pause_ms", 60000))


class Mqtt:
    """Frames over a broker. receive() and send() as those of links.serial.Serial, but the link never ends."""

    console = False

    def __init__(self, session, prefix, board, longest_pause_ms=60000):
        """session: a mqtt.Session; prefix: of all topics; board: name(); longest_pause_ms: between two attempts."""
        self._session = session
        self._round = (ROUND % prefix).encode()
        self._down = (DOWN % (prefix, board)).encode()
        self._up = (UP % (prefix, board)).encode()
        self._hello = (HELLO % (prefix, board)).encode()
        self._frame = memoryview(bytearray(wire.MAX_FRAME + 1))
        self._longest = longest_pause_ms
        self._pause = 0
        self._failed = ticks_ms()
        self.error = None  # why the last connection was lost, or could not be made

    def receive(self, timeout_ms=-1):
        """Return the next frame, a memoryview until the following call; None where none came in `timeout_ms`.

        A frame that has come is returned, however long it takes to read what stands before it.
        """
        start = ticks_ms()
        left = timeout_ms
        while True:
            passed = False
            try:
                if not self._session.connected:
                    if self._rest(left):
                        self._connect()
                        return self._frame[: frames.encode_hello_request(self._frame, 0)]
                elif self._session.receive(left):
                    n = self._session.take(self._frame)
                    # What may be asked over a network:
                    if n and self._frame[0] in (wire.ROUND, wire.FLEET_KEY):
                        return self._frame[:n]
                    passed = True
            except _BROKEN as error:
                self._lose(error)
            if timeout_ms >= 0:
                left = max(0, timeout_ms - ticks_diff(ticks_ms(), start))
                if not left and not passed:
                    return None

    def send(self, frame, n):
        """Publish frame[:n]. Return whether there was a connection; if not, a report goes out over the next one."""
        hello = frame[0] == wire.HELLO
        topic = self._hello if hello else self._up
        try:
            self._session.publish(topic, frame, n, 1, hello)
            return self._session.connected
        except _BROKEN as error:
            self._lose(error)
            return False

    def close(self):
        """Drop the connection; the broker tells that the board is gone."""
        self._session.close()

    def _connect(self):
        self._session.open()
        self._session.subscribe(self._down)
        self._session.subscribe(self._round)
        self._pause = 0

    def _lose(self, error):
        self.error = error
        self._session.close()
        self._failed = ticks_ms()
        # Twice as long as the last time, and for each board of a fleet a little different.
        self._pause = min(max(2 * self._pause, _FIRST_PAUSE_MS), self._longest)
        self._wait = self._pause // 2 + self._pause * os.urandom(1)[0] // 512

    def _rest(self, left):
        # Sleeps on; returns whether it is time to connect.
        pause = self._wait - ticks_diff(ticks_ms(), self._failed) if self._pause else 0
        if pause <= 0:
            return True
        sleep_ms(min(pause, _SLICE_MS) if left < 0 else min(pause, _SLICE_MS, left + 1))
        return False
