"""What tern writes for Mosquitto suits each of its releases: the installed one, that of Debian 12's
backports, and that of Debian's testing release.
"""

import os
import re

import brokers
import pytest
from harness.raw_client import RawClient, board_client
from harness.waiting import wait_for

from ternhost.provision import keys
from ternhost.reach.broker import configuration
from ternhost.reach.broker.access import CONFIG, HOST, Access
from ternhost.reach.broker.mosquitto import Mosquitto, free_port, reload
from ternhost.reach.broker.mosquitto_files import LOG
from ternhost.reach.broker.sites import SITES
from ternhost.store.store import Store
from terntools.emulators.debian import NEXT

STORE = "store.sqlite"
PACKET_NUMBER_BYTES = 2  # with which a payload at QoS 1 begins
COMPLAINT = re.compile(r"warning|deprecated|error", re.IGNORECASE)
BRIDGE_CONNECTED = "New bridge connected"  # in the log of the central broker
# They are about who runs the tests.
OF_ROOT = ("Warning: Mosquitto should not be run as root/administrator.",)


@pytest.fixture(params=["installed", "bookworm", NEXT])
def release(request, monkeypatch):
    """The test runs with the Mosquitto of this release."""
    use(request.param, monkeypatch)
    return request.param


def use(release, monkeypatch):
    """Have tern start the Mosquitto of a release of Debian; skip the test if it cannot be had."""
    if release != "installed":
        folder = brokers.fetched("mosquitto", release)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def complaints(directory):
    """The lines of the log that complain about something, without their times."""
    lines = (directory / LOG).read_text().splitlines()
    events = [line.partition(": ")[2] for line in lines]
    return [event for event in events if COMPLAINT.search(event) and event not in OF_ROOT]


@pytest.fixture
def place(tmp_path):
    """The directory of a broker with a site, which has boards 1 and 2."""
    options = configuration.BrokerOptions(port=free_port())
    with Store(tmp_path / STORE) as store:
        keys.add(store, [1, 2])
        configuration.write_configuration(tmp_path, store.keys(), options, store=tmp_path / STORE)
    configuration.add_site(tmp_path, "lab", bridge=True, port=free_port(), ids=range(1, 3))
    return tmp_path


def board_of(place, device):
    """A client with the password of a board."""
    access = Access.load(place / HOST)
    with Store(access.store, beside=True) as store:
        return board_client(access, store.keys(), device)


def publish_round(place, payload):
    """Publish a retained round as the host."""
    access = Access.load(place / HOST)
    host = RawClient(access, access.user, access.password)
    host.publish("tern/round", payload, retain=True)
    host.close()


def round_heard_by(board):
    """The payload of the round that a board hears."""
    board.subscribe("tern/round")
    ((topic, body),) = board.messages(60.0, 1)
    board.close()
    assert topic == "tern/round"
    return body[PACKET_NUMBER_BYTES:]


@pytest.mark.usefixtures("release")
def test_the_broker_of_a_fleet_and_that_of_a_site_start_without_a_complaint(place):
    site = place / SITES / "lab"
    with Mosquitto(place), Mosquitto(site):
        # A site that ended while its bridge connects would make the central broker complain.
        wait_for(lambda: BRIDGE_CONNECTED in (place / LOG).read_text())
    assert complaints(place) == []
    assert complaints(site) == []


@pytest.mark.usefixtures("release")
def test_a_board_that_is_added_to_a_running_broker_reads_rounds(place):
    with Mosquitto(place):
        with Store(place / STORE) as store:
            keys.add(store, [3])
        configuration.configure(place)
        assert reload(place)
        publish_round(place, b"a round")
        assert round_heard_by(board_of(place, 3)) == b"a round"


def test_a_configuration_of_an_earlier_tern_loses_the_option_that_mosquitto_gives_up(place):
    path = place / CONFIG
    text = path.read_text()
    path.write_text(text.replace("listener ", "per_listener_settings false\nlistener "))
    configuration.configure(place)
    assert path.read_text() == text


def test_a_newer_release_goes_on_with_what_an_older_one_has_kept(place, monkeypatch):
    with Mosquitto(place):
        publish_round(place, b"a round")
    use(NEXT, monkeypatch)
    with Mosquitto(place):
        assert round_heard_by(board_of(place, 1)) == b"a round"
