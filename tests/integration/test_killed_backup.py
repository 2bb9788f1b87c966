"""A save or a restore that is killed leaves keys beside its result; the next one removes them."""

import shutil
import subprocess
import sys
from contextlib import contextmanager

import pytest
import sample_store
import warm

from ternhost.backup import restore, save
from ternhost.errors import OK
from ternhost.store.store import Store

WORKING = ".tern-backup-*"

# `tern backup save DIR FILE`, which waits for a line before it writes the archive.
WAITING_SAVE = """
import sys
from ternhost.backup import archive
from ternhost.cli import main

write = archive.write

def write_when_told(*words):
    print("it has copied the store", flush=True)
    sys.stdin.readline()
    write(*words)

archive.write = write_when_told
sys.exit(main())
"""


@pytest.fixture
def directory(tmp_path):
    """A directory with a store that has a key."""
    path = tmp_path / "host"
    with Store(path / "store.sqlite") as store:
        store.add_devices({1: sample_store.key_of(1)})
    return path


@pytest.fixture
def other_directory(directory, tmp_path):
    """A copy of it, which nobody uses."""
    return shutil.copytree(directory, tmp_path / "other")


def working_directories(folder):
    return list(folder.glob(WORKING))


@contextmanager
def half_done_save(directory, path):
    """A save that has copied the store, and goes on once it reads a line."""
    words = [sys.executable, "-c", WAITING_SAVE, "backup", "save", str(directory), str(path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with warm.Popen(words, text=True, **pipes) as process:
        assert process.stdout.readline()
        yield process


@pytest.fixture
def killed(directory, tmp_path):
    """What a save that was killed has left."""
    with half_done_save(directory, tmp_path / "host.backup") as process:
        process.kill()
    (left,) = working_directories(tmp_path)
    assert list(left.rglob("store.sqlite")), "it has the keys"
    return left


def test_the_next_save_removes_what_a_killed_one_has_left(killed, directory, tmp_path):
    save.save(directory, tmp_path / "host.backup")
    assert not working_directories(tmp_path)


def test_a_restore_removes_what_a_killed_save_has_left(killed, other_directory, tmp_path):
    backup = tmp_path / "elsewhere" / "other.backup"
    backup.parent.mkdir()
    save.save(other_directory, backup)
    assert killed.exists(), "it is in another folder"
    restore.restore(backup, tmp_path / "restored")
    assert not killed.exists()


def test_a_save_leaves_the_files_of_one_that_runs(directory, other_directory, tmp_path):
    with half_done_save(directory, tmp_path / "host.backup") as running:
        save.save(other_directory, tmp_path / "other.backup")
        assert working_directories(tmp_path)
        running.communicate("go on\n", timeout=60)
    assert running.returncode == OK
    assert not working_directories(tmp_path)


@pytest.mark.parametrize("kind", ["a link", "a file", "another name"])
def test_a_save_removes_nothing_that_is_not_of_a_killed_one(directory, tmp_path, kind):
    of_user = tmp_path / "elsewhere"
    of_user.mkdir()
    (of_user / "precious").touch()
    path = tmp_path / ".tern-backup-abcd1234"
    if kind == "a link":
        path.symlink_to(of_user)
    elif kind == "a file":
        path.touch()
    else:
        path = of_user.rename(tmp_path / ".tern-backup-of-last-week")
        of_user = path
    save.save(directory, tmp_path / "host.backup")
    assert path.exists()
    assert (of_user / "precious").exists()
