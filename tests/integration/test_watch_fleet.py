"""`tern watch` beside a host that serves boards on a broker and is killed."""

import json
import signal
import subprocess
import time

import pytest
import rig
import warm
from test_mqtt_commands import fleet as fleet  # a fixture
from test_mqtt_commands import serving as serving  # a fixture
from warm import TERN

from ternhost.provision import keys
from ternhost.reach.broker.mosquitto import Mosquitto, free_port
from ternhost.store.store import Store
from terntools.boards.attach import attach
from terntools.emulators.unix_fleet import EmulatedFleet


class Watch:
    """`tern watch --json` as a process, whose views can be waited for."""

    def __init__(self, path):
        command = [*TERN, "watch", str(path), "--json", "--interval", "0.1"]
        self.process = warm.Popen(command, stdout=subprocess.PIPE, text=True)

    def wait_for(self, condition, seconds=120):
        """Wait for a view of which the condition holds; return it."""
        end = time.monotonic() + seconds
        for line in self.process.stdout:
            view = json.loads(line)
            assert time.monotonic() < end, view
            if condition(view):
                return view
        raise AssertionError("tern watch has ended")

    def end(self):
        """End it by Ctrl-C; return its exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(60)


@pytest.fixture
def watched(fleet, micropython):
    """(the store, the directory of its broker, `tern watch` beside it) while two boards run."""
    path, boards = fleet
    with Store(path) as store:
        keys.add(store, [99])  # on no board, so that a round stays open until its deadline
    directory = path.parent / "broker"
    rig.tern("broker", "config", directory, "--store", path, "--port", free_port(), code=0)
    attach(boards, directory, path)
    watch = Watch(path)
    with Mosquitto(directory), EmulatedFleet(micropython, boards):
        yield path, directory, watch
    watch.process.kill()
    watch.process.communicate()


def has_all_reports(view):
    """Whether the six devices of both boards have reported to the open round."""
    if not view["round"] or not view["fleet"]:
        return False
    is_online = view["fleet"]["states"] == {"online": 2, "offline": 0}
    return is_online and view["round"]["reports"] == 6


def test_watch_shows_an_open_round(watched, serving):
    path, directory, watch = watched
    assert watch.wait_for(lambda view: True)["run"] is None, "it waits for a run"

    serving(path, directory, "--deadline", "3")
    view = watch.wait_for(has_all_reports)

    assert view["round"]["asked"] == view["round"]["wanted"] == 7
    assert view["round"]["deadline"] == 3
    assert 0 < view["epsilon"]["left"] <= 40  # as provisioned
    assert {board["name"] for board in view["worst"]} == {"00000001", "00000004"}


def test_watch_goes_on_after_the_host_is_killed(watched, serving):
    path, directory, watch = watched
    host = serving(path, directory, "--deadline", "3")
    number = watch.wait_for(has_all_reports)["round"]["number"]

    host.finish(-signal.SIGKILL, signal.SIGKILL)
    host = serving(path, directory, "--deadline", "3")
    watch.wait_for(lambda view: view["last"].get("round", 0) > number)
    host.signal(signal.SIGINT)
    host.process.communicate(timeout=60)

    watch.wait_for(lambda view: view["fleet"]["states"] == {"online": 0, "offline": 2})
    assert watch.end() == 0
