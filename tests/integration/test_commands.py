"""Commands that run fleets and brokers, on this machine."""

import json
import os
import shlex
import signal
import struct
import time

import numpy as np
import pytest
import rig
import warm
from harness.background import interrupt
from harness.raw_client import board_client
from harness.waiting import wait_for
from warm import TERN

from tern import storage
from ternhost import datasets, errors
from ternhost.datasets import Selection
from ternhost.provision import keys
from ternhost.reach.broker import configuration, mosquitto_files
from ternhost.reach.broker.access import HOST, Access
from ternhost.reach.broker.keeper import KeeperTimes
from ternhost.reach.broker.mosquitto import Mosquitto, free_port, listener, listens
from ternhost.store.store import Store
from terntools.emulators.process import locked

# Commands that run until Ctrl-C


on_the_usual_port = pytest.mark.xdist_group("port 8883")  # run one after the other


class Command:
    """A command that runs until it is interrupted, and its output so far."""

    def __init__(self, directory, *words):
        self.out = directory / f"{words[0]}-{words[1]}.out"
        self.err = self.out.with_suffix(".err")
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            self.process = warm.Popen(
                [*TERN, *map(str, words)], stdout=out, stderr=err, cwd=directory
            )

    def wait_for_warning(self, text, seconds=60.0):
        """Wait until the text is on standard error, once."""

        def warned():
            assert self.process.poll() is None, self.err.read_text()
            return self.err.read_text().count(text) == 1

        return wait_for(warned, seconds)

    def result(self):
        return json.loads(wait_for(lambda: self.out.read_text() or self.process.poll()))

    def end(self):
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(60)


@pytest.fixture
def start(tmp_path):
    """Start a command that runs until the test ends: `start(*words)`."""
    started = []

    def begin(*words):
        started.append(Command(tmp_path, *words))
        return started[-1]

    yield begin
    for command in started:
        if command.process.poll() is None:
            command.end()


def emulated_fleet(start, *words):
    """Start two emulated boards of 40 clients; return the command, and the options of its fleet."""
    command = start("fleet", "emulate", 2, "--clients", 80, *words, "--json")
    ready = command.result()
    return command, ("--fleet", "port:" + ",".join(ready["ports"])), ("--store", ready["store"])


def test_an_emulated_fleet_keeps_what_its_boards_have_spent(tmp_path, start):
    """Emulated boards with a privacy budget of epsilon 4 spend 2 of it in a run. The fleet is ended
    and started again on the same folder: its boards have 2 left.
    """
    words = ("--budget", 4, "--dir", tmp_path / "fleet")
    command, fleet, store = emulated_fleet(start, *words)
    run = ("train", "--reports", 80, "--group", 40, "--no-report", "--json")
    assert rig.tern(*run, *fleet, *store, cwd=tmp_path).json["reports"] == 80
    assert command.end() == 0

    _, (_, ports), _ = emulated_fleet(start, *words)  # the same boards

    names = ports.removeprefix("port:").split(",")
    boards = rig.tern("board", "info", *names, "--json").json["boards"]
    left = [board["epsilon_left"] for board in boards]
    # Probabilities are rounded, so that a report costs a little less than was asked.
    assert left == pytest.approx([4 - 2, 4 - 2], abs=5e-4)


@on_the_usual_port
def test_one_command_runs_a_fleet_and_its_broker(tmp_path, start):
    """`tern fleet emulate --broker` runs boards and the message broker that they need. A client
    with the key of a device can log in there, and both end with the command.
    """
    words = ("--broker", "my-broker", "--clients", 3, "--json")
    fleet = start("fleet", "emulate", 1, *words)
    fleet.result()
    directory = tmp_path / "my-broker"
    access = Access.load(directory / HOST)
    with Store(access.store, beside=True) as store:
        keys_by_device = store.keys()

    assert sorted(keys_by_device) == [1, 2, 3]
    assert board_client(access, keys_by_device, 2).code == 0, "the broker admits device 2"
    assert fleet.end() == 0
    assert not listens(*listener(directory)), "the broker has ended too"


