"""`tern backup`: what belongs into a backup, and archives that were cut, changed or made up."""

import errno
import io
import json
import shutil
import sqlite3
import tarfile
import threading
from contextlib import closing
from dataclasses import replace

import pytest
import sample_store

from tern import wire
from ternhost.backup import archive, manifest, restore, save, stores
from ternhost.cli import main
from ternhost.count.rounds import StoredCohort, StoredRound
from ternhost.errors import STORAGE, USAGE, StorageError, TernError, UsageError
from ternhost.reach.broker import configuration
from ternhost.reach.broker.access import HOST, Access
from ternhost.reach.sightings import Sighting, Sightings
from ternhost.store import restored as marks
from ternhost.store import schema
from ternhost.store.boards import BoardRow
from ternhost.store.fleet_key import fleet_key
from ternhost.store.round_numbers import last_number
from ternhost.store.runs import StoredRun
from ternhost.store.store import Store
from ternhost.watch.stores import find

DEVICES = 5
HELLO = {"budget": 3_000_000, "spent": 1_000_000, "measure": 0, "unit": 0}


def board_row(**fields):
    row = {"name": "00000001", "first": 1, "clients": 1, "online": True, "heard": 1.0}
    return BoardRow(**row | {"hello": HELLO} | fields)


@pytest.fixture
def directory(tmp_path):
    """A directory with a store of one round that nobody has answered, and with a file."""
    path = tmp_path / "host"
    path.mkdir()
    with Store(path / "store.sqlite") as store:
        store.add_devices({device: sample_store.key_of(device) for device in range(1, DEVICES + 1)})
        cohort = StoredCohort(sample_store.BODY, list(range(1, DEVICES + 1)))
        store.open_round(StoredRound(1, [cohort], DEVICES))
        store.boards_seen([board_row()])
        fleet_key(store)
    (path / "notes.txt").write_text("of the user")
    return path


@pytest.fixture
def backup(directory, tmp_path):
    """The path of a backup of `directory`."""
    path = tmp_path / "host.backup"
    save.save(directory, path)
    return path


@pytest.fixture
def new(tmp_path):
    return tmp_path / "new"


def assert_refused(backup, new, error=TernError):
    """Assert that a backup is refused, and leaves nothing behind."""
    before = sorted(new.parent.iterdir())
    with pytest.raises(error) as raised:
        restore.restore(backup, new)
    assert sorted(new.parent.iterdir()) == before
    return raised.value


# Saving


def test_only_its_owner_can_read_a_backup(backup):
    assert backup.stat().st_mode & 0o777 == 0o600


def test_a_save_leaves_nothing_beside_the_backup(backup, directory):
    assert sorted(backup.parent.iterdir()) == sorted([backup, directory])


def test_a_directory_without_a_store_is_not_saved(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError):
        save.save(tmp_path / "empty", tmp_path / "b")


def test_a_backup_is_not_put_into_the_directory_that_it_saves(directory):
    with pytest.raises(UsageError):
        save.save(directory, directory / "b")


def test_a_save_replaces_an_earlier_backup(directory, backup):
    before = backup.read_bytes()
    (directory / "notes.txt").write_text("new")
    save.save(directory, backup)
    assert backup.read_bytes() != before


def test_a_save_replaces_nothing_that_is_no_backup(directory, tmp_path):
    (tmp_path / "thesis.txt").write_text("three years")
    with pytest.raises(UsageError):
        save.save(directory, tmp_path / "thesis.txt")
    assert (tmp_path / "thesis.txt").read_text() == "three years"


def test_boards_are_left_out_of_a_backup(directory, tmp_path):
    """An old ledger would give back the budget that its board has spent since."""
    board = directory / "fleet" / "board-0"
    (board / "ledger").mkdir(parents=True)
    (board / "clients.bin").write_bytes(b"x")
    (board / "ledger" / "00000001").write_bytes(b"x")
    (board.parent / "made.json").write_text("{}")
    saved = save.save(directory, tmp_path / "b")
    assert saved.boards == 1
    assert not [name for name in saved.manifest.files if name.startswith("fleet")]


