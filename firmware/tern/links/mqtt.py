"""The MQTT link of a device: rounds from a broker, reports to it. Topics: shared_specs/mqtt.md.

Only receive() waits, for its time-out. Without a broker the link tries again, with growing pauses;
each connection begins with the board's hello.
"""

import json
import os

try:
    import network
except ImportError:
    network = None

from tern import absence, frames, wire
from tern.compat import const, ticks_diff, ticks_ms
from tern.links.serial import open_link as open_port
from tern.mqtt import Session
from tern.storage import CLIENTS, Clients, StorageError
from tern.tcp import Connection, client_context

CONFIG = "mqtt.json"  # among the files of a board

ROUND = "%s/round"  # down, retained: what the whole fleet is asked
MODEL = "%s/model/#"  # down, retained: the learned model, and limits in model/limits
DOWN = "%s/down/%s"  # down: what this board is asked
UP = "%s/up/%s"  # up: its reports and errors
HELLO = "%s/hello/%s"  # up, retained: its hello, empty once it is gone

_PASSWORD_LABEL = b"tern mqtt "
_PATIENCE_MS = const(10000)  # how long a broker may take to answer
_MAX_WINDOW = const(29)  # publications that wait to be acknowledged, and three more
_FIRST_PAUSE_MS = const(500)  # after a failed connection
_SLICE_MS = const(1000)  # of a wait
_SHORT_MS = const(50)  # of one without a connection, or while the port takes an answer
_PARTS = const(4)  # how often receive() reads from the port before it goes on
_HELLO_BYTES = const(512)  # of a frame at the port, at most
_GREETING = const(13)  # bytes of a HELLO_REQUEST
_BROKEN = (OSError, MemoryError)  # a TLS handshake wants much memory: later there may be enough


def name(device):
    """Return a board's name for the broker and in topics: its first client's id, in hex."""
    return "%08x" % device


def password(key):
    """Return the broker's password of the board whose first client has `key`.

    It does not reveal the key.
    """
    return (frames.tag(key, _PASSWORD_LABEL + b"1") + frames.tag(key, _PASSWORD_LABEL + b"2")).hex()


def open_link(board):
    """Return the link that the board's mqtt.json describes (shared_specs/storage.md).

    Raises StorageError or OSError for a bad file.
    """
    directory = board.directory
    try:
        with open(directory + "/" + CONFIG) as file:
            config = json.load(file)
    except ValueError as error:
        raise StorageError("%s: %s" % (CONFIG, error))

    # Names: the board's is that of its first client.
    clients = Clients(directory + "/" + CLIENTS)
    board_name = name(clients.first)
    prefix = config.get("prefix", "tern")
    hosts = config["host"].split(",")
    server = config.get("server", hosts[0])
    # TLS, where a certificate of the broker's authority is named.
    context = None
    if config.get("authority"):
        with open(directory + "/" + config["authority"], "rb") as file:
            context = client_context(file.read())

    # Wi-Fi, and for a board that sleeps, what the network gave it the last time.
    station = lease = None
    if network or "ssid" in config:
        from tern.wifi import Station  # now, while there is memory for it

        station = Station(config.get("ssid"), config.get("wifi_password"))
    if "wake_s" in config:
        try:
            from tern.lease import Lease

            lease = Lease(directory, station)
        except ImportError:  # without it a board that sleeps takes longer to connect
            pass

    try:
        from tern.dns import query
    except ImportError:  # without it a name's address is waited for
        query = None

    absent = board.absence = absence.Absence(board)

    def connect():
        """Return a fresh Connection to the broker, or None while there is no network."""
        if station and not station.joined(lease):
            absent.reason = station.reason or absent.reason
            return None
        # The address of the last time, else any node of a cluster.
        host = lease and lease.broker
        if not host:
            host = hosts[os.urandom(1)[0] % len(hosts)]
        line = Connection(host, config["port"], context, server, query and query(host))
        if lease:
            lease.connection = line
        return line

    session = Session(
        connect,
        board_name.encode(),
        config.get("user", board_name).encode(),
        config.get("password", password(clients.key)).encode(),
        config.get("keep_alive", 60),  # s
        config.get("clean", True),  # whether the broker forgets an earlier session
        # The will, which the broker publishes when the board is gone: an empty hello.
        ((HELLO % (prefix, board_name)).encode(), b""),
        _PATIENCE_MS,
        # An answer of each client, and three frames more.
        window=min(clients.count, _MAX_WINDOW) + 3,
        # Bytes of a publication; those of several clients go together in a longer one.
        slot=384 if clients.count == 1 else 704,
    )
    port = open_port(board, _HELLO_BYTES)
    return Mqtt(
        session,
        prefix,
        board_name,
        config.get("longest_pause_ms", 60000),
        lease,
        station,
        absent,
        port,
    )


