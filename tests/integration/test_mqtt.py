"""MicroPython boards on Mosquitto, with TLS, passwords and the access list; and attacks on them."""

import signal
import sqlite3
import struct

import pytest
import rig
from framing import encoded
from harness.arena import CARD, Arena, D, K
from harness.proxy import Faults
from harness.raw_client import RawClient, board_client
from harness.served import ends, finish, serve
from harness.waiting import wait_for
from report_frames import one_by_one

from tern import frames, host_frames, ledger, storage, wire
from tern.links import mqtt
from ternhost.errors import NO_DEVICE, REFUSED

PATIENCE = 60.0  # seconds to wait for a message that must come
NOT_AUTHORISED = 5  # the return code of MQTT
REFUSED_SUBSCRIPTION = 128


def round_frame(key, device, number, card=CARD, k=K, shift=0):
    question = wire.LOGISTIC, [100 + shift] * D, card, k, -14
    return encoded(host_frames.encode_round, key, device, number, *question)


@pytest.fixture
def arena(tmp_path):
    """Three clients on one board, and a network without faults."""
    with Arena(tmp_path, clients=3, boards=1, rounds=5, faults=Faults(on=False)) as running:
        yield running


@pytest.fixture
def host(arena):
    """A client with the host's password, which has subscribed to the topics of boards."""
    client = RawClient(arena.access, arena.access.user, arena.access.password)
    assert client.subscribe("tern/up/+") == 1
    assert client.subscribe("tern/hello/+") == 1
    yield client
    client.close()


def answers(host, seconds=0.7, count=None):
    """Receive frames of boards: all within `seconds`, or `count` of them.

    Return (topic, frame); REPORTS are split.
    """
    received = []
    while count is None or len(received) < count:
        messages = host.messages(seconds, None if count is None else 1)
        for topic, payload in messages:
            received += [(topic, frame) for frame in one_by_one([payload[2:]])]
        if count is None or not messages:
            break
    return received


def ask(host, topic, frame, count):
    """Publish a frame; return the answers of the board, which must be `count` frames."""
    host.publish(topic, frame, retain=topic == "tern/round")
    received = answers(host, PATIENCE, count)
    assert len(received) == count
    assert {topic for topic, _ in received} == {"tern/up/00000001"}
    return [frame for _, frame in received]


# A round of each kind


@pytest.fixture
def listening(host):
    """The host, once the board has said hello."""
    ((topic, hello),) = answers(host, PATIENCE, count=1)
    assert topic == "tern/hello/00000001"
    assert hello
    return host


# Attacks


@pytest.fixture
def thief(arena):
    """A client with the password of device 2."""
    client = board_client(arena.access, arena.keys, 2)
    yield client
    client.close()


TOPICS_OF_OTHERS = (
    "tern/round",
    "tern/down/00000001",
    "tern/up/00000001",
    "tern/hello/00000001",
    "tern/up/00000002/more",
    "tern/model",
    "tern/model/limits",
    "other",
)


@pytest.mark.usefixtures("mosquitto")
def test_a_board_can_publish_on_its_own_topics_alone(listening, thief):
    """With the password of device 2, a thief reaches the host under the name of device 2 alone."""
    for topic in TOPICS_OF_OTHERS:
        thief.publish(topic, b"forged", retain=True)
    thief.publish("tern/up/00000002", b"its own")
    (message,) = listening.messages(PATIENCE, 1)
    assert message[0] == "tern/up/00000002"


@pytest.mark.usefixtures("mosquitto")
def test_a_board_reads_no_message_for_others(arena, listening, thief):
    """With the password of device 2, a thief hears neither board 1's question nor its answer."""
    for topic in ("tern/up/+", "tern/down/00000001", "tern/down/+", "tern/hello/+", "#", "$SYS/#"):
        thief.subscribe(topic)
    request = round_frame(arena.keys[1], device=1, number=1)

    ask(listening, "tern/down/00000001", request, count=1)

    assert thief.arrived() == []
    assert thief.subscribe("tern/model") != REFUSED_SUBSCRIPTION, "the model is for all boards"


