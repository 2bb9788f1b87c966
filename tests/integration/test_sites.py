"""Bridged brokers: what passes between a site and the centre, what a site may do, and what cuts of the link cost."""

import shutil
import threading
import time

import pytest
from harness import sites
from harness.raw_client import RawClient, board_client, wait_for
from test_broker_commands import Command, tern

from tern import frames
from tern.links import mqtt
from ternhost.learn.schedule import Terms
from ternhost.provision import keys
from ternhost.reach.broker import configuration
from ternhost.reach.broker.access import CONFIG, HOST, Access
from ternhost.reach.broker.driver import BrokerDriver
from ternhost.reach.broker.link import MqttLink
from ternhost.reach.broker.mosquitto import Mosquitto, free_port
from ternhost.store.store import Store

SOON = 60.0  # seconds, in which a bridge is there and passes what it is given


class Bridged:
    """A central broker, and that of site `lab`, whose boards are 1 to 3; board 9 is elsewhere."""

    def __init__(self, directory):
        self.store = directory / "store.sqlite"
        with Store(self.store) as store:
            self.keys = keys.add(store, [1, 2, 3, 9])
        place = directory / "broker"
        self.access = configuration.configure(place, self.store, port=free_port())
        self.made = configuration.add_site(place, "lab", bridge=True, port=free_port(), boards=range(1, 4))
        self.directory = directory / "copied"
        shutil.copytree(place / "sites" / "lab", self.directory)
        self.at_site = Access.load(self.directory / HOST)
        self.central = Mosquitto(place)
        self.site = Mosquitto(self.directory)
        self.clients = []
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
        """The next message on a topic; others are passed over."""
        end = time.monotonic() + SOON
        while time.monotonic() < end:
            for name, body in (client or self.host).messages(SOON, 1):
                if name == topic:
                    return body[2:]
        raise AssertionError(f"nothing on {topic}")

    def close(self):
        for client in self.clients:
            client.close()
        self.site.stop()
        self.central.stop()


@pytest.fixture
def bridged(tmp_path):
    made = Bridged(tmp_path)
    yield made
    made.close()


def kept(client, topic):
    """What the broker keeps of a topic; None: nothing."""
    client.subscribe(topic)
    return next((body[2:] or body for name, body in client.messages(0.7) if name == topic), None)


def test_what_passes_and_what_is_kept(bridged):
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

    bridged.host = bridged.connect_host()  # replaces the first
    assert kept(bridged.host, "tern/hello/00000001")
    late = bridged.board(2)
    assert kept(late, "tern/round"), "a board that comes late finds the round at its site"
    wait_for(lambda: kept(late, "tern/model"))
    board.close()
    assert bridged.heard("tern/hello/00000001") == b"", "its will"


def test_a_link_that_is_cut(bridged):
    """What boards say meanwhile comes later; what they were asked does not, nor does the host hear nothing of it."""
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
    assert board.messages(1.0) == [], "one round, however many it has missed: each would cost a report"


def test_a_host_takes_back_what_a_site_still_keeps(bridged):
    """A round that ended while the link was cut is not there any more once a site is back, and the host tells."""
    bridged.host.close()
    told = []
    with (
        Store(bridged.store) as store,
        BrokerDriver(
            store, lambda: MqttLink(bridged.access), Terms(), standing=True, warn=told.append
        ) as driver,
    ):
        driver.link.announce(b"old")
        driver.wait(1.0)
        board = bridged.board(1)
        board.subscribe("tern/round")
        assert bridged.heard("tern/round", board) == b"old"
        conf = bridged.directory / CONFIG
        whole = conf.read_text()
        bridged.site.stop()  # in order: it keeps its retained messages
        driver.link.announce(b"")
        conf.write_text(whole.replace(f":{bridged.access.port}\n", f":{free_port()}\n"))
        bridged.site.start()
        driver.wait(1.0)
        assert kept(bridged.board(2), "tern/round"), "as long as the link is away"
        bridged.site.stop()
        conf.write_text(whole)
        bridged.site.start()
        wait_for(lambda: driver.wait(0.2) or "the broker of site lab is there again" in told)
        wait_for(lambda: driver.wait(0.2) or kept(bridged.board(2), "tern/round") is None)
        assert told[0] == "the broker of site lab is gone; waiting for it"


