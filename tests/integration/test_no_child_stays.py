"""However a command is ended, and whenever, none of its child processes stays.

The commands run their children in the background: a broker, or emulated boards. A signal may come
twice, as timeout(1) and supervisors send it, while the command is still starting, or while it ends.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ternhost.reach.broker.mosquitto import free_port

MARK = "TERN_TEST_COMMAND"  # in the environment of a command, and so of its children
PATIENCE = 15.0  # seconds until all children must have ended
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def heed_hang_up():
    """Let SIGHUP end the process, also where the tests run under nohup."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


class Command:
    """A `tern` command in a process of its own, whose children can be found after its end."""

    def __init__(self, *words, cwd):
        self.mark = f"{MARK}={os.getpid()}-{time.monotonic_ns()}"
        name, _, value = self.mark.partition("=")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ternhost", *map(str, words)],
            cwd=cwd,
            env={**os.environ, name: value},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=heed_hang_up,
        )

    def wait_for_child(self):
        """Wait until the command has a child process, and has printed its first line."""
        assert self.process.stdout.readline()
        while len(self._marked) < 2:
            assert self.process.poll() is None
            time.sleep(0.05)

    def end(self, *signals):
        for number in signals:
            self.process.send_signal(number)
        self.process.wait(2 * PATIENCE)

    @property
    def left(self):
        """The names of its programs that are still there, once they had time to end."""
        give_up_at = time.monotonic() + PATIENCE
        while self._marked and time.monotonic() < give_up_at:
            time.sleep(0.05)
        return self._marked

    @property
    def _marked(self):
        """The names of the programs that have its mark: the command and its children."""
        processes = Path("/proc").glob("[0-9]*")
        return [(path / "comm").read_text() for path in processes if self._is_marked(path)]

    def _is_marked(self, process):
        try:
            environment = (process / "environ").read_bytes().split(b"\0")
        except OSError:  # it has ended, or belongs to another user
            return False
        return self.mark.encode() in environment


@pytest.fixture
def broker(tmp_path):
    """Start `tern broker run` on a broker that is configured already."""
    words = ("broker", "config", tmp_path / "broker", "--port", free_port())
    subprocess.run([sys.executable, "-m", "ternhost", *map(str, words)], check=True, timeout=60)

    def start():
        return Command("broker", "run", "broker", cwd=tmp_path)

    return start


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_a_broker_ends_with_its_command_at_two_signals(broker, number):
    command = broker()
    command.wait_for_child()
    command.end(number, number)
    assert command.left == []
    assert b"Traceback" not in command.process.stdout.read()


@pytest.mark.parametrize("first", SIGNALS, ids=lambda number: number.name)
def test_a_broker_ends_with_its_command_at_signals_of_two_kinds(broker, first):
    others = [number for number in SIGNALS if number != first]
    command = broker()
    command.wait_for_child()
    command.end(first, *others)
    assert command.left == []


def test_a_broker_runs_again_after_its_command_was_killed(broker):
    command = broker()
    command.wait_for_child()
    command.end(signal.SIGKILL)
    assert command.left == []
    again = broker()
    assert b"listens" in again.process.stdout.readline()
    again.end(signal.SIGTERM)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
@pytest.mark.parametrize("seconds", [0.4, 0.7])
def test_no_broker_stays_of_a_command_that_is_ended_while_it_starts(broker, number, seconds):
    command = broker()
    time.sleep(seconds)
    command.end(number)
    assert command.left == []


@pytest.mark.parametrize(
    "signals",
    [[signal.SIGTERM, signal.SIGTERM], [signal.SIGINT, signal.SIGINT], [signal.SIGKILL]],
    ids=lambda signals: signals[0].name,
)
@pytest.mark.parametrize(
    "words",
    [
        ("fleet", "emulate", "2", "--data", "flights"),
        ("emulator", "run", "pico"),
        ("serve", "fedsgd", "--data", "flights", "--fleet", "emulated:2", "--every", "60"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_no_emulated_board_stays_of_a_command_that_was_ended(tmp_path, micropython, words, signals):
    command = Command(*words, cwd=tmp_path)
    command.wait_for_child()
    command.end(*signals)
    assert command.left == []
    assert b"Traceback" not in command.process.stdout.read()
