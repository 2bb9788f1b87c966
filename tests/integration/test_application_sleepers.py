"""Issue 12: thirty boards that sleep, each wake a process of its own, and a broker that is killed again and again."""

import json
import os
import random
import socket
import subprocess
import threading
import time
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import rig
from harness import kept

from ternhost.provision import keys
from ternhost.reach.broker.access import HOST, Access
from ternhost.reach.broker.configuration import configure
from ternhost.reach.broker.mosquitto import Mosquitto
from ternhost.store.store import Store
from terntools.boards import deploy
from terntools.boards.attach import write_network
from terntools.boards.repl import Repl
from terntools.emulators import flash_image, qemu
from terntools.emulators.micropython import device_command
from terntools.emulators.unix_fleet import FIRMWARE

PROGRAM = Path(__file__).with_name("once_program.py")
BOARDS = 30
ROUNDS = 4
AT_ONCE = 10  # processes
WAKE_S = 60  # what provisioning says; here they wake more often
ONCE_MS = 15_000  # that a wake may take where its host or its broker are slow
# Generous: nothing here is about speed.
TIMEOUT_S = 600
DEADLINE_S = 1200


def wake(micropython, board, timeout_ms=ONCE_MS):
    """Start the program of a board, and return (what it tells, seconds)."""
    begun = time.monotonic()
    done = subprocess.run(
        device_command(micropython, PROGRAM, str(timeout_ms)),
        cwd=board,
        env={**os.environ, "MICROPYPATH": f"{FIRMWARE}{os.pathsep}.frozen"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), time.monotonic() - begun


def make(tmp_path, boards):
    return rig.on_broker(tmp_path, boards, wake_s=WAKE_S, clean=False)


def serve(tmp_path, path, rounds, deadline):
    words = ("--rounds", rounds, "--deadline", deadline, "--interval", 0.5, "--patience", 0.3)
    return rig.serving_on_broker(tmp_path, path, *words)


@pytest.mark.slow
def test_each_that_wakes_is_counted_once(tmp_path, micropython):
    """Every round lasts until each board has woken in it, with a broker or without one: none is missed, or twice."""
    path, boards = make(tmp_path, BOARDS)
    turns = threading.Semaphore(AT_ONCE)
    over = threading.Event()
    draws = random.Random(12)
    told = []

    def live(board, draws):
        while not over.wait(draws.uniform(0.0, 1.0)):
            with turns:
                if over.is_set():
                    return
                said, seconds = wake(micropython, board)
            told.append((board.name, said, seconds))

    def ended():
        with Store(path, create=False, beside=True) as store:
            return len(kept.ended_rounds(store))

    with Mosquitto(tmp_path / "broker") as broker:
        host = serve(tmp_path, path, ROUNDS, DEADLINE_S)
        lives = [
            threading.Thread(target=live, args=(board, random.Random(draws.random()))) for board in boards
        ]
        for one in lives:
            one.start()
        try:
            kills = 0
            end = time.monotonic() + DEADLINE_S
            while host.process.poll() is None:
                assert time.monotonic() < end, f"{ended()} rounds"
                assert all(one.is_alive() for one in lives)
                time.sleep(draws.uniform(0.3, 2.0))
                # Twice a round at most, so that a round ends on a slow machine, too.
                if kills < 2 * (ended() + 1) < 2 * ROUNDS:
                    broker.kill()
                    time.sleep(draws.uniform(0.0, 0.5))
                    broker.start()
                    kills += 1
        finally:
            over.set()
            host.process.kill()
            for one in lives:
                one.join()
        code, out, err = host.finish()
    assert code == 0, err
    ends = [line for line in map(json.loads, out.splitlines()) if line["event"] == "end"]
    assert [(line["asked"], line["reports"], line["refusals"]) for line in ends] == ROUNDS * [
        (BOARDS, BOARDS, 0)
    ]
    assert kills >= 3
    with Store(path, create=False) as store:
        reporters = [store.reporters(one.number) for one in store.rounds()]
    assert [sorted(one) for one in reporters] == ROUNDS * [list(range(1, BOARDS + 1))]
    spent = {device: account[0] for device, account in rig.read_ledgers(boards).items()}
    assert spent == dict.fromkeys(range(1, BOARDS + 1), ROUNDS * rig.COST)
    done = [said for _, said, _ in told if said["done"]]
    assert all(said["error"] == "None" for _, said, _ in told)
    print(f"{len(told)} wakes, {len(done)} of them with a report, {kills} kills, a round {ends[-1]}")
    for key in ("import_ms", "open_ms", "once_ms"):
        print(key, np.percentile([said[key] for said in done], (0, 50, 100)))


@pytest.mark.parametrize("trouble", ["gone", "hangs", "is another"])
def test_a_wake_without_its_broker_ends(tmp_path, micropython, trouble):
    """It returns in time, and says that there was no report."""
    path, (board,) = make(tmp_path, 1)
    access = Access.load(tmp_path / "broker" / HOST)
    with socket.create_server(("127.0.0.1", access.port)) as server:  # accepts, and says nothing
        if trouble == "gone":
            server.close()
        elif trouble == "is another":
            server.close()
            configure(tmp_path / "other", path, port=access.port)
        with Mosquitto(tmp_path / "other") if trouble == "is another" else nullcontext():
            said, _ = wake(micropython, board, 2000)
    assert (said["done"], said["reports"]) == (False, 0)
    assert (said["error"] == "None") == (trouble == "hangs")  # that is not over yet
    assert 2000 <= said["once_ms"] < 1000 * TIMEOUT_S
    assert rig.read_ledgers([board])[1][0] == 0
    with Mosquitto(tmp_path / "broker"):  # and the next one has all it needs
        host = serve(tmp_path, path, 1, DEADLINE_S)
        said, _ = wake(micropython, board)
        for _ in range(5):  # the host may have been slower
            if not said["done"]:
                said, _ = wake(micropython, board)
        assert said["done"]
        assert said["reports"] >= 1
        assert host.finish()[0] == 0
    assert rig.read_ledgers([board])[1][0] == rig.COST


WAKE = """
import time
marks = [time.ticks_ms()]
from tern.app import App
from tern.boards.this import this_board
from tern.model import Model
from tern.recorder import Recorder
marks.append(time.ticks_ms())
node = App(this_board(), Recorder(6, capacity=16, hold=1), Model())
marks.append(time.ticks_ms())
node.board.led = lambda on: marks.append(time.ticks_ms())
done = node.once(30000)
marks.append(time.ticks_ms())
marks = [time.ticks_diff(mark, marks[0]) for mark in marks]
"""


@pytest.mark.slow
def test_a_wake_over_wifi_and_tls(tmp_path):
    """On the emulated ESP32, whose time is this machine's; without tern.lease, since its radio takes no address."""
    path, (board,) = make(tmp_path, 1)
    access = Access.load(tmp_path / "broker" / HOST)
    with Store(path, create=False) as store:
        fleet = keys.fleet_key(store)
    through_qemu = Access("10.0.2.2", access.port, "", "", access.authority)
    write_network(
        board,
        through_qemu,
        fleet.key,
        epoch=fleet.epoch,
        server="localhost",
        ssid="air",
        wake_s=WAKE_S,
        clean=False,
    )
    with qemu.boot("xtensa") as blank, Repl(blank.url) as repl:
        files = deploy.library_files(deploy.Machine.of(repl), False, ("app",))
    files = {path: data for path, data in files.items() if path not in ("/main.py", "/lib/tern/lease.mpy")}
    for one in board.rglob("*"):
        if one.is_file():
            files[f"/{one.relative_to(board)}"] = one.read_bytes()
    flash_image.write("xtensa", board / "flash.bin", files)
    with Mosquitto(tmp_path / "broker"):
        host = serve(tmp_path, path, 2, 120)
        reports = 0
        while host.process.poll() is None:
            with qemu.boot("xtensa", board / "flash.bin") as running, Repl(running.url) as repl:
                repl.run(WAKE, 60)
                done, sent, error, marks, ready = repl.evaluate(
                    "(done, node.reports, str(node.error), marks, node.model.ready)"
                )
                assert error == "None"
                assert ready or not sent
            reports += sent if done else 0  # two, where the second round begins while it is awake
            print("ms to imports, App, then each frame and its answer, the end:", marks)
        assert host.finish()[0] == 0
    assert reports >= 2
