"""Rounds for the whole fleet: who answers, under which key, how far ahead, and how often."""

import os
import struct

import scratch
import small_board
from small_board import EPSILON, answer_key, error_of, key_of, provision, round_frame, spent
from small_board import ask_all as answers

from tern import client as clients
from tern import frames, storage, wire
from tern.client import Client

FLEET_KEY = bytes(range(100, 132))


def board(folder, count=3, pause=0, key=FLEET_KEY, **options):
    made = provision(folder, clients=count, **options)
    with open(folder + "/" + storage.FLEET, "wb") as file:
        file.write(struct.pack(storage.FLEET_FIELDS, storage.FLEET_MAGIC, key, pause, 0, 1, 1, 0))
    return made


def announcement(number, key=FLEET_KEY, **options):
    return round_frame(number, small_board.THREE, device=wire.FLEET, key=key, **options)


def test_every_client_answers_under_its_own_key():
    folder = scratch.folder()
    client = Client(board(folder))
    found = answers(client, announcement(1))
    assert [frames.address(report) for report in found] == [(7, 1), (8, 1), (9, 1)]
    for device, report in zip((7, 8, 9), found):
        assert report[0] == wire.REPORT
        frames.verify(answer_key(device), report)
        assert spent(folder, device) == 4 * EPSILON
    assert answers(client, announcement(1)) == found, "repeated, the same bytes"
    assert spent(folder, 8) == 4 * EPSILON


def test_it_is_one_question_under_either_key():
    folder = scratch.folder()
    client = Client(board(folder))
    (alone,) = answers(client, round_frame(1, small_board.THREE, device=8))
    assert answers(client, announcement(1))[1] == alone
    found = answers(client, announcement(1, shift=1))
    assert {error_of(error, device) for device, error in zip((7, 8, 9), found)} == {
        (wire.ERR_CHANGED_ROUND, 1)
    }


def test_another_key_gets_one_answer_from_the_board():
    for key in (bytes(32), key_of(7), FLEET_KEY):
        folder = scratch.folder()
        made = board(folder)
        if key == FLEET_KEY:
            os.remove(folder + "/" + storage.FLEET)
        (error,) = answers(Client(made), announcement(1, key=key))
        assert error_of(error, 0) == (wire.ERR_DEVICE, wire.FLEET)
        assert [spent(folder, device) for device in (7, 8, 9)] == [0, 0, 0]


def test_damaged_announcements_get_one_answer():
    client = Client(board(scratch.folder()))
    frame = bytes(announcement(1))
    for at in range(0, len(frame), 7):
        bad = bytearray(frame)
        bad[at] ^= 4
        (error,) = answers(client, memoryview(bad))
        assert error[0] == wire.ERROR
    for n in range(1, 30):
        (error,) = answers(client, memoryview(frame)[:n])
        assert error[0] == wire.ERROR


def test_a_damaged_fleet_file_refuses_every_round():
    for content in (
        b"",
        b"TFL2" + bytes(36),
        b"XXXX" + bytes(40),
        b"XXXX" + bytes(46),
        struct.pack("<4s32sIHH", b"TFL2", bytes(32), 0, 0, 1),
        struct.pack("<4s32sIHH", b"TFL1", bytes(32), 0, 0, 1),
        struct.pack("<4s32sIHHIH", b"TFL2", bytes(32), 86401, 0, 1, 0, 0),
        struct.pack("<4s32sIHHIH", b"TFL1", bytes(32), 0, 0, 1, 0, 0),
    ):
        folder = scratch.folder()
        made = board(folder)
        with open(folder + "/" + storage.FLEET, "wb") as file:
            file.write(content)
        client = Client(made)
        for frame in (announcement(1), round_frame(1, small_board.THREE)):
            (error,) = answers(client, frame)
            assert error[0] == wire.ERROR
        assert spent(folder, 7) == 0


def test_no_key_takes_a_client_to_the_last_round_at_once():
    folder = scratch.folder()
    client = Client(board(folder, count=1))
    (error,) = answers(client, announcement(wire.FLEET_AHEAD + 1))
    assert error_of(error) == (wire.ERR_AHEAD, 0)
    (error,) = answers(client, announcement(wire.MAX_ROUND))
    assert error_of(error) == (wire.ERR_AHEAD, 0)
    assert spent(folder, 7) == 0
    (report,) = answers(client, announcement(wire.FLEET_AHEAD))
    assert report[0] == wire.REPORT
    (report,) = answers(client, round_frame(100000, small_board.THREE))
    assert report[0] == wire.REPORT
    (error,) = answers(client, announcement(100000 + wire.FLEET_AHEAD + 1))
    assert error_of(error) == (wire.ERR_AHEAD, 100000)
    for number in (wire.MAX_ROUND, 100000 + wire.CLIENT_AHEAD + 1):
        (error,) = answers(client, round_frame(number, small_board.THREE))
        assert error_of(error) == (wire.ERR_AHEAD, 100000)
    (report,) = answers(client, round_frame(100000 + wire.CLIENT_AHEAD, small_board.THREE))
    assert report[0] == wire.REPORT


def test_clients_that_no_memory_was_left_for_still_pause():
    opened = []

    def remember(path, most):
        opened.append(storage.Clients(path, most))
        return opened[-1]

    def full():
        raise MemoryError

    good = clients.ticks_ms, clients.Clients
    for frame in (round_frame(1, small_board.THREE), announcement(1)):
        client = Client(board(scratch.folder(), count=1, pause=60))
        try:
            clients.ticks_ms, clients.Clients = full, remember
            (error,) = answers(client, frame)
        finally:
            clients.ticks_ms, clients.Clients = good
        assert error[0] == wire.ERROR
        (error,) = answers(client, frame)
        assert error_of(error)[0] == wire.ERR_TOO_SOON
    for file in opened:
        file.close()


def test_pauses_between_debits():
    folder = scratch.folder()
    clock = Clock()
    ticks = clients.ticks_ms, clients.ticks_diff
    clients.ticks_ms, clients.ticks_diff = clock.ms, lambda later, earlier: later - earlier
    try:
        client = Client(board(folder, count=2, pause=60))
        assert [error_of(e, d) for d, e in zip((7, 8), answers(client, announcement(1)))] == [
            (wire.ERR_TOO_SOON, 60)
        ] * 2
        clock.now += 59_001
        assert error_of(answers(client, announcement(1))[0]) == (wire.ERR_TOO_SOON, 1)
        clock.now += 999
        (first,) = answers(client, round_frame(1, small_board.THREE))
        assert first[0] == wire.REPORT
        clock.now += 30_000
        found = answers(client, announcement(1))
        assert found[0] == first and found[1][0] == wire.REPORT, "what is paid for may be sent again"
        clock.now += 30_000
        found = answers(client, announcement(2))
        assert found[0][0] == wire.REPORT and error_of(found[1], 8) == (wire.ERR_TOO_SOON, 30)
        client = Client(client.board)
        assert error_of(answers(client, announcement(3))[0]) == (wire.ERR_TOO_SOON, 60), "started again"
    finally:
        clients.ticks_ms, clients.ticks_diff = ticks


class Clock:
    def __init__(self):
        self.now = 1000

    def ms(self):
        return self.now
