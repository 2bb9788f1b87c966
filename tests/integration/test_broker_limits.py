"""Attacks on a broker with one board's password: by its will, and by filling the broker's memory."""

import struct
import threading
import time
from contextlib import suppress

import pytest
from harness.raw_client import RawClient, board_client, field, length

from tern.links import mqtt

pytestmark = pytest.mark.usefixtures("mosquitto")

KEYS = {device: bytes([device]) * 32 for device in range(1, 4)}
ATTACK = 100 << 20  # bytes at least
SECONDS = 4.0  # at least, and
MOST_SECONDS = 60.0  # at most, on a busy machine
MOST = 160  # MiB in memory: the broker's limit of 128, its start, and TLS


def memory(process):
    """MiB that a process holds; 0 after its end."""
    with suppress(OSError), open(f"/proc/{process}/status") as file:
        return next((int(line.split()[1]) >> 10 for line in file if line.startswith("VmRSS")), 0)
    return 0


def publication(topic, payload, qos, number):
    body = field(topic.encode()) + (struct.pack(">H", number % 65535 + 1) if qos else b"") + payload
    return bytes((0x30 | qos << 1,)) + length(len(body)) + body


def subscription(topic):
    return b"\x82" + length(5 + len(topic)) + b"\x00\x02" + field(topic.encode()) + b"\x01"


def deep(number):
    return subscription(f"{number:x}/" + "/".join(f"{number + level:x}" for level in range(190)))


def wide(number):
    return subscription(f"tern/down/{number:08x}")


def reports_at(qos):
    return lambda number: publication("tern/up/00000002", bytes(2500), qos, number)


def peak(running, thief, make):
    """Let `thief` send `make(number)` again and again; return (most MiB that the broker held,
    messages sent).
    """

    def drain():
        with suppress(OSError, ValueError):
            while thief.socket.recv(1 << 16):
                pass

    threading.Thread(target=drain, daemon=True).start()
    most = sent = 0
    begun = time.monotonic()
    with suppress(OSError):  # the broker hangs up
        while (spent := time.monotonic() - begun) < SECONDS or (
            sent * 2500 <= ATTACK and spent < MOST_SECONDS
        ):
            thief.socket.sendall(b"".join(make(sent + more) for more in range(50)))
            sent += 50
            most = max(most, memory(running.pid))
    return most, sent


@pytest.mark.sampled(2)
@pytest.mark.parametrize("make", [reports_at(1), reports_at(0)], ids=["qos1", "qos0"])
def test_the_queue_for_a_host_that_does_not_read_is_limited(running, make):
    host = RawClient(running.access, running.access.user, running.access.password)
    host.subscribe("tern/up/+")
    thief = board_client(running.access, KEYS, 2)
    most, sent = peak(running, thief, make)
    assert sent * 2500 > 100 << 20, "an attack"
    assert most < 100
    board = board_client(running.access, KEYS, 3)
    board.publish("tern/up/00000003", b"x")
    for client in (thief, board, host):
        client.close()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("make", [deep, wide])
def test_the_memory_for_subscriptions_is_limited(running, make):
    """The access list admits them; out of memory, Mosquitto ends instead of growing."""
    thief = board_client(running.access, KEYS, 2)
    most, _ = peak(running, thief, make)
    thief.close()
    assert 0 < most < MOST


def test_a_message_of_qos_2_is_refused(running):
    thief = board_client(running.access, KEYS, 2)
    thief.socket.sendall(publication("tern/up/00000002", b"x", 2, 1))
    with pytest.raises(ConnectionError):
        thief.receive()


def test_a_will_obeys_the_access_list(running):
    access = running.access
    reader = RawClient(access, access.user, access.password)
    reader.subscribe("tern/up/+")
    reader.subscribe("tern/hello/+")
    victim = board_client(access, KEYS, 1)
    victim.subscribe("tern/round")
    victim.subscribe("tern/down/00000001")
    for topic in (
        "tern/round",
        "tern/up/00000001",
        "tern/hello/00000001",
        "tern/down/00000001",
        "other",
    ):
        board_client(access, KEYS, 2, will=(topic, b"forged")).close()  # not allowed
    allowed = mqtt.HELLO % ("tern", mqtt.name(2))
    board_client(access, KEYS, 2, will=(allowed, b"own")).close()
    assert [(topic, body[2:]) for topic, body in reader.messages(60.0, 1)] == [(allowed, b"own")]
    reader.subscribe("tern/hello/+")  # once more: the broker retains no other will
    victim.subscribe("tern/round")
    assert [topic for topic, _ in reader.arrived()] == [allowed]
    assert victim.arrived() == []
    reader.close()
    victim.close()
