"""The dashboard reads a store, except for its secrets."""

import os
import sqlite3
from contextlib import closing, contextmanager

import numpy as np
import pytest
from sample_store import reports_of

from tern import card as cards
from tern import wire
from ternhost.count.questions import Question, decode_body, round_body
from ternhost.count.rounds import StoredCohort, StoredRound, Tally
from ternhost.errors import StorageError
from ternhost.privacy import mechanisms
from ternhost.store import read_only, schema
from ternhost.store.boards import BoardRow
from ternhost.store.reader import Reader
from ternhost.store.runs import FINISHED, RUNNING, EndedRound, StoredRun
from ternhost.store.store import Store

DEVICES = 40
REPORTS_OF_A_ROUND = 30
KEYS = {device: bytes([device]) * 32 for device in range(1, DEVICES + 1)}
CARD = mechanisms.design("three-outputs", epsilon_micro=2_000_000).decode()
BODY = round_body(1, Question(wire.LOGISTIC, [0] * 4, wire.MAX_EXPONENT, bytes(CARD.data), 1))
STATE = dict.fromkeys(("rounds", "reports", "asked", "refusals", "missing"), 0)
STATE |= {"seconds": 1.5, "algorithm": None}
OPTIONS = {
    "algorithm": "fedsgd",
    "learning": {"data": "flights", "epsilon": "2"},
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


def end(store, number, body=BODY, **figures):
    """End a round whose reports have `number` times each symbol of each coordinate."""
    symbols = cards.decode(decode_body(body).card).symbols
    tally = Tally(body, DEVICES, REPORTS_OF_A_ROUND, np.full((4, symbols), number))
    entry = {"round": number, "asked": DEVICES, "reports": REPORTS_OF_A_ROUND, "refusals": 0}
    state = {**STATE, "rounds": number, "reports": REPORTS_OF_A_ROUND * number}
    ended = EndedRound(number, "complete", {**entry, **figures}, tallies=[tally], began=5.0)
    store.end_run_round("first", state, ended)


def alter(path, statement):
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(statement)


def test_a_snapshot_has_the_figures_of_a_round_that_has_ended(store):
    """A reader of the dashboard sees a round's figures and its tally: how often devices reported
    each symbol, added over all rounds.
    """
    ended_round(store, number=1, accuracy=0.75)

    now = snapshot(store)

    assert now.run.name == "first"
    assert now.run.reports == REPORTS_OF_A_ROUND
    (entry,) = now.history
    assert entry["accuracy"] == 0.75
    (tally,) = now.tallies
    # Round 1 has counted each symbol once in each of the four coordinates of a report.
    assert tally.symbols == (4 * 1,) * CARD.symbols


GRR = bytes(mechanisms.design("grr", epsilon_micro=2_000_000, levels=4).card)


@pytest.mark.parametrize(
    ("exponent", "hashed", "what"),
    [(0, 0, "category"), (0, 1, "hash"), (2, 0, "bin"), (6, 1, "hash")],
)
def test_a_snapshot_says_what_symbols_of_attributes_stand_for(store, exponent, hashed, what):
    question = Question(wire.CATEGORIES, [1, 1, 1, 1], exponent, GRR, 1, range=hashed)
    a_round(store, 1)
    end(store, 1, body=round_body(1, question))
    (tally,) = snapshot(store).tallies
    assert tally.what == what


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
    """A reader that stays open reads only new rounds. Its figures are those of all rounds all the
    same.
    """
    with Reader(store.path) as reader:
        for number in (1, 2, 3):
            ended_round(store, number)
            now = reader.snapshot()
            assert [entry["round"] for entry in now.history] == list(range(1, number + 1))
            (tally,) = now.tallies
            # In each of four coordinates, each symbol was counted `number` times: the store keeps
            # one tally, which the end of a round replaces.
            assert tally.symbols == (4 * number,) * CARD.symbols


def test_the_named_run_is_shown_else_the_running_one_else_the_newest(store):
    """The store has three runs; the fixture has begun the first at the time 1.0."""
    store.save_run("first", status=FINISHED)
    for name, began, status in (("running", 2.0, RUNNING), ("newest", 3.0, FINISHED)):
        store.begin_run(StoredRun(name, began, status, OPTIONS, STATE))

    with Reader(store.path, "first") as with_a_name, Reader(store.path) as without:
        assert with_a_name.snapshot().run.name == "first"
        assert without.snapshot().run.name == "running"

        store.save_run("running", status=FINISHED)
        assert without.snapshot().run.name == "newest"


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
    """The connection of the dashboard may read what `READABLE` lists by table, and SQLite itself
    refuses every other column, such as the keys of devices.
    """
    with sqlite3.connect(store.path) as unrestricted:
        columns = unrestricted.execute(
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
    # Keys, the reports of an open round, and the fleet key are secrets.
    assert {("device", "key"), ("batch", "packed"), ("state", "value")} <= refused


@contextmanager
def locked(path):
    with closing(sqlite3.connect(path, isolation_level=None)) as locker:
        locker.execute("PRAGMA locking_mode = EXCLUSIVE")
        locker.execute("BEGIN EXCLUSIVE")
        yield


def test_a_locked_store_keeps_the_last_snapshot_with_a_note(store):
    """While another process has the store for itself, a reader shows what it read last, and says
    why it is old.
    """
    store.close()
    with Reader(store.path) as reader:
        before = reader.snapshot()
        reader.close()  # it opens the store again for its next snapshot

        with locked(store.path):
            now = reader.snapshot()

        assert "locked" in now.note
        assert (now.run, now.read) == (before.run, before.read)
        assert reader.snapshot().note is None


def test_a_reader_survives_a_store_that_vanishes_or_is_replaced(store, tmp_path):
    """The file of the store goes, another comes in its place, and the first one returns. While
    there is none, the reader shows what it read last.
    """
    store.close()
    with Reader(store.path) as reader:
        before = reader.snapshot()

        away = tmp_path / "away.sqlite"
        os.rename(store.path, away)
        while_gone = reader.snapshot()
        assert "not there" in while_gone.note
        assert while_gone.run == before.run

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
    """`refusal` returns the message of the error that a new reader raises, and asserts that it has
    a hint.
    """
    for number in range(1, 60):  # more than one page of SQLite's, of 4096 bytes
        ended_round(store, number)
    store.close()
    whole = store.path.read_bytes()

    alter(store.path, f"PRAGMA user_version = {schema.VERSION - 1}")
    assert "older version" in refusal(store)

    store.path.write_bytes(b"x" * 5000)
    assert "not a store of tern" in refusal(store)

    first_page, other_pages = whole[:4096], whole[4096:]
    store.path.write_bytes(first_page + b"\xff" * len(other_pages))
    assert "is damaged" in refusal(store)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE tally SET counts = x'00'",  # counts of four coordinates, in too few bytes
        "UPDATE run SET asked = '{}'",  # the run has no options
        "UPDATE history SET entry = '7'",  # a number in place of an object of JSON
        "UPDATE board SET hello = 'x'",  # it is not JSON
        "DROP TABLE history",
    ],
)
def test_damaged_contents_are_refused_and_an_observer_keeps_its_snapshot(store, statement):
    """SQLite finds nothing wrong with the file, but a value in it cannot be read. A new reader
    refuses the store; one that has read it before goes on to show what it read.
    """
    ended_round(store, 1)
    store.boards_seen([BoardRow("b", first=1, clients=1, online=True, heard=1.0)])

    with Reader(store.path) as earlier:
        before = earlier.snapshot()
        store.close()
        alter(store.path, statement)

        assert "is damaged" in refusal(store)
        assert earlier.snapshot().run.name == before.run.name


