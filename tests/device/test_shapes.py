"""A device obeys only cards of the shapes that its policy allows."""

import struct

import scratch
from small_board import THREE, WINDOW, ask, error_of, provision, round_frame

from tern import storage, wire
from tern.client import Client


def allow(folder, mask):
    with open(folder + "/" + storage.CLIENTS, "r+b") as file:
        file.seek(storage.CLIENT_BYTES - 2)
        file.write(struct.pack("<H", mask))


def test_only_the_shapes_of_the_policy_are_obeyed():
    for mask, table, window in (
        (0, True, True),
        (1 << 1, True, False),
        (1 << 2, False, True),
        (6, True, True),
    ):
        folder = scratch.folder()
        board = provision(folder)
        allow(folder, mask)
        client = Client(board)
        for number, card, allowed in ((1, THREE, table), (2, WINDOW, window)):
            answer = ask(client, round_frame(number, card))
            if allowed:
                assert answer[0] == wire.REPORT
            else:
                assert error_of(answer) == (wire.ERR_POLICY, 300_000_000)


def test_a_shape_that_there_is_not_is_a_damaged_file():
    folder = scratch.folder()
    board = provision(folder)
    allow(folder, 1 << 6)
    assert error_of(ask(Client(board), round_frame(1, THREE)), 0)[0] == wire.ERR_DEVICE
