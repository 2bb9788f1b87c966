"""How a Mosquitto is looked after, without one."""

import shutil
import subprocess
import time
from pathlib import Path

import pytest

from ternhost.fleet import broker
from ternhost.fleet.broker_files import PID
from terntools import mosquitto


@pytest.fixture
def told(tmp_path, monkeypatch):
    """Directories of a central broker and two sites, each with a process of Mosquitto's name; whom SIGHUP was sent."""
    place = tmp_path / "broker"
    broker.configure(place, tls=False)
    for name in ("lab", "shed"):
        broker.add_site(place, name, bridge=True)
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


def test_the_central_broker_knows_boards_before_its_sites_do(told):
    place, order = told
    assert mosquitto.reload(place)
    assert order == ["broker", "lab", "shed"]


def test_a_site_that_is_still_there_has_its_central_broker_told_first(told):
    place, order = told
    assert mosquitto.reload(place / "sites" / "lab")
    assert order == ["broker", "lab"]