def test_a_new_store_in_the_same_file_is_not_mixed_with_the_old_one(store):
    """A reader that has read three rounds of a run finds a new store at the same path, with a run
    of the same name and as many rounds. It shows the rounds of the new store.
    """
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
            # A file system may give the new file the inode of the old one: as if it had here.
            status = os.stat(new_store.path)
            reader._file = (status.st_dev, status.st_ino)

            now = reader.snapshot()

    assert [entry.get("accuracy") for entry in now.history] == [0.5] * 3, "of the new store"


def test_a_reader_never_keeps_a_writer_waiting(store):
    """SQLite appends what is written to a log beside the store, and may empty the log only while
    nobody reads. A reader between two snapshots holds no lock that would let the log grow for ever.
    """
    with Reader(store.path) as reader:
        for number in range(1, 30):
            a_round(store, number)
            reader.snapshot()
            end(store, number)

        store.rows("PRAGMA wal_checkpoint(TRUNCATE)")
        assert os.path.getsize(f"{store.path}-wal") == 0


def test_a_read_only_store_is_read_and_no_file_is_written_beside_it(store, monkeypatch):
    """SQLite would make a log and an index beside a store, which an observer of another user's
    store cannot. As soon as the owner writes the store, the observer sees it.
    """
    ended_round(store, 1)
    store.close()
    for path in store.path.parent.glob("store.sqlite-*"):
        path.unlink()

    real = os.access  # from here on, no file may be written
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK and real(path, mode))
    with Reader(store.path) as reader:
        first = reader.snapshot()
        assert first.note is None
        assert len(first.history) == 1
        assert [path.name for path in store.path.parent.glob("store.sqlite*")] == ["store.sqlite"]
        assert reader.snapshot().serial == first.serial, "nothing has changed"

        with Store(store.path) as owner:
            ended_round(owner, number=2)
            assert len(reader.snapshot().history) == 2
