"""Hellos carry no proof: how little boards, and the brokers of sites, can make a host believe."""

import time
from contextlib import contextmanager

import pytest
from framing import hello

from ternhost.count.aggregator import Aggregator
from ternhost.provision import keys
from ternhost.reach import absence as reach_absence
from ternhost.reach.broker.access import Access
from ternhost.reach.broker.health import FleetHealth
from ternhost.reach.broker.link import MqttLink
from ternhost.reach.broker.roster import BoardRoster
from ternhost.reach.broker.state import FleetState
from ternhost.reach.links import read_hello
from ternhost.reach.sightings import Sighting, Sightings
from ternhost.store.boards import hello_fields

ACCESS = Access("localhost", 8883, "tern-host", "secret", None)


def receive_hello(link, first, clients=1, live=True):
    """Have the link hear the hello of a board."""
    link.receive(f"tern/hello/{first:08x}", hello(first, clients), retained=not live)


@pytest.fixture
def store(store):
    keys.add(store, [1, 2, 3, 9])
    return store


def test_a_board_without_a_key_leaves_no_row(store):
    """A hello announces a board at the broker, and proves nothing: anybody may send hellos with
    made-up ids. The store keeps rows only for boards with a device that has a key (here 1, 2, 3 and
    9).
    """
    aggregator = Aggregator(store)
    roster = BoardRoster(aggregator.devices)
    fleet = FleetState(MqttLink(ACCESS), aggregator, roster, keys.fleet_key(store), print)
    health = FleetHealth(fleet, store, Sightings(store), standing=True)

    for first in (1, 9, *range(100, 200)):
        receive_hello(fleet.link, first)
    health.note_changes(roster.update(fleet.link, 0.0), 0.0)
    health.store_sightings()

    assert [board.first for board in store.boards()] == [1, 9]


@pytest.fixture
def link(monkeypatch):
    """A link that knows the ids of two sites. Its clock stands still."""
    link = MqttLink(ACCESS, site_ids=lambda: {"lab": range(1, 100), "shed": range(200, 300)})
    link.presence.site_ids.renew()
    link.now = 1000.0
    monkeypatch.setattr("ternhost.reach.broker.presence.time.monotonic", lambda: link.now)
    return link


def return_site(link, site, retained=False):
    """Have the link hear that a site's bridge is connected again."""
    link.receive(f"tern/site/{site}", b"1", retained)


def counts_as_kept(link, first, live=True):
    """True if the link takes the hello of that board for one that a broker had kept."""
    receive_hello(link, first, live=live)
    return link.presence.boards[f"{first:08x}"].retained


def test_a_returning_site_affects_only_its_own_boards(link):
    """When the bridge of a site returns, its broker repeats hellos that it has kept, as if they
    were new. So for three seconds, hellos of this site's boards count as kept: they do not show
    that the board is there now. The ids 1 to 99 are at the site "lab", 200 to 299 at another.
    """
    assert not counts_as_kept(link, 5)
    assert counts_as_kept(link, 5, live=False), "the broker itself says so"
    return_site(link, "lab", retained=True)  # it returned at some earlier time
    assert not counts_as_kept(link, 5)

    return_site(link, "lab")
    assert counts_as_kept(link, 5)
    assert not counts_as_kept(link, 250), "at another site"
    assert not counts_as_kept(link, 150), "at the central broker, or a site without ids"

    link.now += 3.0
    assert not counts_as_kept(link, 5)


def test_a_site_that_keeps_returning_does_not_keep_boards_asleep(link):
    """For three seconds after a site has returned, hellos of its boards count as kept by its
    broker, and not as live. A site that says every second that it is back has this effect only
    twice in two minutes.
    """
    seconds, live = 120, 0
    for _ in range(seconds):
        return_site(link, "lab")
        live += not counts_as_kept(link, 5)
        link.now += 1.0

    assert live == seconds - 2 * 3


@pytest.mark.parametrize(
    ("first", "claimed", "stop"),
    [
        (90, 5, 95),
        (90, 500, 100),  # the lab has 1 to 99
        (100, 500, 200),  # of no site, and the shed begins at 200
        (250, 2**31, 300),
    ],
)
def test_a_board_has_no_clients_beyond_the_ids_of_its_site(link, first, claimed, stop):
    receive_hello(link, first, claimed)
    assert link.presence.boards[f"{first:08x}"].clients == range(first, stop)


# A run goes on where notes of hellos cannot be written: they decide nothing


@pytest.fixture
def full_disk(store):
    """`full_disk()`: a context in which the file of the store cannot grow."""

    @contextmanager
    def fill():
        # SQLite takes it for the number of pages that there are, if these are more.
        store.rows("PRAGMA max_page_count = 1")
        yield
        store.rows("PRAGMA max_page_count = 1000000")

    return fill


def see_boards(sightings, boards):
    """Boards of one client are seen one after the other, each with more than fits into a page."""
    for first in boards:
        ids = range(first, first + 1)
        hello = {"text": 2000 * "x"}
        sightings.note(Sighting(f"{first:08x}", ids, time.monotonic(), hello=hello, error="gone"))
        sightings.write()


def test_sightings_that_a_full_disk_did_not_take_are_written_later(store, full_disk):
    """The host notes when it has heard of which board (a sighting). What a full disk refuses stays
    in memory, and is written as soon as there is room.
    """
    sightings = Sightings(store, print)
    boards = range(1, 100)
    with full_disk():
        see_boards(sightings, boards)
        sightings.mark_all_offline()

    sightings.write()

    assert [board.first for board in store.boards()] == [*boards]
    assert {board.errors for board in store.boards()} == {1}, "each was seen with one error"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("OSError; absent 8 65 s; 27 C", "not on its broker for 1 min 5 s: connection re"),
        ("was absent 16 7 s", "was away 7 s: connection lost"),
        ("absent 99 2 s", "not on its broker for 2 s: reason 99, unknown here; update this"),
        ("absent -1 2 s; absent 8 x s", ""),
    ],
    ids=["absent", "back", "reason of a newer board", "damaged"],
)
def test_a_hello_tells_the_absence_of_its_board(text, words):
    decoded = hello_fields(read_hello(hello(1, text=f"b; i; tern 1; {text}")))
    description = reach_absence.describe(decoded)
    assert description.startswith(words)
    assert bool(description) == bool(words)
