"""A task runs beside tern on a board with a slot, whose broker hangs, dies and returns: tern never
waits in a call. How long it computes in one is a matter of the emulated Pico
(test_application_pico.py).
"""

import json
import os
import signal
from contextlib import suppress

import pytest
import rig
from harness.raw_client import wait_for

from ternhost.reach.broker.mosquitto import Mosquitto
from terntools.emulators.unix_fleet import EmulatedBoard

SLOT_MS = 500
PATIENCE_RUNS = 500  # of the task, 100 a second, while tern waits 10 s for an answer

PROGRAM = """
import asyncio.core
import json
import os
import select
import time
from array import array
from tern import compat

# Simulated milliseconds, which pass where the event loop waits and where tern would wait in a call, but not while code
# runs: a task is late only if tern waits. They are ahead of the real clock, by which the loop sorts new tasks.
clock = [time.ticks_ms() + 10000]
hangs = False  # the broker: there is no answer to wait for


def ticks_ms():
    return clock[0]


def wait(ms):
    clock[0] += ms


def idle(queue, ms):
    if ms > 0:
        wait(ms)
        if not hangs:
            time.sleep_ms(ms)


class Poll:
    def __init__(self):
        self._poll = select.poll()
        self.register = self._poll.register

    def poll(self, ms):
        wait(ms)
        return self._poll.poll(ms)


class Select:
    poll = Poll
    POLLIN, POLLOUT, POLLERR, POLLHUP = select.POLLIN, select.POLLOUT, select.POLLERR, select.POLLHUP


asyncio.core.ticks = compat.ticks_ms = ticks_ms
asyncio.core.IOQueue.wait_io_event = idle
compat.sleep_ms = wait

import tern.links.beside
import tern.links.slot
import tern.tcp
from tern.app import App
from tern.boards.this import this_board
from tern.model import Model
from tern.recorder import Recorder

tern.tcp.select = Select
tern.links.slot.ticks_ms = tern.links.beside.ticks_ms = time.ticks_ms  # no loop waits for a clock that stands
late = array("i", (0, 0))  # simulated ms; runs


async def task():
    global hangs
    due = ticks_ms()
    while True:
        late[0] = max(late[0], ticks_ms() - due)
        late[1] += 1
        if late[1] % 8 == 0:
            recorder.append(row, 16384)
        if late[1] % 50 == 0:
            hangs = "hangs" in os.listdir()
            with open("progress", "w") as file:
                json.dump((list(late), node.reports, node.model.round, str(links[-1].error)), file)
        due += 10
        await asyncio.sleep_ms(due - ticks_ms())


async def main():
    beside = asyncio.create_task(task())
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


def progress(board):
    """((late by at most, runs), reports, round of the model, error of the last connection)."""

    def whole():
        with suppress(OSError, ValueError):  # it is being written
            return json.loads((board / "progress").read_text())

    return wait_for(whole)


@pytest.mark.slow
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_no_call_of_tern_waits(tmp_path, micropython, tls):
    """The task is never late in simulated time while rounds go on and the broker hangs, dies and
    returns.
    """
    path, (board,) = rig.on_broker(tmp_path, 1, tls=tls, slot=SLOT_MS, longest_pause_ms=1000)
    (tmp_path / "program.py").write_text(PROGRAM)
    with Mosquitto(tmp_path / "broker") as broker:
        emulated = EmulatedBoard(micropython, board, program=tmp_path / "program.py")
        options = ("--interval", 0.3, "--patience", 0.3, "--model-every", 2, "--deadline", 600)
        host = rig.serving_on_broker(tmp_path, path, *options)

        def wait_for_reports(reports):
            before = progress(board)[1]
            wait_for(lambda: progress(board)[1] >= before + reports)

        def runs():
            return progress(board)[0][1]

        try:
            wait_for_reports(4)
            assert progress(board)[3] == "None"
            os.kill(broker.pid, signal.SIGSTOP)
            before = runs()
            (board / "hangs").touch()
            wait_for(lambda: "does not answer" in progress(board)[3])
            assert runs() >= before + PATIENCE_RUNS
            (board / "hangs").unlink()
            os.kill(broker.pid, signal.SIGCONT)
            wait_for_reports(2)
            broker.kill()
            wait_for(lambda: "closed" in progress(board)[3] or "connect" in progress(board)[3])
            before = runs()
            wait_for(lambda: runs() > before + 100)
            broker.start()
            wait_for_reports(3)
            (late, _), _, number, _ = progress(board)
        finally:
            host.process.kill()
            host.process.communicate()
            emulated.close()
    assert (board / "board.log").read_text() == ""
    assert number > 2
    assert late == 0
