"""Servers that offer a board's port on the network: plain bytes over TCP, and RFC 2217.

Each serves one client at a time, and closes the connection of a second one, as ser2net does.
"""

import contextlib
import socket
import threading

from serial.rfc2217 import PortManager

from ternhost.reach.ports.link import open_port

POLL = 0.02  # seconds that a read waits
HAND_OVER = 2.0  # seconds until the port of a client that has gone is free for the next one


class ModemLines:
    """A port whose lines DTR and RTS a client may set, which is noted in `history`."""

    cts = dsr = ri = cd = False  # the lines from the board, which a pseudo terminal does not have

    def __init__(self, port):
        self._port = port
        self.history = []

    def __getattr__(self, name):
        return getattr(self._port, name)

    def __setattr__(self, name, value):
        if name in ("dtr", "rts"):
            self.history.append((name, bool(value)))
        else:  # such as the speed, which is noted here: it means nothing to an emulated board
            super().__setattr__(name, value)


class _Plain:
    """The bytes of a client of plain TCP, which pass as they are."""

    def escape(self, data):
        return [data]

    filter = escape


class PortServer:
    """Serves the board at `port` on a TCP port; a context manager with its `url`."""

    scheme = "socket"

    def __init__(self, port):
        self._port = port
        self.lines = []  # how clients have set DTR and RTS, if the protocol can tell
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"{self.scheme}://127.0.0.1:{self._listening.getsockname()[1]}"
        self._busy = threading.Lock()
        self._closing = threading.Event()
        self._threads = [threading.Thread(target=self._accept)]

    def __enter__(self):
        self._threads[0].start()
        return self

    def __exit__(self, *_):
        self._closing.set()
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for thread in self._threads:
            thread.join(30)

    def _accept(self):
        while not self._closing.is_set():
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            if not self._busy.acquire(timeout=HAND_OVER):
                connection.close()
                continue
            thread = threading.Thread(target=self._serve, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _protocol(self, board, connection):
        """What encodes the bytes to the client, and decodes those from it."""
        return _Plain()

    def _serve(self, connection):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(POLL)
        with self._busy_until_served(), connection, open_port(self._port) as opened:
            opened.timeout = POLL
            board = ModemLines(opened)
            board.history = self.lines
            protocol = self._protocol(board, connection)
            ended = threading.Event()

            def send_to_client():
                with contextlib.suppress(OSError):
                    while not ended.is_set():
                        data = opened.read(opened.in_waiting or 1)
                        if data:
                            connection.sendall(b"".join(protocol.escape(data)))

            sending = threading.Thread(target=send_to_client)
            sending.start()
            with contextlib.suppress(OSError):
                while not self._closing.is_set():
                    try:
                        data = connection.recv(4096)
                    except TimeoutError:
                        continue
                    if not data:
                        break
                    opened.write(b"".join(protocol.filter(data)))
            ended.set()
            sending.join()

    @contextlib.contextmanager
    def _busy_until_served(self):
        try:
            yield
        finally:
            self._busy.release()


class Rfc2217Server(PortServer):
    """Serves the board at a port by RFC 2217, with pyserial's own server side."""

    scheme = "rfc2217"

    def _protocol(self, board, connection):
        class Client:
            @staticmethod
            def write(data):
                connection.sendall(data)

        return PortManager(board, Client())
