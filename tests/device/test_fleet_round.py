"""Rounds for the whole fleet: clients pause between two payments, whether or not there is memory."""

import scratch
import small_board
from checks import no_memory, replaced
from small_board import ask_all as answers
from small_board import error_of, provision, put_fleet, round_frame

from tern import client as client_module
from tern import storage, wire
from tern.client import Client

FLEET_KEY = bytes(range(100, 132))


def client_of(count):
    """A client of a new board with this number of clients, and a pause of 60 s."""
    folder = scratch.folder()
    board = provision(folder, clients=count)
    put_fleet(folder, FLEET_KEY, pause=60)
    return Client(board)


def announcement(number):
    return round_frame(number, small_board.THREE, device=wire.FLEET, key=FLEET_KEY)


def test_a_client_still_pauses_when_memory_runs_out():
    opened = []

    def remember(path, most):
        opened.append(storage.Clients(path, most))
        return opened[-1]

    for frame in (round_frame(1, small_board.THREE), announcement(1)):
        client = client_of(1)
        with replaced(client_module, ticks_ms=no_memory, Clients=remember):
            (error,) = answers(client, frame)
        assert error[0] == wire.ERROR
        (error,) = answers(client, frame)
        assert error_of(error)[0] == wire.ERR_TOO_SOON
    for file in opened:
        file.close()


def test_a_client_pauses_between_two_payments():
    now = [1000]  # ms
    with replaced(client_module, ticks_ms=lambda: now[0], ticks_diff=lambda later, earlier: later - earlier):
        client = client_of(2)
        for device, error in zip((7, 8), answers(client, announcement(1))):
            assert error_of(error, device) == (wire.ERR_TOO_SOON, 60)
        now[0] += 59_001
        assert error_of(answers(client, announcement(1))[0]) == (wire.ERR_TOO_SOON, 1)
        now[0] += 999
        (first,) = answers(client, round_frame(1, small_board.THREE))
        assert first[0] == wire.REPORT
        now[0] += 30_000
        one, other = answers(client, announcement(1))
        assert one == first and other[0] == wire.REPORT, "a report that is paid for may be sent again"
        now[0] += 30_000
        one, other = answers(client, announcement(2))
        assert one[0] == wire.REPORT and error_of(other, 8) == (wire.ERR_TOO_SOON, 30)
        client = Client(client.board)
        assert error_of(answers(client, announcement(3))[0]) == (wire.ERR_TOO_SOON, 60), "started again"
