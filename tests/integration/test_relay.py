"""`tern relay`: boards on ports that answer rounds on a broker, and cables and brokers that go and come back."""

import os
import signal
import subprocess
import threading
import time

import pytest
import rig
import warm
from harness.raw_client import RawClient, wait_for

from tern import wire
from ternhost.count.questions import Question
from ternhost.count.rounds import COMPLETE
from ternhost.learn.schedule import Terms
from ternhost.reach.broker import configuration
from ternhost.reach.broker.driver import BrokerDriver
from ternhost.reach.broker.link import MqttLink
from ternhost.reach.broker.mosquitto import Mosquitto, free_port
from ternhost.store.store import Store

CLIENTS = 40


class Desk:
    """Two emulated boards, each on a cable that can be pulled (a link to its port), and a broker."""

    def __init__(self, directory, site):
        self.directory = directory
        self.site = site
        self.place = directory / "broker"
        self.access = configuration.configure(self.place, directory / "store.sqlite", port=free_port())
        self.broker = Mosquitto(self.place)
        self.boards = site.boards().__enter__()
        self.cables = [directory / f"cable-{i}" for i in range(len(self.boards.ports))]
        self.proxies = [None] * len(self.cables)
        for i in range(len(self.cables)):
            self.plug(i)
        self.relay = None
        self.warnings = []

    def close(self):
        if self.relay:
            self.end_relay()
        for i, proxy in enumerate(self.proxies):
            if proxy:
                self.pull(i)
        self.boards.__exit__(None, None, None)
        self.broker.stop()

    def plug(self, i):
        self.proxies[i] = rig.Proxy(self.boards.ports[i]).__enter__()
        self.cables[i].symlink_to(self.proxies[i].port)

    def pull(self, i):
        self.cables[i].unlink()
        self.proxies[i].__exit__()
        self.proxies[i] = None

    def start_relay(self, place):
        self.log = self.directory / "relay.err"
        with open(self.log, "ab") as err:
            self.relay = warm.Popen(
                [*warm.TERN, "relay", ",".join(map(str, self.cables)), "--broker", str(place), "--json"],
                stdout=subprocess.PIPE,
                stderr=err,
                cwd=self.directory,
            )

    def end_relay(self):
        self.relay.send_signal(signal.SIGINT)
        assert self.relay.wait(30) == 0, self.log.read_text()
        self.relay.stdout.close()
        self.relay = None

    def said(self, text, times=1):
        wait_for(lambda: self.log.read_text().count(text) >= times)

    def rounds(self, number, count=1, alone=False):
        """Ask everybody, in so many rounds; every device reports once in each."""
        with (
            Store(self.directory / "store.sqlite") as store,
            BrokerDriver(
                store,
                lambda: MqttLink(self.access),
                Terms(deadline=60),
                standing=True,
                warn=self.warnings.append,
            ) as driver,
        ):
            for asked in range(number, number + count):
                devices = list(driver.devices)
                cohorts = [(Question(wire.LOGISTIC, [asked] * rig.D, -14, rig.CARD, 1), devices)]
                if alone:
                    other = Question(wire.LOGISTIC, [-asked] * rig.D, -14, rig.CARD, 1)
                    cohorts = [(cohorts[0][0], devices[::2]), (other, devices[1::2])]
                driver.open(asked, cohorts)
                result = driver.collect(asked)
                store.end_round(asked, result.ended)
                assert (result.ended, result.reports) == (COMPLETE, CLIENTS)


@pytest.fixture
def desk(tmp_path, micropython):
    site = rig.make_site(tmp_path, micropython, CLIENTS, boards=2, budget=20 * rig.COST)
    site.store.close()
    made = Desk(tmp_path, site)
    yield made
    made.close()


def hellos(access):
    """The names of the boards whose hello the broker keeps."""
    client = RawClient(access, access.user, access.password)
    client.subscribe("tern/hello/+")
    found = {topic.rpartition("/")[2] for topic, body in client.messages(0.5) if body[2:]}
    client.close()
    return found


def test_rounds_over_a_relay(desk):
    """Announced, or asked one by one: with the owner's store, then with a site's passwords alone; cables and the
    broker go between.
    """
    desk.start_relay(desk.place)
    desk.said("is on the broker at", 2)
    names = {"00000001", "00000015"}
    wait_for(lambda: hellos(desk.access) == names)
    desk.rounds(1)
    desk.rounds(2, alone=True)
    desk.end_relay()
    assert hellos(desk.access) == set(), "their wills"

    configuration.add_site(desk.place, "desk", relay=True)
    desk.broker.reload()
    (desk.directory / "store.sqlite").rename(desk.directory / "away")
    desk.start_relay(desk.place / "sites" / "desk")
    desk.said("is on the broker at", 4)
    (desk.directory / "away").rename(desk.directory / "store.sqlite")
    desk.rounds(3)

    desk.pull(0)
    desk.said("is gone: it was unplugged\n  check its cable and power; it is opened again when it is back\n")
    wait_for(lambda: hellos(desk.access) == names - {"00000001"})
    desk.plug(0)
    desk.said("board 00000001 is on the broker at", 3)
    desk.broker.kill()
    desk.said("waits for the broker at", 2)
    desk.broker.start()
    wait_for(lambda: hellos(desk.access) == names)
    desk.rounds(4, alone=True)

    ledgers = desk.site.ledgers()
    assert {spent for spent, _, _ in ledgers.values()} == {4 * rig.COST}
    assert len(ledgers) == CLIENTS


def test_a_cable_that_is_pulled_in_the_midst_of_rounds(desk):
    """Every device reports once in each, and pays once, though frames were lost on their way."""
    desk.start_relay(desk.place)
    desk.said("is on the broker at", 2)
    stop = threading.Event()

    def pull():
        for i in (0, 1, 0):
            time.sleep(0.7)
            desk.pull(i)
            time.sleep(0.3)
            desk.plug(i)
        stop.set()

    thread = threading.Thread(target=pull)
    thread.start()
    number = 0
    while not stop.is_set() or number < 4:
        number += 1
        desk.rounds(number, alone=number % 2 == 0)
        if number == 19:
            break
    thread.join()
    assert {spent for spent, _, _ in desk.site.ledgers().values()} == {number * rig.COST}


def test_a_broker_that_does_not_know_the_boards_yet(desk):
    configuration.write_passwords(desk.place, {})
    desk.broker.reload()
    desk.start_relay(desk.place)
    desk.said("does not let board 00000001 in: refused by the broker: code 5")
    configuration.configure(desk.place)
    desk.broker.reload()
    desk.said("is on the broker at", 2)


def test_a_relay_without_passwords_says_who_has_them(desk):
    configuration.add_site(desk.place, "desk", bridge=True, port=free_port())
    os.rename(desk.directory / "store.sqlite", desk.directory / "away")
    ended = rig.tern("relay", "a0", "--broker", desk.place / "sites" / "desk", cwd=desk.directory)
    assert ended.code == 2
    assert "there are no passwords of boards" in ended.err
    assert "--relay SITE" in ended.err
