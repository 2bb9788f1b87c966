"""MicroPython boards on Mosquitto, with TLS, passwords and the access list; and attacks on them."""

import json
import signal
import sqlite3
import ssl
import struct
import subprocess

import pytest
import report_frames
import rig
import warm
from framing import encoded
from harness.arena import CARD, Arena, D, K
from harness.proxy import Faults
from harness.raw_client import RawClient, board_client, wait_for
from report_frames import one_by_one
from spec.answers import error, question

from tern import frames, host_frames, ledger, storage, wire
from tern.links import mqtt
from ternhost.errors import REFUSED
from ternhost.reach.refusals import WHEN_SPENT

PATIENCE = 60.0  # seconds to wait for a message that must come


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


def wait_for_hello(host):
    (hello,) = answers(host, PATIENCE, 1)
    assert hello[0] == "tern/hello/00000001"
    assert hello[1]
    return hello[1]


def ask(host, topic, frame, count):
    """Publish a frame, and return the answers of boards, which must be `count` frames."""
    host.publish(topic, frame, retain=topic == "tern/round")
    received = answers(host, PATIENCE if count else 0.4, count)
    assert all(topic == "tern/up/00000001" for topic, _ in received)
    assert len(received) == count
    return [frame for _, frame in received]


# A round of each kind


@pytest.mark.usefixtures("mosquitto")
def test_a_request_for_one_device_is_the_question_of_the_round_for_all(arena, host):
    hello = host_frames.Hello(wait_for_hello(host))
    assert (hello.first, hello.clients, hello.schema) == (1, 3, wire.SCHEMA)

    question = round_frame(arena.keys[2], 2, 1)
    (report,) = ask(host, "tern/down/00000001", question, 1)
    assert frames.address(report) == (2, 1)
    assert ask(host, "tern/down/00000001", question, 1) == [report], (
        "the same request, the same bytes"
    )

    announcement = round_frame(arena.fleet_key, wire.FLEET, 1)
    reports = ask(host, "tern/round", announcement, 3)
    assert sorted(frames.address(frame) for frame in reports) == [(1, 1), (2, 1), (3, 1)]
    assert report in reports, "the announcement asks the same question"
    for frame in reports:
        device = frames.address(frame)[0]
        own_question = report_frames.question_of(arena.keys[device], device, announcement)
        frames.verify(frames.answer_key(own_question), frame)

    arena.fleet.boards[0].restart()  # comes late, and gets the announcement
    received = answers(host, PATIENCE, 5)  # its will, its hello, its answers
    assert sorted(frame for topic, frame in received if topic.startswith("tern/up")) == sorted(
        reports
    )


@pytest.mark.usefixtures("mosquitto")
def test_a_kept_session_delivers_requests_that_came_while_the_board_was_away(arena, host):
    """A clean session does not."""
    board = arena.fleet.boards[0]
    wait_for_hello(host)
    for number, clean in ((1, False), (2, True)):
        arena.write_network(clean=clean)
        for running in (False, True, False):
            board.start() if running else board.kill()
            assert bool(answers(host, PATIENCE, 1)[0][1]) == running, "its hello, or its will"
        host.publish("tern/down/00000001", round_frame(arena.keys[1], 1, number))
        board.start()
        kinds = [frame[0] for _, frame in answers(host, PATIENCE, 1 if clean else 2)]
        assert sorted(kinds) == ([wire.HELLO] if clean else [wire.HELLO, wire.REPORT])
        assert answers(host, 0.5) == []


# Attacks


@pytest.mark.usefixtures("mosquitto")
def test_the_access_list_keeps_a_board_to_its_own_topics(arena, host):
    wait_for_hello(host)
    thief = board_client(arena.access, arena.keys, 2)
    frame = round_frame(arena.keys[1], 1, 1)
    for topic in (
        "tern/round",
        "tern/down/00000001",
        "tern/down/00000002",
        "tern/up/00000001",
        "tern/hello/00000001",
        "tern/up/00000002/more",
        "other",
    ):
        thief.publish(topic, frame)
    thief.publish("tern/model", frame, retain=True)
    assert answers(host, 0.5) == []
    for topic in (
        "tern/up/+",
        "tern/down/00000001",
        "tern/down/+",
        "tern/hello/00000001",
        "#",
        "$SYS/#",
    ):
        thief.subscribe(topic)
    ask(host, "tern/down/00000001", frame, 1)
    assert thief.subscribe("tern/model") <= 2
    assert thief.arrived() == [], "no message for others"
    host.publish("tern/model", b"the model", retain=True)
    ((topic, payload),) = thief.messages(PATIENCE, 1)
    assert (topic, payload[2:]) == ("tern/model", b"the model")
    thief.publish("tern/up/00000002", b"its own")
    assert host.messages(PATIENCE, 1)[0][0] == "tern/up/00000002"


