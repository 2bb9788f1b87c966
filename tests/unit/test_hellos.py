"""What boards, and brokers of sites, may have a host believe: hellos carry no proof."""

import time

import pytest

from tern import frames
from ternhost.learn.schedule import Terms
from ternhost.provision import keys
from ternhost.reach.broker.access import Access
from ternhost.reach.broker.driver import BrokerDriver
from ternhost.reach.broker.link import MqttLink
from ternhost.reach.sightings import Sightings
from ternhost.store.store import Store

ACCESS = Access("localhost", 8883, "tern-host", "secret", None)


def say(link, first, clients=1, live=True):
    """Have the link hear the hello of a board."""
    out = bytearray(200)
    n = frames.encode_hello(out, 0, first, clients, 0, 0, 0, 0, 0, 0, 1, 0, "test")
    retain = {} if live else {"retain": 1}
    link._on_message(None, f"tern/hello/{first:08x}", bytes(out[:n]), 1, retain)


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "store.sqlite") as store:
        keys.add(store, [1, 2, 3, 9])
        yield store


def test_a_board_without_a_key_leaves_no_row(store):
    driver = BrokerDriver(store, lambda: MqttLink(ACCESS), Terms(), standing=True)
    driver.link = MqttLink(ACCESS)
    for first in (1, 9, *range(100, 200)):
        say(driver.link, first)
    driver._look_at_boards(time.monotonic())
    driver._note_heard()
    assert [board.first for board in store.boards()] == [1, 9]
    driver._runner.close()


IDS = {"lab": range(1, 100), "shed": range(200, 300)}


@pytest.fixture
def link(monkeypatch):
    """A link that knows the ids of two sites; a third was given none. Its clock stands still."""
    link = MqttLink(ACCESS, sites=lambda: IDS)
    link._site_ids.renew()
    link.now = 1000.0
    monkeypatch.setattr("ternhost.reach.broker.link.time.monotonic", lambda: link.now)
    return link


def back(link, site, retained=False):
    link._on_message(None, f"tern/site/{site}", b"1", 1, {"retain": 1} if retained else {})


def kept(link, first, live=True):
    say(link, first, live=live)
    return link.boards[f"{first:08x}"].kept


def test_a_site_that_is_back_says_nothing_of_boards_elsewhere(link):
    assert not kept(link, 5)
    assert kept(link, 5, live=False)
    back(link, "lab", retained=True)
    assert not kept(link, 5)
    back(link, "lab")
    assert kept(link, 5)
    assert not kept(link, 250), "at another site"
    assert not kept(link, 150), "at the central broker, or a site without ids"
    link.now += 3.0
    assert not kept(link, 5)


def test_a_site_without_ids_says_nothing_of_boards_of_those_that_have_some(link):
    back(link, "attic")
    assert kept(link, 150)
    assert not kept(link, 5)


def test_a_site_that_is_back_all_the_time_does_not_keep_boards_asleep(link):
    taken = 0
    for _ in range(120):
        back(link, "lab")
        taken += not kept(link, 5)
        link.now += 1.0
    assert taken == 120 - 2 * 3


def test_a_board_has_no_clients_beyond_the_ids_of_its_site(link):
    for first, clients, stop in (
        (90, 5, 95),
        (90, 500, 100),
        (99, 2, 100),
        (100, 500, 200),
        (250, 2**31, 300),
        (300, 50, 350),
    ):
        say(link, first, clients)
        assert link.boards[f"{first:08x}"].clients == range(first, stop)


def test_a_board_whose_leave_a_site_told_too_late_is_there_once_it_says_something(link):
    say(link, 7, 3)
    before = dict(link.boards)
    link._on_message(None, "tern/hello/00000007", b"", 1, {})
    assert not link.boards
    link._on_message(None, "tern/up/00000008", b"of another", 1, None)
    assert not link.boards
    link.changed.clear()
    link._on_message(None, "tern/up/00000007", b"a report", 1, None)
    assert link.boards == before
    assert link.changed == {"00000007"}


# Notes of what boards say decide nothing: no run ends where they cannot be written


LONG = {"text": 2000 * "x"}


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
