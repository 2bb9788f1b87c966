"""Bridged brokers: messages between a site and the centre, the rights of a site, and cuts of the
link.
"""

import shutil
import time
from contextlib import contextmanager

import pytest
from harness import sites
from harness.raw_client import RawClient, board_client
from harness.waiting import wait_for

from tern.links import mqtt
from ternhost.learn.schedule import Terms
from ternhost.provision import keys
from ternhost.reach.broker import configuration
from ternhost.reach.broker.access import CONFIG, HOST, Access
from ternhost.reach.broker.driver import BrokerDriver
from ternhost.reach.broker.link import MqttLink
from ternhost.reach.broker.mosquitto import Mosquitto, free_port
from ternhost.store.store import Store

pytestmark = pytest.mark.usefixtures("mosquitto")

SOON = 60.0  # seconds within which a bridge connects and passes a message
PACKET_NUMBER_BYTES = 2  # with which a payload at QoS 1 begins


class Bridged:
    """A central broker, and the broker of site `lab` with boards 1 to 3; board 9 is elsewhere."""

    def __init__(self, directory):
        self.store = directory / "store.sqlite"
        with Store(self.store) as store:
            self.keys = keys.add(store, [1, 2, 3, 9])
        central = directory / "broker"
        self.access = configuration.configure(central, self.store, port=free_port())
        self.made = configuration.add_site(
            central, "lab", bridge=True, port=free_port(), ids=range(1, 4)
        )
        self.directory = directory / "copied"
        shutil.copytree(central / "sites" / "lab", self.directory)
        self.at_site = Access.load(self.directory / HOST)
        self.central = Mosquitto(central)
        self.site, self.clients = Mosquitto(self.directory), []
        self.host = self.connect_host()
        assert self.heard("tern/site/lab") == b"1"

    def connect_host(self):
        host = self.client(self.access, self.access.user, self.access.password)
        for topic in ("tern/up/+", "tern/hello/+", "tern/site/+"):
            host.subscribe(topic)
        return host

    def client(self, access, user, password, **options):
        self.clients.append(RawClient(access, user, password, **options))
        return self.clients[-1]

    def board(self, device, access=None, **options):
        key = mqtt.password(self.keys[device])
        return self.client(access or self.at_site, mqtt.name(device), key, **options)

    def heard(self, topic, client=None):
        """Wait for the next message on a topic, and skip others."""
        end = time.monotonic() + SOON
        while time.monotonic() < end:
            for name, body in (client or self.host).messages(SOON, 1):
                if name == topic:
                    return body[PACKET_NUMBER_BYTES:]
        raise AssertionError(f"nothing on {topic}")

    def thief(self):
        """A client of the central broker with the password of the site, whose own bridge is gone."""
        self.site.kill()
        assert self.heard("tern/site/lab") == b"0"
        return self.client(self.access, self.made.user, self.made.password)

    @contextmanager
    def site_cut_off(self):
        """While the context is open, the site's broker looks for the central one in vain."""
        path = self.directory / CONFIG
        config = path.read_text()
        self.site.close()  # orderly, so that it saves its retained messages
        path.write_text(config.replace(f":{self.access.port}\n", f":{free_port()}\n"))
        self.site.start()
        yield
        self.site.close()
        path.write_text(config)
        self.site.start()

    def driver(self, store, **options):
        return BrokerDriver(store, MqttLink(self.access), Terms(), standing=True, **options)

    def close(self):
        for client in self.clients:
            client.close()
        self.site.close()
        self.central.close()


@pytest.fixture
def bridged(tmp_path):
    brokers = Bridged(tmp_path)
    yield brokers
    brokers.close()


def payloads(messages):
    """The payloads of messages without the numbers of their packets."""
    return [body[PACKET_NUMBER_BYTES:] for _, body in messages]


def is_retained(client, topic):
    client.subscribe(topic)
    return topic in dict(client.arrived())