@pytest.mark.usefixtures("mosquitto")
def test_broker_run_reads_new_passwords(tmp_path, start):
    """A device is added to the store while `tern broker run` runs. Once the broker's files are
    written again, the broker admits the device, without a restart.
    """
    access = configuration.configure(tmp_path / "my-broker", port=free_port())
    start("broker", "run", "my-broker", "--json").result()
    with Store(access.store, beside=True) as store:
        new_keys = keys.add(store, [1])
    not_authorised, accepted = 5, 0  # return codes of MQTT
    assert board_client(access, new_keys, 1).code == not_authorised

    configuration.configure(tmp_path / "my-broker")  # without a signal to the broker

    wait_for(lambda: board_client(access, new_keys, 1).code == accepted)


@pytest.mark.usefixtures("mosquitto")
def test_broker_run_goes_on_while_its_directory_is_elsewhere(tmp_path, start):
    directory = tmp_path / "my-broker"
    access = configuration.configure(directory, port=free_port())
    running = start("broker", "run", "my-broker", "--json")
    running.result()

    directory.rename(tmp_path / "elsewhere")
    running.wait_for_warning("my-broker/passwords is gone")
    assert listens(access.host, access.port)
    (tmp_path / "elsewhere").rename(directory)
    assert running.end() == 0


@pytest.mark.usefixtures("mosquitto")
def test_the_log_of_a_broker_has_the_lines_of_mosquitto_and_no_secret(tmp_path, start):
    access = configuration.configure(tmp_path / "my-broker", port=free_port())
    with Store(access.store, beside=True) as store:
        device_keys = keys.add(store, [1])
    configuration.configure(tmp_path / "my-broker")
    running = start("broker", "run", "my-broker", "--log-format", "json")
    wait_for(lambda: listens(access.host, access.port))
    wait_for(lambda: board_client(access, device_keys, 1).code == 0)

    wait_for(lambda: "New client connected" in running.err.read_text())

    text = running.err.read_text()
    entries = [json.loads(line) for line in text.splitlines()]
    assert all({"time", "level", "message"} <= entry.keys() for entry in entries)
    connected = [entry for entry in entries if "New client connected" in entry["message"]]
    assert {entry["program"] for entry in connected} == {"mosquitto"}
    for secret in (access.password, device_keys[1].hex()):
        assert secret not in text


@pytest.mark.usefixtures("mosquitto")
def test_a_broker_that_ends_is_started_again(tmp_path, start):
    """One board's subscriptions can end Mosquitto (test_broker_limits)."""
    access = configuration.configure(tmp_path / "my-broker", port=free_port())
    running = start("broker", "run", "my-broker", "--json")
    running.result()
    pid_file = tmp_path / "my-broker" / mosquitto_files.PID
    first_pid = int(pid_file.read_text())

    os.kill(first_pid, signal.SIGKILL)

    running.wait_for_warning("mosquitto has ended")
    wait_for(lambda: listens(access.host, access.port))
    assert int(pid_file.read_text()) != first_pid
    assert running.end() == 0
    assert not listens(access.host, access.port)


@pytest.mark.usefixtures("mosquitto")
@pytest.mark.sampled(1)
@pytest.mark.parametrize("tls", [True, False])
def test_a_broker_that_hangs_is_started_again(tmp_path, tls):
    """Mosquitto 2.0.11 hangs now and then, when its bridge was cut during a TLS handshake. So
    `Mosquitto.keep` asks the broker again and again whether it answers, and replaces its process
    when it does not. The broker does not log these questions as errors.
    """
    configuration.configure(tmp_path, port=free_port(), tls=tls)
    warnings = []
    with Mosquitto(tmp_path) as running:
        running.keep(warnings.append, KeeperTimes(ask_every=0.1, answer=5.0))
        first_pid = running.pid
        time.sleep(2.0)  # a broker that works is left alone
        assert running.pid == first_pid
        assert warnings == []

        os.kill(first_pid, signal.SIGSTOP)  # it hangs

        wait_for(lambda: running.pid not in (first_pid, None) and running.answers(5.0))
        assert warnings == ["mosquitto hangs; it is restarted in 1 s"]
    log = (tmp_path / "mosquitto.log").read_text().lower()
    assert "error" not in log
    assert "permissions" not in log, "no file is open to others"


