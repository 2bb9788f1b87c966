"""A store has one writer at a time, by whatever name it is opened."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ternhost.errors import StorageError
from ternhost.store.reader import Reader
from ternhost.store.store import Store
from terntools.emulators.process import locked

KEY = bytes(32)


@pytest.fixture
def path(tmp_path):
    """Where `store` is."""
    return tmp_path / "store.sqlite"


@pytest.fixture
def link(path, tmp_path):
    """A symbolic link, in another directory, to the store at `path`."""
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / "mine.sqlite"
    link.symlink_to(path)
    return link


def refused(name):
    """What another process says that opens the store of this name."""
    program = f"from ternhost.store.store import Store; Store({str(name)!r}, create=False)"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stderr


def test_a_symbolic_link_lets_no_second_host_in(store, path, link):
    assert "locked" in refused(link)


def test_a_store_that_was_opened_by_a_link_is_locked_for_everybody(path, link):
    Store(path).close()
    with Store(link):
        assert "locked" in refused(path)


@pytest.mark.parametrize("beside", [False, True], ids=["with its lock", "without a lock"])
def test_a_store_with_two_names_is_refused(path, tmp_path, beside):
    """A host locks its store by the file's name, so that no second host asks devices on the same
    budget. Under two names (hard links) two hosts could both have a lock, so either name is refused
    until one is removed; also with `beside`, for commands that take no lock.
    """
    Store(path).close()
    other = tmp_path / "other.sqlite"
    os.link(path, other)

    for name in (path, other):
        with pytest.raises(StorageError, match=r"has 2 names \(hard links\)") as caught:
            Store(name, beside=beside)
        assert f"find DIRECTORY -samefile {name}" in caught.value.hint, "how to find the other one"

    # With one name, it opens again.
    other.unlink()
    Store(path, beside=beside).close()


@pytest.mark.skipif(sys.platform != "linux", reason="locks of files by number are Linux's")
def test_a_store_that_was_renamed_while_a_host_uses_it_lets_no_second_one_in(store, path, tmp_path):
    elsewhere = tmp_path / "elsewhere.sqlite"
    path.rename(elsewhere)
    assert "locked" in refused(elsewhere)


def test_a_hard_link_that_is_made_while_a_host_runs_lets_no_second_one_in(store, path, tmp_path):
    other = tmp_path / "other.sqlite"
    os.link(path, other)
    assert "hard links" in refused(other)
    store.add_devices({1: KEY})
    assert store.keys() == {1: KEY}, "the host that runs goes on"


def test_an_observer_is_refused_a_name_that_may_lack_the_log(store, path, tmp_path):
    other = tmp_path / "other.sqlite"
    os.link(path, other)
    with pytest.raises(StorageError, match="hard links"):
        Reader(other).snapshot()


@pytest.mark.skipif(os.name != "posix", reason="boards are emulated on POSIX systems")
def test_a_flash_with_two_names_is_not_two_boards(tmp_path):
    flash = Path(tmp_path, "flash")
    flash.write_bytes(bytes(64))
    os.link(flash, tmp_path / "other")
    with pytest.raises(StorageError, match="hard links"), locked(tmp_path / "other", 64):
        pass
