"""How a Mosquitto is looked after, without one."""

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
def told(tmp_path, monkeypatch):
    """Directories of a central broker and two sites, each with a process of Mosquitto's name; whom SIGHUP was sent."""
    place = tmp_path / "broker"
    configuration.configure(place, tls=False)
    for name in ("lab", "shed"):
        configuration.add_site(place, name, bridge=True)
    binary = shutil.copy(shutil.which("sleep"), tmp_path / "mosquitto")
    of = {}
    for directory in (place, place / "sites" / "lab", place / "sites" / "shed"):
        process = subprocess.Popen([binary, "60"])
        (directory / PID).write_text(f"{process.pid}\n")
        of[process.pid] = (directory.name, process)
    order = []
    monkeypatch.setattr(mosquitto.os, "kill", lambda pid, signal: order.append(of[pid][0]))
    for pid in of:
        while Path(f"/proc/{pid}/comm").read_text() != "mosquitto\n":  # not before exec
            time.sleep(0.01)
    yield place, order
    monkeypatch.undo()
    for _, process in of.values():
        process.kill()
        process.wait()


@pytest.mark.parametrize(("of", "order"), [("", ["broker", "lab", "shed"]), ("sites/lab", ["broker", "lab"])])
def test_the_central_broker_knows_boards_before_its_sites_do(told, of, order):
    """Also where a site that is still beside it is told."""
    place, found = told
    assert mosquitto.reload(place / of)
    assert found == order


@pytest.fixture
def replaced(tmp_path, monkeypatch):
    """A broker's directory, and how to have a script of Python run as its Mosquitto."""
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
def test_why_it_has_ended(replaced, script, message):
    place = replaced(script)
    (place / "mosquitto.log").write_text("1: Error: of another day\n")
    with pytest.raises(DeviceError) as caught:
        mosquitto.Mosquitto(place)
    assert caught.value.message == message


def test_an_address_that_cannot_be_reached_is_not_listened_on(replaced, monkeypatch):
    def unreachable(*_, **__):
        raise OSError(errno.ENETUNREACH, "Network is unreachable")

    place = replaced("time.sleep(0.5)\nsys.exit(3)")
    monkeypatch.setattr(mosquitto.socket, "create_connection", unreachable)
    with pytest.raises(DeviceError, match="mosquitto does not start with exit code 3"):
        mosquitto.Mosquitto(place)


def test_after_some_time_of_health_the_pause_is_short_again(replaced, monkeypatch):
    place = replaced("socket.create_server(('127.0.0.1', port)).accept()[0].close()\ntime.sleep(0.5)")
    monkeypatch.setattr(mosquitto, "_PAUSE", 0.01)
    monkeypatch.setattr(mosquitto, "_LOOK_EVERY", 0.01)
    monkeypatch.setattr(mosquitto, "_HEALTHY", 0.1)
    told = []
    with mosquitto.Mosquitto(place) as running:
        running.keep(told.append)
        end = time.monotonic() + 20
        while len(told) < 3 and time.monotonic() < end:
            time.sleep(0.05)
    assert told[:3] == 3 * ["mosquitto has ended with exit code 0; it is restarted in 0.01 s"]
