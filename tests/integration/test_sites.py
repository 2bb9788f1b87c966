"""Bridged brokers: messages between a site and the centre, the rights of a site, and cuts of the
link.
"""

import shutil
import time

import pytest
from harness import sites
from harness.raw_client import RawClient, board_client, wait_for

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


class Bridged:
    """A central broker, and the broker of site `lab` with boards 1 to 3; board 9 is elsewhere."""

    def __init__(self, directory):
        self.store = directory / "store.sqlite"
        with Store(self.store) as store:
            self.keys = keys.add(store, [1, 2, 3, 9])
        central = directory / "broker"
        self.access = configuration.configure(central, self.store, port=free_port())
        self.made = configuration.add_site(
            central, "lab", bridge=True, port=free_port(), boards=range(1, 4)
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
                    return body[2:]
        raise AssertionError(f"nothing on {topic}")

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


def retained(client, topic):
    """The retained message of a topic; None: there is none."""
    client.subscribe(topic)
    return next((body[2:] or body for name, body in client.arrived() if name == topic), None)


def test_a_bridge_passes_messages_of_boards_and_host_and_retains_rounds(bridged):
    board = bridged.board(1, will=("tern/hello/00000001", b""))
    board.subscribe("tern/down/00000001")
    board.subscribe("tern/round")
    board.publish("tern/hello/00000001", b"hello", retain=True)
    assert bridged.heard("tern/hello/00000001") == b"hello"
    board.publish("tern/up/00000001", b"report")
    assert bridged.heard("tern/up/00000001") == b"report"
    bridged.host.publish("tern/down/00000001", b"question")
    assert bridged.heard("tern/down/00000001", board) == b"question"
    bridged.host.publish("tern/round", b"round", retain=True)
    assert bridged.heard("tern/round", board) == b"round"
    bridged.host.publish("tern/model", b"model", retain=True)

    bridged.host = bridged.connect_host()  # replaces the first connection
    assert retained(bridged.host, "tern/hello/00000001")
    late = bridged.board(2)
    assert retained(late, "tern/round"), "a board that comes late finds the round at its site"
    wait_for(lambda: retained(late, "tern/model"))
    board.close()
    assert bridged.heard("tern/hello/00000001") == b"", "its will"


def test_reports_wait_for_a_cut_link_but_only_the_last_round_passes(bridged):
    """The host learns of the cut."""
    board = bridged.board(1)
    board.publish("tern/hello/00000001", b"hello", retain=True)
    bridged.host.publish("tern/round", b"old", retain=True)
    board.subscribe("tern/round")
    assert bridged.heard("tern/round", board) == b"old"
    bridged.central.kill()
    board.publish("tern/up/00000001", b"report")
    bridged.central.start()
    host = bridged.host = bridged.connect_host()
    host.publish("tern/round", b"new", retain=True)
    assert bridged.heard("tern/up/00000001") == b"report"
    assert bridged.heard("tern/round", board) == b"new"

    bridged.site.kill()
    assert bridged.heard("tern/site/lab") == b"0"
    for number in range(5):
        host.publish("tern/round", b"missed %d" % number, retain=True)
    bridged.site.start()
    assert bridged.heard("tern/site/lab") == b"1"
    board = bridged.board(1)
    board.subscribe("tern/round")
    assert bridged.heard("tern/round", board) == b"missed 4"
    assert board.messages(1.0) == [], "only the last round, since each would cost a report"


def test_a_host_withdraws_a_round_that_ended_while_a_site_was_cut_off(bridged):
    """It warns of the cut, and says when the site is back."""
    bridged.host.close()
    warnings = []
    with Store(bridged.store) as store, bridged.driver(store, warn=warnings.append) as driver:
        driver.link.announce(b"old")
        driver.wait(1.0)
        board = bridged.board(1)
        board.subscribe("tern/round")
        assert bridged.heard("tern/round", board) == b"old"
        conf = bridged.directory / CONFIG
        original = conf.read_text()
        bridged.site.close()  # orderly, so that it saves its retained messages
        driver.link.announce(b"")
        conf.write_text(original.replace(f":{bridged.access.port}\n", f":{free_port()}\n"))
        bridged.site.start()
        driver.wait(1.0)
        assert retained(bridged.board(2), "tern/round"), "as long as the link is cut"
        bridged.site.close()
        conf.write_text(original)
        bridged.site.start()
        wait_for(lambda: driver.wait(0.2) or "the broker of site lab is there again" in warnings)
        wait_for(lambda: driver.wait(0.2) or retained(bridged.board(2), "tern/round") is None)
        assert warnings[0] == "the broker of site lab is gone; waiting for it"


def test_a_site_has_only_the_rights_of_its_boards(bridged):
    """With the site's password at the central broker.

    The site's broker admits its own boards only.
    """
    assert [bridged.board(device).code for device in (9, 1)] == [5, 0]
    access = bridged.access
    assert bridged.client(bridged.at_site, access.user, access.password).code == 5, (
        "not even the host"
    )
    bridged.site.kill()
    assert bridged.heard("tern/site/lab") == b"0"
    thief = bridged.client(bridged.access, bridged.made.user, bridged.made.password)
    other = board_client(bridged.access, bridged.keys, 9)
    bridged.clients.append(other)
    other.subscribe("tern/round")
    other.subscribe("tern/down/00000009")
    for topic in (
        "tern/round",
        "tern/model",
        "tern/down/00000001",
        "tern/down/00000009",
        "tern/up/00000009",
        "tern/hello/00000009",
        "tern/site/other",
        "other",
    ):
        thief.publish(topic, b"forged", retain=True)
    for topic in ("#", "tern/up/+", "tern/hello/+", "tern/site/+", "tern/down/+"):
        thief.subscribe(topic)
    thief.publish("tern/up/00000001", b"last")
    heard = []
    while not heard or heard[-1][1] != b"last":
        heard += [(topic, body[2:]) for topic, body in bridged.host.messages(SOON, 1)]
    assert heard == [("tern/up/00000001", b"last")]
    bridged.host.publish("tern/down/00000009", b"not for it")
    bridged.host.publish("tern/down/00000002", b"for it")
    assert [(topic, body[2:]) for topic, body in thief.messages(1.0)] == [
        ("tern/down/00000002", b"for it")
    ]
    assert [body[2:] for _, body in other.messages(0.5)] == [b"not for it"]


def test_cuts_of_the_link_lose_and_double_no_report(tmp_path):
    """`python -m harness.sites 100` cuts it a hundred times."""
    summary = sites.weather(tmp_path, cuts=4, boards=1, clients=40)
    assert (summary["differences"], summary["cuts"]) == ([], 4)
    assert summary["reports"] == 80 * summary["rounds"]
