"""Brokers that hang at every stage: the device's client, on MicroPython, never waits for longer than it was told to."""

import contextlib
import json
import os
import socket
import ssl
import subprocess
import threading
import time

import pytest

from ternhost.reach.addresses import DEVICE_AUTHORITY
from ternhost.reach.broker import configuration
from ternhost.reach.broker.access import CERTIFICATE, KEY
from ternhost.reach.broker.mosquitto import free_port
from terntools.emulators.micropython import device_command
from terntools.testing.device_tests import FIRMWARE

PATIENCE = 600  # ms
AMPLE = 30_000
BUSY = 15_000  # by so much a machine that does other things may be late

_PROGRAM = """
import sys, time
from tern.mqtt import MqttError, Session
from tern.tcp import Connection, Lost, client_context
port, authority, name, act = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
opening, patience = int(sys.argv[5]), int(sys.argv[6])
context = client_context(open(authority, "rb").read()) if authority != "-" else None
session = Session(
    lambda: Connection("127.0.0.1", port, context, name),
    b"x",
    keep_alive=1,
    patience_ms=opening,
    largest=300,
)
start = time.ticks_ms()
try:
    while not session.open():
        session.wait(100)
    print("open")
    session._patience_ms = patience
    if act == "publish":
        while True:
            session.publish(b"t", bytes(300), 300)
    while True:
        if not session.receive():
            session.wait(100)
except (Lost, MqttError) as error:
    print(time.ticks_diff(time.ticks_ms(), start), type(error).__name__, error)
"""


class Server:
    """Accepts one connection and hands it to `behave`; it stays open until the client has ended."""

    def __init__(self, behave):
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._behave = behave
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self):
        connection, _ = self._socket.accept()
        with connection:
            connection.settimeout(60)
            with contextlib.suppress(OSError):
                self._behave(connection)
            self._ended.wait(60)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self._thread.join(60)
        self._socket.close()


def until_closed(connection):
    while connection.recv(65536):
        pass


def silent(connection):
    until_closed(connection)


def half_an_answer(connection):
    connection.sendall(b"\x20\x02")
    until_closed(connection)


def no_ping(connection):
    connection.recv(100)
    connection.sendall(b"\x20\x02\x00\x00")
    until_closed(connection)


def half_a_message(connection):
    connection.recv(100)
    connection.sendall(b"\x20\x02\x00\x00\x30\x50\x00\x01t")
    until_closed(connection)


def drips(connection):
    """A byte at a time, each before the client's patience is over, but never a whole answer in time."""
    connection.recv(100)
    for byte in b"\x20\x02\x00":
        connection.sendall(bytes((byte,)))
        time.sleep(0.25)
    until_closed(connection)


def reads_nothing(connection):
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.recv(100)
    connection.sendall(b"\x20\x02\x00\x00")


def garbage(connection):
    connection.sendall(os.urandom(1000))
    until_closed(connection)


def hangs_up(connection):
    connection.recv(10)
    connection.close()


_STEPS = """
import json, select, sys, time
from tern import mqtt, tcp
from tern.compat import ticks_diff, ticks_ms
from tern.links import mqtt as links
waits = {}

class Poll:
    def __init__(self):
        self._poll = select.poll()
        self.register, self.modify = self._poll.register, self._poll.modify
    def poll(self, ms):
        waits[ms] = waits.get(ms, 0) + 1
        return self._poll.poll(ms)

class Select:
    POLLIN, POLLOUT, POLLERR, POLLHUP = select.POLLIN, select.POLLOUT, select.POLLERR, select.POLLHUP
    poll = Poll

def sleep_ms(ms):
    waits[-1] = ms

tcp.select = Select
tcp.sleep_ms = mqtt.sleep_ms = sleep_ms
port, authority, patience, seconds, publishes = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), 2, int(sys.argv[4])
context = tcp.client_context(open(authority, "rb").read()) if authority != "-" else None
session = mqtt.Session(
    lambda: tcp.Connection("127.0.0.1", port, context, "localhost"), b"x", keep_alive=1, patience_ms=patience
)
link = links.Mqtt(session, "tern", "00000007", 300)
start = time.ticks_ms()
longest = hellos = 0
errors = []
report = bytearray(b"\\x82" + bytes(250))
while time.ticks_diff(time.ticks_ms(), start) < 1000 * seconds:
    began = time.ticks_us()
    frame = link.receive(0)
    for _ in range(publishes if frame or publishes > 1 else 0):
        link.send(report, 250)
    longest = max(longest, time.ticks_diff(time.ticks_us(), began))
    hellos += frame is not None
    error = str(link.error)
    if error not in errors:
        errors.append(error)
    time.sleep_ms(5)
print(json.dumps({"waits": list(waits), "longest_us": longest, "hellos": hellos, "errors": errors}))
"""


def _command(micropython, directory, *arguments):
    return device_command(micropython, directory / "client.py", *map(str, (*arguments, PATIENCE)))


