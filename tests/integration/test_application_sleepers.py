"""Thirty boards that sleep, whose wakes are processes, and a broker that is killed again and again."""

import json
import random
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import rig
from harness import kept

from ternhost.reach.broker.access import HOST, Access
from ternhost.reach.broker.configuration import configure
from ternhost.reach.broker.mosquitto import Mosquitto
from ternhost.store.store import Store

PROGRAM = Path(__file__).with_name("once_program.py")
BOARDS, ROUNDS = 30, 4
AT_ONCE = 10  # processes
WAKE_S = 60  # as provisioned; here they wake more often
ONCE_MS = 15_000  # for a wake, even where its host or its broker is slow
# Generous: these tests are not about speed.
TIMEOUT_S, DEADLINE_S = 600, 1200


def wake(micropython, board, timeout_ms=ONCE_MS):
    """Run the program of a board; return its JSON object."""
    return rig.run_program(micropython, PROGRAM, timeout_ms, cwd=board, timeout=TIMEOUT_S)


def make(tmp_path, boards, **network):
    return rig.on_broker(tmp_path, boards, wake_s=WAKE_S, clean=False, **network)


def serve(tmp_path, path, rounds, deadline):
    options = ("--rounds", rounds, "--deadline", deadline, "--interval", 0.5, "--patience", 0.3)
    return rig.serving_on_broker(tmp_path, path, *options)


@pytest.mark.slow
def test_every_board_that_wakes_in_a_round_is_counted_once(tmp_path, micropython):
    """Each round lasts until every board has woken in it, though the broker is often away."""
    path, boards = make(tmp_path, BOARDS)
    turns, over = threading.Semaphore(AT_ONCE), threading.Event()
    draws, wakes = random.Random(12), []

    def live(board, draws):
        while not over.wait(draws.uniform(0.0, 1.0)):
            with turns:
                if over.is_set():
                    return
                wakes.append(wake(micropython, board))

    def ended():
        with Store(path, create=False, beside=True) as store:
            return len(kept.ended_rounds(store))

    with Mosquitto(tmp_path / "broker") as broker, ThreadPoolExecutor(BOARDS) as pool:
        host = serve(tmp_path, path, ROUNDS, DEADLINE_S)
        lives = [pool.submit(live, board, random.Random(draws.random())) for board in boards]
        try:
            kills = 0
            end = time.monotonic() + DEADLINE_S
            while host.process.poll() is None:
                assert time.monotonic() < end, f"{ended()} rounds"
                assert not any(life.done() for life in lives)
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
        out, _ = host.finish()
    ends = [line for line in map(json.loads, out.splitlines()) if line["event"] == "end"]
    counts = [(line["asked"], line["reports"], line["refusals"]) for line in ends]
    assert counts == ROUNDS * [(BOARDS, BOARDS, 0)]
    assert kills >= 3
    with Store(path, create=False) as store:
        reporters = [sorted(store.reporters(row.number)) for row in store.rounds()]
    assert reporters == ROUNDS * [list(range(1, BOARDS + 1))]
    spent = {device: account[0] for device, account in rig.read_ledgers(boards).items()}
    assert spent == dict.fromkeys(range(1, BOARDS + 1), ROUNDS * rig.COST)
    done = [outcome for outcome in wakes if outcome["done"]]
    assert all(outcome["error"] == "None" for outcome in wakes)
    print(
        f"{len(wakes)} wakes, {len(done)} of them with a report, {kills} kills, a round {ends[-1]}"
    )
    for key in ("import_ms", "open_ms", "once_ms"):
        print(key, np.percentile([outcome[key] for outcome in done], (0, 50, 100)))


@pytest.mark.parametrize("trouble", ["gone", "hangs", "is another"])
def test_a_wake_without_its_broker_ends_in_time_and_without_a_report(
    tmp_path, micropython, trouble
):
    path, (board,) = make(tmp_path, 1)
    access = Access.load(tmp_path / "broker" / HOST)
    with socket.create_server(("127.0.0.1", access.port)) as server:  # accepts, and stays silent
        if trouble == "gone":
            server.close()
        elif trouble == "is another":
            server.close()
            configure(tmp_path / "other", path, port=access.port)
        with Mosquitto(tmp_path / "other") if trouble == "is another" else nullcontext():
            outcome = wake(micropython, board, 2000)
    assert (outcome["done"], outcome["reports"]) == (False, 0)
    assert (outcome["error"] == "None") == (trouble == "hangs")  # the connection may still succeed
    assert 2000 <= outcome["once_ms"] < 1000 * TIMEOUT_S
    assert rig.read_ledgers([board])[1][0] == 0
    with Mosquitto(tmp_path / "broker"):  # the next wake reports
        host = serve(tmp_path, path, 1, DEADLINE_S)
        outcome = wake(micropython, board)
        for _ in range(5):  # the host may have been slower
            if not outcome["done"]:
                outcome = wake(micropython, board)
        assert outcome["done"]
        assert outcome["reports"] >= 1
        host.finish()
    assert rig.read_ledgers([board])[1][0] == rig.COST
