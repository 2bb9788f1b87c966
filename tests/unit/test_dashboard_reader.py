"""The dashboard reads a store, except for its secrets."""

import json
import os
import sqlite3
from contextlib import closing, contextmanager

import numpy as np
import pytest
from sample_store import reports_of

from tern import wire
from ternhost.count.questions import Question, round_body
from ternhost.count.rounds import StoredCohort, StoredRound, Tally
from ternhost.errors import StorageError
from ternhost.privacy import mechanisms
from ternhost.store import read_only, schema
from ternhost.store.boards import BoardRow
from ternhost.store.reader import Reader
from ternhost.store.runs import FINISHED, RUNNING, EndedRound, StoredRun
from ternhost.store.store import Store
from ternhost.watch.summary import summary_of

DEVICES = 40
REPORTS_OF_A_ROUND = 30
KEYS = {device: bytes([device]) * 32 for device in range(1, DEVICES + 1)}
CARD = mechanisms.design("three-outputs", epsilon_micro=2_000_000).decode()
BODY = round_body(1, Question(wire.LOGISTIC, [0] * 4, wire.MAX_EXPONENT, bytes(CARD.data), 1))
STATE = dict.fromkeys(("rounds", "reports", "asked", "refusals", "missing"), 0)
STATE |= {"seconds": 1.5, "algorithm": None}
OPTIONS = {
    "algorithm": "fedsgd",
    "learning": {"dataset": "flights", "epsilon": "2"},
    "fleet": "mqtt:somewhere",
    "schedule": None,
}


@pytest.fixture
def store(store):
    store.add_devices(KEYS)
    store.save_state({"fleet_key": "77" * 32})
    store.begin_run(StoredRun("first", 1.0, RUNNING, OPTIONS, STATE))
    return store


def a_round(store, number):
    cohort = StoredCohort(BODY, range(1, DEVICES + 1))
    store.open_round(StoredRound(number, [cohort], DEVICES, 60.0, "first"))


def ended_round(store, number, **figures):
    a_round(store, number)
    end(store, number, **figures)


def snapshot(store):
    """The snapshot of a new reader."""
    with Reader(store.path) as reader:
        return reader.snapshot()


def reports(store, number, first, last):
    store.add_reports(reports_of(number, [(device, b"\1") for device in range(first, last + 1)]))


def end(store, number, **figures):
    """End a round whose reports have `number` times each symbol of each coordinate."""
    tally = Tally(BODY, DEVICES, REPORTS_OF_A_ROUND, np.full((4, CARD.symbols), number))
    entry = {"round": number, "asked": DEVICES, "reports": REPORTS_OF_A_ROUND, "refusals": 0}
    state = {**STATE, "rounds": number, "reports": REPORTS_OF_A_ROUND * number}
    ended = EndedRound(number, "complete", {**entry, **figures}, tallies=[tally], began=5.0)
    store.end_run_round("first", state, ended)


def alter(path, statement):
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(statement)


def test_a_snapshot_has_the_figures_of_a_round_that_has_ended(store):
    ended_round(store, 1, accuracy=0.75)

    now = snapshot(store)

    assert now.run.name == "first"
    assert now.run.reports == REPORTS_OF_A_ROUND
    (entry,) = now.history
    assert entry["accuracy"] == 0.75
    (tally,) = now.tallies
    # Each of the four coordinates has counted 1 for each symbol in round 1.
    assert tally.symbols == (4 * 1,) * CARD.symbols
    assert json.dumps(summary_of(now).as_json()), "for programs"


def test_a_snapshot_has_the_open_round(store):
    a_round(store, 2)
    reports(store, 2, first=1, last=12)
    (opened,) = snapshot(store).open
    assert (opened.number, opened.reports) == (2, 12)
    assert (opened.asked, opened.wanted) == (DEVICES, DEVICES)


def test_a_snapshot_has_the_boards(store):
    board = BoardRow("b1", first=1, clients=20, online=True, heard=7.0, hello={"heap": 1000})
    store.boards_seen([board])
    (seen,) = snapshot(store).boards
    assert (seen.name, seen.online, seen.hello) == ("b1", True, {"heap": 1000})


def test_a_later_snapshot_adds_the_rounds_that_ended_since(store):
    with Reader(store.path) as reader:
        for number in (1, 2, 3):
            ended_round(store, number)
            now = reader.snapshot()
            assert [entry["round"] for entry in now.history] == list(range(1, number + 1))
            (tally,) = now.tallies
            # Each of the four coordinates has counted `number` for each symbol.
            assert tally.symbols == (4 * number,) * CARD.symbols


def test_the_named_run_is_shown_else_the_running_one_else_the_newest(store):
    store.save_run("first", status=FINISHED)
    store.begin_run(StoredRun("running", 2.0, RUNNING, OPTIONS, STATE))
    store.begin_run(StoredRun("newest", 3.0, FINISHED, OPTIONS, STATE))
    with Reader(store.path, "first") as of_first, Reader(store.path) as reader:
        assert of_first.snapshot().run.name == "first"
        assert reader.snapshot().run.name == "running"
        store.save_run("running", status=FINISHED)
        assert reader.snapshot().run.name == "newest"


REFUSED = [
    "SELECT count(*) FROM state",
    "SELECT count(*) FROM device WHERE substr(hex(key), 1, 1) = '0'",  # a bit of a key
    "SELECT sql FROM sqlite_schema",
    "SELECT name FROM run UNION SELECT value FROM state",
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n",
    "UPDATE run SET name = 'x'",
    "CREATE TEMP TABLE t (x)",
    "PRAGMA journal_mode = DELETE",
    "SELECT load_extension('x')",
]