def test_files_of_running_programs_are_left_out(directory, tmp_path):
    for name in ("mosquitto.pid", "mosquitto.log", "mosquitto.db", ".host-12.json"):
        (directory / name).write_text("1")
    saved = save.save(directory, tmp_path / "b")
    assert set(saved.manifest.files) == {"store.sqlite", "notes.txt"}


@pytest.mark.parametrize("zeros", [slice(4096 * 3, 4096 * 6), slice(16, 4096)])
def test_a_damaged_store_is_not_saved(directory, tmp_path, zeros):
    path = directory / "store.sqlite"
    content = bytearray(path.read_bytes())
    content[zeros] = bytes(zeros.stop - zeros.start)
    path.write_bytes(content)
    with pytest.raises(StorageError):
        save.save(directory, tmp_path / "b")
    assert not (tmp_path / "b").exists()


def test_a_database_that_another_program_keeps_for_itself_is_not_saved(
    directory, tmp_path, monkeypatch
):
    monkeypatch.setattr(stores, "_LONGEST_WAIT", 0.1)
    with closing(sqlite3.connect(directory / "other.sqlite", isolation_level=None)) as database:
        database.execute("CREATE TABLE anything (value)")
        database.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StorageError):
            save.save(directory, tmp_path / "b")
    assert not (tmp_path / "b").exists()


def test_a_store_is_saved_while_a_host_writes_to_it(directory, tmp_path):
    """Rounds are opened all the time. The copy has those of one moment, with all their cohorts."""
    stopped = threading.Event()

    def serve():
        with Store(directory / "store.sqlite") as store:
            number = 1
            while not stopped.is_set():
                number += 1
                cohort = StoredCohort(sample_store.BODY, [1, 2, 3])
                store.open_round(StoredRound(number, [cohort], 3))

    host = threading.Thread(target=serve)
    host.start()
    try:
        saved = [save.save(directory, tmp_path / f"b{i}") for i in range(3)]
    finally:
        stopped.set()
        host.join()

    rounds = [each.manifest.stores["store.sqlite"].rounds for each in saved]
    assert rounds[0] < rounds[-1], "the host went on meanwhile"
    for number, count in enumerate(rounds):
        new = tmp_path / f"new{number}"
        restore.restore(tmp_path / f"b{number}", new)
        with Store(new / "store.sqlite") as store:
            assert len(store.rounds()) == count
            assert all(round_.cohorts for round_ in store.rounds())


@pytest.mark.parametrize("name", ["SQLITE_FULL", "SQLITE_IOERR_WRITE", "SQLITE_CANTOPEN"])
def test_a_store_on_a_full_disk_is_not_called_damaged(tmp_path, name):
    error = sqlite3.OperationalError("the disk")
    error.sqlite_errorname = name
    assert "damaged" not in stores._unreadable(tmp_path, error).message


def test_the_store_of_a_broker_is_restored_even_if_a_link_leads_to_it_too(tmp_path):
    """Otherwise the restored broker would use the store of the original, which is not prepared."""
    broker = tmp_path / "broker"
    outer = tmp_path / "keys" / "store.sqlite"
    outer.parent.mkdir()
    configuration.configure(broker, outer)
    (broker / "link.sqlite").symlink_to(outer)
    save.save(broker, tmp_path / "b")
    restore.restore(tmp_path / "b", tmp_path / "new")
    used = Access.load(tmp_path / "new" / HOST).store
    assert used == str(tmp_path / "new" / "store.sqlite")
    with Store(used) as store:
        assert marks.last_restore(store)


def test_the_time_of_the_last_backup_is_noted(directory, backup):
    from ternhost.store.last_backup import last

    assert last(directory / "store.sqlite") == pytest.approx(backup.stat().st_mtime, abs=60)


