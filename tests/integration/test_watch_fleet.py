"""`tern watch` beside a host that serves boards on a broker and is killed."""

import json
import signal
import subprocess
import time

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


def test_watch_shows_an_open_round_and_goes_on_after_the_host_is_killed(
    fleet, micropython, serving
):
    path, boards = fleet
    with Store(path) as store:
        keys.add(store, [99])  # on no board, so that the round stays open
    directory = path.parent / "broker"
    rig.tern("broker", "config", directory, "--store", path, "--port", free_port(), code=0)
    attach(boards, directory, path)
    command = [*TERN, "watch", str(path), "--json", "--interval", "0.1"]
    with (
        Mosquitto(directory),
        EmulatedFleet(micropython, boards),
        warm.Popen(command, stdout=subprocess.PIPE, text=True) as watching,
    ):

        def until(condition):
            end = time.monotonic() + 120
            for line in watching.stdout:
                view = json.loads(line)
                assert time.monotonic() < end, view
                if condition(view):
                    return view
            raise AssertionError("tern watch has ended")

        assert until(lambda view: True)["run"] is None, "it waits for a run"
        host = serving(path, directory, "--deadline", "3")
        view = until(
            lambda view: (
                view["round"]
                and view["round"]["reports"] == 6
                and view["fleet"]
                and view["fleet"]["states"] == {"online": 2, "offline": 0}
            )
        )
        assert (view["round"]["asked"], view["round"]["wanted"], view["round"]["deadline"]) == (
            7,
            7,
            3,
        )
        assert 0 < view["epsilon"]["left"] <= 40
        assert {board["name"] for board in view["worst"]} == {"00000001", "00000004"}
        number = view["round"]["number"]
        host.finish(-signal.SIGKILL, signal.SIGKILL)
        host = serving(path, directory, "--deadline", "3")
        until(lambda view: view["last"].get("round", 0) > number)
        host.signal(signal.SIGINT)
        host.process.communicate(timeout=60)
        until(lambda view: view["fleet"]["states"] == {"online": 0, "offline": 2})
        watching.send_signal(signal.SIGINT)
        assert watching.wait(60) == 0