def test_a_bridge_passes_messages_of_boards_and_host_and_retains_rounds(bridged):
    """The boards of a site connect to a broker there, and a bridge joins it to the central broker
    of the host. What boards and host send passes both ways. Rounds, models and hellos are retained,
    so that a board that comes late gets them at its site.
    """
    board = bridged.board(1, will=("tern/hello/00000001", b""))
    board.subscribe("tern/down/00000001")
    board.subscribe("tern/round")

    # From the board to the host,
    board.publish("tern/hello/00000001", b"hello", retain=True)
    assert bridged.heard("tern/hello/00000001") == b"hello"
    board.publish("tern/up/00000001", b"report")
    assert bridged.heard("tern/up/00000001") == b"report"
    # and from the host to the board.
    bridged.host.publish("tern/down/00000001", b"question")
    assert bridged.heard("tern/down/00000001", board) == b"question"
    bridged.host.publish("tern/round", b"round", retain=True)
    assert bridged.heard("tern/round", board) == b"round"
    bridged.host.publish("tern/model", b"model", retain=True)
    bridged.host.publish("tern/model/limits", b"limits", retain=True)

    # Who connects later gets what is retained.
    bridged.host = bridged.connect_host()  # replaces the first connection
    assert is_retained(bridged.host, "tern/hello/00000001")
    late_board = bridged.board(2)
    assert is_retained(late_board, "tern/round"), "at its site"
    wait_for(lambda: is_retained(late_board, "tern/model"))
    wait_for(lambda: is_retained(late_board, "tern/model/limits"))

    board.close()
    assert bridged.heard("tern/hello/00000001") == b"", "its will"


def test_only_the_last_round_passes_to_a_site_that_was_cut_off(bridged):
    """The host has announced five rounds while a site had no connection. Its boards hear of the
    last one alone: they would answer, and pay for, each of them.
    """
    bridged.site.kill()
    assert bridged.heard("tern/site/lab") == b"0", "the site is gone"
    for number in range(5):
        bridged.host.publish("tern/round", b"missed %d" % number, retain=True)

    bridged.site.start()
    assert bridged.heard("tern/site/lab") == b"1", "it is back"
    board = bridged.board(1)
    board.subscribe("tern/round")

    assert bridged.heard("tern/round", board) == b"missed 4"
    assert board.messages(1.0) == []


def test_a_host_withdraws_a_round_that_ended_while_a_site_was_cut_off(bridged):
    """The broker of the site retains the round, and boards would go on to pay for it."""
    bridged.host.close()
    warnings = []
    with Store(bridged.store) as store, bridged.driver(store, warn=warnings.append) as driver:
        driver.link.announce(b"old")
        driver.wait(1.0)
        board = bridged.board(1)
        board.subscribe("tern/round")
        assert bridged.heard("tern/round", board) == b"old"

        with bridged.site_cut_off():
            driver.link.announce(b"")
            driver.wait(1.0)
            assert is_retained(bridged.board(2), "tern/round")

        wait_for(lambda: driver.wait(0.2) or not is_retained(bridged.board(2), "tern/round"))
        assert warnings == [
            "the broker of site lab is gone; waiting for it",
            "the broker of site lab is there again",
        ]


OTHERS_TOPICS = (
    "tern/round",
    "tern/model",
    "tern/model/limits",
    "tern/down/00000001",
    "tern/down/00000009",
    "tern/up/00000009",
    "tern/hello/00000009",
    "tern/site/other",
    "other",
)


def test_a_site_publishes_for_its_boards_alone(bridged):
    """With the site's password at the central broker, on behalf of board 9 of another site."""
    thief = bridged.thief()
    other_board = board_client(bridged.access, bridged.keys, 9)
    bridged.clients.append(other_board)
    for topic in ("tern/round", "tern/down/00000009"):
        other_board.subscribe(topic)

    for topic in OTHERS_TOPICS:
        thief.publish(topic, b"forged", retain=True)
    thief.publish("tern/up/00000001", b"of a board of the site")

    assert payloads(bridged.host.messages(SOON, 1)) == [b"of a board of the site"]
    assert bridged.host.arrived() == []
    assert other_board.arrived() == []


def test_a_site_reads_only_what_is_for_its_boards(bridged):
    """With the site's password at the central broker, a thief subscribes to everything, and hears
    only what is sent to boards of that site.
    """
    thief = bridged.thief()
    for topic in ("#", "tern/up/+", "tern/hello/+", "tern/site/+", "tern/down/+"):
        thief.subscribe(topic)

    bridged.host.publish("tern/down/00000009", b"for a board of another site")
    bridged.host.publish("tern/down/00000002", b"for a board of the site")

    # Mosquitto 2.1 sends a message once for each subscription that fits it.
    assert set(payloads(thief.messages(1.0))) == {b"for a board of the site"}


def test_cuts_of_the_link_lose_and_double_no_report(tmp_path):
    """`python -m harness.sites 100` cuts it a hundred times."""
    summary = sites.weather(tmp_path, cuts=2, boards=1, clients=40)
    assert (summary["differences"], summary["cuts"]) == ([], 2)
    assert summary["reports"] == 80 * summary["rounds"]
