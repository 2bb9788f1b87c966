"""Runs of every algorithm over a broker, by the commands of a user, while boards, brokers and hosts
die.
"""

import json
import signal
import threading
import time
from contextlib import closing

import numpy as np
import pytest
import rig
from harness import kept
from harness.raw_client import board_client
from test_broker_commands import Command, run_mosquitto

from ternhost import DeviceModel
from ternhost.errors import OK, SHORT
from ternhost.provision import keys
from ternhost.reach.broker.access import Access
from ternhost.reach.broker.mosquitto import free_port
from ternhost.run.result import exit_code
from ternhost.run.status import Watcher
from ternhost.store.store import Store

CLIENTS = 24
IRIS = ("--dataset", "iris")
SERVED = {
    "fedsgd": (),
    "personalised fedsgd": ("--epsilons", "1:0.5,4:0.5"),
    "fedavg": ("--algorithm", "fedavg", "--records", 1),
    "infer": ("--algorithm", "infer", "--epsilon", 20),
    "collect": ("--algorithm", "collect", "--epsilon", 8),
}


# Commands of a user


def emulate(directory):
    """Run two emulated boards on my-broker."""
    words = ("fleet", "emulate", 2, "--broker", "my-broker", "--clients", CLIENTS, *IRIS, "--json")
    fleet = Command(directory, *words, "--budget", 900, "--largest", 20)
    fleet.result()
    return fleet


@pytest.fixture(scope="module")
def user(tmp_path_factory):
    """The directory of a user with a running broker, my-broker, and emulated boards on it."""
    directory = tmp_path_factory.mktemp("user")
    rig.tern("broker", "config", "my-broker", "--port", free_port(), cwd=directory, code=0)
    mosquitto = run_mosquitto(directory / "my-broker")
    try:
        fleet = emulate(directory)
        yield directory
        assert fleet.end() == 0
    finally:
        mosquitto.terminate()
        mosquitto.wait()


def retained_model(broker, path):
    """The model that the broker of a directory retains for boards, checked with the key of the
    fleet in the store.
    """
    with Store(path, beside=True) as store:
        known_keys, fleet = store.keys(), keys.fleet_key(store)
    board = board_client(Access.load(broker / "host.json"), known_keys, 1)
    board.subscribe("tern/model")
    ((_, payload),) = board.messages(60.0, 1)
    board.close()
    return DeviceModel.of_frame(payload[2:], fleet.key)


def test_the_broker_retains_the_model_of_a_run_for_boards(user):
    words = ("--reports", CLIENTS, "--group", 12, *IRIS, "--fleet", "mqtt:my-broker", "--json")
    result = rig.tern("train", *words, cwd=user).json
    assert result["reports"] == result["asked"] == CLIENTS
    assert result["store"] == "my-broker/store.sqlite"

    path = user / "my-broker" / "store.sqlite"
    model = retained_model(user / "my-broker", path)

    with Store(path, beside=True) as store:
        last_round = store.last_round()
        weights = np.frombuffer(kept.weights(store, last_round), "<f8")
    assert model.number == last_round
    assert np.array_equal(model.weights.ravel(), weights)


class UsersFleet:
    """Two emulated boards in a directory, their broker, which is started later, and hosts."""

    def __init__(self, directory):
        self.directory = directory
        rig.tern("broker", "config", "my-broker", "--port", free_port(), cwd=directory, code=0)
        self._boards = emulate(directory)
        self._mosquitto = None

    def start_broker(self):
        self._mosquitto = run_mosquitto(self.directory / "my-broker")

    def serve(self, *words, **options):
        """`tern serve` for three rounds, as a process."""
        fleet = ("--fleet", "mqtt:my-broker", "--rounds", 3, "--no-report", "--json")
        return rig.Train(*words, *IRIS, *fleet, command="serve", cwd=self.directory, **options)

    def reports_by_round(self):
        """The number of reports of each round that has ended, as the store has them."""
        with Store(self.directory / "my-broker" / "store.sqlite") as store:
            return [reports for _, _, reports in kept.ended_rounds(store)]

    def close(self):
        self._boards.end()
        if self._mosquitto is not None:
            self._mosquitto.terminate()
            self._mosquitto.wait()


