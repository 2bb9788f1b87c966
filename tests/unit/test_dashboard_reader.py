"""What the dashboard reads of a store, and what it cannot read of it."""

import json
import os
import shutil
import sqlite3
from contextlib import contextmanager

import numpy as np
import pytest
from sample_store import reports_of

from tern import wire
from ternhost.count.questions import Question, round_body
from ternhost.count.rounds import Cohort, Round, Tally
from ternhost.errors import StorageError, UsageError
from ternhost.privacy import mechanisms
from ternhost.store import read_only, schema
from ternhost.store.boards import BoardRow
from ternhost.store.reader import Reader
from ternhost.store.runs import FINISHED, RUNNING, StoredRun
from ternhost.store.store import Store
from ternhost.watch import curves, stores
from ternhost.watch.summary import summary_of

DEVICES = 40
KEYS = {device: bytes([device]) * 32 for device in range(1, DEVICES + 1)}
CARD = mechanisms.design("three-outputs", epsilon_micro=2_000_000).decode()
BODY = round_body(1, Question(wire.LOGISTIC, [0] * 4, wire.MAX_EXPONENT, bytes(CARD.data), 1))
STATE = {
    "rounds": 0, "reports": 0, "asked": 0, "refusals": 0, "missing": 0, "seconds": 1.5, "algorithm": None,
}  # fmt: skip


def asked(**more):
    return {
        "algorithm": "fedsgd",
        "learning": {"dataset": "flights", "epsilon": "2"},
        "fleet": "mqtt:somewhere",
        "schedule": None,
        "directory": "/nowhere",
        "devices": DEVICES,
        **more,
    }


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "store.sqlite") as made:
        made.add_devices(KEYS)
        made.save_state({"fleet_key": "77" * 32})
        made.begin_run(StoredRun("first", 1.0, RUNNING, asked(), STATE))
        yield made


def a_round(store, number, run="first"):
    store.open_round(Round(number, [Cohort(BODY, range(1, DEVICES + 1))], DEVICES, 60.0, run))


def reports(store, number, first, last):
    store.add_reports(reports_of(number, [(device, b"\1") for device in range(first, last + 1)]))


def test_a_round_waits_for_the_gateways_that_were_asked_and_have_not_answered(store):
    for i, name in enumerate(("answered", "came-later", "gone", "stopped")):
        store.gateway_seen(name, np.array([i + 1]), 1.0, {})
    store.gateway_gone("gone")
    a_round(store, 1)
    store.save_questions(1, dict.fromkeys(("answered", "gone", "stopped"), b"?"))
    store.save_answer(1, "answered", 1, b"!")
    with Reader(store.path) as reader:
        shown = summary_of(reader.snapshot())
        assert (shown.waiting, shown.offline) == (("gone", "stopped"), ("gone",))
        store.end_round(1, "complete")
        shown = summary_of(reader.snapshot())
        assert (shown.waiting, shown.offline) == ((), ("gone",))


def end(store, number, run="first", **figures):
    counts = np.full((4, CARD.symbols), number)
    told = {"asked": DEVICES, "reports": 30, "refusals": 2, "reasons": {"budget": 2}}
    entry = {"round": number, **told, **figures}
    state = {**STATE, "rounds": number, "reports": 30 * number}
    store.end_run_round(run, number, "complete", state, entry, None, [Tally(BODY, DEVICES, 30, counts)], 5.0)


def test_a_snapshot_says_what_the_store_holds(store):
    a_round(store, 1)
    reports(store, 1, 1, 30)
    end(store, 1, accuracy=0.75)
    a_round(store, 2)
    reports(store, 2, 1, 10)
    reports(store, 2, 11, 12)
    store.boards_seen([BoardRow("b1", 1, 20, True, 7.0, {"heap": 1000}), BoardRow("b2", 21, 20, False, 6.0)])
    with Reader(store.path) as reader:
        found = reader.snapshot()
    assert found.devices == DEVICES
    run, (entry,) = found.run, found.history
    assert (run.name, run.rounds, run.reports, run.fleet) == ("first", 1, 30, "mqtt:somewhere")
    known = (entry["round"], entry["accuracy"], entry["reasons"], entry["began"])
    assert known == (1, 0.75, {"budget": 2}, 5.0)
    (opened,) = found.open
    assert (opened.number, opened.asked, opened.wanted, opened.reports) == (2, DEVICES, DEVICES, 12)
    assert [(board.name, board.online, board.told) for board in found.boards] == [
        ("b1", True, {"heap": 1000}),
        ("b2", False, {}),
    ]
    (tally,) = found.tallies
    assert (tally.card, tally.symbols) == (CARD.data.hex(), (4,) * CARD.symbols)
    json.dumps(summary_of(found).as_json())


