"""Runs of every algorithm over a broker: the commands as people type them, and boards, brokers and hosts that die."""

import json
import signal
import threading
import time

import numpy as np
import pytest
import rig
from harness import kept
from harness.raw_client import board_client
from test_broker_commands import Command, run_mosquitto, tern

from ternhost import DeviceModel
from ternhost.errors import OK, SHORT, DeviceError
from ternhost.provision import keys
from ternhost.reach.broker.access import Access
from ternhost.reach.broker.mosquitto import free_port
from ternhost.run.result import exit_code
from ternhost.run.status import END, Watcher
from ternhost.store import kept_model
from ternhost.store.store import Store

CLIENTS = 24
IRIS = ("--dataset", "iris")
SERVED = {
    "fedsgd": (),
    "personalised": ("--epsilons", "1:0.5,4:0.5"),
    "fedavg": ("--records", 1),
    "hiera": ("--epsilon", 9, "--budgets", "3,2,1"),
    "infer": ("--epsilon", 20),
    "collect": ("--epsilon", 8),
}


# As a user does it


@pytest.fixture(scope="module")
def user(tmp_path_factory):
    """A directory in which a user has a broker, my-broker, and emulated boards on it."""
    directory = tmp_path_factory.mktemp("user")
    tern(directory, "broker", "config", "my-broker", "--port", free_port())
    mosquitto = run_mosquitto(directory / "my-broker")
    words = ("fleet", "emulate", 2, "--broker", "my-broker", "--clients", CLIENTS, *IRIS, "--json")
    try:
        fleet = Command(directory, *words, "--budget", 900, "--largest", 20)
        fleet.result()
        yield directory
        assert fleet.end() == 0
    finally:
        mosquitto.terminate()
        mosquitto.wait()


def retained_model(broker, path):
    """The MODEL that the broker of a directory retains for the boards, and the key of the fleet in the store."""
    with Store(path, beside=True) as store:
        known, fleet = store.keys(), keys.fleet_key(store)
    board = board_client(Access.load(broker / "host.json"), known, 1)
    board.subscribe("tern/model")
    ((_, payload),) = board.messages(60.0, 1)
    board.close()
    return DeviceModel.of_frame(payload[2:], fleet.key)


def test_what_a_run_has_learned_is_kept_for_the_boards(user):
    """Sealed with the fleet's key; a board that comes later gets it."""
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
    own = retained_model(user / "my-broker", path)
    assert (own.number, own.classes) == (last, 1)
    assert np.array_equal(own.weights.ravel(), np.frombuffer(weights, "<f8"))


@pytest.mark.parametrize("model", ["logistic", "softmax"])
def test_a_served_fleet_is_sent_models_while_it_learns(behind, model):
    heard = []

    def look(status):
        if status.event == END:
            with Store(behind.path, beside=True) as store:
                frame = kept_model.kept(store)
            heard.append((status.number, int.from_bytes(frame[5:9], "little")))

    options = {"dataset": "iris", "model": model}
    with rig.serve("fedsgd", options, behind.name, Watcher(status=look), rounds=5, model_every=2) as run:
        run.run()
    numbers = [number for number, _ in heard]
    assert [sent for _, sent in heard] == [0, 0, numbers[1], numbers[1], numbers[3]]
    with Store(behind.path, beside=True) as store:
        weights = kept.weights(store, numbers[-1])
    own = retained_model(behind.path.parent / "broker", behind.path)
    assert (own.number, own.classes) == (numbers[-1], 3 if model == "softmax" else 1)
    assert np.array_equal(own.weights.ravel(), np.frombuffer(weights, "<f8"))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("served", SERVED)
def test_serving_every_algorithm(tmp_path, micropython, served):
    """The broker comes late, the host is killed in the midst of a round, and the rounds are counted all the same."""
    place = tmp_path / "my-broker"
    tern(tmp_path, "broker", "config", "my-broker", "--port", free_port())
    fleet = Command(tmp_path, "fleet", "emulate", 2, "--broker", "my-broker", "--clients", CLIENTS, *IRIS,
                    "--budget", 900, "--largest", 20, "--json")  # fmt: skip
    fleet.result()
    algorithm = "fedsgd" if served == "personalised" else served
    words = ("--algorithm", algorithm, *SERVED[served], *IRIS, "--rounds", 3)
    words = (*words, "--fleet", "mqtt:my-broker", "--no-report", "--json")
    late = served == "fedsgd"
    mosquitto = None if late else run_mosquitto(place)
    try:
        host = rig.Train(*words, command="serve", stop_after=CLIENTS + 5, cwd=tmp_path)
        if late:
            assert "waiting for it" in host.process.stdout.readline()
            time.sleep(1)
            mosquitto = run_mosquitto(place)
        host.wait_until_stopped()
        host.signal(signal.SIGKILL)
        code, first, err = host.finish()
        assert code == -signal.SIGKILL
        code, out, err = rig.Train(*words, command="serve", cwd=tmp_path).finish()
        assert code == 0, err
    finally:
        fleet.end()
        if mosquitto:
            mosquitto.terminate()
            mosquitto.wait()
    lines = [json.loads(line) for text in (first, out) for line in text.splitlines()]
    ends = [(line["round"], line["reports"]) for line in lines if line["event"] == "end"]
    assert ends == [(1, CLIENTS), (2, CLIENTS), (3, CLIENTS)]
    assert (lines[-1]["rounds"], lines[-1]["reports"]) == (3, 3 * CLIENTS)
    with Store(place / "store.sqlite") as store:
        assert [reports for _, _, reports in kept.ended_rounds(store)] == [CLIENTS] * 3