# Restoring


def test_every_file_is_restored(backup, new):
    restore.restore(backup, new)
    assert (new / "notes.txt").read_text() == "of the user"


def test_keys_are_restored(backup, new):
    restore.restore(backup, new)
    with Store(new / "store.sqlite") as store:
        keys = store.keys()
    assert keys == {device: sample_store.key_of(device) for device in range(1, DEVICES + 1)}


def test_only_its_owner_can_enter_a_restored_directory(backup, new):
    restore.restore(backup, new)
    assert new.stat().st_mode & 0o777 == 0o700
    assert (new / "store.sqlite").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("kind", ["a file", "a directory with a file", "a link"])
def test_a_restore_overwrites_nothing(backup, new, kind):
    if kind == "a file":
        new.write_text("mine")
    elif kind == "a link":
        new.symlink_to("nowhere")
    else:
        new.mkdir()
        (new / "mine").write_text("mine")
    assert_refused(backup, new, UsageError)


def test_an_empty_directory_is_restored_into(backup, new):
    new.mkdir()
    restore.restore(backup, new)
    assert (new / "store.sqlite").exists()


def test_the_working_directory_is_restored_into(backup, new, monkeypatch):
    new.mkdir()
    monkeypatch.chdir(new)
    assert main(["backup", "restore", str(backup), "."]) == 0
    assert (new / "store.sqlite").exists()


def test_a_restored_store_asks_no_round_number_that_boards_may_know(backup, new):
    result = restore.restore(backup, new)
    with Store(new / "store.sqlite") as store:
        last = last_number(store)
    assert last > marks.SKIPPED_ROUNDS
    assert result.next_round == last + 1


def last_number_after(directory, path, age):
    """Return the last number of a copy of a store that is restored at this age, in seconds."""
    shutil.copytree(directory, path)
    with Store(path / "store.sqlite") as store:
        marks.mark(store, saved=1000.0, now=1000.0 + age)
        return last_number(store)


@pytest.mark.parametrize("days", [0, 1, 11])
def test_a_second_restore_of_a_backup_uses_no_number_of_the_first(directory, tmp_path, days):
    """A round takes four seconds, and an hour passes until the second one."""
    first_age = days * 86_400
    rounds_between = 3600 // 4
    first = last_number_after(directory, tmp_path / "first", first_age)
    second = last_number_after(directory, tmp_path / "second", first_age + 3600)
    assert second >= first + rounds_between


@pytest.mark.parametrize("age", [-1e9, 0, 1e9])
def test_boards_accept_the_numbers_after_a_restore_whatever_the_age_of_the_backup(
    directory, tmp_path, age
):
    last = last_number_after(directory, tmp_path / "copy", age)
    assert 1 + marks.SKIPPED_ROUNDS <= last <= wire.CLIENT_AHEAD // 2


def test_a_store_may_be_restored_again_and_again(backup, tmp_path):
    for number in range(1, 4):
        directory = tmp_path / f"new{number}"
        restore.restore(backup, directory)
        backup = tmp_path / f"b{number}"
        save.save(directory, backup)
        with Store(directory / "store.sqlite") as store:
            assert last_number(store) >= 1 + number * marks.SKIPPED_ROUNDS


def test_a_restored_store_has_a_new_fleet_key(backup, directory, new):
    restore.restore(backup, new)
    with Store(directory / "store.sqlite") as store:
        before = fleet_key(store)
    with Store(new / "store.sqlite") as store:
        assert fleet_key(store).key != before.key
        assert fleet_key(store).epoch > before.epoch


def test_a_restored_store_does_not_know_what_boards_have_spent(backup, new):
    restore.restore(backup, new)
    with Store(new / "store.sqlite") as store:
        (board,) = store.boards()
        assert board.paid is None
        assert [each.first for each in marks.unheard_boards(store)] == [1]