def run(micropython, directory, behave, authority="-", name="localhost", act="receive", opening=AMPLE):
    """opening: how long the client waits for the broker to open the session; in it, PATIENCE."""
    (directory / "client.py").write_text(_PROGRAM)
    with Server(behave) as server:
        done = subprocess.run(
            _command(micropython, directory, server.port, authority, name, act, opening),
            env={"MICROPYPATH": str(FIRMWARE)},
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert done.returncode == 0, done.stderr
    ms, kind, *message = done.stdout.splitlines()[-1].split()
    return int(ms), kind, " ".join(message), "open" in done.stdout


@pytest.mark.parametrize("behave", [silent, half_an_answer, drips, garbage, hangs_up])
def test_before_the_session(micropython, tmp_path, behave):
    ms, kind, _, opened = run(micropython, tmp_path, behave, opening=PATIENCE)
    assert kind in ("Lost", "MqttError")
    assert not opened
    assert ms < PATIENCE + BUSY


@pytest.mark.parametrize("behave", [no_ping, half_a_message])
def test_within_the_session(micropython, tmp_path, behave):
    ms, kind, message, opened = run(micropython, tmp_path, behave)
    assert opened
    assert (kind, message) == ("Lost", "the broker does not answer")
    assert 0.9 * PATIENCE < ms < PATIENCE + BUSY


def test_a_broker_that_reads_nothing(micropython, tmp_path):
    ms, kind, message, opened = run(micropython, tmp_path, reads_nothing, act="publish")
    assert opened
    assert (kind, message) == ("Lost", "nothing can be sent")
    assert ms < PATIENCE + BUSY


def test_in_the_handshake_of_tls(micropython, tmp_path):
    configuration.write_configuration(tmp_path / "broker", {})
    authority = tmp_path / "broker" / DEVICE_AUTHORITY
    for behave in (silent, garbage, hangs_up):
        ms, kind, _, opened = run(micropython, tmp_path, behave, authority, opening=PATIENCE)
        assert kind == "Lost"
        assert not opened
        assert ms < PATIENCE + BUSY


def test_the_name_in_the_certificate_counts(micropython, tmp_path):
    configuration.write_configuration(tmp_path / "broker", {})
    directory = tmp_path / "broker"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / CERTIFICATE, directory / KEY)

    def behave(connection):
        with context.wrap_socket(connection, server_side=True) as secure:
            secure.recv(100)
            secure.sendall(b"\x20\x02\x00\x00")
            until_closed(secure)

    for name, expected in (("localhost", True), ("127.0.0.1", True), ("example.org", False)):
        _, kind, _, opened = run(micropython, tmp_path, behave, directory / DEVICE_AUTHORITY, name)
        assert opened is expected, name
        assert kind == "Lost"


def no_acknowledgement(connection):
    """Accepts the session, and the subscriptions, and says nothing to a report."""
    connection.recv(300)
    connection.sendall(b"\x20\x02\x00\x00" + b"\x90\x03\xff\xff\x01" + b"\x90\x03\xff\xfe\x01")
    until_closed(connection)


def floods(connection):
    """Messages that nobody wants, as fast as they are taken, the last of them longer than any buffer."""
    connection.recv(300)
    connection.sendall(b"\x20\x02\x00\x00")
    for _ in range(1000):
        connection.sendall(100 * b"\x30\x08\x00\x01tnoise" + 100 * b"\xd0\x00")
    connection.sendall(b"\x30\xff\xff\xff\x7f\x00\x01t" + bytes(1 << 20))


def secured(directory, behave):
    """The same behind a handshake of TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / CERTIFICATE, directory / KEY)
    held = []

    def talk(connection):
        held.append(context.wrap_socket(connection, server_side=True))  # open until the client has ended
        behave(held[-1])

    return talk


WITHIN = [no_ping, half_a_message, reads_nothing, no_acknowledgement, floods]
BEFORE = [silent, half_an_answer, garbage, hangs_up, drips]


@pytest.mark.parametrize("tls", ["none", "whole"])
@pytest.mark.parametrize("behave", BEFORE + WITHIN)
def test_a_step_never_waits(micropython, tmp_path, behave, tls):
    _never_waits(micropython, tmp_path, behave, tls)


@pytest.mark.parametrize("behave", [silent, garbage, hangs_up])
def test_a_step_never_waits_for_a_handshake(micropython, tmp_path, behave):
    _never_waits(micropython, tmp_path, behave, "stalls")


def _never_waits(micropython, tmp_path, behave, tls):
    """All polls of receive(0) and send() are with 0, and they do not sleep."""
    authority = "-"
    what = behave
    if tls != "none":
        configuration.write_configuration(tmp_path / "broker", {})
        authority = tmp_path / "broker" / DEVICE_AUTHORITY
    if tls == "whole":
        what = secured(tmp_path / "broker", behave)
    (tmp_path / "steps.py").write_text(_STEPS)
    with Server(what) as server:
        done = subprocess.run(
            device_command(
                micropython, tmp_path / "steps.py", str(server.port), str(authority), str(PATIENCE),
                "40" if behave is reads_nothing else "1",
            ),
            env={"MICROPYPATH": str(FIRMWARE)},
            capture_output=True,
            text=True,
            timeout=120,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["waits"] == [0], found
    assert len(found["errors"]) > 1 or behave is floods, found
    assert found["hellos"] == (behave in WITHIN), found
    print(behave.__name__, tls, found["longest_us"], "us")


def test_nobody_listens(micropython, tmp_path):
    (tmp_path / "client.py").write_text(_PROGRAM)
    done = subprocess.run(
        _command(micropython, tmp_path, free_port(), "-", "x", "receive", AMPLE),
        env={"MICROPYPATH": str(FIRMWARE)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "Lost cannot connect to 127.0.0.1" in done.stdout
