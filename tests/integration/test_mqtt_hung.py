"""Brokers that hang and name servers that lie: the device's client, on MicroPython over real
sockets, never waits longer than its patience and finds the right address.
"""

import contextlib
import os
import socket
import ssl
import threading

import pytest
import rig

from tern import absence
from ternhost.reach.addresses import DEVICE_AUTHORITY
from ternhost.reach.broker import configuration
from ternhost.reach.broker.access import CERTIFICATE, KEY

PATIENCE = 600  # ms
AMPLE = 30_000
BUSY = 15_000  # ms by which a busy machine may be late
ACCEPTED = b"\x20\x02\x00\x00"  # the session


@contextlib.contextmanager
def server(behave):
    """Accept one connection, and pass it to `behave`; it stays open until the client has ended.

    Yield the port.
    """
    ended = threading.Event()

    def run():
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(60)
            with contextlib.suppress(OSError):
                behave(connection)
            ended.wait(60)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            ended.set()
            thread.join(60)


def silent(connection):
    while connection.recv(65536):
        pass


def answering(data):
    """A server that answers the first packets with `data`, and then is silent."""

    def behave(connection):
        connection.recv(300)
        connection.sendall(data)
        silent(connection)

    return behave


def reads_nothing(connection):
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.recv(100)
    connection.sendall(ACCEPTED)


def hangs_up(connection):
    connection.recv(10)
    connection.close()


STEPS = """
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
    lambda: tcp.Connection("127.0.0.1", port, context, name), b"x", b"u", b"p", keep_alive=1, patience_ms=opening
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


def floods(connection):
    """Sends unwanted messages as fast as it can, the last one longer than any buffer."""
    connection.recv(300)
    connection.sendall(ACCEPTED)
    for _ in range(1000):
        connection.sendall(100 * b"\x30\x08\x00\x01tnoise" + 100 * b"\xd0\x00")
    connection.sendall(b"\x30\xff\xff\xff\x7f\x00\x01t" + bytes(1 << 20))


def secured(directory, behave):
    """As `behave`, after a handshake of TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / CERTIFICATE, directory / KEY)
    held = []

    def talk(connection):
        held.append(
            context.wrap_socket(connection, server_side=True)
        )  # open until the client has ended
        behave(held[-1])

    return talk


BEFORE = {
    "silent": silent,
    "half an answer": answering(b"\x20\x02"),
    "garbage": answering(os.urandom(1000)),
    "hangs up": hangs_up,
}
NO_PING = answering(ACCEPTED)
WITHIN = {
    "no ping": NO_PING,
    "half a message": answering(ACCEPTED + b"\x30\x50\x00\x01t"),
    "reads nothing": reads_nothing,
    "no acknowledgement": answering(
        ACCEPTED + b"\x90\x03\xff\xff\x01" + b"\x90\x03\xff\xfe\x01"
    ),  # of any report
    "floods": floods,
}
SERVERS = BEFORE | WITHIN
HELLO, ERROR = 1, 0  # the event that a client awaits before its last steps


def steps(
    micropython, port, authority="-", name="localhost", opening=AMPLE, publishes=1, until=ERROR
):
    """Run a client step by step; return its result. opening: ms within which its session must be
    open.
    """
    arguments = (port, authority, name, opening, PATIENCE, publishes, until)
    return rig.run_program(micropython, "-c", STEPS, *arguments)


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """A directory with the certificates of a broker and of its authority."""
    directory = tmp_path_factory.mktemp("broker")
    configuration.write_configuration(directory, {})
    return directory


# The client notices at once, without any patience.
NOTICED_AT_ONCE = ("garbage", "hangs up", "floods")
# How a broker fails before there is a session; of garbage it may be anything.
REASONS = {
    "silent": absence.SILENT,
    "half an answer": absence.SILENT,
    "hangs up": absence.CLOSED,
}


