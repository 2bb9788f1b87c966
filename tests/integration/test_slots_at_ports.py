"""Programs of users on an emulated ESP32, at a port: with any slot, and whatever their work takes of
it, the host finds the board, and the board answers its rounds.
"""

from contextlib import closing, contextmanager, nullcontext
from queue import SimpleQueue

import numpy as np
import pytest
import rig

from tern import storage, wire
from ternhost.count.questions import Question
from ternhost.learn.schedule import Terms
from ternhost.privacy.accounting import Policy
from ternhost.provision.boards import fleet_file
from ternhost.reach.links import open_link
from ternhost.reach.ports.driver import BoardsDriver
from ternhost.reach.ports.fleet import Ports
from ternhost.reach.refusals import AllRefused
from ternhost.store.store import Store
from terntools.emulators.firmware_fleet import FirmwareFleet

D = 2
PATIENCE = 120.0  # seconds for a HELLO: a busy machine emulates a board slowly
TOO_SHORT_MS = 240  # for any report: the board answers by a refusal
# Slots in milliseconds, and which share of it a piece of the program's work takes.
CASES = ((100, 0.8), (500, 0.8), (2000, 0.0))
QUESTION = Question(wire.LOGISTIC, [100] * D, -14, rig.CARD, D, batch=1)
PROGRAM = """
import asyncio
import time
from array import array

from tern.app import App
from tern.boards.this import this_board
from tern.model import Model
from tern.recorder import Recorder

recorder, model, row = Recorder({d}, capacity=16), Model(), array("h", (16384, 100, 16384))


async def main():
    node = asyncio.create_task(App(this_board(), recorder, model).run())
    while not node.done():
        recorder.append(row, 16384)
        time.sleep_ms({work_ms})
        await asyncio.sleep_ms(20)


asyncio.run(main())
"""


@contextmanager
def board_with(folder, slot_ms, share):
    """(path of the store, port of a board with this slot), whose program works for a share of it at
    a time.
    """
    rows = np.zeros((1, D + 1), np.int16)  # the program's recorder replaces them
    path, (directory,) = rig.provision(folder, rows, Policy(300_000_000, 1_000_000_000))
    (directory / storage.FLEET).write_bytes(fleet_file(bytes(32), slot=slot_ms, records=16))
    program = folder / "program.py"
    program.write_text(PROGRAM.format(d=D, work_ms=int(share * slot_ms)))
    with FirmwareFleet("xtensa", [directory], more=("app",), program=program) as fleet:
        (port,) = fleet.ports
        yield path, port


@pytest.mark.slow
@pytest.mark.parametrize(("slot_ms", "share"), CASES)
def test_a_board_that_runs_a_program_is_found_and_answers(tmp_path, slot_ms, share):
    """It says hello to a command that has just opened its port, and answers a round."""
    with board_with(tmp_path, slot_ms, share) as (path, port), Store(path) as store:
        with closing(open_link(port, SimpleQueue())) as link:
            assert link.hello(PATIENCE).first == 1
        refused = pytest.raises(AllRefused) if slot_ms < TOO_SHORT_MS else nullcontext()
        with BoardsDriver(store, Ports([port]), Terms(silence=60.0)) as driver, refused:
            driver.open(1, [(QUESTION, [1])])
            assert driver.collect(1).reports == 1
