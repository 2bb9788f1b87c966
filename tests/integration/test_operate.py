"""A fleet is operated as the guide says: the commands are those of docs/guides/operate.md.

Programs are killed in the middle of a round, the host is saved and restored elsewhere, and a board
is lost. In the end, what each board has paid is compared with the reports in the stores.
"""

import pytest
from harness import small_disk
from harness.kept import spent
from harness.operated import (
    BOARDS,
    BROKER,
    COST,
    DEVICES,
    GOES_ON,
    LISTENS,
    RESTORE,
    REVOKE,
    SAVE,
    SERVE,
    TRY_RELEASE,
    Operated,
)
from harness.terminals import Terminals, run
from harness.waiting import wait_for

from ternhost.errors import STORAGE
from ternhost.store.store import Store


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


# A full disk


class FullDisk:
    """The disk of the host was full in the middle of training, until somebody made room."""

    def __init__(self, fleet):
        disk = fleet.folder / "my-broker"
        fleet.wait_for_rounds(1)
        small_disk.fill(disk)
        wait_for(lambda: fleet.host.poll() is not None, 60)
        self.exit_code = fleet.host.returncode
        self.reports_when_full = fleet.value("SELECT sum(reports) FROM batch")
        small_disk.make_room(disk)
        fleet.host = fleet.terminals.start(SERVE, GOES_ON)
        fleet.wait_for_rounds(2)
        fleet.terminals.stop(fleet.host)
        self.rounds = fleet.rounds()
        self.spent = spent(fleet.boards)


@pytest.fixture(scope="module")
def full(tmp_path_factory, micropython):
    folder = tmp_path_factory.mktemp("full")
    (folder / "my-broker").mkdir()
    with small_disk.mounted(folder / "my-broker", megabytes=2):
        terminals = Terminals(folder)
        try:
            yield FullDisk(Operated(folder, terminals))
        finally:
            terminals.end()


def test_a_host_whose_disk_is_full_ends_with_the_exit_code_of_the_guide(full):
    assert full.exit_code == STORAGE == 5


def test_no_report_is_lost_on_a_full_disk(full):
    assert sum(reports for _, _, reports in full.rounds) > full.reports_when_full
    assert all(reports == asked == DEVICES for _, asked, reports in full.rounds[:-1])


def test_no_device_pays_twice_after_a_full_disk(full):
    ended = [reports for _, _, reports in full.rounds if reports == DEVICES]
    paid = set(full.spent.values())
    assert paid <= {COST * len(ended), COST * (len(ended) + 1)}, "the last round may be open"


def test_a_backup_that_does_not_fit_leaves_nothing(tmp_path):
    host, disk = tmp_path / "host", tmp_path / "disk"
    with Store(host / "store.sqlite") as store:
        store.add_devices({device: bytes(32) for device in range(1, 20_000)})
    disk.mkdir()
    with small_disk.mounted(disk, megabytes=1):
        save = ["tern", "backup", "save", str(host), str(disk / "b")]
        code, said = run(save, tmp_path, 60)
        assert code == STORAGE, said
        assert list(disk.iterdir()) == []
