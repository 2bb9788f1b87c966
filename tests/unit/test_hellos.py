"""Hellos carry no proof: how little boards, and the brokers of sites, can make a host believe."""

import re
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from framing import hello

from tern import absence
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

ROOT = Path(__file__).parents[2]
ACCESS = Access("localhost", 8883, "tern-host", "secret", None)


def say(link, first, clients=1, live=True):
    """Have the link hear the hello of a board."""
    link.receive(f"tern/hello/{first:08x}", hello(first, clients), retained=not live)


@pytest.fixture
def store(store):
    keys.add(store, [1, 2, 3, 9])
    return store


def test_a_board_without_a_key_leaves_no_row(store):
    aggregator = Aggregator(store)
    roster = BoardRoster(aggregator.devices)
    fleet = FleetState(MqttLink(ACCESS), aggregator, roster, keys.fleet_key(store), print)
    health = FleetHealth(fleet, store, Sightings(store), standing=True)
    for first in (1, 9, *range(100, 200)):
        say(fleet.link, first)
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


def kept(link, first, live=True):
    """True if the link takes the hello of that board for one that a broker had kept."""
    say(link, first, live=live)
    return link.presence.boards[f"{first:08x}"].retained


def test_a_returning_site_affects_only_its_own_boards(link):
    assert not kept(link, 5)
    assert kept(link, 5, live=False)
    return_site(link, "lab", retained=True)
    assert not kept(link, 5)
    return_site(link, "lab")
    assert kept(link, 5)
    assert not kept(link, 250), "at another site"
    assert not kept(link, 150), "at the central broker, or a site without ids"
    link.now += 3.0
    assert not kept(link, 5)


def test_a_returning_site_without_ids_affects_no_board_of_other_sites(link):
    return_site(link, "attic")
    assert kept(link, 150)
    assert not kept(link, 5)


def test_a_site_that_keeps_returning_does_not_keep_boards_asleep(link):
    seconds, live = 120, 0
    for _ in range(seconds):
        return_site(link, "lab")
        live += not kept(link, 5)
        link.now += 1.0
    # For three seconds after a return hellos count as kept; this happens twice.
    assert live == seconds - 2 * 3


@pytest.mark.parametrize(
    ("first", "claimed", "stop"),
    [
        (90, 5, 95),
        (90, 500, 100),  # the lab has 1 to 99
        (99, 2, 100),
        (100, 500, 200),  # the shed begins at 200
        (250, 2**31, 300),
        (300, 50, 350),  # of no site
    ],
)
def test_a_board_has_no_clients_beyond_the_ids_of_its_site(link, first, claimed, stop):
    say(link, first, claimed)
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


def sight(sightings, boards):
    """Boards of one client are seen one after the other, each with more than fits into a page."""
    for first in boards:
        ids = range(first, first + 1)
        hello = {"text": 2000 * "x"}
        sightings.note(Sighting(f"{first:08x}", ids, time.monotonic(), hello=hello, error="gone"))
        sightings.write()


def test_a_full_disk_is_reported_once_each_time_it_fills(store, full_disk):
    warnings = []
    sightings = Sightings(store, warnings.append)
    for boards in (range(1, 100), range(101, 200)):
        with full_disk():
            sight(sightings, boards)
            sightings.mark_all_offline()
        sightings.write()
    assert len(warnings) == 2
    for warning in warnings:
        assert "full" in warning


def test_sightings_that_a_full_disk_did_not_take_are_written_later(store, full_disk):
    sightings = Sightings(store, print)
    boards = range(1, 100)
    with full_disk():
        sight(sightings, boards)
        sightings.mark_all_offline()
    sightings.write()
    assert [board.first for board in store.boards()] == [*boards]
    assert {board.errors for board in store.boards()} == {1}


REASONS = {
    number
    for name, number in vars(absence).items()
    if name[0].isupper() and isinstance(number, int)
}


def test_every_reason_of_an_absence_has_words():
    assert set(reach_absence.REASONS) == REASONS == set(range(1, len(REASONS) + 1))


@pytest.mark.parametrize(
    ("page", "heading"),
    [
        ("shared_specs/mqtt.md", "## Absence"),
        ("firmware/BOARDS.md", "## Why a board is not on"),
    ],
)
def test_every_reason_of_an_absence_has_a_row_in_a_table(page, heading):
    section = (ROOT / page).read_text().split(heading)[1].split("\n## ")[0]
    rows = re.findall(r"^\| (\d+) \|", section, re.MULTILINE)
    no_reason = 0  # the board is connecting
    assert {int(number) for number in rows} - {no_reason} == REASONS


@pytest.mark.parametrize(
    ("text", "fields", "words"),
    [
        ("27 C", (None, None, None), ""),
        (
            "OSError; absent 8 65 s; 27 C",
            (8, 65, True),
            "not on its broker for 1 min 5 s: connection re",
        ),
        ("was absent 16 7 s", (16, 7, False), "was away 7 s: connection lost"),
        ("was absent 3 0 s", (3, 0, False), "was away: Wi-Fi password refused"),
        ("was absent 0 0 s", (0, 0, False), ""),
        ("absent 0 2 s", (0, 2, True), "connecting to its broker for 2 s"),
        (
            "absent 99 2 s",
            (99, 2, True),
            "not on its broker for 2 s: reason 99, unknown here; update this",
        ),
        ("absent -1 2 s; absent 8 x s; absent 8 2 sx", (None, None, None), ""),
    ],
)
def test_a_hello_tells_the_absence_of_its_board(text, fields, words):
    """fields: the number of the reason, the seconds, and whether the board is absent now."""
    reason, seconds, is_absent_now = fields
    decoded = hello_fields(read_hello(hello(1, text=f"b; i; tern 1; {text}")))
    assert decoded.get("absent") == reason
    assert decoded.get("absent_seconds") == seconds
    assert decoded.get("absent_now") == is_absent_now
    description = reach_absence.describe(decoded)
    assert description.startswith(words)
    assert bool(description) == bool(words)
