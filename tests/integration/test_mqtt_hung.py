"""Brokers that hang at every stage: the device's client, on MicroPython, never waits longer than its patience."""

import contextlib
import json
import os
import socket
import ssl
import subprocess
import threading
import time
from datetime import UTC, datetime

import pytest

from tern import absence
from ternhost.reach import certificates
from ternhost.reach.addresses import DEVICE_AUTHORITY
from ternhost.reach.broker import configuration
from ternhost.reach.broker.access import CERTIFICATE, KEY
from ternhost.reach.broker.mosquitto import free_port
from terntools.emulators.micropython import device_command
from terntools.testing.device_tests import FIRMWARE

PATIENCE = 600  # ms
AMPLE = 30_000
BUSY = 15_000  # ms by which a busy machine may be late


class Server:
    """Accepts one connection, and passes it to `behave`; it stays open until the client has ended."""

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


def silent(connection):
    while connection.recv(65536):
        pass


def half_an_answer(connection):
    connection.sendall(b"\x20\x02")
    silent(connection)


def no_ping(connection):
    connection.recv(100)
    connection.sendall(b"\x20\x02\x00\x00")
    silent(connection)


def half_a_message(connection):
    connection.recv(100)
    connection.sendall(b"\x20\x02\x00\x00\x30\x50\x00\x01t")
    silent(connection)


def drips(connection):
    """Sends single bytes, each within the client's patience, but no whole answer in time."""
    connection.recv(100)
    for byte in b"\x20\x02\x00":
        connection.sendall(bytes((byte,)))
        time.sleep(0.25)
    silent(connection)


def reads_nothing(connection):
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.recv(100)
    connection.sendall(b"\x20\x02\x00\x00")


def garbage(connection):
    connection.sendall(os.urandom(1000))
    silent(connection)


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
port, authority, name = int(sys.argv[1]), sys.argv[2], sys.argv[3]
opening, patience, publishes, until = (int(word) for word in sys.argv[4:])
context = tcp.client_context(open(authority, "rb").read()) if authority != "-" else None
session = mqtt.Session(
    lambda: tcp.Connection("127.0.0.1", port, context, name), b"x", keep_alive=1, patience_ms=opening
)
link = links.Mqtt(session, "tern", "00000007", 300)
start = ticks_ms()
hellos = 0
error = ms = reason = None
steps = 60  # after the awaited event
report = bytearray(b"\\x82" + bytes(250))
while steps:
    frame = link.receive(0)
    if frame:
        hellos += 1
        session._patience_ms = patience
        start = ticks_ms()
    for _ in range(publishes if frame or publishes > 1 else 0):
        link.send(report, 250)
    if error is None and link.error:
        error, ms = str(link.error), ticks_diff(ticks_ms(), start)
        reason = link.error.reason
    if hellos if until else error:
        steps -= 1
    time.sleep_ms(5)
print(json.dumps({"waits": list(waits), "hellos": hellos, "error": error, "ms": ms, "reason": reason}))
"""


def no_acknowledgement(connection):
    """Accepts the session and the subscriptions, but acknowledges no report."""
    connection.recv(300)
    connection.sendall(b"\x20\x02\x00\x00" + b"\x90\x03\xff\xff\x01" + b"\x90\x03\xff\xfe\x01")
    silent(connection)


def floods(connection):
    """Sends unwanted messages as fast as it can, the last one longer than any buffer."""
    connection.recv(300)
    connection.sendall(b"\x20\x02\x00\x00")
    for _ in range(1000):
        connection.sendall(100 * b"\x30\x08\x00\x01tnoise" + 100 * b"\xd0\x00")
    connection.sendall(b"\x30\xff\xff\xff\x7f\x00\x01t" + bytes(1 << 20))


def secured(directory, behave):
    """As `behave`, after a handshake of TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / CERTIFICATE, directory / KEY)
    held = []

    def talk(connection):
        held.append(context.wrap_socket(connection, server_side=True))  # open until the client has ended
        behave(held[-1])

    return talk


WITHIN = [no_ping, half_a_message, reads_nothing, no_acknowledgement, floods]
BEFORE = [silent, half_an_answer, garbage, hangs_up, drips]
HELLO, ERROR = 1, 0  # the event that a client awaits before its last steps


