"""Issue 12: a task beside tern on a board with a slot, whose broker hangs, dies and returns."""

import json
import os
import signal
import time
from contextlib import suppress

import pytest
import rig
from harness.raw_client import wait_for

from ternhost.reach.broker.mosquitto import Mosquitto
from terntools.emulators.unix_fleet import EmulatedBoard

LATE_MS = {
    False: 50,
    True: 150,
}  # issue 12; one call of Mbed TLS verifies in 40 ms that a broker is who it says
TRIES = 3  # tern holds a task each time; a slow disk does so once
SLOT_MS = 500
HANGS_S = 11.5  # longer than tern waits for an answer

PROGRAM = """
import asyncio
import json
import time
from array import array
from tern.app import App
from tern.boards.this import this_board
from tern.model import Model
from tern.recorder import Recorder

late = array("i", (0, 0))


def queued_ms():
    # How long this process has been ready to run, and waited for a processor.
    try:
        with open("/proc/self/schedstat") as file:
            return int(file.read().split()[1]) // 1000000
    except OSError:  # a kernel that does not count it
        return 0


async def task():
    due = time.ticks_ms()
    queued = queued_ms()
    while True:
        before = queued
        queued = queued_ms()
        late[0] = max(late[0], time.ticks_diff(time.ticks_ms(), due) - (queued - before))
        late[1] += 1
        if late[1] % 8 == 0:
            recorder.append(row, 16384)
        if late[1] % 50 == 0:
            with open("told", "w") as file:
                json.dump((list(late), node.reports, node.model.round, str(links[-1].error)), file)
        due = time.ticks_add(due, 10)
        if time.ticks_diff(due, time.ticks_ms()) < 0:  # the next run is not late because this one was
            due = time.ticks_ms()
        await asyncio.sleep_ms(max(0, time.ticks_diff(due, time.ticks_ms())))


async def main():
    own = asyncio.create_task(task())
    await node.run()


row = array("h", range(6))
recorder = Recorder(6, capacity=64)
board = this_board()
links = []
make = board.open_link


def open_link():
    links.append(make())
    return links[-1]


board.open_link = open_link
node = App(board, recorder, Model())
asyncio.run(main())
"""


def tell(board):
    """((late by at most, runs), reports, round of the model, why the last connection was lost)."""

    def whole():
        with suppress(OSError, ValueError):  # it is being written
            return json.loads((board / "told").read_text())

    return wait_for(whole)


def attempt(folder, micropython, **network):
    """By how many ms tern made the task late at most while rounds went on and the broker failed.

    Other processes make it late, too: the kernel counts for how long, and that is taken off.
    """
    folder.mkdir()
    path, (board,) = rig.on_broker(folder, 1, **network, slot=SLOT_MS, longest_pause_ms=1000)
    (folder / "program.py").write_text(PROGRAM)
    with Mosquitto(folder / "broker") as broker:
        own = EmulatedBoard(micropython, board, program=folder / "program.py")
        words = ("--interval", 0.3, "--patience", 0.3, "--model-every", 2, "--deadline", 600)
        host = rig.serving_on_broker(folder, path, *words)

        def more(reports):
            before = tell(board)[1]
            wait_for(lambda: tell(board)[1] >= before + reports)

        try:
            more(4)
            assert tell(board)[3] == "None"
            os.kill(broker.pid, signal.SIGSTOP)
            time.sleep(HANGS_S)
            os.kill(broker.pid, signal.SIGCONT)
            assert "does not answer" in tell(board)[3]
            more(2)
            broker.kill()
            wait_for(lambda: "closed" in tell(board)[3] or "connect" in tell(board)[3])
            time.sleep(1.0)
            broker.start()
            more(3)
            (late, runs), reports, number, _ = tell(board)
        finally:
            host.process.kill()
            host.process.communicate()
            own.close()
    assert (board / "board.log").read_text() == ""
    assert number > 2
    print(f"late by {late} ms in {runs} runs, {reports} reports")
    return late


@pytest.mark.slow
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_a_task_is_hardly_late(tmp_path, micropython, tls):
    found = []
    while not found or (found[-1] > LATE_MS[tls] and len(found) < TRIES):
        found.append(attempt(tmp_path / str(len(found)), micropython, tls=tls))
    assert min(found) <= LATE_MS[tls], found