@pytest.mark.usefixtures("mosquitto")
@pytest.mark.parametrize("password", ["", "wrong", mqtt.password(bytes(32))])
def test_a_client_needs_its_password(arena, password):
    assert RawClient(arena.access, mqtt.name(2), password).code == NOT_AUTHORISED
    assert RawClient(arena.access, "nobody", password).code == NOT_AUTHORISED


@pytest.mark.usefixtures("mosquitto")
def test_a_board_cannot_take_over_the_session_of_another(arena, listening):
    """At a broker a new connection takes over the session of its client id. A thief who has the
    password of device 2 gives the id of board 1: board 1 still gets the question, and answers for
    its three devices.
    """
    thief = board_client(arena.access, arena.keys, 2, client_id=mqtt.name(1))
    ask(listening, "tern/round", round_frame(arena.fleet_key, wire.FLEET, 1), count=3)
    assert thief.arrived() == []
    thief.close()


# The host


def test_a_device_that_is_revoked_is_refused_at_once(arena):
    """One of three devices is revoked while a host serves rounds: its key is deleted from the
    store. The next round already asks the two others alone, and does not count the answer of the
    revoked one.
    """
    process = serve(arena, every=8, rounds=2)
    wait_for(lambda: arena.ended() == 1)

    # The host is halted meanwhile, so that the second round begins after the command.
    process.send_signal(signal.SIGSTOP)
    rig.tern("keys", "revoke", 2, "--store", arena.path, code=0)
    process.send_signal(signal.SIGCONT)
    first, second = ends(finish(process))

    assert first["asked"] == first["reports"] == 3
    assert second["asked"] == second["reports"] == 2
    assert second["frames"]["unknown"] >= 1, "the host has ignored the answer of its board"


def announced(arena):
    """The number of the round that the broker announces."""
    reader = board_client(arena.access, arena.keys, 3)
    reader.subscribe("tern/round")
    bodies = [payload[2:] for _, payload in reader.arrived() if len(payload) > 2]
    reader.close()
    return struct.unpack_from("<I", bodies[0], 5)[0] if bodies else None


def test_a_board_cannot_report_for_another_device(arena, thief):
    """A thief has the broker's password and the key of device 2. Reports that he forges for devices
    1 and 3, or under keys that he guesses, are not counted, under whichever name he sends them.
    """
    (board,) = arena.fleet.boards
    board.kill()
    process = serve(arena, deadline=6, rounds=1)
    number = wait_for(lambda: announced(arena))
    forgeries = [  # the key under which a report is sealed, and the device in it
        (arena.keys[2], 1),
        (arena.keys[2], 3),
        (arena.fleet_key, 1),
        (bytes(32), 1),
    ]

    for key, device in forgeries:
        report = forged_report(key, device, number)
        thief.publish("tern/up/00000002", report)
        thief.publish("tern/up/00000001", report)  # which the broker stops

    (end,) = ends(finish(process, code=NO_DEVICE))
    assert end["reports"] == 0
    # One of each pair arrives: the broker has stopped the other.
    assert end["frames"]["forged"] == len(forgeries)


def forged_report(key, device, number):
    """A report of K coordinates with symbol 0 of three."""
    packing = frames.report_packing(K, 3)
    return encoded(frames.encode_report, key, device, number, [0] * K, packing)


