"""The boards of a store, as the broker sees them while no host is running."""

from ternhost.store.boards import BoardRow
from ternhost.watch.connected import Connected, SeenBoard, with_connected

NOW = 1000.0


def row(first, online=False, **more):
    """A board that was heard last at 500 s."""
    return BoardRow(f"b{first}", first, 1, online, 500.0, **more)


def seen(*firsts, hello=None):
    """What the broker says when these boards are connected."""
    boards = {first: SeenBoard(f"b{first}", first, 1, hello or {}) for first in firsts}
    return Connected("localhost:8883", NOW, boards)


def test_a_board_that_is_connected_is_online_and_was_just_heard():
    (board,) = with_connected((row(1),), seen(1))
    assert (board.online, board.heard) == (True, NOW)


def test_a_board_that_a_killed_host_has_left_online_is_offline_if_it_is_not_connected():
    (board,) = with_connected((row(1, online=True),), seen())
    assert (board.online, board.heard) == (False, 500.0)


def test_a_board_that_no_run_has_seen_is_added_in_the_order_of_devices():
    boards = with_connected((row(1), row(3)), seen(2))
    assert [(board.first, board.online) for board in boards] == [(1, False), (2, True), (3, False)]


def test_a_board_that_only_the_broker_has_seen_stays_when_it_is_gone():
    before = with_connected((), seen(2))
    (board,) = with_connected((), seen(), before)
    assert (board.first, board.online, board.heard) == (2, False, NOW)


def test_what_a_board_has_paid_since_its_hello_counts_until_it_sends_another_one():
    hello = {"budget": 10, "spent": 0}
    stored = row(1, hello=hello, spent=4)
    (same,) = with_connected((stored,), seen(1, hello=hello))
    (other,) = with_connected((stored,), seen(1, hello={"budget": 6, "spent": 4}))
    assert (same.budget_left, other.budget_left) == (6, 6)
