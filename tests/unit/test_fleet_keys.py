"""Which boards get the fleet's key if the broker takes only some messages; without a broker."""

from types import SimpleNamespace

import pytest

from ternhost.reach.broker import fleet_keys
from ternhost.reach.broker.roster import BoardOnBroker
from ternhost.store.fleet_key import FleetKey

BOARDS = 10


class BusyLink:
    """A link over which only so many frames go out. tried: the boards that a frame was for."""

    def __init__(self, room):
        self.room = room
        self.tried = []

    def ask(self, name, _frame):
        self.tried.append(name)
        return len(self.tried) <= self.room


@pytest.fixture
def boards():
    """Connected boards of one device each, whose key of the fleet is an earlier one."""
    boards = []
    for device in range(1, BOARDS + 1):
        board = BoardOnBroker(f"{device:08x}")
        board.clients = range(device, device + 1)
        board.connected = True
        boards.append(board)
    return boards


def fleet_on(link):
    """A fleet whose host has the key of every device."""
    aggregator = SimpleNamespace(key=lambda _device: bytes(32))
    return SimpleNamespace(link=link, aggregator=aggregator, key=FleetKey(bytes(32), epoch=1))


def test_boards_for_which_the_broker_has_no_room_wait_for_the_key(boards):
    waiting = fleet_keys.send_fleet_key(fleet_on(BusyLink(room=4)), boards)
    assert waiting == boards[4:]
    assert [board.key.sent for board in boards] == [True] * 4 + [False] * 6


def test_once_the_broker_has_no_room_no_other_board_is_tried(boards):
    # To seal a key for each of very many boards takes seconds, in which the host does nothing else.
    link = BusyLink(room=4)
    fleet_keys.send_fleet_key(fleet_on(link), boards)
    assert len(link.tried) == 5