@pytest.mark.usefixtures("mosquitto")
def test_a_client_needs_its_password_and_cannot_take_over_another_session(arena, host):
    wait_for_hello(host)
    for password in ("", "wrong", mqtt.password(bytes(32))):
        assert [
            RawClient(arena.access, user, password).code for user in (mqtt.name(2), "nobody")
        ] == [5, 5]
    thief = board_client(arena.access, arena.keys, 2, client_id=mqtt.name(1))
    assert thief.code == 0
    ask(host, "tern/round", round_frame(arena.fleet_key, wire.FLEET, 1), 3)
    assert thief.arrived() == [], "it has not taken over the session of board 1"
    with pytest.raises((ConnectionError, ssl.SSLError)):
        thief.publish("tern/up/00000002", bytes(5000))


# The host


def serve(arena, *words, **options):
    command = [*arena.host_command(**options), *words]
    return warm.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=arena.directory
    )


def finish(process, code=0):
    """Wait for the end of a host; return the JSON objects that it printed."""
    out, err = process.communicate(timeout=180)
    assert process.returncode == code, err
    return [json.loads(line) for line in out.splitlines()]


def ends(lines):
    """The lines about the ends of rounds."""
    return [line for line in lines if line.get("event") == "end"]


def test_a_device_that_is_revoked_is_refused_at_once(arena):
    process = serve(arena, interval=8, rounds=2)
    wait_for(lambda: arena.ended() == 1)
    process.send_signal(signal.SIGSTOP)  # however long the command takes
    rig.tern("device", "revoke", 2, "--store", arena.path, code=0)
    process.send_signal(signal.SIGCONT)
    lines = finish(process)
    assert [(line["asked"], line["reports"]) for line in ends(lines)] == [(3, 3), (2, 2)]
    assert ends(lines)[-1]["frames"]["unknown"] >= 1, "the host has ignored the answer of its board"


def test_a_board_cannot_report_for_another_device(arena, host):
    """Neither with the password of device 2, nor with its key."""
    arena.fleet.boards[0].kill()
    process = serve(arena, deadline=12, rounds=1)
    announcement = wait_for(lambda: next((body for body in _announcements(arena) if body), None))
    number = struct.unpack_from("<I", announcement, 5)[0]
    thief = board_client(arena.access, arena.keys, 2)
    for key, device in (
        (arena.keys[2], 1),
        (arena.fleet_key, 1),
        (bytes(32), 1),
        (arena.keys[2], 3),
    ):
        report = encoded(frames.encode_report, key, device, number, [0, 0], K, 3, 2)
        thief.publish("tern/up/00000002", report)
        thief.publish("tern/up/00000001", report)
    lines = finish(process, code=3)
    assert [line["reports"] for line in ends(lines)] == [0]
    assert ends(lines)[-1]["frames"]["forged"] == 4, (
        "those on its own topic; the broker stopped the rest"
    )


def _announcements(arena):
    reader = board_client(arena.access, arena.keys, 3)
    reader.subscribe("tern/round")
    announcements = [payload[2:] for _, payload in reader.arrived()]
    reader.close()
    return announcements


def test_devices_that_claim_a_later_round_do_not_stop_a_host(arena):
    """Two devices of three claim that they have seen the last round of all."""
    arena.fleet.boards[0].kill()
    process = serve(arena, rounds=2)
    liar = board_client(arena.access, arena.keys, 1)
    liar.subscribe("tern/round")
    numbers = []
    while len(numbers) < 2:
        for _, payload in liar.messages(0.2):
            if (
                len(payload) > 2
                and (number := struct.unpack_from("<I", payload, 7)[0]) not in numbers
            ):
                numbers.append(number)
                for device in (1, 2, 3):
                    digest = question(arena.keys[device], device, payload[7:-8])
                    claim = (
                        (wire.ERR_OLD_ROUND, wire.MAX_ROUND - 1)
                        if device < 3
                        else (wire.ERR_BUDGET, 0)
                    )
                    liar.publish("tern/up/00000001", error(digest, device, number, *claim))
    lines = finish(process, code=REFUSED)
    assert numbers == [1, 2]
    assert [line["refusals"] for line in ends(lines)] == [3, 3]
    warned = [line for line in lines if "1073741822" in str(line)]
    assert [line.get("event") for line in warned] == ["note", None], (
        "once as a note, and as the error"
    )
    assert all(
        "2 of 3 devices say that they have seen round 1073741822" in str(line) for line in warned
    )
    assert "--after-round" not in str(warned)
    liar.close()
    arena.fleet.boards[0].restart()
    lines = finish(serve(arena, rounds=3), code=REFUSED)
    assert [(line["round"], line["reports"]) for line in ends(lines)] == [(3, 3)]


