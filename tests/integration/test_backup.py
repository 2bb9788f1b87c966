"""A backup that is taken while a fleet is served, and restored when the boards know more rounds."""

import json

import pytest
import rig
from harness.arena import COST, Arena
from harness.kept import spent
from harness.proxy import Faults
from harness.served import ends, finish, serve

from ternhost.errors import SHORT
from ternhost.reach.broker.mosquitto import Mosquitto
from ternhost.store.restored import SKIPPED_ROUNDS
from ternhost.store.store import Store

CLIENTS = 3
ROUNDS_BEFORE_COPY = 1
ROUNDS_AFTER_COPY = 3
BUDGET_ROUNDS = 6


class Restored:
    """A fleet whose store was restored: from a copy after one round, when its boards know four."""

    def __init__(self, arena):
        self.arena = arena
        backup = arena.directory.parent / "fleet.backup"
        finish(serve(arena, rounds=ROUNDS_BEFORE_COPY))
        self.saved = rig.tern("--json", "backup", "save", arena.directory / "broker", backup).json
        finish(serve(arena, rounds=ROUNDS_BEFORE_COPY + ROUNDS_AFTER_COPY))
        self.spent_before = spent(arena.boards)
        self.directory = arena.directory.parent / "elsewhere" / "broker"
        self.restored = rig.tern("--json", "backup", "restore", backup, self.directory).json

        # Only the restored host and the restored broker are used from here on.
        arena.broker.close()
        arena.broker = Mosquitto(self.directory)
        self.store = self.directory / "store.sqlite"
        fleet = f"mqtt:{self.directory}"
        self.lines = finish(serve(arena, fleet=fleet, store=self.store, rounds=2))
        self.result = self.lines[-1]
        self.spent = spent(arena.boards)
        self.statement = rig.tern("--json", "privacy", self.store, cwd=self.directory).json


@pytest.fixture(scope="module")
def restored(tmp_path_factory):
    directory = tmp_path_factory.mktemp("backup") / "original"
    directory.mkdir()
    with Arena(
        directory, CLIENTS, boards=1, rounds=BUDGET_ROUNDS, faults=Faults(on=False)
    ) as arena:
        path = arena.path
        configured = rig.tern("broker", "config", directory / "broker", "--store", path)
        assert configured.code == 0, configured.err
        yield Restored(arena)


def test_the_store_beside_the_brokers_directory_is_saved(restored):
    (figures,) = restored.saved["stores"].values()
    assert figures == {
        "devices": CLIENTS,
        "rounds": ROUNDS_BEFORE_COPY,
        "reports": CLIENTS * ROUNDS_BEFORE_COPY,
        "last_round": ROUNDS_BEFORE_COPY,
    }


def test_a_restored_host_asks_no_number_again(restored):
    (end,) = ends(restored.lines)
    assert end["number"] > ROUNDS_BEFORE_COPY + SKIPPED_ROUNDS


def test_every_board_answers_the_first_question_of_a_restored_host(restored):
    (end,) = ends(restored.lines)
    assert end["reports"] == CLIENTS


def test_the_reports_in_a_restored_store_are_those_of_the_boards_ledgers(restored):
    (end,) = ends(restored.lines)
    with Store(restored.store, beside=True) as store:
        stored = dict(store.reports(end["number"]))
    last_reports = rig.read_ledgers(restored.arena.boards)
    assert stored == {device: report for device, (_, _, report) in last_reports.items()}


def test_a_device_pays_once_for_the_first_question_of_a_restored_host(restored):
    paid = {device: amount + COST for device, amount in restored.spent_before.items()}
    assert restored.spent == paid


def test_no_budget_is_overspent_by_a_restore(restored):
    for amount in restored.spent.values():
        assert amount == COST * (ROUNDS_BEFORE_COPY + ROUNDS_AFTER_COPY + 1)
        assert amount <= restored.arena.budget


def test_a_restored_host_counts_what_its_boards_paid_after_the_copy(restored):
    missing = COST * ROUNDS_AFTER_COPY / 1e6
    assert restored.result["epsilon_before"] >= missing


def test_a_statement_counts_all_that_boards_have_paid(restored):
    (life,) = [each for each in restored.statement["guarantees"] if each["span"] == "life"]
    assert life["bounds"]["epsilon"] * 1e6 >= max(restored.spent.values())


def test_a_restored_host_says_that_boards_have_paid_for_more(restored):
    assert "boards have paid for rounds that this store does not know" in json.dumps(restored.lines)


def test_every_board_has_told_what_it_has_spent(restored):
    assert restored.result["boards_unheard_since_restore"] == 0


def test_passwords_of_a_restored_broker_belong_to_its_keys(restored):
    assert (restored.directory / "passwords").stat().st_mode & 0o077 == 0
    text = (restored.directory / "passwords").read_text()
    assert {f"{device:08x}" for device in restored.spent} <= {
        line.partition(":")[0] for line in text.splitlines()
    }


class Late:
    """After a restore, the board that has paid for more connects only after the first round."""

    def __init__(self, arena):
        backup = arena.directory.parent / "late.backup"
        early, late = arena.fleet.boards
        finish(serve(arena, rounds=1))
        rig.tern("backup", "save", arena.directory / "broker", backup, code=0)
        early.kill()
        finish(serve(arena, rounds=2, deadline=4), code=SHORT)
        directory = arena.directory.parent / "late" / "broker"
        rig.tern("backup", "restore", backup, directory, code=0)
        arena.broker.close()
        arena.broker = Mosquitto(directory)

        late.kill()
        early.restart()
        store = directory / "store.sqlite"
        words = {"fleet": f"mqtt:{directory}", "store": store, "deadline": 4}
        self.first = finish(serve(arena, **words, rounds=2), code=SHORT)[-1]
        self.statement = rig.tern("--json", "privacy", store, cwd=directory).json
        late.restart()
        self.second = finish(serve(arena, **words, rounds=3), code=SHORT)[-1]


@pytest.fixture(scope="module")
def late(tmp_path_factory):
    directory = tmp_path_factory.mktemp("late") / "original"
    directory.mkdir()
    with Arena(directory, clients=2, boards=2, rounds=6, faults=Faults(on=False)) as arena:
        configured = rig.tern("broker", "config", directory / "broker", "--store", arena.path)
        assert configured.code == 0, configured.err
        yield Late(arena)


def test_a_result_says_of_how_many_boards_nobody_knows_what_they_have_spent(late):
    assert late.first["boards_unheard_since_restore"] == 1


def test_a_statement_says_of_how_many_boards_nobody_knows_what_they_have_spent(late):
    assert "1 board did not connect since" in json.dumps(late.statement)


def test_what_a_board_has_paid_counts_when_it_connects_at_last(late):
    assert late.first["epsilon_before"] * 1e6 < COST
    assert late.second["epsilon_before"] * 1e6 >= COST
    assert late.second["boards_unheard_since_restore"] == 0
