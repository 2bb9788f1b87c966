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
ATTACK_BYTES = 100 << 20  # at least
REPORT_BYTES = 2500
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


def report(number):
    return publication("tern/up/00000002", bytes(REPORT_BYTES), 1, number)


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
        while is_under_way(time.monotonic() - begun, sent):
            many = [make(number) for number in range(sent, sent + 50)]
            thief.socket.sendall(b"".join(many))
            sent += len(many)
            most = max(most, memory(running.pid))
    return most, sent


def is_under_way(seconds, sent):
    """Whether an attack has to go on after so many seconds and messages of REPORT_BYTES."""
    is_too_small = sent * REPORT_BYTES <= ATTACK_BYTES and seconds < MOST_SECONDS
    return seconds < SECONDS or is_too_small


def test_the_queue_for_a_host_that_does_not_read_is_limited(running):
    """The host has subscribed, but reads nothing. With one board's password, a thief sends it
    reports as fast as he can. The broker drops what it cannot queue: it stays small, and goes on
    for other boards.
    """
    host = RawClient(running.access, running.access.user, running.access.password)
    host.subscribe("tern/up/+")
    thief = board_client(running.access, KEYS, 2)

    most_mib, sent = peak(running, thief, report)

    assert sent * REPORT_BYTES > ATTACK_BYTES  # 100 MiB
    assert most_mib < 100, "the broker has not kept all of it"
    board = board_client(running.access, KEYS, 3)
    board.publish("tern/up/00000003", b"x")  # the broker still answers
    for client in (thief, board, host):
        client.close()


def test_the_memory_for_subscriptions_is_limited(running):
    """The access list admits them; out of memory, Mosquitto ends instead of growing."""
    thief = board_client(running.access, KEYS, 2)
    most, _ = peak(running, thief, deep)
    thief.close()
    assert 0 < most < MOST


def test_a_message_of_qos_2_is_refused(running):
    """Messages of this quality of service would make the broker keep state for a client. It hangs
    up.
    """
    thief = board_client(running.access, KEYS, 2)
    thief.socket.sendall(publication("tern/up/00000002", b"x", qos=2, number=1))
    with pytest.raises(ConnectionError):
        thief.receive()


OF_HOST = ("tern/up/+", "tern/hello/+")
OF_VICTIM = ("tern/round", "tern/down/00000001")
FORBIDDEN = (*OF_VICTIM, "tern/up/00000001", "tern/hello/00000001", "other")  # to board 2


def test_a_will_obeys_the_access_list(running):
    """A will is a message that the broker publishes for a client whose connection has ended. Board
    2 must not publish by its will what it may not publish itself: nothing on the topics of the
    host, of board 1, or of no board.
    """
    access = running.access
    host = RawClient(access, access.user, access.password)
    victim = board_client(access, KEYS, 1)
    for client, topics in ((host, OF_HOST), (victim, OF_VICTIM)):
        for topic in topics:
            client.subscribe(topic)

    # close() breaks each connection off, so that its will is published, or not.
    for topic in FORBIDDEN:
        board_client(access, KEYS, 2, will=(topic, b"forged")).close()
    allowed = mqtt.HELLO % ("tern", mqtt.name(2))
    board_client(access, KEYS, 2, will=(allowed, b"own")).close()

    ((heard_topic, _),) = host.messages(60.0, 1)
    assert heard_topic == allowed
    host.subscribe("tern/hello/+")  # once more: the broker retains no other will
    victim.subscribe("tern/round")
    assert [topic for topic, _ in host.arrived()] == [allowed]
    assert victim.arrived() == []
    host.close()
    victim.close()