def assert_no_waits(micropython, case, behave, **options):
    """Assert that a client polls without waiting and does not sleep, and soon has an error.

    behave: the server of this case itself, or behind TLS. Returns the error and its reason.
    """
    opens_session = case in WITHIN
    if case == "floods":
        options["until"] = HELLO
    if case == "reads nothing":
        options["publishes"] = 40  # more than the buffers of the connection hold
    if not opens_session:
        options["opening"] = PATIENCE

    with server(behave) as port:
        result = steps(micropython, port, **options)

    assert result["waits"] == [0], result
    assert result["hellos"] == opens_session, result
    if case != "floods":
        assert result["ms"] < PATIENCE + BUSY, result
    if case not in NOTICED_AT_ONCE:
        assert result["ms"] > 0.9 * PATIENCE, result
    return result["error"], result["reason"]


@pytest.mark.parametrize("case", SERVERS)
def test_a_step_never_waits(micropython, case):
    """A program on a board calls the broker's client in short steps. However the broker misbehaves
    (SERVERS), no step waits for it; and after a while the client gives up, with a reason.
    """
    error, reason = assert_no_waits(micropython, case, SERVERS[case])
    if case not in NOTICED_AT_ONCE:
        assert error == "the broker does not answer"
    if case in REASONS:
        assert reason == REASONS[case]


@pytest.mark.parametrize("case", ["silent", "no ping", "reads nothing", "floods"])
def test_a_step_never_waits_with_tls(micropython, broker, case):
    """The same behind TLS, where a library could wait for the rest of a record."""
    assert_no_waits(
        micropython, case, secured(broker, SERVERS[case]), authority=broker / DEVICE_AUTHORITY
    )


def test_a_step_never_waits_for_a_handshake(micropython, broker):
    authority = broker / DEVICE_AUTHORITY
    _, reason = assert_no_waits(micropython, "silent", silent, authority=authority)
    assert reason == absence.SILENT


# The look-up of names


LOOK_UP = """
import json, sys, time
from tern import dns, tcp
name_server, broker = int(sys.argv[1]), int(sys.argv[2])
line = tcp.Connection("broker.example", broker, None, None, dns.Query("broker.example", "127.0.0.1", name_server))
start = time.ticks_ms()
end = None
try:
    while time.ticks_diff(time.ticks_ms(), start) < 20000:
        if line.write(b"hello"):
            end = line.host
            break
        time.sleep_ms(5)
except tcp.Lost as error:
    end = str(error)
line.close()
print(json.dumps({"end": end}))
"""
# Records of RFC 1035: a name, the type and the class, five seconds to live, and the data.
_NAME = bytes.fromhex("c00c")  # that of the question
_ADDRESS = _NAME + bytes.fromhex("00010001000000050004") + bytes((127, 0, 0, 1))
_ALIAS = _NAME + bytes.fromhex("00050001000000050008") + b"\x05other\xc0\x13"


def answer(question):
    """An answer of RFC 1035 to a question: a header of 12 bytes, the question, two records."""
    return question[:2] + b"\x81\x80\x00\x01\x00\x02" + bytes(4) + question[12:] + _ALIAS + _ADDRESS


@contextlib.contextmanager
def lying_name_server():
    """Another server's answer, answers to other questions, and noise come before the right one.

    Yield the port.
    """
    with (
        socket.socket(type=socket.SOCK_DGRAM) as own,
        socket.socket(type=socket.SOCK_DGRAM) as other,
    ):

        def lie():
            question, source = own.recvfrom(512)
            other.sendto(answer(question), source)
            other_id = bytes((question[0] ^ 255,)) + question[1:]
            other_name = question.replace(b"broker", b"broken")
            lies = answer(other_id), question, b"", os.urandom(512), answer(other_name)
            for datagram in (*lies, answer(question)):
                own.sendto(datagram, source)

        own.bind(("127.0.0.1", 0))
        thread = threading.Thread(target=lie, daemon=True)
        thread.start()
        yield own.getsockname()[1]
        thread.join(10)


def test_the_address_is_found_among_wrong_answers(micropython):
    """A board asks a name server for the address of its broker. Forged answers come before the
    right one: with another id, of another name or sender, or of garbage.
    """
    with lying_name_server() as port, socket.create_server(("127.0.0.1", 0)) as broker:
        result = rig.run_program(micropython, "-c", LOOK_UP, port, broker.getsockname()[1])
    assert result["end"] == "127.0.0.1"