# What dies


@pytest.fixture
def behind(tmp_path, micropython, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with rig.OnBroker(tmp_path, micropython, boards=3, clients=CLIENTS) as made:
        yield made


class Watch:
    """Hears of a run; does `act` once, when it has so many reports."""

    def __init__(self, act=None, after=1):
        self.said = []  # (monotonic time, warning)
        self.answers = {}  # what to do once, when a warning has these words
        self._act, self._after = act, after
        self.acted = 0.0
        self.ends = []

    def watcher(self):
        return Watcher(status=self._status, warn=self._warn)

    def _warn(self, text):
        self.said.append((time.monotonic(), text))
        for words in [words for words in self.answers if words in text]:
            self.answers.pop(words)()

    def _status(self, status):
        if status.event == END:
            self.ends.append((time.monotonic(), status.reports))
        if self._act and status.total_reports >= self._after:
            act, self._act = self._act, None
            self.acted = time.monotonic()
            act()

    def heard(self, text):
        return any(text in said for _, said in self.said)

    def when(self, text):
        """When something was said for the first time, in seconds after the deed."""
        return next((at for at, said in self.said if text in said), float("inf")) - self.acted


TRAIN = {"dataset": "iris", "clients": CLIENTS, "records": 1, "rounds": 6, "share": 0.5, "epsilon": "8"}


def test_a_board_that_is_killed_is_told_of_left_out_and_taken_back(behind):
    board = behind.emulated.boards[1]
    started = []
    watch = Watch(board.kill, after=14)
    watch.answers["left out"] = lambda: started.append(board.start())

    def status(told):
        watch._status(told)
        if started and not watch.heard("is back"):
            time.sleep(0.3)  # so that few rounds go by until then

    watcher = Watcher(status=status, warn=watch._warn)
    result = rig.finish("fedavg", **{**TRAIN, "rounds": 30}, fleet=behind.name, silence=1.0, watcher=watcher)
    gone = watch.when("board 00000009 is gone from the broker")
    left_out = watch.when("board 00000009 has been silent for 1 s, and is left out")
    assert gone < left_out < watch.when("board 00000009 is back") < float("inf")
    assert sum("left out" in text for _, text in watch.said) == 1
    assert (exit_code(result), result["rounds"]) == (SHORT, 30)
    assert result["reports"] == result["asked"] - result["missing"]
    with Store(behind.path) as store:
        last = store.last_round()
        found = {device for number in range(last - 10, last + 1) for device, _ in store.reports(number)}
    assert found & set(range(9, 17))
    assert result["missing"] > 0


def test_the_last_board_that_is_killed_ends_the_run_with_a_word(behind):
    def kill():
        for board in behind.emulated.boards:
            board.kill()

    watch = Watch(kill, after=14)
    with (
        rig.begin(
            "fedavg", **TRAIN, fleet=behind.name, silence=3.0, name="one", watcher=watch.watcher()
        ) as run,
        pytest.raises(DeviceError, match=r"no board on the broker .* answers any more"),
    ):
        run.run()
    for board in behind.emulated.boards:
        board.start()
    result = rig.resume("one")
    with Store(behind.path) as store:
        reports = [reports for _, _, reports in kept.ended_rounds(store)]
    assert reports[0] == 12
    assert reports[1] <= 12, "in this round they were killed"
    assert reports[2:] == [12] * 4
    assert result["missing"] == 12 - reports[1]


def test_a_broker_that_dies_under_a_run_is_told_of_and_waited_for(behind):
    """No board is left out for it, and no report is lost."""
    watch = Watch(behind.broker.kill, after=14)
    watch.answers["is gone; waiting for it"] = threading.Timer(6.0, behind.broker.start).start
    result = rig.finish("fedavg", **TRAIN, fleet=behind.name, silence=4.0, watcher=watch.watcher())
    assert watch.when("is gone; waiting for it") + 5.5 < watch.when("is there again") < float("inf")
    assert [text for _, text in watch.said if "board" in text] == []
    assert (exit_code(result), result["reports"]) == (OK, 6 * CLIENTS / 2)