@pytest.fixture
def database(store):
    """The connection of an observer to a store with an open round."""
    a_round(store, 1)
    reports(store, 1, 1, 3)
    with closing(read_only.connect(store.path)) as connection:
        yield connection


@pytest.mark.parametrize("statement", REFUSED)
def test_an_observer_cannot_write_nor_look_elsewhere(database, statement):
    with pytest.raises(sqlite3.DatabaseError):
        database.execute(statement).fetchall()


def test_an_observer_reads_only_the_listed_columns(database, store):
    with sqlite3.connect(store.path) as writable:
        columns = writable.execute(
            "SELECT t.name, c.name FROM sqlite_schema t, pragma_table_info(t.name) c "
            "WHERE t.type = 'table'"
        ).fetchall()
    refused = set()
    for table, column in columns:
        try:
            database.execute(f"SELECT {column} FROM {table}").fetchall()
        except sqlite3.DatabaseError:
            refused.add((table, column))
    for table, column in columns:
        is_listed = column in read_only.READABLE.get(table, ())
        assert ((table, column) in refused) != is_listed, f"{table}.{column}"
    assert {("device", "key"), ("batch", "packed"), ("state", "value")} <= refused


@contextmanager
def locked(path):
    with closing(sqlite3.connect(path, isolation_level=None)) as locker:
        locker.execute("PRAGMA locking_mode = EXCLUSIVE")
        locker.execute("BEGIN EXCLUSIVE")
        yield


def test_a_locked_store_keeps_the_last_snapshot_with_a_note(store):
    store.close()
    with Reader(store.path) as reader:
        before = reader.snapshot()
        reader.close()
        with locked(store.path):
            now = reader.snapshot()
        assert "locked" in now.note
        assert (now.run, now.read) == (before.run, before.read)
        assert reader.snapshot().note is None


def test_a_reader_survives_a_store_that_vanishes_or_is_replaced(store, tmp_path):
    store.close()
    with Reader(store.path) as reader:
        before, away = reader.snapshot(), tmp_path / "away.sqlite"
        os.rename(store.path, away)
        gone = reader.snapshot()
        assert "not there" in gone.note
        assert gone.run == before.run
        with Store(store.path) as replacement:
            replacement.begin_run(StoredRun("other", 9.0, RUNNING, OPTIONS, STATE))
            assert reader.snapshot().run.name == "other"
        os.rename(away, store.path)
        assert reader.snapshot().run.name == "first"


def refusal(store):
    with pytest.raises(StorageError) as caught:
        snapshot(store)
    assert caught.value.hint
    return caught.value.message


def test_an_older_store_another_file_and_torn_pages_are_refused_with_a_hint(store):
    for number in range(1, 60):
        ended_round(store, number)
    store.close()
    data = store.path.read_bytes()
    alter(store.path, f"PRAGMA user_version = {schema.VERSION - 1}")
    assert "older version" in refusal(store)
    store.path.write_bytes(b"x" * 5000)
    assert "not a store of tern" in refusal(store)
    store.path.write_bytes(data[:4096] + b"\xff" * (len(data) - 4096))
    assert "is damaged" in refusal(store)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE tally SET counts = x'00'",  # too few bytes
        "UPDATE run SET asked = '{}'",  # no options
        "UPDATE history SET entry = '7'",  # no object
        "UPDATE board SET hello = 'x'",  # no JSON
        "DROP TABLE history",
    ],
)
def test_damaged_contents_are_refused_and_an_observer_keeps_its_snapshot(store, statement):
    ended_round(store, 1)
    store.boards_seen([BoardRow("b", first=1, clients=1, online=True, heard=1.0)])
    with Reader(store.path) as earlier:
        before = earlier.snapshot()
        store.close()
        alter(store.path, statement)
        assert "is damaged" in refusal(store)
        assert earlier.snapshot().run.name == before.run.name


def test_a_new_store_in_the_same_file_is_not_mixed_with_the_old_one(store):
    for number in (1, 2, 3):
        ended_round(store, number)
    store.close()
    with Reader(store.path) as reader:
        assert len(reader.snapshot().history) == 3
        reader.close()
        for path in store.path.parent.glob("store.sqlite*"):
            path.unlink()
        with Store(store.path) as new_store:
            new_store.add_devices(KEYS)
            new_store.begin_run(StoredRun("first", 2.0, RUNNING, OPTIONS, STATE))
            for number in (1, 2, 3):
                ended_round(new_store, number, accuracy=0.5)
            # A file system may give the new file the inode of the old one.
            status = os.stat(new_store.path)
            reader._file = (status.st_dev, status.st_ino)
            now = reader.snapshot()

    assert [entry.get("accuracy") for entry in now.history] == [0.5] * 3


def test_a_reader_never_keeps_a_writer_waiting(store):
    with Reader(store.path) as reader:
        for number in range(1, 30):
            a_round(store, number)
            reader.snapshot()
            end(store, number)
        # SQLite empties the log only while nobody reads.
        store.rows("PRAGMA wal_checkpoint(TRUNCATE)")
        assert os.path.getsize(f"{store.path}-wal") == 0


def test_a_read_only_store_is_read_and_no_file_is_written_beside_it(store, monkeypatch):
    ended_round(store, 1)
    store.close()
    for path in store.path.parent.glob("store.sqlite-*"):
        path.unlink()
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK and real(path, mode))
    with Reader(store.path) as reader:
        first = reader.snapshot()
        assert (first.note, len(first.history)) == (None, 1)
        assert [path.name for path in store.path.parent.glob("store.sqlite*")] == ["store.sqlite"]
        assert reader.snapshot().serial == first.serial
        with Store(store.path) as writer:  # of another user
            ended_round(writer, 2)
            assert len(reader.snapshot().history) == 2
