"""Mosquitto is reloaded, its failures are explained, and it is restarted; other programs stand in for it."""

import errno
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ternhost.errors import DeviceError
from ternhost.reach.broker import configuration, mosquitto
from ternhost.reach.broker.mosquitto_files import PID


@pytest.fixture
def brokers(tmp_path, monkeypatch):
    """The directory of a central broker, and a list of the brokers that are reloaded.

    The central broker and its two sites each have a process named mosquitto.
    """
    place = tmp_path / "broker"
    configuration.configure(place, tls=False)
    for name in ("lab", "shed"):
        configuration.add_site(place, name, bridge=True)
    program = shutil.copy(shutil.which("sleep"), tmp_path / "mosquitto")
    processes = {}
    for directory in (place, place / "sites" / "lab", place / "sites" / "shed"):
        process = subprocess.Popen([program, "60"])
        (directory / PID).write_text(f"{process.pid}\n")
        processes[process.pid] = (directory.name, process)
    order = []
    monkeypatch.setattr(mosquitto.os, "kill", lambda pid, signal: order.append(processes[pid][0]))
    for pid in processes:
        while Path(f"/proc/{pid}/comm").read_text() != "mosquitto\n":  # not before exec
            time.sleep(0.01)
    yield place, order
    monkeypatch.undo()
    for _, process in processes.values():
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("name", "order"), [("", ["broker", "lab", "shed"]), ("sites/lab", ["broker", "lab"])]
)
def test_the_central_broker_is_reloaded_before_its_sites(brokers, name, order):
    place, reloaded = brokers
    assert mosquitto.reload(place / name)
    assert reloaded == order


@pytest.fixture
def replaced(tmp_path, monkeypatch):
    """`replace(script)` makes a script of Python the Mosquitto of a broker, and returns the broker's directory."""
    place = tmp_path / "broker"
    port = mosquitto.free_port()
    configuration.configure(place, tls=False, port=port)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    def replace(script):
        path = tmp_path / "mosquitto"
        path.write_text(f"#!{sys.executable} -S\nimport os, sys, socket, time\nport = {port}\n{script}")
        path.chmod(0o755)
        return place

    return replace


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("print('1: Warning: harmless'); sys.exit(3)", "mosquitto does not start with exit code 3"),
        ("print('1: Warning: harmless', flush=True); os.kill(os.getpid(), 11)", "mosquitto does not start: SIGSEGV"),
        (
            "print('1: Error: no such user'); print('1: Warning: x'); sys.exit(1)",
            "mosquitto does not start: Error: no such user",
        ),
    ],
)  # fmt: skip
def test_the_error_says_why_mosquitto_has_ended(replaced, script, message):
    place = replaced(script)
    (place / "mosquitto.log").write_text("1: Error: of another day\n")
    with pytest.raises(DeviceError) as caught:
        mosquitto.Mosquitto(place)
    assert caught.value.message == message


def test_an_unreachable_address_does_not_count_as_a_started_broker(replaced, monkeypatch):
    def unreachable(*_, **__):
        raise OSError(errno.ENETUNREACH, "Network is unreachable")

    place = replaced("time.sleep(0.5)\nsys.exit(3)")
    monkeypatch.setattr(mosquitto.socket, "create_connection", unreachable)
    with pytest.raises(DeviceError, match="mosquitto does not start with exit code 3"):
        mosquitto.Mosquitto(place)


def test_the_pause_before_a_restart_is_short_again_after_healthy_time(replaced, monkeypatch):
    place = replaced("socket.create_server(('127.0.0.1', port)).accept()[0].close()\ntime.sleep(0.5)")
    monkeypatch.setattr(mosquitto, "_PAUSE", 0.01)
    monkeypatch.setattr(mosquitto, "_LOOK_EVERY", 0.01)
    monkeypatch.setattr(mosquitto, "_HEALTHY", 0.1)
    messages = []
    with mosquitto.Mosquitto(place) as running:
        running.keep(messages.append)
        end = time.monotonic() + 20
        while len(messages) < 3 and time.monotonic() < end:
            time.sleep(0.05)
    assert messages[:3] == 3 * ["mosquitto has ended with exit code 0; it is restarted in 0.01 s"]