def test_a_served_fleet_whose_budget_is_spent_gets_advice(arena):
    finish(serve(arena))  # until the budget is spent
    lines = finish(serve(arena, "--new-model", rounds=2), code=REFUSED)
    assert ends(lines) == [], "no round begins of which nobody can pay for a report"
    assert "3 of the 3 devices whose budget is known cannot pay that" in lines[-1]["error"]
    assert (lines[-1]["hint"], lines[-1]["exit_code"]) == (WHEN_SPENT, REFUSED)


def test_a_restored_store_goes_on_after_the_rounds_that_it_lacks(arena):
    finish(serve(arena, rounds=1))
    copy = arena.path.with_name("copy")
    with sqlite3.connect(arena.path) as store:
        store.execute("VACUUM INTO ?", (str(copy),))
    finish(serve(arena, rounds=4))
    for path in arena.path.parent.glob(arena.path.name + "*"):
        path.unlink()
    copy.rename(arena.path)
    arena.path.chmod(0o600)
    lines = finish(serve(arena, rounds=2), code=REFUSED)
    assert ends(lines)[-1]["reports"] == 0
    (advice,) = [str(line) for line in lines if "have seen round 4" in str(line)]
    assert "go on with --after-round 4" in advice
    lines = finish(serve(arena, rounds=3, **{"after-round": 4}), code=REFUSED)
    assert [(line["number"], line["reports"]) for line in ends(lines)] == [(5, 3)]
    assert list(arena.differences()) == []


def test_a_host_that_waits_for_a_broker_can_be_stopped(arena):
    arena.broker.close()
    process = serve(arena, rounds=1)
    assert "waiting for it" in process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    assert finish(process)[-1]["rounds"] == 0
    arena.broker.start()


# All at once


def test_counts_and_ledgers_agree_whatever_dies(tmp_path):
    faults = Faults(3, drop=0.05, repeat=0.05, delay=0.05, truncate=0.02, flip=0.02, replay=0.05)
    with Arena(tmp_path, clients=60, boards=3, rounds=6, faults=faults, seed=3) as arena:
        deeds = [
            (0.0, arena.read_slowly),
            (0.1, arena.jump_clock),
            (0.2, arena.restart_broker),
            (0.3, arena.restart_host),
            (0.3, arena.lie),
            (0.3, arena.flood),
            (0.5, arena.cut_power),
            (0.5, arena.halt),
            (0.5, arena.jump_clock),
            (0.6, arena.restart_host),
            (0.8, arena.restart_broker),
            (0.8, arena.lie),
        ]
        assert arena.run(deeds, timeout=180) == 6
        assert arena.end() == []
        summary = arena.summary()
        assert summary["accepted"] == 6 * 60
        assert sum(faults.injected.values()) > 20, "the network damaged many messages"
        assert {
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
        } <= summary["injected"].keys()
        assert {"not certified", "policy", "old round"} <= summary["refused_by_devices"].keys()

        # An altered report and a replaced ledger are both detected.
        with sqlite3.connect(arena.path) as store:
            batch, packed = store.execute("SELECT id, packed FROM batch WHERE round = 3").fetchone()
            altered = bytes((0 if packed[0] else 1, *packed[1:]))
            store.execute("UPDATE batch SET packed = ? WHERE id = ?", (altered, batch))
        assert any("the counts are not those" in line for line in arena.differences())
        ledger.create(str(arena.boards[0] / storage.LEDGERS / "new"), arena.budget)
        (arena.boards[0] / storage.LEDGERS / "new").rename(arena.boards[0] / storage.ledger_name(1))
        assert any("device 1 has paid 0 for 6 reports" in line for line in arena.differences())