def test_a_board_that_was_heard_since_the_restore_has_told_what_it_spent(backup, new):
    restore.restore(backup, new)
    with Store(new / "store.sqlite") as store:
        store.boards_seen([board_row(hello={**HELLO, "spent": 2_000_000})])
        assert not marks.unheard_boards(store)


@pytest.mark.parametrize("retained", [True, False])
def test_a_hello_that_a_broker_has_kept_does_not_tell_what_a_board_has_spent(backup, new, retained):
    """The board may have sent it before rounds that the restored store does not know."""
    restore.restore(backup, new)
    with Store(new / "store.sqlite") as store:
        sightings = Sightings(store)
        sightings.note(Sighting("00000001", range(1, 2), 0.0, hello=HELLO, retained=retained))
        assert (sightings.budget(range(1, 2)) is None) == retained


def test_a_run_is_restored_with_its_store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fleet = "--fleet simulated:60 --data iris --store host/store.sqlite --reports 60 --name mine"
    (tmp_path / "host").mkdir()
    assert main(["train", "fedsgd", *fleet.split(), "--no-report", "--quiet"]) == 0
    save.save(tmp_path / "host", tmp_path / "b")
    restore.restore(tmp_path / "b", tmp_path / "new")

    run = tmp_path / "new" / "runs" / "mine"
    assert json.loads((run / "result.json").read_text())["run"] == "mine"
    assert find(run) == (tmp_path / "new" / "store.sqlite", "mine")
    with Store(tmp_path / "new" / "store.sqlite") as store:
        assert store.run("mine").asked["directory"] == str(run)


# Archives that are not as they were made


