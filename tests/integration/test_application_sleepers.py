"""Boards that sleep, whose wakes are processes, and a broker that is killed again and again."""

import contextlib
import json
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import rig
from harness import kept
from harness.waiting import wait_for

from ternhost.reach.broker.mosquitto import Mosquitto
from ternhost.store.store import Store

PROGRAM = Path(__file__).with_name("once_program.py")
BOARDS, ROUNDS = 8, 3
WAKE_S = 60  # as provisioned; here they wake more often
ONCE_MS = 15_000  # for a wake, even where its host or its broker is slow
# Generous: these tests are not about speed.
TIMEOUT_S, DEADLINE_S = 600, 1200


def wake(micropython, board, timeout_ms=ONCE_MS):
    """Run the program of a board; return its JSON object."""
    return rig.run_program(micropython, PROGRAM, timeout_ms, cwd=board, timeout=TIMEOUT_S)


def sleeping_boards(directory, count):
    """(path of the store, directories of boards that keep their sessions at their broker)."""
    return rig.on_broker(directory, count, wake_s=WAKE_S, clean=False)


def serve(directory, path, rounds):
    options = ("--deadline", DEADLINE_S, "--every", 0.5, "--patience", 0.3)
    return rig.serving_on_broker(directory, path, "--rounds", rounds, *options)


def spent(boards):
    return {device: account[0] for device, account in rig.read_ledgers(boards).items()}


def wake_again_and_again(micropython, board, over):
    """Let a board wake at random moments until the event `over`; return what its wakes print."""
    outcomes = []
    while not over.wait(random.uniform(0.0, 1.0)):
        outcomes.append(wake(micropython, board))
    return outcomes


@pytest.mark.slow
def test_every_board_that_wakes_in_a_round_is_counted_once(tmp_path, micropython):
    """Eight boards sleep, and wake at random times; a wake is a process. Each of three rounds lasts
    until every board has woken in it. Though the broker is killed in each round but the last, every
    board reports once a round, and pays once.
    """
    path, boards = sleeping_boards(tmp_path, BOARDS)
    over = threading.Event()

    def rounds_ended():
        with Store(path, create=False, beside=True) as store:
            return len(kept.ended_rounds(store))

    with Mosquitto(tmp_path / "broker") as broker, ThreadPoolExecutor(BOARDS) as pool:
        host = serve(tmp_path, path, ROUNDS)
        lives = [pool.submit(wake_again_and_again, micropython, board, over) for board in boards]
        with contextlib.ExitStack() as stack:
            stack.callback(over.set)
            stack.callback(host.process.kill)  # if the test fails
            for number in range(ROUNDS - 1):
                wait_for(lambda number=number: rounds_ended() >= number, DEADLINE_S)
                time.sleep(random.uniform(0.3, 2.0))
                broker.kill()
                time.sleep(random.uniform(0.0, 0.5))
                broker.start()
            out, _ = host.finish()

    for life in lives:
        assert {outcome["error"] for outcome in life.result()} <= {"None"}
    ends = [line for line in map(json.loads, out.splitlines()) if line["event"] == "end"]
    counts = [(line["asked"], line["reports"], line["refusals"]) for line in ends]
    assert counts == ROUNDS * [(BOARDS, BOARDS, 0)]
    assert spent(boards) == dict.fromkeys(range(1, BOARDS + 1), ROUNDS * rig.COST)
