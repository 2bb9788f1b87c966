"""Commands that run fleets and brokers, on this machine."""

import json
import os
import signal
import time

import pytest
import rig
import warm
from harness.background import interrupt
from harness.raw_client import board_client, wait_for
from warm import TERN

from ternhost import errors
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
