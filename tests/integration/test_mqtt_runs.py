"""Runs of every algorithm over a broker, by the commands of a user, while boards, brokers and hosts
die.
"""

import json
import signal
import threading
import time

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
    "personalised": ("--epsilons", "1:0.5,4:0.5"),
    "fedavg": ("--records", 1),
    "infer": ("--epsilon", 20),
    "collect": ("--epsilon", 8),
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
    done = rig.tern("train", *words, cwd=user)
    result = done.json
    assert (result["reports"], result["asked"], result["refusals"]) == (CLIENTS, CLIENTS, 0)
    assert (user / result["directory"] / "report.html").exists()
    assert result["store"] == "my-broker/store.sqlite"
    assert "tern:" not in done.err
    path = user / "my-broker" / "store.sqlite"
    with Store(path, beside=True) as store:
        last, weights = store.last_round(), kept.weights(store, store.last_round())
    model = retained_model(user / "my-broker", path)
    assert (model.number, model.classes) == (last, 1)
    assert np.array_equal(model.weights.ravel(), np.frombuffer(weights, "<f8"))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("served", SERVED)
def test_a_served_algorithm_counts_every_report_of_every_round(tmp_path, micropython, served):
    """Though the broker may come late, and the host is killed in a round."""
    place = tmp_path / "my-broker"
    rig.tern("broker", "config", "my-broker", "--port", free_port(), cwd=tmp_path, code=0)
    fleet = emulate(tmp_path)
    algorithm = "fedsgd" if served == "personalised" else served
    words = ("--algorithm", algorithm, *SERVED[served], *IRIS, "--rounds", 3)
    words += ("--fleet", "mqtt:my-broker", "--no-report", "--json")
    late = served == "fedsgd"
    mosquitto = None if late else run_mosquitto(place)
    try:
        host = rig.Train(*words, command="serve", stop_after=CLIENTS + 5, cwd=tmp_path)
        if late:
            assert "waiting for it" in host.process.stdout.readline()
            time.sleep(1)
            mosquitto = run_mosquitto(place)
        host.wait_until_stopped()
        first, _ = host.finish(-signal.SIGKILL, signal.SIGKILL)
        second, _ = rig.Train(*words, command="serve", cwd=tmp_path).finish()
    finally:
        fleet.end()
        if mosquitto:
            mosquitto.terminate()
            mosquitto.wait()
    lines = [json.loads(line) for line in (first + second).splitlines()]
    ends = [(line["round"], line["reports"]) for line in lines if line["event"] == "end"]
    assert ends == [(1, CLIENTS), (2, CLIENTS), (3, CLIENTS)]
    assert (lines[-1]["rounds"], lines[-1]["reports"]) == (3, 3 * CLIENTS)
    with Store(place / "store.sqlite") as store:
        assert [reports for _, _, reports in kept.ended_rounds(store)] == [CLIENTS] * 3


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
    board = behind.emulated.boards[1]  # of the devices 9 to 16
    heard = Heard(board.kill, {"left out": board.start})
    terms = {"rounds": 30, "silence": 1.0}
    result = rig.finish("fedavg", **TRAIN, **terms, fleet=behind.name, watcher=heard.watcher())
    gone = heard.when("board 00000009 is gone from the broker")
    left_out = heard.when("board 00000009 has been silent for 1 s, and is left out")
    assert gone < left_out < heard.when("board 00000009 is back")
    assert (exit_code(result), result["rounds"]) == (SHORT, 30)
    assert result["reports"] == result["asked"] - result["missing"] < result["asked"]
    with Store(behind.path) as store:
        reporters = dict(store.reports(store.last_round() - 1) + store.reports(store.last_round()))
    assert reporters.keys() & set(range(9, 17)), "half of the devices report in each round"


def test_a_run_waits_for_a_broker_that_dies_and_loses_no_report(behind):
    away = 6.0  # seconds; longer than any board may be silent
    restart = threading.Timer(away, behind.broker.start)
    heard = Heard(behind.broker.kill, {"is gone; waiting for it": restart.start})
    terms = {"rounds": 6, "silence": 4.0}
    result = rig.finish("fedavg", **TRAIN, **terms, fleet=behind.name, watcher=heard.watcher())
    assert heard.when("is there again") > heard.when("is gone; waiting for it") + away - 0.5
    assert [text for _, text in heard.warnings if "board" in text] == []
    assert (exit_code(result), result["reports"]) == (OK, 6 * CLIENTS / 2)
