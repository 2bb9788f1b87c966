"""`tern watch` beside a host that serves boards on a broker, and dies."""

import json
import os
import signal
import subprocess
import time

import warm
from test_mqtt_commands import fleet, serving, tern  # noqa: F401, fixtures
from warm import TERN

from ternhost.provision import keys
from ternhost.reach.broker.mosquitto import Mosquitto, free_port
from ternhost.store.store import Store
from terntools.boards.attach import attach
from terntools.emulators.unix_fleet import EmulatedFleet


def test_a_round_on_its_way_and_a_host_that_is_killed(fleet, micropython, serving):  # noqa: F811
    path, boards = fleet
    with Store(path) as store:
        keys.add(store, [99])  # on no board: the round waits for it
    directory = path.parent / "broker"
    tern("broker", "config", directory, "--store", path, "--port", free_port(), "--json")
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
                told = json.loads(line)
                assert time.monotonic() < end, told
                if condition(told):
                    return told
            raise AssertionError("it has ended")

        assert until(lambda told: True)["run"] is None, "it waits"
        words = ("--deadline", "3", "--json")
        served = serving(path, directory, *words)
        told = until(lambda told: told["round"] and told["round"]["reports"] == 6 and told["fleet"])
        assert (told["round"]["asked"], told["round"]["wanted"], told["round"]["deadline"]) == (7, 7, 3)
        assert told["fleet"]["states"] == {"online": 2, "offline": 0}
        assert 0 < told["epsilon"]["left"] <= 40
        assert {board["name"] for board in told["worst"]} == {"00000001", "00000004"}
        number = told["round"]["number"]
        os.kill(served.pid, signal.SIGKILL)
        served.communicate()
        served = serving(path, directory, *words)
        until(lambda told: told["last"].get("round", 0) > number)
        os.kill(served.pid, signal.SIGINT)
        served.communicate(timeout=60)
        until(lambda told: told["fleet"]["states"] == {"online": 0, "offline": 2})
        watching.send_signal(signal.SIGINT)
        assert watching.wait(60) == 0
