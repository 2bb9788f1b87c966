"""Mosquitto is reloaded, its failures are explained, and it is restarted; other programs stand in
for it.
"""

import sys
import time

import pytest

from ternhost.errors import DeviceError
from ternhost.reach.broker import configuration, mosquitto
from ternhost.reach.broker.broker_log import BrokerLog
from ternhost.reach.broker.mosquitto_files import LOG, PID
from ternhost.reach.broker.mosquitto_lines import MosquittoLines


@pytest.fixture
def replaced(tmp_path, monkeypatch):
    """`replace(script)` makes a script of Python the Mosquitto of a broker, and returns the
    broker's directory.
    """
    place, port = tmp_path / "broker", mosquitto.free_port()
    configuration.configure(place, tls=False, port=port)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    def replace(script):
        path = tmp_path / "mosquitto"
        path.write_text(
            f"#!{sys.executable} -S\nimport os, sys, socket, time\nport = {port}\n{script}"
        )
        path.chmod(0o755)
        return place

    return replace


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("print('1: Warning: x', flush=True); os.kill(os.getpid(), 11)", "SIGSEGV"),
        ("print('1: Error: no such user'); sys.exit(1)", "Error: no such user"),
    ],
)
def test_the_error_says_why_mosquitto_has_ended(replaced, script, reason):
    place = replaced(script)
    (place / LOG).write_text("1: Error: of another day\n")
    with pytest.raises(DeviceError) as caught:
        mosquitto.Mosquitto(place)
    assert caught.value.message.endswith(reason)


NEW = "New connection from {0}:{1} on port 8883."
JOINED = "New client connected from {0}:{1} as {2} (p2, c1, k60, u'{2}')."
REFUSED = "Client <unknown> disconnected, not authorised."


TLS_FAILS = "OpenSSL Error[0]: error:0A000418:SSL routines::tlsv1 alert unknown ca"
LATER_RELEASE_REFUSES = "Client 00000007 [10.0.0.9:1] disconnected, not authorised."
TLS_FAILS_AT_2_1 = TLS_FAILS.replace("[0]", " while trying to get the error[0]")
ENDED_BY_TLS_AT_2_1 = "Client 10.0.0.7 [10.0.0.7:1] disconnected: Protocol error."
TLS_WITHOUT_NEED_AT_2_1 = (
    "Client from 10.0.0.7:1 appears to be using TLS to connect to a non-TLS listener."
)
ENDED_BY_PROTOCOL_AT_2_1 = "Client 10.0.0.7 [10.0.0.7:1] disconnected: protocol error."
NEGOTIATED_AT_2_1 = "Client 00000007 negotiated TLSv1.2 cipher ECDHE-ECDSA-AES256-GCM-SHA384"
TAKEOVERS = {
    "2.0": "Client 00000007 already connected, closing old connection.",
    "2.1": "Client 00000007 [10.0.0.7:1] disconnected: session taken over.",
}


@pytest.fixture
def log(tmp_path):
    """The log of a broker to which nothing was written yet. `write(*lines)` adds lines."""
    configuration.configure(tmp_path)
    (tmp_path / PID).write_text("0\n")
    log = BrokerLog(tmp_path)
    assert not log.read()
    text = f"{int(time.time()) - 600}: {REFUSED}\n"  # of another day: it does not count

    def write(*lines):
        new = "".join(f"{int(time.time()) + 1}: {line}\n" for line in lines)
        (tmp_path / LOG).write_text(text + new)
        assert log.read()

    log.write = write
    return log


@pytest.mark.parametrize(
    ("lines", "refused"),
    [
        ([NEW.format("10.0.0.7", 1), REFUSED], {("10.0.0.7", "not authorised")}),
        # Two at once: it may be either.
        ([NEW.format("10.0.0.7", 1), NEW.format("10.0.0.8", 1), REFUSED], {("", "not authorised")}),
        ([LATER_RELEASE_REFUSES], {("10.0.0.9", "not authorised")}),
        (
            [NEW.format("::1", 1), TLS_FAILS, "Client <unknown> disconnected: Protocol error."],
            {("::1", "alert unknown ca")},
        ),
        (
            [NEW.format("10.0.0.7", 1), TLS_FAILS_AT_2_1, ENDED_BY_TLS_AT_2_1],
            {("10.0.0.7", "alert unknown ca")},
        ),
        (
            [NEW.format("10.0.0.7", 1), TLS_WITHOUT_NEED_AT_2_1, ENDED_BY_PROTOCOL_AT_2_1],
            {("10.0.0.7", "protocol error")},
        ),
        (["Client auto-1-2 disconnected, not authorised.", "a line of another program"], set()),
    ],
    ids=["refused", "two at once", "later releases", "TLS", "TLS, 2.1", "no TLS, 2.1", "nobody"],
)
def test_the_log_says_who_is_refused_and_from_where_only_where_that_is_sure(log, lines, refused):
    log.write(*lines)
    assert log.refused == refused


def test_a_board_that_was_let_in_since_is_not_refused(log):
    joined = JOINED.format("10.0.0.7", 2, "00000007")
    log.write(NEW.format("10.0.0.7", 1), REFUSED, NEW.format("10.0.0.7", 2), joined)
    assert log.refused == set()
    assert set(log.connected) == {"00000007"}


def test_a_board_that_has_negotiated_a_cipher_is_still_connected(log):
    log.write(
        NEW.format("10.0.0.7", 1), JOINED.format("10.0.0.7", 1, "00000007"), NEGOTIATED_AT_2_1
    )
    assert set(log.connected) == {"00000007"}
    assert log.ended == {}


@pytest.mark.parametrize("release", TAKEOVERS)
def test_boards_that_push_each_other_out_have_one_name(log, release):
    joined = JOINED.format("10.0.0.7", 1, "00000007")
    log.write(joined, *[TAKEOVERS[release], joined] * 3)
    assert log.shared == {"00000007"}
    assert set(log.connected) == {"00000007"}


WITHOUT_LOGIN = [
    "New connection from 127.0.0.1:59452 on port 8883.",
    "Client <unknown> disconnected: Protocol error.",
    "OpenSSL Error[0]: error:0A000126:SSL routines::unexpected eof while reading",
    "Client connection from 127.0.0.1 failed: "
    "error:0A000126:SSL routines::unexpected eof while reading.",
]


def lines_passed_on(directory, lines, caplog):
    """What tern logs of these lines of Mosquitto."""
    with MosquittoLines(directory) as passing:
        (directory / LOG).write_text("".join(f"1796022134: {line}\n" for line in lines))
        with caplog.at_level("INFO"):
            passing.pass_on()
    return [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize("line", WITHOUT_LOGIN)
def test_a_connection_that_ends_without_a_login_is_not_in_the_log_of_tern(line, tmp_path, caplog):
    assert lines_passed_on(tmp_path, [line], caplog) == []


def test_a_board_that_does_not_trust_the_certificate_is_in_the_log_of_tern(tmp_path, caplog):
    (message,) = lines_passed_on(tmp_path, [TLS_FAILS], caplog)
    assert "unknown ca" in message