def test_a_restored_store_goes_on_after_the_rounds_that_it_lacks(arena):
    """The boards have answered rounds 1 to 4 of the five that their budget pays for.

    A host whose restored store knows of round 1 alone must not ask under the numbers 2 to 4 again.
    """
    finish(serve(arena, rounds=1))
    copy = arena.path.with_name("copy")
    with sqlite3.connect(arena.path) as store:
        store.execute("VACUUM INTO ?", (str(copy),))
    finish(serve(arena, rounds=4))  # in all
    replace_store(arena.path, copy)

    lines = finish(serve(arena, rounds=2), code=REFUSED)
    assert ends(lines)[-1]["reports"] == 0
    assert "go on with --after-round 4" in str(lines)

    lines = finish(serve(arena, rounds=3, **{"after-round": 4}), code=REFUSED)
    (fifth_round,) = ends(lines)  # then the budget is spent, and the host ends
    assert fifth_round["number"] == 5
    assert fifth_round["reports"] == 3
    assert list(arena.differences()) == []


def replace_store(path, copy):
    """Restore a store from a copy; the files beside it go."""
    for old in path.parent.glob(path.name + "*"):
        old.unlink()
    copy.rename(path)
    path.chmod(0o600)


# All at once


EXPECTED_FAULTS = {
    "clock jumps",
    "processes halted",
    "slow reader",
    "flood",
    "forged round",
    "lying card",
    "dear round",
    "round asked again, changed",
    "round backwards",
    "boards cut off",
}


def test_counts_and_ledgers_agree_whatever_dies(tmp_path):
    """Three boards of 20 clients answer six rounds over a network that drops, repeats, delays and
    damages messages, while processes die and attackers send forged and flooding messages. In the
    end all clients have been counted once a round, and what the host has counted is what their
    ledgers have paid for.
    """
    faults = Faults(3, drop=0.05, repeat=0.05, delay=0.05, truncate=0.02, flip=0.02, replay=0.05)
    rounds, clients = 6, 60
    with Arena(tmp_path, clients, boards=3, rounds=rounds, faults=faults, seed=3) as arena:
        deeds = [  # after these shares of the rounds
            (0.0, arena.read_slowly),
            (0.1, arena.jump_clock),
            (0.2, arena.restart_broker),
            (0.3, arena.restart_host),
            (0.3, arena.lie),
            (0.3, arena.flood),
            (0.5, arena.cut_power),
            (0.5, arena.halt),
            (0.8, arena.lie),
        ]
        assert arena.run(deeds, timeout=180) == rounds
        assert arena.end() == [], "no difference between counts, reports and ledgers"

        summary = arena.summary()
        assert summary["accepted"] == rounds * clients

        # The attacks have taken place, and the boards have refused the forged questions.
        assert sum(faults.injected.values()) > 20, "the network damaged many messages"
        assert summary["injected"].keys() >= EXPECTED_FAULTS
        assert {"not certified", "policy", "old round"} <= summary["refused_by_devices"].keys()


def test_the_books_show_an_altered_report_and_a_replaced_ledger(arena):
    """Other tests compare the books at the end: the host's counts, its stored reports and the
    ledgers of boards. Here a stored report and a ledger are falsified on purpose, and the
    comparison finds both.
    """
    assert arena.run([], timeout=180) == arena.rounds
    assert arena.end() == []
    alter_report(arena.path, number=3)
    replace_ledger(arena.boards[0], device=1, budget=arena.budget)

    differences = "\n".join(arena.differences())

    assert "the counts are not those" in differences
    assert "device 1 has paid 0 for 5 reports" in differences


def alter_report(path, number):
    """Change the first symbols of a report in a store."""
    with sqlite3.connect(path) as store:
        query = "SELECT id, packed FROM batch WHERE round = ?"
        batch, (first, *rest) = store.execute(query, (number,)).fetchone()
        altered = bytes([0 if first else 1, *rest])
        store.execute("UPDATE batch SET packed = ? WHERE id = ?", (altered, batch))


def replace_ledger(board, device, budget):
    """Replace the ledger of a device by one that has paid nothing."""
    replacement = board / storage.LEDGERS / "new"
    ledger.create(str(replacement), budget)
    replacement.rename(board / storage.ledger_name(device))
