"""`tern relay`: boards on ports answer rounds on a broker, while cables and brokers come and go."""

import signal
import subprocess
import threading
import time

import pytest
import rig
import warm
from harness.raw_client import retained
from harness.waiting import wait_for

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
    """A broker and two emulated boards, each on a cable (a symbolic link to its port) that can be
    pulled.
    """

    def __init__(self, directory, site):
        self.directory, self.site = directory, site
        self.broker_directory, store = directory / "broker", directory / "store.sqlite"
        self.access = configuration.configure(self.broker_directory, store, port=free_port())
        self.broker = Mosquitto(self.broker_directory)
        self.boards = site.boards().__enter__()
        self.cables = [directory / f"cable-{i}" for i in range(len(self.boards.ports))]
        self.proxies = [None] * len(self.cables)
        for i in range(len(self.cables)):
            self.plug(i)
        self.relay = None

    def close(self):
        if self.relay:
            self.end_relay()
        for i, proxy in enumerate(self.proxies):
            if proxy:
                self.pull(i)
        self.boards.__exit__(None, None, None)
        self.broker.close()

    def plug(self, i):
        self.proxies[i] = rig.Proxy(self.boards.ports[i]).__enter__()
        self.cables[i].symlink_to(self.proxies[i].port)

    def pull(self, i):
        self.cables[i].unlink()
        self.proxies[i].__exit__()
        self.proxies[i] = None

    def start_relay(self):
        self.log = self.directory / "relay.err"
        ports = ",".join(map(str, self.cables))
        command = [*warm.TERN, "relay", ports, "--broker", str(self.broker_directory), "--json"]
        with open(self.log, "ab") as err:
            self.relay = warm.Popen(command, stdout=subprocess.PIPE, stderr=err, cwd=self.directory)

    def end_relay(self):
        self.relay.send_signal(signal.SIGINT)
        assert self.relay.wait(30) == 0, self.log.read_text()
        self.relay.stdout.close()
        self.relay = None

    def wait_for_log(self, text, times=1):
        wait_for(lambda: self.log.read_text().count(text) >= times)

    def round(self, number, alone=False):
        """Run a round in which every device reports. alone: ask each device by itself, in two
        cohorts.
        """
        with (
            Store(self.directory / "store.sqlite") as store,
            BrokerDriver(store, MqttLink(self.access), Terms(deadline=60), standing=True) as driver,
        ):
            devices = list(driver.devices)
            questions = [
                Question(wire.LOGISTIC, [x] * rig.D, -14, rig.CARD, 1) for x in (number, -number)
            ]
            halves = [(questions[0], devices[::2]), (questions[1], devices[1::2])]
            driver.open(number, halves if alone else [(questions[0], devices)])
            result = driver.collect(number)
            store.end_round(number, result.ended)
            assert (result.ended, result.reports) == (COMPLETE, CLIENTS)


@pytest.fixture
def desk(tmp_path, micropython):
    site = rig.make_site(tmp_path, micropython, CLIENTS, boards=2, budget=20 * rig.COST)
    site.store.close()
    made = Desk(tmp_path, site)
    yield made
    made.close()


def hellos(access):
    """The names of the boards whose hello the broker retains."""
    names = set()
    for topic, hello in retained(access, "tern/hello/+").items():
        if hello:
            names.add(topic.rpartition("/")[2])
    return names


NAMES = {"00000001", "00000015"}  # of the boards, by their first clients: 1 and 21


@pytest.fixture
def relayed(desk):
    """The desk with a running relay, which has the owner's store."""
    desk.start_relay()
    desk.wait_for_log("is on the broker at", 2)
    wait_for(lambda: hellos(desk.access) == NAMES)
    return desk


def test_a_relay_comes_back_to_a_broker_that_was_killed(relayed):
    """A relay brings boards on USB cables to a broker. After the broker's restart they are there
    again, and report.
    """
    relayed.broker.kill()
    relayed.wait_for_log("waits for the broker at", 2)
    relayed.broker.start()
    wait_for(lambda: hellos(relayed.access) == NAMES)
    relayed.round(1)


def test_devices_report_and_pay_once_a_round_though_cables_are_pulled(relayed):
    """A relay brings boards on USB cables to a message broker. While cables are pulled and plugged
    again, every round gets a report of every device, and every device pays once for each round.
    """

    def pull_cables():
        for cable in (0, 1, 0):
            time.sleep(0.7)
            relayed.pull(cable)
            time.sleep(0.3)
            relayed.plug(cable)

    pulling = threading.Thread(target=pull_cables)
    pulling.start()
    # Rounds until all cables are back, of two kinds in turn: all devices are asked at once, or each
    # by itself.
    rounds = 0
    while rounds < 4 or (pulling.is_alive() and rounds < 19):  # the budget is for 20 rounds
        rounds += 1
        relayed.round(rounds, alone=rounds % 2 == 0)
    pulling.join()

    accounts = relayed.site.ledgers().values()  # (spent, last round, its report)
    assert {spent for spent, _, _ in accounts} == {rounds * rig.COST}
