"""A fleet is operated as the guide says: the commands are those of docs/guides/operate.md.

Programs are killed in the middle of a round, the host is saved and restored elsewhere, and a board
is lost. In the end, what each board has paid is compared with the reports in the stores.
"""

import os
import signal
from pathlib import Path

import pytest
from harness.guide import commands
from harness.kept import spent
from harness.raw_client import wait_for
from harness.terminals import Terminals, run

from ternhost.store.store import Store

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "operate.md"
DEVICES, BOARDS = 20, 2
COST = 500_000  # micro-epsilon of a report, as in the guide's command
LISTENS, IS_ON_BROKER = "the broker listens", "on the broker of my-broker"
SERVES = "each client spends"  # what a new run says first
GOES_ON = "round "

BROKER, HOURLY = commands(GUIDE, "A program was killed")
SERVE = HOURLY.replace("--every 1h", "--every 1s")
TRY_RELEASE, _UPDATE_BOARDS = commands(GUIDE, "Upgrade")
(SAVE,) = commands(GUIDE, "Back up")
(RESTORE,) = commands(GUIDE, "Restore")
(REVOKE,) = commands(GUIDE, "A lost board")


class Operated:
    """The programs of a fleet, each in a terminal of its own, and the files of the host."""

    def __init__(self, folder, terminals):
        self.folder = folder
        self.terminals = terminals
        self.store = folder / "my-broker" / "store.sqlite"
        self.broker = terminals.start(BROKER, LISTENS)
        fleet = f"tern fleet emulate {BOARDS} --clients {DEVICES} --dir boards --broker my-broker"
        terminals.start(fleet, IS_ON_BROKER)
        self.boards = sorted(path.parent for path in folder.glob("boards/**/clients.bin"))
        self.host = terminals.start(SERVE, SERVES)

    def tried(self, code):
        """Run commands of the guide, which must succeed; return what they said."""
        ended, said = run(["sh", "-ec", code], self.folder, 120)
        assert ended == 0, code + said
        return said

    # What the store has

    def value(self, statement):
        with Store(self.store, create=False, beside=True) as store:
            return store.value(statement)

    def ended_rounds(self):
        return self.value("SELECT count(*) FROM round WHERE ended IS NOT NULL")

    def reports_of_open_round(self):
        """How many reports the open round has; 0 without one."""
        return self.value(
            "SELECT coalesce(sum(reports), 0) FROM batch WHERE round IN"
            " (SELECT number FROM round WHERE ended IS NULL)"
        )

    def wait_for_rounds(self, count):
        """Wait until so many more rounds have ended."""
        end = self.ended_rounds() + count
        wait_for(lambda: self.ended_rounds() >= end, 120)

    def rounds(self):
        """(number, devices asked, reports) of every round."""
        with Store(self.store, create=False, beside=True) as store:
            return [
                (
                    round_.number,
                    sum(len(cohort.devices) for cohort in round_.cohorts),
                    store.report_count(round_.number),
                )
                for round_ in store.rounds()
            ]

    # Accidents

    def halt_a_board(self):
        """Stop the last board as by SIGSTOP, once it is idle; return its process id."""
        for process in Path("/proc").glob("[0-9]*"):
            try:
                arguments = (process / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if arguments[-2:-1] == [os.fsencode(self.boards[-1])]:
                pid = int(process.name)
                os.kill(pid, signal.SIGSTOP)
                return pid
        raise AssertionError("no such board")

    def in_the_middle_of_a_round(self, deed):
        """Do a deed while one board has answered the open round, and the other has not."""
        board = self.halt_a_board()
        try:
            wait_for(lambda: 0 < self.reports_of_open_round() < DEVICES, 60)
            deed()
        finally:
            os.kill(board, signal.SIGCONT)

    def kill_host(self):
        self.terminals.stop(self.host, signal.SIGKILL)

    def kill_broker(self):
        self.terminals.stop(self.broker, signal.SIGKILL)


class Story:
    """What happens to the fleet, and what it was found to be at several times."""

    def __init__(self, fleet):
        self.fleet = fleet
        fleet.wait_for_rounds(1)

        fleet.in_the_middle_of_a_round(fleet.kill_host)
        self.reports_at_kill = fleet.value("SELECT sum(reports) FROM batch")
        fleet.host = fleet.terminals.start(SERVE, GOES_ON)
        fleet.wait_for_rounds(1)

        fleet.in_the_middle_of_a_round(fleet.kill_broker)
        fleet.broker = fleet.terminals.start(BROKER, LISTENS)
        fleet.wait_for_rounds(2)
        self.rounds_after_kills = fleet.rounds()[:-1]

        self.rounds_saved = fleet.ended_rounds()
        self.saved = fleet.tried(SAVE)
        self.runs_of_trial = fleet.tried(TRY_RELEASE)
        fleet.wait_for_rounds(2)
        for program in (fleet.host, fleet.broker):
            fleet.terminals.stop(program)
        self.rounds_of_original = fleet.rounds()
        fleet.tried(RESTORE)
        self.rounds_restored = fleet.rounds()
        fleet.broker = fleet.terminals.start(BROKER, LISTENS)
        fleet.host = fleet.terminals.start(SERVE, GOES_ON)
        fleet.wait_for_rounds(1)

        self.last_round_before_loss = fleet.value("SELECT max(number) FROM round")
        fleet.tried(REVOKE)
        fleet.wait_for_rounds(3)
        fleet.terminals.stop(fleet.host)
        self.rounds = fleet.rounds()
        self.spent = spent(fleet.boards)


@pytest.fixture(scope="module")
def story(tmp_path_factory, micropython):
    folder = tmp_path_factory.mktemp("operated")
    terminals = Terminals(folder)
    try:
        yield Story(Operated(folder, terminals))
    finally:
        terminals.end()


def test_no_report_is_lost_when_programs_are_killed_in_a_round(story):
    """The reports of a half-finished round are in the store, and the round goes on with them."""
    assert story.reports_at_kill % DEVICES, "the host was killed in the middle of a round"
    assert all(reports == asked == DEVICES for _, asked, reports in story.rounds_after_kills)


def test_a_backup_says_what_it_holds(story):
    assert f"{DEVICES} devices" in story.saved


def test_a_new_release_is_tried_on_a_restored_backup(story):
    assert "fedsgd" in story.runs_of_trial
    assert not (story.fleet.folder / "trial").exists()


def test_a_restored_store_has_the_rounds_of_its_backup(story):
    known = {number for number, _, _ in story.rounds_of_original}
    restored = {number for number, _, _ in story.rounds_restored}
    assert restored < known
    assert len(restored) >= story.rounds_saved


def test_a_restored_host_uses_no_number_of_the_original_again(story):
    restored = {number for number, _, _ in story.rounds_restored}
    new = {number for number, _, _ in story.rounds} - restored
    original = {number for number, _, _ in story.rounds_of_original}
    assert new
    assert not new & original


def test_every_board_answers_a_restored_host(story):
    """Until one of them is lost."""
    last = max(number for number, _, _ in story.rounds_of_original)
    first = [row for row in story.rounds if last < row[0] <= story.last_round_before_loss]
    assert first
    assert all(reports == DEVICES for _, _, reports in first)


def test_a_lost_board_is_asked_no_more(story):
    assert story.rounds[-1][1] == DEVICES // BOARDS


def test_each_device_has_paid_once_for_each_of_its_reports(story):
    """Each report that a board has paid for is in the original store or in the restored one."""
    original = story.fleet.folder / "broken" / "store.sqlite"
    numbers = {}  # of the rounds in which each device has reported, by device
    for path in (original, story.fleet.store):
        with Store(path, create=False, beside=True) as store:
            for round_ in store.rounds():
                for device in store.reporters(round_.number):
                    numbers.setdefault(device, set()).add(round_.number)
    kept = range(1, DEVICES // BOARDS + 1)  # the lost board may pay for a report that nobody takes
    assert {device: story.spent[device] for device in kept} == {
        device: COST * len(numbers[device]) for device in kept
    }
