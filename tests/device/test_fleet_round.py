"""Rounds for the whole fleet: who answers, under which key, how far ahead, and how often."""

import scratch
import small_board
from small_board import ask_all as answers
from small_board import error_of, provision, put_fleet, round_frame

from tern import client as clients
from tern import storage, wire
from tern.client import Client

FLEET_KEY = bytes(range(100, 132))


def board(folder, count=3, pause=0, key=FLEET_KEY, **options):
    made = provision(folder, clients=count, **options)
    put_fleet(folder, key, pause)
    return made


def announcement(number, key=FLEET_KEY, **options):
    return round_frame(number, small_board.THREE, device=wire.FLEET, key=key, **options)


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
