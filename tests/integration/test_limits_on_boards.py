"""Boards get limits from a run that collects quantiles, and their programs find unusual rows."""

import json
from array import array
from pathlib import Path

import pytest
import rig
from harness.waiting import wait_for

from tern.limits import Limits
from tern.recorder import Recorder
from ternhost import errors
from ternhost.learn.models.limits import first_unusual
from ternhost.reach.ports.driver import BoardsDriver
from ternhost.store import kept_model
from terntools.emulators.unix_fleet import EmulatedFleet

PROGRAM = Path(__file__).with_name("unusual_program.py")
D = 3  # features of a row of the program
BOARDS = 12
# So large that the reports of twelve boards have hardly any noise.
EPSILON = 8


@pytest.fixture
def boards(here, micropython):
    """Boards of one device each, with the program."""
    cost = EPSILON * 1_000_000
    site = rig.make_site(
        here, micropython, clients=BOARDS, boards=BOARDS, largest=cost, budget=4 * cost
    )
    site.store.close()
    with EmulatedFleet(micropython, site.directories, PROGRAM) as running:
        yield running.boards


def collect(boards, *words):
    """Collect quantiles of the second feature of the boards' rows; return the result."""
    return run(boards, "collect", *words).json


def run(boards, command, *words):
    """Run a command for quantiles of the second feature of the boards' rows."""
    ports = ",".join(board.port for board in boards)
    fleet = ["--fleet", f"port:{ports}", "--store", "store.sqlite", "--data", f"devices:{D}"]
    plan = ["--attributes", "feature 1", "--bins", "16", "--epsilon", EPSILON]
    return rig.tern(command, "quantiles", *fleet, *plan, *words, "--json", code=errors.OK)


def judged(board):
    """What the program of a board has written of its rows; None before."""
    path = Path(board.directory) / "unusual.json"
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def rows_of(board):
    """The rows that a board has recorded."""
    recorder = Recorder(D, capacity=64, hold=8)
    recorder.open(str(board.directory))
    rows = []
    row = array("h", bytes(2 * D + 2))
    for i in range(recorder.count):
        recorder.read(i, row)
        rows.append(row.tolist())
    recorder.close()
    return rows


def test_programs_of_boards_find_the_rows_that_the_host_finds(boards):
    result = collect(boards, "--publish", "0.5")
    limits = result["published"]["limits"]

    unusual_rows = 0
    for board in boards:
        wait_for(lambda: judged(board) is not None)  # noqa: B023
        expected = first_unusual(limits, rows_of(board)).tolist()
        assert judged(board)["unusual"] == expected
        unusual_rows += sum(feature == 1 for feature in expected)
    rows = sum(len(rows_of(board)) for board in boards)
    assert 0 < unusual_rows < rows, "about a half is above the median"


def test_limits_are_in_the_flash_of_boards_after_the_run(boards):
    limits = collect(boards, "--publish", "p90")["published"]["limits"]
    for board in boards:
        kept = Limits()
        kept.open(str(board.directory))
        assert [kept.limit(feature) for feature in range(kept.d)] == limits


def test_a_run_that_publishes_nothing_sends_no_limits(boards):
    collect(boards)
    for board in boards:
        kept = Limits()
        kept.open(str(board.directory))
        assert not kept.ready


def test_a_served_fleet_gets_limits_every_few_rounds(boards):
    """Three rounds, with new limits after every second one, and when the host stops."""
    schedule = ["--rounds", "3", "--every", "0.1", "--model-every", "2"]
    numbers = []
    publish = BoardsDriver.publish

    def noting(driver, averaged):
        publish(driver, averaged)
        frame = kept_model.kept_limits(driver._store)
        numbers.append(int.from_bytes(frame[5:9], "little"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BoardsDriver, "publish", noting)
        run(boards, "serve", *schedule, "--publish", "0.5")
    first, second = numbers
    assert second == first + 1