@pytest.fixture
def users_fleet(tmp_path, micropython):
    with closing(UsersFleet(tmp_path)) as fleet:
        yield fleet


def ended_rounds(output):
    """(round, reports) of each round that a host says has ended."""
    ended = []
    for line in map(json.loads, output.splitlines()):
        if line["event"] == "end":
            ended.append((line["round"], line["reports"]))
    return ended


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", SERVED)
def test_a_served_algorithm_counts_every_report_though_its_host_is_killed(users_fleet, name):
    users_fleet.start_broker()
    in_the_second_round = CLIENTS + 5  # reports
    host = users_fleet.serve(*SERVED[name], stop_after=in_the_second_round)
    host.wait_until_stopped()
    first_output, _ = host.finish(-signal.SIGKILL, signal.SIGKILL)
    second_output, _ = users_fleet.serve(*SERVED[name]).finish()

    assert ended_rounds(first_output + second_output) == [(1, CLIENTS), (2, CLIENTS), (3, CLIENTS)]
    assert users_fleet.reports_by_round() == [CLIENTS, CLIENTS, CLIENTS]


def test_a_host_that_serves_waits_for_a_broker_that_is_started_later(users_fleet):
    host = users_fleet.serve()
    assert "waiting for it" in host.process.stdout.readline()
    users_fleet.start_broker()
    host.finish()

    assert users_fleet.reports_by_round() == [CLIENTS, CLIENTS, CLIENTS]


# Boards and brokers that die


@pytest.fixture
def behind(here, micropython):
    with rig.OnBroker(here, micropython, boards=3, clients=CLIENTS) as fleet:
        yield fleet


class Heard:
    """Keeps the warnings of a run with their times; calls `act` once the run has 14 reports."""

    def __init__(self, act, answers):
        """answers: text -> what to call once, when a warning contains it."""
        self.warnings = []  # (monotonic time, text)
        self._act, self._answers = act, answers

    def watcher(self):
        return Watcher(status=self._look, warn=self._hear)

    def _look(self, status):
        if self._act and status.total_reports >= 14:
            act, self._act = self._act, None
            act()
        if self.warnings:
            time.sleep(0.1)  # so that few rounds pass until all is well again

    def _hear(self, text):
        self.warnings.append((time.monotonic(), text))
        for words in list(self._answers):
            if words in text:
                self._answers.pop(words)()

    def when(self, words):
        """The time of the first warning with these words."""
        return next(at for at, text in self.warnings if words in text)


TRAIN = {"dataset": "iris", "clients": CLIENTS, "records": 1, "share": 0.5, "epsilon": "8"}


def test_a_board_that_is_killed_is_left_out_with_a_warning_and_taken_back(behind):
    _, board, _ = behind.emulated.boards
    devices_of_board = set(range(9, 17))
    heard = Heard(board.kill, {"left out": board.start})
    terms = {"rounds": 30, "silence": 1.0}

    result = rig.finish("fedavg", **TRAIN, **terms, fleet=behind.name, watcher=heard.watcher())

    gone = heard.when("board 00000009 is gone from the broker")
    left_out = heard.when("board 00000009 has been silent for 1 s, and is left out")
    assert gone < left_out < heard.when("board 00000009 is back")
    assert exit_code(result) == SHORT
    assert result["rounds"] == 30
    assert result["missing"] > 0
    with Store(behind.path) as store:
        last = store.last_round()
        # Half of the devices are asked in each round.
        reporters = {*store.reporters(last - 1), *store.reporters(last)}
    assert reporters & devices_of_board


def test_a_run_waits_for_a_broker_that_dies_and_loses_no_report(behind):
    silence = 4.0  # seconds after which a board would be left out
    away = silence + 2.0
    restart = threading.Timer(away, behind.broker.start)
    heard = Heard(behind.broker.kill, {"is gone; waiting for it": restart.start})
    terms = {"rounds": 6, "silence": silence}

    result = rig.finish("fedavg", **TRAIN, **terms, fleet=behind.name, watcher=heard.watcher())

    gone, back = heard.when("is gone; waiting for it"), heard.when("is there again")
    assert back - gone > silence
    assert [text for _, text in heard.warnings if "board" in text] == []
    assert exit_code(result) == OK
    assert result["reports"] == 6 * CLIENTS / 2  # half of the devices are asked in each round
