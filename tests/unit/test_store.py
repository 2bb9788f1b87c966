import os
import sqlite3
import stat
import subprocess
import sys

import pytest

from ternhost.aggregate.store import Cohort, Round, Store
from ternhost.errors import StorageError

KEYS = {1: bytes(32), 2: b"k" * 32, 4_000_000_000: b"m" * 32}
ROUND = Round(1, [Cohort(b"first", [1, 4_000_000_000]), Cohort(b"second", [2])], quorum=2, deadline=1.5)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.sqlite"


@pytest.fixture
def store(path):
    with Store(path) as store:
        store.add_devices(KEYS)
        yield store


def test_what_was_committed_is_there_after_reopening(path):
    with Store(path) as store:
        store.add_devices(KEYS)
        store.open_round(ROUND)
        store.add_reports([(1, 2, b"b"), (1, 1, b"a")])
    with Store(path, create=False) as store:
        assert store.keys() == KEYS
        (again,) = store.open_rounds()
        assert (again.number, again.quorum, again.deadline) == (1, 2, 1.5)
        assert [(cohort.body, list(cohort.devices)) for cohort in again.cohorts] == [
            (b"first", [1, 4_000_000_000]),
            (b"second", [2]),
        ]
        assert store.reports(1) == [(1, b"a"), (2, b"b")]
        assert store.last_round() == 1


def test_a_round_ends_together_with_its_model_and_state(store):
    store.open_round(ROUND)
    store.end_round(1, "complete", {"trainer": {"step": 1}}, b"weights")
    assert store.open_rounds() == []
    assert store.ended_rounds() == [(1, "complete", 0)]
    assert store.weights(1) == b"weights"
    assert store.state("trainer") == {"step": 1}
    assert store.state("nothing") is None


def test_a_report_counts_once(store):
    store.open_round(ROUND)
    store.add_reports([(1, 1, b"a")])
    with pytest.raises(StorageError):
        store.add_reports([(1, 2, b"b"), (1, 1, b"other")])
    assert store.reports(1) == [(1, b"a")]


def test_a_report_needs_its_round(store):
    with pytest.raises(StorageError):
        store.add_reports([(7, 1, b"a")])


def test_a_round_is_asked_once(store):
    store.open_round(ROUND)
    with pytest.raises(StorageError):
        store.open_round(ROUND)


def test_only_the_owner_may_read_it(path, store):
    for file in path.parent.iterdir():
        if file.name != f"{path.name}-lock":
            assert stat.S_IMODE(file.stat().st_mode) == 0o600, file


def test_a_store_that_others_may_read_is_refused(path):
    Store(path).close()
    path.chmod(0o640)
    with pytest.raises(StorageError, match="others may read it") as caught:
        Store(path)
    assert caught.value.hint == f"chmod 600 {path}"


def test_one_process_at_a_time(path, store):
    with pytest.raises(StorageError, match="locked") as caught:
        Store(path)
    assert "another program" in caught.value.hint


def test_it_can_be_read_meanwhile(path, store):
    store.open_round(ROUND)
    store.add_reports([(1, 1, b"a")])
    reader = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    assert reader.execute("SELECT count(*) FROM report").fetchone() == (1,)
    reader.close()


def test_the_lock_dies_with_its_process(path):
    holder = f"import os; from ternhost.aggregate.store import Store; s = Store({str(path)!r}); os.kill(os.getpid(), 9)"
    assert subprocess.run([sys.executable, "-c", holder]).returncode == -9
    Store(path).close()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.write_bytes(b"not a database" * 100), "not a database"),
        (
            lambda path: sqlite3.connect(path).execute("CREATE TABLE mine (x)").connection.close(),
            "not a store",
        ),
        (lambda path: _set_version(path, 99), "newer version"),
        (lambda path: path.unlink(), "no store"),
    ],
)
def test_what_is_no_store_is_refused(path, damage, message):
    path.touch(0o600)
    damage(path)
    with pytest.raises(StorageError, match=message) as caught:
        Store(path, create=False)
    assert caught.value.hint


def _set_version(path, version):
    Store(path).close()
    database = sqlite3.connect(path)
    database.execute(f"PRAGMA user_version = {version}")
    database.close()


def test_a_directory_that_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StorageError):
        Store(tmp_path / "file" / "store.sqlite")


_FILL = """
import resource, sys
from ternhost.errors import StorageError
from ternhost.store import Cohort, Round, Store
store = Store(sys.argv[1])
store.add_devices({1: bytes(32)})
store.open_round(Round(1, [Cohort(b"body", [1])], 1))
committed = 0
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
try:
    for start in range(1, 100001, 100):
        store.add_reports((1, device, b"symbols!") for device in range(start, start + 100))
        committed += 100
except StorageError as error:
    print(committed)
    assert "--resume" in error.hint, error.hint
"""


def test_a_full_disk_loses_nothing_that_was_accepted(path):
    out = subprocess.run(
        [sys.executable, "-c", _FILL, path], capture_output=True, text=True, check=True
    ).stdout
    committed = int(out)
    assert committed > 0
    with Store(path) as store:
        assert [device for device, _ in store.reports(1)] == list(range(1, committed + 1))
        store.add_reports([(1, committed + 1, b"symbols!")])  # with room again, it goes on


_KILLED = """
import os, sys
from ternhost.store import Cohort, Round, Store
store = Store(sys.argv[1])
store.add_devices({1: bytes(32)})
store.open_round(Round(1, [Cohort(b"body", [1])], 1))
device = 0
while True:
    store.add_reports([(1, device + 1, b"a"), (1, device + 2, b"b")])
    device += 2
    os.write(1, b".")
"""


@pytest.mark.parametrize("after", [1, 7, 40])
def test_kill_9_loses_nothing_that_was_accepted(path, after):
    with subprocess.Popen([sys.executable, "-c", _KILLED, path], stdout=subprocess.PIPE) as writer:
        told = 0
        while told < after:
            told += len(os.read(writer.stdout.fileno(), 1))
        writer.kill()
        told += len(writer.stdout.read())
    with Store(path) as store:
        devices = [device for device, _ in store.reports(1)]
        assert len(devices) in (2 * told, 2 * told + 2)  # the last one may have died before it could tell
        assert devices == list(range(1, len(devices) + 1))