def steps(
    micropython, directory, port, authority="-", name="localhost", opening=AMPLE, publishes=1, until=ERROR
):
    """Run a client step by step; return its result. opening: ms within which its session must be open."""
    (directory / "client.py").write_text(_STEPS)
    arguments = (port, authority, name, opening, PATIENCE, publishes, until)
    ended = subprocess.run(
        device_command(micropython, directory / "client.py", *map(str, arguments)),
        env={"MICROPYPATH": str(FIRMWARE)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """A directory with the certificates of a broker and of its authority."""
    directory = tmp_path_factory.mktemp("broker")
    configuration.write_configuration(directory, {})
    return directory


def assert_no_waits(micropython, directory, behave, served, **options):
    """Assert that receive(0) and send() poll without waiting and do not sleep, and soon have an error; return both the
    error and its reason.

    served: `behave` itself, or behind TLS.
    """
    within = behave in WITHIN
    options |= {"until": HELLO} if behave is floods else {}
    options |= {} if within else {"opening": PATIENCE}
    options["publishes"] = 40 if behave is reads_nothing else 1
    with Server(served) as server:
        result = steps(micropython, directory, server.port, **options)
    assert result["waits"] == [0], result
    assert result["hellos"] == within, result
    if behave is not floods:
        assert result["ms"] < PATIENCE + BUSY, result
        assert result["ms"] > 0.9 * PATIENCE or behave in (garbage, hangs_up), result
    return result["error"], result["reason"]


@pytest.mark.parametrize("behave", BEFORE + WITHIN)
def test_a_step_never_waits(micropython, tmp_path, behave):
    error, reason = assert_no_waits(micropython, tmp_path, behave, behave)
    assert behave in (garbage, hangs_up, floods) or error == "the broker does not answer"
    if behave in BEFORE and behave is not garbage:
        assert reason == (absence.CLOSED if behave is hangs_up else absence.SILENT)


@pytest.mark.parametrize(
    "behave",
    [pytest.param(each, marks=pytest.mark.exhaustive) if each not in (silent, no_ping, reads_nothing, floods)
     else each for each in BEFORE + WITHIN],
)  # fmt: skip
def test_a_step_never_waits_with_tls(micropython, tmp_path, broker, behave):
    served = secured(broker, behave)
    assert_no_waits(micropython, tmp_path, behave, served, authority=broker / DEVICE_AUTHORITY)


@pytest.mark.parametrize("behave", [silent, garbage, hangs_up])
def test_a_step_never_waits_for_a_handshake(micropython, tmp_path, broker, behave):
    _, reason = assert_no_waits(micropython, tmp_path, behave, behave, authority=broker / DEVICE_AUTHORITY)
    assert reason == {silent: absence.SILENT, garbage: absence.NO_BROKER, hangs_up: absence.CLOSED}[behave]


def test_a_broker_needs_a_certificate_with_its_name_from_the_right_authority(micropython, tmp_path, broker):
    configuration.write_configuration(tmp_path / "other", {})
    other = tmp_path / "other" / DEVICE_AUTHORITY
    for name, authority, error, reason in (
        ("localhost", broker / DEVICE_AUTHORITY, None, None),
        ("127.0.0.1", broker / DEVICE_AUTHORITY, None, None),
        ("example.org", broker / DEVICE_AUTHORITY, "Common Name", absence.CERTIFICATE),
        ("localhost", other, "not correctly signed", absence.CERTIFICATE),
    ):
        with Server(secured(broker, no_ping)) as server:
            until = ERROR if error else HELLO
            result = steps(micropython, tmp_path, server.port, authority, name, until=until)
        assert result["hellos"] == (not error), result
        assert not error or error in result["error"], result
        assert result["reason"] == reason


@pytest.mark.parametrize(("limit", "year"), [("_NOT_AFTER", 2000), ("_NOT_BEFORE", 2040)])
def test_a_certificate_out_of_its_dates_is_a_reason_of_its_own(
    micropython, tmp_path, broker, monkeypatch, limit, year
):
    monkeypatch.setattr(certificates, limit, datetime(year, 1, 1, tzinfo=UTC))
    configuration.write_configuration(tmp_path, {})
    for authority, reason in ((tmp_path, absence.DATES), (broker, absence.CERTIFICATE)):
        with Server(secured(tmp_path, no_ping)) as server:
            result = steps(micropython, tmp_path, server.port, authority / DEVICE_AUTHORITY)
        assert result["reason"] == reason, result


def test_a_refusal_of_the_broker_says_of_what(micropython, tmp_path):
    for answer, reason in (
        (b"\x20\x02\x00\x05", absence.CREDENTIALS),
        (b"\x20\x02\x00\x04", absence.CREDENTIALS),
        (b"\x20\x02\x00\x03", absence.DECLINED),
        (b"\x15\x03\x03\x00\x02\x02\x46", absence.NO_BROKER),  # an alert of TLS
        (b"\x20\x02\x00\x00" + b"\x90\x03\xff\xff\x80", absence.DECLINED),  # it may not subscribe
    ):

        def refuse(connection, answer=answer):
            connection.recv(100)
            connection.sendall(answer)
            silent(connection)

        with Server(refuse) as server:
            assert steps(micropython, tmp_path, server.port)["reason"] == reason


def test_a_port_without_a_broker_is_an_error(micropython, tmp_path):
    result = steps(micropython, tmp_path, port := free_port())
    assert result["error"] == f"cannot connect to 127.0.0.1 port {port}"
    assert result["reason"] == absence.REFUSED