# A shell starts a program in the background with Ctrl-C turned off


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, errors.OK), (signal.SIGTERM, errors.TERMINATED)],
    ids=["Ctrl-C", "SIGTERM"],
)
def test_an_emulated_board_in_the_background_ends_in_order(number, code, tmp_path):
    """A program can run a board by this command: after a signal no process holds the board's flash."""
    flash = tmp_path / "flash.bin"
    ready, ended = interrupt(number, "emulator", "run", "rv32", "--flash", str(flash))
    assert ready["port"]
    assert ended == code
    with locked(flash, flash.stat().st_size):
        pass  # no process holds it


def test_a_fleet_in_the_background_ends_in_order(tmp_path):
    ready, code = interrupt(signal.SIGINT, "fleet", "emulate", "1", "--clients", "1", cwd=tmp_path)
    assert ready
    assert code == errors.OK


# A table of the user's own

HOMES = {"B3": 9, "A1": 14, "C2": 12, "D9": 10, "B8": 15}  # records of each


def write_table(path, label):
    """Write a table of homes, with a schema beside it that names a label, or none.

    A record has a number that differs from home to home, and a category.
    """
    lines = ["home,t,number,weather,state"]
    for place, (home, count) in enumerate(HOMES.items()):
        for moment in range(count):
            weather = "rain" if moment % 3 == 0 else "sun"
            state = "warm" if moment % 2 == 0 else "cold"
            lines.append(f"{home},{moment},{10 * place + moment % 2},{weather},{state}")
    path.write_text("\n".join(lines) + "\n")
    schema = f"""
        {label}
        [columns.number]
        low = 0
        high = 50
        [columns.weather]
        categories = ["rain", "sun"]
        [columns.state]
        categories = ["cold", "warm"]
        """
    path.with_suffix(".toml").write_text(schema)


OWN = ("--data", "my.csv", "--by", "home", "--time", "t")
LABEL = 'label = "state"\n        positive = "warm"'
TRAINING = ("fedavg", "--rounds", 1, "--share", 1, "--no-report", "--json")


def records_on_boards(directory):
    """The records in the files of emulated boards, by client."""
    records = []
    for board in sorted((directory / "fleet").glob("board-*")):
        content = (board / storage.RECORDS).read_bytes()
        header = struct.calcsize(storage.RECORDS_HEADER)
        _, features, _ = struct.unpack_from(storage.RECORDS_HEADER, content)
        rows = np.frombuffer(content[header:], "<i2").reshape(-1, features + 1)
        clients = (board / storage.CLIENTS).read_bytes()
        for _, _, _, _, start, count, _ in struct.iter_unpack(storage.CLIENT, clients):
            records.append(rows[start : start + count].tolist())
    return records


def run_printed(ready, *words, cwd):
    """Run the command that an emulated fleet has printed, with further words."""
    return rig.tern(*shlex.split(ready["command"])[1:], *words, cwd=cwd).json


def test_the_rows_of_each_home_are_on_a_client_of_an_emulated_board(tmp_path, start):
    """Five homes on two boards: a client has the records of its home that are for training. The
    printed command then trains on all five, and judges the model on the other records.
    """
    write_table(tmp_path / "my.csv", LABEL)
    words = (*OWN, "--held-out", 0.3, "--json")
    ready = start("fleet", "emulate", 2, *words).result()
    selection = Selection(by="home", time="t", held_out=0.3)
    data = datasets.load(str(tmp_path / "my.csv"), selection=selection)

    of_homes = []
    for owner in range(len(HOMES)):
        of_home = data.training[data.owners[data.training] == owner]
        of_homes.append(data.records(of_home).tolist())
    assert records_on_boards(tmp_path / ready["directory"]) == of_homes
    result = run_printed(ready, *TRAINING, cwd=tmp_path)
    assert result["reports"] == len(HOMES)


@on_the_usual_port
def test_the_same_command_trains_on_homes_at_a_broker(tmp_path, start):
    write_table(tmp_path / "my.csv", LABEL)
    fleet = start("fleet", "emulate", 2, *OWN, "--broker", "my-broker", "--json")
    result = run_printed(fleet.result(), *TRAINING, cwd=tmp_path)
    assert result["reports"] == len(HOMES)


def test_records_of_another_width_are_refused_before_a_device_pays(tmp_path, start):
    write_table(tmp_path / "my.csv", LABEL)
    ready = start("fleet", "emulate", 2, *OWN, "--json").result()
    fleet = ("--fleet", "port:" + ",".join(ready["ports"]), "--store", ready["store"])
    other_width = ("--data", "devices:9", *TRAINING)
    rig.tern("train", *fleet, *other_width, cwd=tmp_path, code=errors.REFUSED)
    boards = rig.tern("board", "info", *ready["ports"], "--json").json["boards"]
    assert [board["epsilon_left"] for board in boards] == [1000, 1000], "all of the budget"


