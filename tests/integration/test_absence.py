"""A board that is not on its broker says why: at its port, in its file, and in its next HELLO; with real brokers."""

import json
import shutil
import time
from contextlib import closing
from pathlib import Path
from queue import SimpleQueue

import rig
from harness.raw_client import wait_for

from tern import absence
from ternhost.reach.broker.mosquitto import Mosquitto
from ternhost.reach.links import open_link
from ternhost.store.boards import hello_fields
from terntools.boards import deploy
from terntools.boards.monitor import Monitor
from terntools.emulators import flash_image, qemu
from terntools.emulators.unix_fleet import EmulatedFleet

_NETWORK = Path(__file__).with_name("air_network.py")


def absent(port):
    """What the HELLO at `port` tells: (reason, whether the absence goes on)."""
    with closing(open_link(port, SimpleQueue())) as link:
        fields = hello_fields(link.hello(15))
    return fields["absent"], fields["absent_now"]


def change(directory, **members):
    """Change mqtt.json; None takes a member away. Return what it was."""
    path = directory / "mqtt.json"
    before = path.read_text()
    config = {name: value for name, value in {**json.loads(before), **members}.items() if value is not None}
    path.write_text(json.dumps(config))
    return before


def test_a_board_says_at_its_port_why_it_is_not_on_its_broker(tmp_path, micropython):
    store, (directory,) = rig.on_broker(tmp_path, 1, longest_pause_ms=500)
    with EmulatedFleet(micropython, [directory]) as fleet:
        (board,) = fleet.boards
        wait_for(lambda: absent(board.port) == (absence.REFUSED, True), 15)
        text = rig.tern("device", "info", board.port).out
        assert "connection refused" in text
        assert "tern broker run" in text
        lines = []
        monitor = Monitor(board.port, lines.append, 0.2)
        with closing(monitor):
            monitor.run(time.monotonic() + 2)
        assert "connection refused" in lines[-1]
        assert "connection refused" in monitor.state.absence
        refused = rig.tern("train", "--fleet", f"port:{board.port}", "--store", store, cwd=tmp_path)
        assert "answers its broker, and at its port only HELLO; not on its broker" in refused.err
        assert (directory / absence.ABSENT).read_bytes() == bytes((absence.REFUSED,))

        with Mosquitto(tmp_path / "broker"):
            wait_for(lambda: absent(board.port) == (absence.REFUSED, False), 15)
            assert "was away" in rig.tern("device", "info", board.port).out
            good = change(directory, password="0" * 32)
            board.restart()
            wait_for(lambda: absent(board.port) == (absence.CREDENTIALS, True), 15)
            (directory / "mqtt.json").write_text(good)
            board.restart()
            wait_for(lambda: absent(board.port) == (absence.CREDENTIALS, False), 15)
        wait_for(lambda: absent(board.port)[1], 15)


AIR = {"ssid": "air", "key": "x" * 8, "lease": True}


def test_a_board_says_why_it_is_not_on_its_wifi_network(tmp_path):
    """An ESP32's instruction set and TCP, with a stand-in for its radio; the port is the console."""
    _, (directory,) = rig.on_broker(tmp_path, 1, **rig.WIFI, wifi_password=AIR["key"])
    flash_image.fill("rv32", tmp_path / "plain.bin", deploy.library_files)
    flash_image.add(
        tmp_path / "plain.bin", {"/network.py": _NETWORK.read_bytes(), **rig.files_below(directory)}
    )
    for air, members, reason in (
        ({}, {"ssid": "other"}, absence.NO_NETWORK),
        ({}, {"wifi_password": "y" * 8}, absence.WIFI_KEY),
        ({"lease": False}, {}, absence.NO_LEASE),
        ({}, {"ssid": None}, absence.NO_SETTINGS),
        ({}, {"host": "nobody.invalid"}, absence.NO_NAME),
        ({}, {}, absence.REFUSED),
    ):
        good = change(directory, **members)
        config = (directory / "mqtt.json").read_bytes()
        (directory / "mqtt.json").write_text(good)
        flash = tmp_path / f"{reason}.bin"
        shutil.copy(tmp_path / "plain.bin", flash)
        flash_image.add(flash, {"/mqtt.json": config, "/air.json": json.dumps({**AIR, **air}).encode()})
        told = set()

        def tells(url, reason=reason, told=told):
            told.add(absent(url)[0])
            return reason in told

        with qemu.boot("rv32", flash) as board:
            wait_for(lambda url=board.url: tells(url), 15)
        assert told <= {0, reason}, "no other reason before"
