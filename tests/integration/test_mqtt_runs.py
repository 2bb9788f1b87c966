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


@pytest.mark.parametrize("model", ["logistic", "softmax"])
def test_a_served_fleet_gets_models_while_it_learns(behind, model):
    ends = []

    def look(status):
        if status.event == END:
            with Store(behind.path, beside=True) as store:
                frame = kept_model.kept(store)
            ends.append((status.number, int.from_bytes(frame[5:9], "little")))

    options = {"dataset": "iris", "model": model}
    with rig.serve(
        "fedsgd", options, behind.name, Watcher(status=look), rounds=5, model_every=2
    ) as run:
        run.run()
    numbers = [number for number, _ in ends]
    assert [sent for _, sent in ends] == [0, 0, numbers[1], numbers[1], numbers[3]]
    with Store(behind.path, beside=True) as store:
        weights = kept.weights(store, numbers[-1])
    retained = retained_model(behind.path.parent / "broker", behind.path)
    assert (retained.number, retained.classes) == (numbers[-1], 3 if model == "softmax" else 1)
    assert np.array_equal(retained.weights.ravel(), np.frombuffer(weights, "<f8"))


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


class Watch:
    """Watches a run, and calls `act` once it has `after` reports."""

    def __init__(self, act=None, after=1):
        self.warnings = []  # (monotonic time, text)
        self.answers = {}  # text -> function to call once, when a warning contains it
        self._act, self._after = act, after
        self.acted = 0.0

    def watcher(self):
        return Watcher(status=self._status, warn=self._warn)

    def _warn(self, text):
        self.warnings.append((time.monotonic(), text))
        for words in [words for words in self.answers if words in text]:
            self.answers.pop(words)()

    def _status(self, status):
        if self._act and status.total_reports >= self._after:
            act, self._act = self._act, None
            self.acted = time.monotonic()
            act()

    def heard(self, text):
        return any(text in warning for _, warning in self.warnings)

    def when(self, text):
        """Seconds from `act` to the first warning with this text; infinite if there is none."""
        return (
            next((at for at, warning in self.warnings if text in warning), float("inf"))
            - self.acted
        )


TRAIN = {
    "dataset": "iris",
    "clients": CLIENTS,
    "records": 1,
    "rounds": 6,
    "share": 0.5,
    "epsilon": "8",
}


def test_a_board_that_is_killed_is_left_out_with_a_warning_and_taken_back(behind):
    board = behind.emulated.boards[1]
    started, watch = [], Watch(board.kill, after=14)
    watch.answers["left out"] = lambda: started.append(board.start())

    def status(status_of_run):
        watch._status(status_of_run)
        if started and not watch.heard("is back"):
            time.sleep(0.3)  # so that few rounds pass meanwhile

    watcher = Watcher(status=status, warn=watch._warn)
    result = rig.finish(
        "fedavg", **{**TRAIN, "rounds": 30}, fleet=behind.name, silence=1.0, watcher=watcher
    )
    gone = watch.when("board 00000009 is gone from the broker")
    left_out = watch.when("board 00000009 has been silent for 1 s, and is left out")
    assert gone < left_out < watch.when("board 00000009 is back") < float("inf")
    assert sum("left out" in text for _, text in watch.warnings) == 1
    assert (exit_code(result), result["rounds"]) == (SHORT, 30)
    assert result["reports"] == result["asked"] - result["missing"]
    with Store(behind.path) as store:
        last = store.last_round()
        reporters = {
            device for number in range(last - 10, last + 1) for device, _ in store.reports(number)
        }
    assert reporters & set(range(9, 17))
    assert result["missing"] > 0


def test_a_run_without_any_board_ends_with_an_error_and_can_be_resumed(behind):
    def kill():
        for board in behind.emulated.boards:
            board.kill()

    watch = Watch(kill, after=14)
    options = {**TRAIN, "fleet": behind.name, "silence": 3.0, "watcher": watch.watcher()}
    with pytest.raises(DeviceError, match=r"no board on the broker .* answers any more"):
        rig.finish("fedavg", **options, name="one")
    for board in behind.emulated.boards:
        board.start()
    result = rig.resume("one")
    with Store(behind.path) as store:
        reports = [reports for _, _, reports in kept.ended_rounds(store)]
    assert reports[0] == 12
    assert reports[1] <= 12, "the boards were killed in this round"
    assert reports[2:] == [12] * 4
    assert result["missing"] == 12 - reports[1]


def test_a_run_waits_for_a_broker_that_dies_and_loses_no_report(behind):
    """No board is left out."""
    watch = Watch(behind.broker.kill, after=14)
    watch.answers["is gone; waiting for it"] = threading.Timer(6.0, behind.broker.start).start
    result = rig.finish("fedavg", **TRAIN, fleet=behind.name, silence=4.0, watcher=watch.watcher())
    assert watch.when("is gone; waiting for it") + 5.5 < watch.when("is there again") < float("inf")
    assert [text for _, text in watch.warnings if "board" in text] == []
    assert (exit_code(result), result["reports"]) == (OK, 6 * CLIENTS / 2)