def test_a_backup_that_was_cut_is_refused_wherever_it_was_cut(backup, new):
    with tarfile.open(backup) as tar:
        end = max(member.offset_data + member.size for member in tar)  # what follows is empty
    content = backup.read_bytes()[: end - 1]
    for part in range(17):
        backup.write_bytes(content[: len(content) * part // 16])
        assert_refused(backup, new)


def test_a_backup_with_a_changed_byte_is_refused(backup, new):
    """A byte within the content of each file."""
    with tarfile.open(backup) as tar:
        offsets = {member.name: member.offset_data for member in tar if member.size}
    content = backup.read_bytes()
    for offset in offsets.values():
        changed = bytearray(content)
        changed[offset] ^= 1
        backup.write_bytes(changed)
        assert_refused(backup, new)


def test_an_error_of_the_new_disk_does_not_blame_the_backup(backup, new, monkeypatch):
    def full(*_args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(archive.os, "fsync", full)
    error = assert_refused(backup, new, StorageError)
    assert str(backup) not in error.message
    assert "make room" in error.hint


def test_a_backup_whose_manifest_says_something_else_is_refused(backup, new):
    """Such as when it was made, or which directory it has."""
    content = backup.read_bytes()
    with tarfile.open(backup) as tar:
        text = tar.extractfile(manifest.NAME).read()
    for name in json.loads(text):
        value = text.index(f'"{name}": '.encode()) + len(name) + 5  # after a quote, or in an object
        for place in range(value, value + 3):
            changed = bytearray(content)
            changed[tarfile.BLOCKSIZE + place] ^= 1
            is_told_otherwise = json_or_none(
                changed[tarfile.BLOCKSIZE :][: len(text)]
            ) != json.loads(text)
            backup.write_bytes(changed)
            if is_told_otherwise:
                assert_refused(backup, new)


def json_or_none(data):
    """Return what JSON says; None if it is not valid."""
    try:
        return json.loads(data)
    except ValueError:
        return None


OTHER_TYPES = [
    *[("saved", value) for value in [None, float("nan"), float("inf"), "x", [1], {}, 10**30, -1]],
    *[("schema", value) for value in [None, 1.5, True, "x", [1], {}]],
    *[(name, value) for name in ["release", "directory"] for value in [None, 1, [], {}]],
    *[("runs", value) for value in [None, 1, "x", [1], {"a": 1}, {"a": None}, {"a": "../b"}]],
]


@pytest.mark.parametrize(("name", "value"), OTHER_TYPES)
def test_a_manifest_with_a_value_of_another_type_is_refused(backup, tmp_path, new, name, value):
    with tarfile.open(backup) as tar:
        files = {member.name: tar.extractfile(member).read() for member in tar}
    content = json.loads(files.pop(manifest.NAME)) | {name: value}
    del content["sha256"]
    content["sha256"] = manifest._hash_of(content)
    made_up(tmp_path / "b", json.dumps(content).encode(), files)
    assert_refused(tmp_path / "b", new)


@pytest.mark.parametrize("content", [b"", b"a text", b"PK\x03\x04", bytes(10_240)])
def test_a_file_that_is_no_backup_is_refused(tmp_path, new, content):
    (tmp_path / "other").write_bytes(content)
    assert_refused(tmp_path / "other", new, UsageError)


def test_a_tar_file_of_somebody_else_is_refused(tmp_path, new):
    with tarfile.open(tmp_path / "other", "w") as tar:
        tar.add(__file__, "test.py")
    assert_refused(tmp_path / "other", new, UsageError)


def made_up(path, made_by, members):
    """Write an archive with any manifest, and with members of any names: name -> TarInfo type or
    content.
    """
    with tarfile.open(path, "w") as tar:
        for name, content in [(manifest.NAME, made_by), *members.items()]:
            member = tarfile.TarInfo(name)
            if not isinstance(content, bytes):
                member.type, member.linkname, content = content, "/etc/passwd", b""
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


def manifest_of(files, **changes):
    described = {
        name: manifest.SavedFile(len(content), archive.hashlib.sha256(content).hexdigest(), 0o600)
        for name, content in files.items()
    }
    made = manifest.Manifest(1.0, "0.1.0", 12, "/somewhere", described, {})
    return replace(made, **changes).encode()


OUTSIDE = ["../outside", "/tmp/outside", "a/../../outside", "a\\..\\outside", "", ".", "a//b"]


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_backup_cannot_write_outside_of_its_directory(tmp_path, new, name):
    files = {name: b"evil"}
    made_up(tmp_path / "b", manifest_of(files), files)
    assert_refused(tmp_path / "b", new)


@pytest.mark.parametrize("name", ["../outside", "extra"])
def test_a_member_that_the_manifest_does_not_list_is_refused(tmp_path, new, name):
    made_up(tmp_path / "b", manifest_of({}), {name: b"evil"})
    assert_refused(tmp_path / "b", new, StorageError)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_a_link_in_a_backup_is_refused(tmp_path, new, kind):
    made_up(tmp_path / "b", manifest_of({"a": b""}), {"a": kind})
    assert_refused(tmp_path / "b", new, StorageError)


def test_a_sparse_file_in_a_backup_is_refused(tmp_path, new):
    """It would fill the disk, however small the archive is."""
    size = 1 << 40
    described = {"a": manifest.SavedFile(size, "0" * 64, 0o600)}
    text = manifest.Manifest(1.0, "0.1.0", 12, "/x", described, {}).encode()
    no_data = b"0\n".ljust(tarfile.BLOCKSIZE, b"\0")  # a map without entries
    headers = {"major": "1", "minor": "0", "name": "a", "realsize": str(size)}
    with tarfile.open(tmp_path / "b", "w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in [(manifest.NAME, text), ("a", no_data)]:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            if content is no_data:
                member.pax_headers = {f"GNU.sparse.{key}": value for key, value in headers.items()}
            tar.addfile(member, io.BytesIO(content))
    with tarfile.open(tmp_path / "b") as tar:
        assert tar.getmember("a").issparse()
    assert_refused(tmp_path / "b", new, StorageError)


@pytest.mark.parametrize("changes", [{"format": 2}, {"schema": 1000}])
def test_a_backup_of_a_later_release_is_refused(tmp_path, new, changes):
    made_up(tmp_path / "b", manifest_of({}, **changes), {})
    assert_refused(tmp_path / "b", new, UsageError)


@pytest.mark.parametrize(
    "text", [b"[]", b"{}", b"{", b'{"format": "x"}', b'{"format": 1, "files": 3}', b"\xff"]
)
def test_a_manifest_with_other_content_is_refused(tmp_path, new, text):
    made_up(tmp_path / "b", text, {})
    assert_refused(tmp_path / "b", new, UsageError)


def changed(store, statement):
    """Change a store without tern; when this returns, the change is in its file."""
    with closing(sqlite3.connect(store, isolation_level=None)) as database:
        database.execute(statement)
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def test_a_store_of_an_earlier_release_is_not_saved(directory, tmp_path):
    """The message names the store of the user, and no copy of it. It may lack tables of today."""
    store = directory / "store.sqlite"
    changed(store, "DROP TABLE run")
    changed(store, f"PRAGMA user_version = {schema.VERSION - 1}")
    with pytest.raises(StorageError, match=f"^{store} "):
        save.save(directory, tmp_path / "b")
    assert not (tmp_path / "b").exists()


def test_a_store_of_an_earlier_release_is_refused(directory, tmp_path, new):
    """The release that made it can restore it. The message names the backup of the user."""
    store = directory / "store.sqlite"
    changed(store, f"PRAGMA user_version = {schema.VERSION - 1}")
    figures = {"store.sqlite": manifest.StoreFigures(DEVICES, 1, 0, 1)}
    files = {"store.sqlite": store.read_bytes()}
    made_up(tmp_path / "b", manifest_of(files, stores=figures, schema=schema.VERSION - 1), files)
    error = assert_refused(tmp_path / "b", new, StorageError)
    assert str(tmp_path / "b") in str(error)


def test_a_store_that_the_manifest_does_not_name_as_one_is_refused(directory, tmp_path, new):
    """Otherwise its host would ask numbers that the boards know already."""
    files = {"store.sqlite": (directory / "store.sqlite").read_bytes()}
    made_up(tmp_path / "b", manifest_of(files), files)
    assert_refused(tmp_path / "b", new, StorageError)


def test_a_run_whose_name_leads_out_of_the_directory_is_refused(directory, tmp_path, new):
    store = directory / "store.sqlite"
    with Store(store) as opened:
        asked = {"algorithm": "fedmean", "fleet": "mqtt:x", "learning": {}, "schedule": {}}
        opened.begin_run(StoredRun("../../outside", 1.0, "stopped", asked, {}))
    changed(store, "PRAGMA journal_mode = DELETE")
    figures = {"store.sqlite": manifest.StoreFigures(DEVICES, 1, 0, 1)}
    files = {"store.sqlite": store.read_bytes()}
    made_up(tmp_path / "b", manifest_of(files, stores=figures, schema=schema.VERSION), files)
    assert_refused(tmp_path / "b", new, UsageError)


def test_a_store_whose_rows_refer_to_nothing_is_refused(directory, tmp_path, new):
    """Somebody has changed the store in a backup, and the hashes with it."""
    store = directory / "store.sqlite"
    changed(store, "DELETE FROM round")
    figures = {"store.sqlite": manifest.StoreFigures(DEVICES, 0, 0, 0)}
    files = {"store.sqlite": store.read_bytes()}
    made_up(tmp_path / "b", manifest_of(files, stores=figures), files)
    assert_refused(tmp_path / "b", new, StorageError)


# The command


def test_a_missing_backup_is_wrong_usage(new):
    assert main(["backup", "restore", str(new.parent / "none"), str(new)]) == USAGE


def test_a_damaged_backup_is_an_error_of_storage(backup, new):
    backup.write_bytes(backup.read_bytes()[:-12_000])
    assert main(["backup", "restore", str(backup), str(new)]) == STORAGE