def test_what_reports_cost_is_of_the_question_of_their_cohort(store):
    cheap = mechanisms.design("three-outputs", epsilon_micro=500_000).decode()
    other = round_body(1, Question(wire.LOGISTIC, [0] * 4, wire.MAX_EXPONENT, bytes(cheap.data), 3))
    with Reader(store.path) as reader:
        for number, (dear, cheaper) in enumerate([(20, 10), (0, 10)], 1):
            a_round(store, number)
            counts = np.zeros((4, CARD.symbols))
            told = [Tally(BODY, 20, dear, counts), Tally(other, 20, cheaper, counts)]
            state = {**STATE, "rounds": number, "reports": 40 - 10 * number}
            entry = {"round": number, "reports": dear + cheaper, "accuracy": 0.5}
            store.end_run_round("first", number, "complete", state, entry, None, told, 5.0)
            found = reader.snapshot()
    assert found.paid == {2_000_000: 20, 1_500_000: 20}
    assert found.demanded == {2_000_000: 40, 1_500_000: 40}
    assert [entry["spent"] for entry in found.history] == [20 * 2 + 10 * 1.5, 10 * 1.5]
    assert curves.measures(found.run, found.history) == ["accuracy"]


def test_only_what_is_new_is_read_and_nothing_where_nothing_is(store):
    with Reader(store.path) as reader:
        first = reader.snapshot()
        again = reader.snapshot()
        assert (again.serial, again.run, again.history) == (first.serial, first.run, first.history)
        assert again.boards is first.boards
        assert again.read > first.read, "it has been found true"
        for number in (1, 2, 3):
            a_round(store, number)
            reports(store, number, 1, 5)
            assert reader.snapshot().open[0].reports == 5
            reports(store, number, 6, 9)
            assert reader.snapshot().open[0].reports == 9
            end(store, number)
            now = reader.snapshot()
            assert [entry["round"] for entry in now.history] == list(range(1, number + 1))
            assert not now.open
            assert now.tallies[0].symbols == (4 * number,) * CARD.symbols
        store.boards_seen([BoardRow("b", 1, 1, True, 1.0, {"heap": 1})])
        before = reader.snapshot().boards[0]
        store.boards_seen([BoardRow("c", 2, 1, True, 1.0, {"heap": 2})])
        assert reader.snapshot().boards[0] is before
        store.boards_seen([BoardRow("b", 1, 1, False, 2.0)])
        assert not reader.snapshot().boards[0].online


def test_the_run_that_goes_on_is_shown_else_the_newest_or_the_one_that_is_named(store):
    store.save_run("first", status=FINISHED)
    store.begin_run(StoredRun("second", 2.0, FINISHED, asked(), STATE))
    with Reader(store.path) as reader, Reader(store.path, "first") as of_first:
        assert reader.snapshot().run.name == "second"
        assert of_first.snapshot().run.name == "first"
        store.begin_run(StoredRun("third", 3.0, RUNNING, asked(), STATE))
        a_round(store, 1, "third")
        end(store, 1, "third")
        assert [run.name for run in reader.snapshot().runs] == ["first", "second", "third"]
        assert reader.snapshot().run.name == "third"
        assert len(reader.snapshot().history) == 1
        assert not of_first.snapshot().history


REFUSED = [
    "SELECT count(*) FROM revoked",
    "SELECT count(*) FROM state",
    "SELECT count(*) FROM device WHERE substr(hex(key), 1, 1) = '0'",
    "SELECT sql FROM sqlite_schema",
    "SELECT name FROM run UNION SELECT value FROM state",
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n",
    "INSERT INTO board VALUES ('b', 1, 1, 1, 1, '{}', 0, NULL, 0)",
    "UPDATE run SET name = 'x'",
    "DELETE FROM history",
    "DROP TABLE run",
    "CREATE TEMP TABLE t (x)",
    "PRAGMA user_version = 9",
    "PRAGMA writable_schema",
    "PRAGMA journal_mode = DELETE",
    "SELECT load_extension('x')",
    "SELECT readfile('x')",
]


