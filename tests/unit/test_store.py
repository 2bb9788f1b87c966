"""A store keeps every committed report, run and board, and refuses contradictions and damaged
files.
"""

import os
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing

import pytest
from harness import kept
from sample_store import reports_of

from ternhost.count.rounds import StoredCohort, StoredRound
from ternhost.errors import StorageError
from ternhost.store import store_file
from ternhost.store.runs import RUNNING, EndedRound, StoredRun
from ternhost.store.store import Store

KEYS = {1: bytes(32), 2: b"k" * 32, 4_000_000_000: b"m" * 32}
COHORTS = [StoredCohort(b"first", [1, 4_000_000_000]), StoredCohort(b"second", [2])]
ROUND = StoredRound(1, COHORTS, quorum=2, deadline=1.5, run="a")
RUN = StoredRun("a", 1.0, RUNNING, {"directory": "runs/a"}, {"rounds": 0})


def add(store, number, payloads):
    """Add the reports of a round: the packed symbols of each device."""
    store.add_reports(reports_of(number, list(payloads.items())))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.sqlite"


@pytest.fixture
def store(path):
    with Store(path) as store:
        store.add_devices(KEYS)
        yield store


@pytest.fixture
def reopened(path):
    """A store that was closed with two reports in an open round, and opened again."""
    with Store(path) as store:
        store.add_devices(KEYS)
        store.open_round(ROUND)
        add(store, 1, {2: b"b", 1: b"a"})
    with Store(path, create=False) as store:
        yield store


def test_reports_are_there_after_reopening_and_count_once(reopened):
    assert reopened.reports(1) == [(1, b"a"), (2, b"b")]
    with pytest.raises(StorageError, match="already"):
        add(reopened, 1, {2: b"c"})


def test_the_end_of_a_round_stores_the_state_of_its_run_and_the_model(store):
    """One call ends a round: it closes the round and stores the trained weights, the state from
    which the run would be resumed, and a line of the history.
    """
    store.begin_run(RUN)
    store.open_round(ROUND)
    ended = EndedRound(1, "complete", {"round": 1, "reports": 2}, b"weights")
    store.end_run_round("a", {"rounds": 1}, ended)

    assert store.open_rounds() == []
    assert kept.ended_rounds(store) == [(1, "complete", 0)]
    assert store.models("a") == {1: b"weights"}
    assert store.run("a").state == {"rounds": 1}
    assert store.history("a") == [{"round": 1, "reports": 2}]


def test_the_end_of_a_round_is_stored_as_a_whole_or_not_at_all(store):
    """The end of a round writes to several tables in one transaction. When the last statement
    fails, the others are undone, so that a resumed run finds the round still open.
    """
    store.begin_run(RUN)
    store.open_round(ROUND)
    # The history has an entry of this round already, so that the last statement fails.
    store.write("INSERT INTO history VALUES ('a', 1, '{}', 0, 0)")
    with pytest.raises(StorageError):
        store.end_run_round("a", {"rounds": 1}, EndedRound(1, "complete", {}, b"weights"))

    assert [open_round.number for open_round in store.open_rounds()] == [1]
    assert store.run("a").state == {"rounds": 0}
    assert store.models("a") == {}


@pytest.mark.parametrize(
    "batch",
    [[(2, b"b"), (1, b"other")], [(2, b"b"), (2, b"b")]],
    ids=["of an earlier batch", "of the same batch"],
)
def test_of_a_batch_with_a_second_report_of_a_device_none_counts(store, batch):
    store.open_round(ROUND)
    add(store, 1, {1: b"a"})
    with pytest.raises(StorageError):
        store.add_reports(reports_of(1, batch))
    assert store.reports(1) == [(1, b"a")]


def test_a_report_does_not_count_again_after_the_end_of_its_round(store):
    store.open_round(ROUND)
    add(store, 1, {2: b"b"})
    store.end_round(1, "complete")
    with pytest.raises(StorageError):
        add(store, 1, {2: b"b"})
    assert store.reports(1) == [(2, b"b")]


def test_only_the_owner_of_the_lock_adds_reports_and_only_of_devices_that_were_asked(path, store):
    store.open_round(StoredRound(1, [StoredCohort(b"body", [1])], 1))
    with pytest.raises(StorageError, match="not asked in round 1"):
        add(store, 1, {1: b"a", 2: b"b"})
    assert store.report_count(1) == 0
    with Store(path, beside=True) as beside, pytest.raises(StorageError, match="beside"):
        add(beside, 1, {1: b"a"})


def test_only_its_owner_may_read_a_store_or_its_lock(path):
    """A store contains keys. Another user who may read the file beside it that tern locks could
    lock it, and keep tern from starting; an old lock file that others may read is made private.
    """
    before = os.umask(0o022)  # as usual: others may read new files
    try:
        with Store(path):
            for file in path.parent.iterdir():
                assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
        lock = path.with_name(f"{path.name}-lock")
        lock.chmod(0o644)  # as an earlier version made it
        Store(path).close()
        assert stat.S_IMODE(lock.stat().st_mode) == 0o600
    finally:
        os.umask(before)


def test_a_refused_store_leaves_the_lock_with_its_owner(path, store):
    path.with_name(f"{path.name}-lock").chmod(0o644)
    with pytest.raises(StorageError, match="locked"):
        Store(path)
    program = f"from ternhost.store.store import Store; Store({str(path)!r})"
    refused = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "locked" in refused.stderr, "closing a locked file releases its lock"


def altered(path, pragma, number):
    Store(path).close()
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"PRAGMA {pragma} = {number}")


def text_file(path):
    path.write_text("not a database\n" * 100)
    path.chmod(0o644)  # the hint is not to hide it, although others may read it


def open_to_others(path):
    Store(path).close()
    path.chmod(0o640)


@pytest.mark.parametrize(
    ("make", "hint"),
    [
        (text_file, "name another file"),
        (open_to_others, "chmod 600"),
        (lambda path: altered(path, "user_version", 99), "use that version"),
        (lambda path: altered(path, "application_id", 7), "name another file"),
    ],
    ids=["text", "open to others", "newer", "another program's"],
)
def test_a_file_that_is_no_store_is_refused_with_a_remedy(path, make, hint):
    make(path)
    with pytest.raises(StorageError) as caught:
        Store(path, create=False)
    assert hint in caught.value.hint
    store_file.take_lock(path).close()  # it is free although the error keeps the Store alive