class Mqtt:
    """Frames over a broker, with the methods of links.serial.Serial. This link never ends.

    A board with a port besides, such as its USB console, also answers HELLO_REQUESTs there, so that
    somebody beside it learns why it is absent from the broker.
    """

    console = False
    hold = int  # called before a file is written; links.slot has another one

    def __init__(
        self,
        session,
        prefix,
        board,
        longest_pause_ms=60000,
        lease=None,
        station=None,
        absent=None,
        port=None,
    ):
        """session: an mqtt.Session. prefix: that of all topics. board: the board's name in topics.

        longest_pause_ms: between two attempts to connect. lease, station: a Lease and a Station of
        a board with Wi-Fi, or None. absent, port: the board's Absence and a Serial; or both None.
        """
        self._session = session
        self._prefix = prefix
        self._up = (UP % (prefix, board)).encode()
        self._hello = (HELLO % (prefix, board)).encode()
        self._frame = memoryview(bytearray(wire.MAX_FRAME + 1))
        self.greeting = memoryview(bytearray(_GREETING))  # asks for the hello of a new connection
        frames.encode_hello_request(self.greeting, 0)
        self._admitted = [wire.ROUND, wire.FLEET_KEY]  # what may be asked over a network
        self._longest = longest_pause_ms
        self._lease = lease
        self._station = station
        self._absence = absent
        self._port = port
        self._at_port = False  # whether the next HELLO goes there
        self._accepted = False  # whether a broker has, so far
        # ms: the pause, which doubles; how much of it to wait; when the last attempt failed.
        self._pause = self._wait = self._failed = 0
        self.error = None  # why the last connection was lost, or could not be made
        session.subscribe((DOWN % (prefix, board)).encode())
        session.subscribe((ROUND % prefix).encode())
        self.close = session.close

    def admit(self, kind):
        """Pass frames of this type, too. Call it before the first receive()."""
        self._admitted.append(kind)
        if kind == wire.MODEL:
            self._session.subscribe((MODEL % self._prefix).encode())

    def disconnect(self):
        """Take leave of the broker, whose will is not published, and switch the radio off."""
        self._session.disconnect()
        if self._station:
            self._station.leave()

    def receive(self, timeout_ms=-1):
        """Return the next frame, a memoryview that is valid until the next call.

        It comes from the broker or from the port; with each new connection, it is a request for the
        board's hello. Returns None after `timeout_ms` (-1: never), and when a connection is lost.
        With 0 it takes one step and never waits: then it returns None also if it dropped an
        unwanted frame.
        """
        start = ticks_ms()
        self._at_port = False
        session = self._session
        while True:
            try:
                frame = self._take() if session.connected else self._connect()
            except _BROKEN as error:
                return self._lose(error)
            if frame:
                return frame

            # Nothing has come from the broker. Look at the port, and wait a little.
            wait_ms = _SLICE_MS
            if self._port:
                self._absence.show()
                frame = self._listen()
                if frame:
                    return frame
                if self._port.waiting() or not session.connected:
                    wait_ms = _SHORT_MS
            if timeout_ms >= 0:
                wait_ms = min(wait_ms, timeout_ms - ticks_diff(ticks_ms(), start))
                if wait_ms <= 0:
                    return None
            session.wait(wait_ms)

    def _connect(self):
        """Take a step towards a connection, unless it is too early.

        Returns the greeting, which asks for the board's hello, once there is a connection, else
        None.
        """
        if self._wait and ticks_diff(ticks_ms(), self._failed) < self._wait:
            return None
        if not self._session.open():
            return None
        self._pause = self._wait = 0
        self._accepted = True
        if self._port:
            self._absence.ended(self.hold)
        if self._lease:
            self._lease.keep(self.hold)
        return self.greeting

    def _take(self):
        """Return the frame that has come from the broker, if any; None for one of another type."""
        if not self._session.receive():
            return None
        n = self._session.take(self._frame)
        if n and self._frame[0] in self._admitted:
            return self._frame[:n]
        return None

    def _listen(self):
        """Return a HELLO_REQUEST that has come in at the port; nothing else is answered there."""
        try:
            for _ in range(_PARTS):
                if not (self._port.waiting() or self._port.ready(0)):
                    break
                frame = self._port.receive(0)
                if frame and frame[0] == wire.HELLO_REQUEST:
                    frames.decode_hello_request(frame)
                    self._at_port = True
                    return frame
        except (frames.FrameError, EOFError):  # EOFError: nobody is there
            pass
        return None

    def waiting(self):
        """Return whether something is to be sent or acknowledged, or no broker has accepted yet."""
        return self._session.waiting() or not self._accepted

    def send(self, frame, n):
        """Publish frame[:n], without waiting.

        Return whether there is a connection; if not, the next one sends it.
        """
        hello = frame[0] == wire.HELLO
        if hello and self._at_port:
            return self._port.send(frame, n)
        try:
            self._session.publish(self._hello if hello else self._up, frame, n, hello)
        except _BROKEN as error:
            self._lose(error)
        return self._session.connected

    def _lose(self, error):
        """Drop the connection after `error`, note why, and set the pause before the next attempt.

        Pauses double up to the longest one. The board waits between half of the pause and all of
        it, at random, so that the boards of a fleet do not come back at once.
        """
        self.hold()
        self._failed = ticks_ms()
        self.error = error
        accepted = self._session.connected
        self._session.close()
        if self._lease and not accepted:
            self._lease.forget()

        if self._port:
            reason = getattr(error, "reason", absence.FAULT)
            # Once a broker had accepted, most reasons mean just that the connection was lost;
            # before that, a problem of the network explains that nobody answers.
            if accepted and reason < absence.DECLINED:
                reason = absence.LOST
            if self._station and reason < absence.CLOSED:
                reason = self._station.reason or reason
            self._absence.failed(reason, self._failed)

        self._pause = min(max(2 * self._pause, _FIRST_PAUSE_MS), self._longest)
        # Half of the pause, and a random share, 0 .. 255 out of 256, of the other half.
        self._wait = self._pause // 2 + self._pause * os.urandom(1)[0] // 512