def test_only_some_columns_can_be_read_and_nothing_be_written(store):
    a_round(store, 1)
    reports(store, 1, 1, 3)
    database = read_only.connect(store.path)
    with sqlite3.connect(store.path) as there:
        tables = [name for (name,) in there.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        columns = {name: [row[1] for row in there.execute(f"PRAGMA table_info({name})")] for name in tables}
    assert read_only.READABLE.keys() <= set(tables)
    refused = list(REFUSED)
    for table, names in columns.items():
        for column in names:
            statement = f"SELECT {column} FROM {table}"
            if column in read_only.READABLE.get(table, ()):
                database.execute(statement).fetchall()
            else:
                refused.append(statement)
    for statement in refused:
        with pytest.raises(sqlite3.DatabaseError):
            database.execute(statement).fetchall()
    assert {"SELECT key FROM device", "SELECT packed FROM batch", "SELECT value FROM state"} <= set(refused)
    database.close()


@contextmanager
def locked(path):
    locker = sqlite3.connect(path, isolation_level=None)
    locker.execute("PRAGMA locking_mode = EXCLUSIVE")
    locker.execute("BEGIN EXCLUSIVE")
    yield
    locker.execute("ROLLBACK")
    locker.close()


def test_a_locked_store_is_survived_with_a_note(store):
    store.close()
    with Reader(store.path) as reader:
        with locked(store.path):
            assert (reader.snapshot().read, reader.snapshot().run) == (0.0, None)
        before = reader.snapshot()
        assert (before.note, before.run.name) == (None, "first")
        reader.close()
        with locked(store.path):
            now = reader.snapshot()
        assert "locked" in now.note
        assert (now.run, now.serial, now.read) == (before.run, before.serial, before.read)
        assert reader.snapshot().note is None


def test_a_store_that_vanishes_and_one_that_takes_its_place_are_survived(store, tmp_path):
    store.close()
    with Reader(store.path) as reader:
        before = reader.snapshot()
        away = tmp_path / "away.sqlite"
        os.rename(store.path, away)
        gone = reader.snapshot()
        assert "not there" in gone.note
        assert gone.run == before.run
        with Store(store.path) as other:
            other.begin_run(StoredRun("other", 9.0, RUNNING, asked(), STATE))
            assert reader.snapshot().run.name == "other"
        os.rename(away, store.path)
        assert reader.snapshot().run.name == "first"
        store.path.write_bytes(b"no store")
        assert reader.snapshot().note
        assert reader.snapshot().run.name == "first"


def refusal(path):
    with pytest.raises(StorageError) as caught, Reader(path) as reader:
        reader.snapshot()
    assert caught.value.hint
    return caught.value.message


def test_what_is_no_store_of_this_version_and_torn_pages_are_refused_with_what_to_do(store):
    for number in range(1, 60):
        a_round(store, number)
        end(store, number)
    store.close()
    data = store.path.read_bytes()
    database = sqlite3.connect(store.path)
    database.execute(f"PRAGMA user_version = {schema.VERSION - 1}")
    database.close()
    assert "older version" in refusal(store.path)
    store.path.write_bytes(b"x" * 5000)
    assert "not a store of tern" in refusal(store.path)
    store.path.write_bytes(data[:4096] + b"\xff" * (len(data) - 4096))
    assert "is damaged" in refusal(store.path)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE tally SET counts = x'00'",
        "UPDATE tally SET body = x'05'",
        "UPDATE run SET asked = '{}'",
        "UPDATE run SET asked = '7'",
        "UPDATE run SET state = '{'",
        "UPDATE history SET entry = '7'",
        "UPDATE board SET told = 'x'",
        "DROP TABLE history",
    ],
)
def test_torn_contents_are_said_to_be_torn(store, statement):
    a_round(store, 1)
    end(store, 1)
    store.boards_seen([BoardRow("b", 1, 1, True, 1.0)])
    with Reader(store.path) as before:
        whole = before.snapshot()
        store.close()
        database = sqlite3.connect(store.path)
        database.execute(statement)
        database.commit()
        database.close()
        assert "is damaged" in refusal(store.path)
        assert before.snapshot().run.name == whole.run.name


