"""An application on an emulated Pico: tern delays a program beside it by 20 ms at most, in
simulated time.
"""

from pathlib import Path

import numpy as np
import pytest
import rig

from tern import wire
from ternhost.count.questions import Averaged, Question
from ternhost.learn.schedule import Terms
from ternhost.privacy.accounting import Policy
from ternhost.reach.ports.driver import BoardsDriver
from ternhost.reach.ports.fleet import Ports
from ternhost.store.store import Store
from terntools.boards.repl import Repl
from terntools.emulators.firmware_fleet import FirmwareFleet

D, LATE_MS = 13, 20
AFTER_A_FLUSH_MS = 36  # where LittleFS also compacts
PERIOD_MS = 5  # of the example's samples
SAMPLES_AT_THE_ENDS = 4  # that may be pending at the first or the last stamp
ROOM_IN_THE_RING = 64  # samples of the example
BUSY = Path(__file__).with_name("busy_program.py")
INTERRUPTS = Path(__file__).parents[2] / "examples" / "interrupts.py"

LOGISTIC = Question(wire.LOGISTIC, [100] * D, -14, rig.CARD, D, batch=32)
SOFTMAX = Question(wire.SOFTMAX_GRADIENT, [100] * 3 * D, -14, rig.CARD, D, batch=32, classes=3)
LOCAL = Question(
    wire.LOCAL + wire.LOGISTIC, [100] * D, -14, rig.CARD, D, batch=8, local=(2, 1, 1 << 20)
)


@pytest.fixture
def board(tmp_path):
    """(store, directories) of a board with one client."""
    rows = np.zeros((1, 2), np.int16)  # the program's recorder replaces them
    path, directories = rig.provision(tmp_path, rows, Policy(300_000_000, 1_000_000_000))
    with Store(path) as store:
        yield store, directories


def ask(store, port, questions, averaged=None):
    """Run a round for each question; publish the model `averaged` first."""
    with BoardsDriver(store, Ports([port]), Terms(silence=30.0)) as driver:
        if averaged:
            driver.publish(averaged)
        for number, question in enumerate(questions, store.last_round() + 1):
            driver.open(number, [(question, [1])])
            result = driver.collect(number)
            assert (result.ended, result.reports) == ("complete", 1)
            store.end_round(number, result.ended)


@pytest.mark.slow
def test_a_task_beside_tern_is_late_by_20_ms_at_most(board):
    """A program on the board has a task of its own, due every 10 ms, and in between tern answers
    the host's questions. The longest delay of the task, which the program measures itself, is
    bounded: an application on the board can rely on its times.
    """
    store, directories = board
    modules = ("app", "softmax", "local")
    with FirmwareFleet("pico", directories, more=modules, program=BUSY) as fleet:
        (port,) = fleet.ports
        # One round for each question, then a new model, and two rounds more.
        ask(store, port, [LOGISTIC, LOGISTIC, SOFTMAX, LOCAL])
        ask(store, port, 2 * [LOGISTIC], averaged=Averaged(wire.LOGISTIC, [200] * D, -14))
        with Repl(port) as repl:
            late_ms, late_after_a_flush_ms, runs = repl.evaluate("list(late)")
            # tern and the task have both worked.
            assert repl.evaluate("node.reports") == 4 + 2
            assert repl.evaluate("str(node.error)") == "None"
            assert repl.evaluate("node.model.round") == 4, "published before the last two"
            assert repl.evaluate("recorder.flushes") >= 2, "of the task's records to flash"

    assert runs > 50, "of the task"
    assert late_ms <= LATE_MS
    assert late_after_a_flush_ms <= AFTER_A_FLUSH_MS


STAMP = """    seen[min(taken[0], 2) - 1] = time.ticks_ms()
    worst[0] = max(worst[0], taken[0] - taken[1])
"""
MORE = """
import time
seen = array("i", (0, 0))  # times of the first sample and the last
worst = array("i", (0,))  # samples that waited for the task
"""


def test_no_sample_of_the_interrupts_example_is_lost(board, tmp_path):
    """The example takes a sample in a timer interrupt every 5 ms and puts it into a ring in memory,
    which a task empties. While tern answers eight rounds, the ring never overflows, so every sample
    that came is taken.
    """
    store, directories = board
    program = tmp_path / "program.py"
    program.write_text(with_time_stamps(INTERRUPTS.read_text()))
    with FirmwareFleet("pico", directories, more=("app",), program=program) as fleet:
        (port,) = fleet.ports
        ask(store, port, 8 * [LOGISTIC])
        with Repl(port) as repl:
            # Read at once, since the interrupt goes on. How many samples the interrupt brought and
            # the task took; when the first and the last came; how many waited at most.
            (came, taken), (first_ms, last_ms), (most_waiting,) = repl.evaluate(
                "(taken, list(seen), list(worst))"
            )
            assert repl.evaluate("window.lost") == 0
            assert repl.evaluate("node.reports") == 8
            assert repl.evaluate("str(node.error)") == "None"

    assert came > 150, "the rounds take long enough"
    expected_samples = 1 + (last_ms - first_ms) / PERIOD_MS
    assert abs(came - expected_samples) <= SAMPLES_AT_THE_ENDS
    assert most_waiting < ROOM_IN_THE_RING
    assert taken >= came - most_waiting, "the others wait in the ring"


def with_time_stamps(text):
    """The example with STAMP in its interrupt, and the variables that this needs."""
    assert "    came.set()\n" in text
    assert "\nring =" in text
    text = text.replace("    came.set()\n", STAMP + "    came.set()\n")
    return text.replace("\nring =", MORE + "ring =")
