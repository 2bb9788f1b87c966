"""Notes of what boards say: they decide nothing, so that no run ends where they cannot be written."""

import time

import pytest

from ternhost.reach.sightings import Sightings
from ternhost.store.store import Store

LONG = {"text": 2000 * "x"}


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "store.sqlite") as store:
        yield store


def fill(store):
    """From now on the store's file cannot grow: SQLite says that the disk is full."""
    store._db.execute("PRAGMA max_page_count = 1")  # as many as there are, at least


def test_a_full_disk_is_told_once_and_what_was_seen_is_kept(store):
    told = []
    sightings = Sightings(store, told.append)
    fill(store)
    for first in range(1, 100):
        sightings.saw(f"{first:08x}", range(first, first + 1), time.monotonic(), told=LONG, error="gone")
        sightings.write()
    sightings.forget()
    (warning,) = told
    assert warning.startswith("the state of boards is stored later: ")
    assert "full" in warning
    store._db.execute("PRAGMA max_page_count = 1000000")
    sightings.write()
    assert [board.first for board in store.boards()] == list(range(1, 100))
    assert {board.errors for board in store.boards()} == {1}
    assert len(told) == 1


def test_a_disk_that_is_full_again_is_told_again(store):
    told = []
    sightings = Sightings(store, told.append)
    for first in (1, 1000):
        fill(store)
        for board in range(first, first + 50):
            sightings.saw(f"{board:08x}", range(board, board + 1), time.monotonic(), told=LONG)
            sightings.write()
        store._db.execute("PRAGMA max_page_count = 1000000")
        sightings.write()
    assert len(told) == 2