@pytest.mark.parametrize("seen", [True, False])
def test_a_store_that_is_made_anew_is_not_mixed_with_the_one_before(store, seen):
    for number in (1, 2, 3):
        a_round(store, number)
        end(store, number)
    store.close()
    with Reader(store.path) as reader:
        assert len(reader.snapshot().history) == 3
        reader.close()
        for path in store.path.parent.glob("store.sqlite*"):
            path.unlink()
        if seen:
            assert "not there" in reader.snapshot().note
        with Store(store.path) as anew:
            anew.add_devices(KEYS)
            anew.begin_run(StoredRun("first", 2.0, RUNNING, asked(), STATE))
            for number in (1, 2, 3):
                a_round(anew, number)
                end(anew, number, accuracy=0.5)
            a_round(anew, 4)
            found = os.stat(anew.path)
            reader._file = (found.st_dev, found.st_ino) if reader._file else None  # ext4 gives an inode again
            now = reader.snapshot()
    assert [entry.get("accuracy") for entry in now.history] == [0.5] * 3
    assert [own.number for own in now.open] == [4]


def test_a_writer_is_never_kept_waiting(store):
    with Reader(store.path) as reader:
        for number in range(1, 30):
            a_round(store, number)
            reader.snapshot()
            end(store, number)
        assert not reader._db.in_transaction
        store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        assert os.path.getsize(f"{store.path}-wal") == 0


def test_a_copy_of_the_file_alone_has_everything_although_somebody_looks_on(store, tmp_path):
    with Reader(store.path) as reader:
        reader.snapshot()
        a_round(store, 1)
        end(store, 1)
        store.close()
        copy = tmp_path / "copies" / "store.sqlite"
        copy.parent.mkdir()
        shutil.copy(store.path, copy)
        assert len(reader.snapshot().history) == 1
    with Reader(copy) as reader:
        assert len(reader.snapshot().history) == 1


def test_a_store_where_nothing_can_be_written_is_read_and_nothing_is(store, monkeypatch):
    a_round(store, 1)
    end(store, 1)
    store.close()
    for path in store.path.parent.glob("store.sqlite-*"):
        path.unlink()
    there = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK and there(path, mode))
    with Reader(store.path) as reader:
        first = reader.snapshot()
        assert (first.note, len(first.history)) == (None, 1)
        assert [path.name for path in store.path.parent.glob("store.sqlite*")] == ["store.sqlite"]
        assert reader.snapshot().serial == first.serial
        with Store(store.path) as again:  # of somebody else
            a_round(again, 2)
            assert reader.snapshot().open[0].number == 2
            end(again, 2)
            assert len(reader.snapshot().history) == 2
            a_round(again, 3)
        assert reader.snapshot().open[0].number == 3


def test_a_store_is_found_by_its_file_directory_run_and_newest_run(store, tmp_path):
    store.close()
    runs = tmp_path / "runs"
    for name, when in (("one", 1), ("two", 2)):
        directory = runs / name
        directory.mkdir(parents=True)
        shutil.copy(store.path, directory / "store.sqlite")
        (directory / "run.json").write_text(
            json.dumps({"name": "first", "store": "store.sqlite", "store_was": "/nowhere"})
        )
        os.utime(directory / "run.json", (when, when))
    assert stores.chosen(store.path) == (store.path, None)
    assert stores.chosen(tmp_path) == (store.path, None)
    for text in (runs / "one", "one"):
        assert stores.chosen(text, runs) == (runs / "one" / "store.sqlite", "first")
    assert stores.chosen(None, runs)[0] == runs / "two" / "store.sqlite"
    assert stores.chosen(runs)[0] == runs / "two" / "store.sqlite"
    found = stores.beside(runs / "one" / "store.sqlite")
    assert [path.parent.name for path in found] == ["one", "two"]
    (runs / "two" / "store.sqlite").unlink()
    with pytest.raises(StorageError, match="is not at"):
        stores.chosen("two", runs)
    for nothing in ("three", tmp_path / "nowhere"):
        with pytest.raises(UsageError, match="no run or store"):
            stores.chosen(nothing, runs)
    with pytest.raises(UsageError, match="no run in"):
        stores.chosen(None, tmp_path / "nowhere")