def test_a_hello_that_a_bridge_repeats_is_no_sign_of_life(bridged):
    """A board that sleeps is asked when it says hello; that its site says it once more is something else."""
    out = bytearray(200)
    n = frames.encode_hello(out, 0, 1, 1, 0, 0, 0, 0, 0, 0, 1, 0, "test")
    bridged.host.close()
    with (
        Store(bridged.store) as store,
        BrokerDriver(store, lambda: MqttLink(bridged.access), Terms(), standing=True) as driver,
    ):
        boards = driver.link.boards
        board = bridged.board(1)
        board.publish("tern/hello/00000001", bytes(out[:n]), retain=True)
        wait_for(lambda: driver.wait(0.1) or boards)
        assert not boards["00000001"].kept
        bridged.site.stop()
        bridged.site.start()
        wait_for(lambda: driver.wait(0.1) or ("00000001" in boards and boards["00000001"].kept))


def test_a_site_may_do_no_more_than_its_boards(bridged):
    """Whoever runs the site's broker, with its password at the central one. It lets in its own boards alone."""
    assert [bridged.board(device).code for device in (9, 1)] == [5, 0]
    access = bridged.access
    assert bridged.client(bridged.at_site, access.user, access.password).code == 5, "nor is the host let in"
    bridged.site.kill()
    assert bridged.heard("tern/site/lab") == b"0"
    thief = bridged.client(bridged.access, bridged.made.user, bridged.made.password)
    other = board_client(bridged.access, bridged.keys, 9)
    bridged.clients.append(other)
    other.subscribe("tern/round")
    other.subscribe("tern/down/00000009")
    for topic in (
        "tern/round", "tern/model", "tern/down/00000001", "tern/down/00000009", "tern/up/00000009",
        "tern/hello/00000009", "tern/site/other", "other",
    ):  # fmt: skip
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
    assert [(topic, body[2:]) for topic, body in thief.messages(1.0)] == [("tern/down/00000002", b"for it")]
    assert [body[2:] for _, body in other.messages(0.5)] == [b"not for it"]


def test_the_commands_in_order(tmp_path):
    """A broker, a site, a fleet at the site, and a round that the host asks for at the centre."""
    ports = free_port(), free_port()
    tern(tmp_path, "broker", "config", "my-broker", "--port", ports[0])
    tern(tmp_path, "broker", "config", "my-broker", "--bridge", "lab", "--site-port", ports[1])
    commands = []
    try:
        at_site = ("--broker", "my-broker/sites/lab", "--start-broker", "--clients", 20)
        for words in (("broker", "run", "my-broker"), ("fleet", "emulate", 2, *at_site)):
            commands.append(Command(tmp_path, *words, "--json"))
            commands[-1].result()
        assert commands[-1].err.read_text() == ""
        tern(tmp_path, "collect", "--fleet", "mqtt:my-broker", "--epsilon", 1, "--clients", 20, "--json")
    finally:
        for command in reversed(commands):
            command.end()


def test_nothing_is_lost_or_doubled_by_cuts_of_the_link(tmp_path):
    """A hundred are cut by `python -m harness.sites 100`."""
    found = sites.weather(tmp_path, cuts=4, boards=1, clients=40)
    assert found["differences"] == []
    assert found["cuts"] == 4
    assert found["reports"] == 80 * found["rounds"]


def test_the_books_of_the_storm_see_what_is_wrong(tmp_path):
    with sites.Sites(tmp_path, 1, 4) as made:
        rounds = iter((False, False, True))
        results = made.rounds(lambda: next(rounds))
        assert list(made.differences(results)) == []
    assert any("has paid" in line for line in made.differences(results[:1]))
    results[0].cohorts[0].counts[0, 0] += 1
    assert [line for line in made.differences(results) if "9 counted of 8" in line]
    assert threading.active_count() < 20