def mean_and_frequency(result):
    """The mean of the number, and the frequency of rain, of a collection."""
    by_name = {entry["name"]: entry for entry in result["attributes"]}
    return by_name["number"]["mean"], by_name["weather"]["frequencies"][0]


@pytest.fixture
def unlabelled(tmp_path):
    """A table that names no label, and its mean number (scaled) and frequency of rain."""
    write_table(tmp_path / "my.csv", label="")
    table = datasets.held(str(tmp_path / "my.csv"))
    return table.numeric[:, 0].mean() / 2**14, (table.codes[:, 0] == 0).mean()


COLLECTING = ("--unit", "record", "--run-epsilon", 200, "--json")  # hardly any noise


@pytest.mark.parametrize("fleet", ["simulated:5", "emulated:2"])
def test_a_table_without_a_label_is_collected_from_clients_that_are_made(
    tmp_path, unlabelled, fleet
):
    words = ("collect", *OWN, "--fleet", fleet, *COLLECTING)
    result = rig.tern(*words, cwd=tmp_path).json
    assert mean_and_frequency(result) == pytest.approx(unlabelled, abs=0.03)


def test_boards_that_are_made_tell_the_quantiles_of_a_table(tmp_path):
    """At this epsilon a bin is reported wrongly less than once in a million reports."""
    write_table(tmp_path / "my.csv", label="")
    words = ("--data", "my.csv", "--fleet", "emulated:2", "--clients", 60, "--epsilon", 20)
    what = ("--attributes", "number", "--quantiles", "median,p90", "--bins", 16)
    result = rig.tern("collect", *words, *what, "--json", cwd=tmp_path).json
    (entry,) = result["attributes"]
    assert (result["algorithm"], entry["reports"]) == ("quantiles", 60)
    assert entry["histogram"]["shares"] == pytest.approx(entry["histogram"]["true"], abs=0.001)
    for quantile in entry["quantiles"]:
        low, high = quantile["interval"]
        assert low <= quantile["true"] <= high


@pytest.mark.parametrize("fleet", ["simulated:5", "emulated:2"])
def test_boards_count_their_records_in_bins(tmp_path, unlabelled, fleet):
    what = ("--quantiles", "median,p90")
    words = ("collect", *what, *OWN, "--fleet", fleet, *COLLECTING)
    (entry,) = rig.tern(*words, cwd=tmp_path).json["attributes"]
    # Two boards have 23 records. Of 100 simulated runs, the largest difference was .11.
    estimated, true = entry["cumulative"]["shares"], entry["cumulative"]["true"]
    assert estimated == pytest.approx(true, abs=0.2)
    for quantile in entry["quantiles"]:
        assert quantile["value"] == pytest.approx(quantile["true"], abs=0.1)


def test_a_table_without_a_label_is_collected_from_a_fleet_that_was_filled_with_it(
    tmp_path, start, unlabelled
):
    words = ("--unit", "record", "--budget", 1000, "--delta", 1e-6, "--json")
    ready = start("fleet", "emulate", 2, *OWN, *words).result()
    result = run_printed(ready, "--run-epsilon", 200, "--json", cwd=tmp_path)
    assert mean_and_frequency(result) == pytest.approx(unlabelled, abs=0.03)


def test_a_fleet_that_was_filled_with_a_table_counts_its_records_in_bins(
    tmp_path, start, unlabelled
):
    words = ("--unit", "record", "--budget", 1000, "--delta", 1e-6, "--json")
    ready = start("fleet", "emulate", 2, *OWN, *words).result()
    what = ("--quantiles", "median", "--unit", "record", "--run-epsilon", 200)
    result = run_printed(ready, *what, "--json", cwd=tmp_path)
    (entry,) = result["attributes"]
    values = datasets.held(str(tmp_path / "my.csv")).numeric[:, 0] / 2**14
    assert entry["quantiles"][0]["value"] == pytest.approx(np.median(values), abs=0.1)
    assert result["records"] == pytest.approx(len(values), abs=15)
