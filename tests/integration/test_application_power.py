"""A program with records, a model and a ledger, on a board that is killed at random moments."""

import os
import random
import subprocess
import time
from array import array
from collections import defaultdict
from pathlib import Path

import pytest
import rig
from harness.raw_client import wait_for

from tern.model import Model
from tern.recorder import Recorder
from ternhost.reach.broker.mosquitto import Mosquitto
from ternhost.store.store import Store
from terntools.emulators.micropython import device_command
from terntools.emulators.unix_fleet import FIRMWARE

PROGRAM = Path(__file__).with_name("recording_program.py")
KILLS, HOLD, ROUNDS = 20, 8, 40


def start(micropython, board, life):
    with open(board / "board.log", "ab") as log:
        command = device_command(micropython, PROGRAM, str(life))
        env = {**os.environ, "MICROPYPATH": f"{FIRMWARE}{os.pathsep}.frozen"}
        streams = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
        return subprocess.Popen(command, cwd=board, env=env, **streams)


def records(board):
    """(life, number) of every record in flash, the oldest first."""
    recorder = Recorder(rig.D, capacity=200, hold=HOLD)
    recorder.open(str(board))
    row = array("h", bytes(2 * rig.D + 2))
    rows = []
    for index in range(recorder.count):
        recorder.read(index, row)
        rows.append((row[0], row[1]))
    recorder.close()
    return rows


def appended(board, life):
    """The number of records that the program of that life has begun to append."""
    log = board / f"{life}.log"
    return log.stat().st_size if log.exists() else 0


@pytest.mark.slow
def test_a_program_that_is_killed_again_and_again_loses_only_unflushed_records(
    tmp_path, micropython
):
    path, (board,) = rig.on_broker(tmp_path, 1, longest_pause_ms=500)
    draws = random.Random(3)

    def reports():
        with Store(path, create=False, beside=True) as store:
            return store.report_count()

    def model():
        kept = Model()
        kept.open(str(board))
        assert kept.ready == (board / "model.bin").exists()
        return kept.ready

    def spent():
        ((paid, _, _),) = rig.read_ledgers([board]).values()
        assert paid % rig.COST == 0
        return paid // rig.COST

    flushed = models = 0
    with Mosquitto(tmp_path / "broker"):
        options = ("--rounds", ROUNDS, "--interval", 0.3, "--patience", 0.2, "--model-every", 1)
        host = rig.serving_on_broker(tmp_path, path, *options)
        process = None
        try:
            for life in range(1, KILLS + 1):
                process = start(micropython, board, life)
                if life % 5 == 0:
                    wait_for(model)  # instead of a fixed time: a busy machine is slow
                if draws.random() < 0.8:
                    enough = draws.randrange(1, 200)
                    wait_for(lambda life=life, enough=enough: appended(board, life) >= enough)
                time.sleep(draws.uniform(0.0, 0.8 if life % 4 == 0 else 0.01))
                assert process.poll() is None, (board / "board.log").read_text()
                process.kill()
                process.wait()
                flash = records(board)
                numbers = defaultdict(list)  # of the records of each life
                for its_life, number in flash:
                    numbers[its_life].append(number)
                last = max(numbers.get(life, [0]))
                assert last + HOLD >= appended(board, life) >= last
                assert flash == sorted(set(flash))
                del numbers[min(numbers)]  # the first records of the oldest life may be gone
                for of_life in numbers.values():
                    assert of_life == list(range(1, len(of_life) + 1))
                flushed += last > 0
                assert spent() <= reports() + 1  # the ledger first: more reports may come meanwhile
                models += model()
            process = start(micropython, board, KILLS + 1)
            host.finish()
            wait_for(lambda: appended(board, KILLS + 1) > HOLD)
        finally:
            host.process.kill()
            if process:
                process.kill()
                process.wait()
    assert (board / "board.log").read_text() == ""
    assert reports() == spent() == ROUNDS
    assert flushed >= KILLS // 2
    assert models >= KILLS // 2
    print(
        f"{flushed} of {KILLS} lives wrote records, {models} found a model; {spent()} of {ROUNDS} rounds paid"
    )
