"""The file of a store and the lock beside it, before SQLite has opened it."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from ternhost.errors import StorageError, UsageError
from ternhost.files import close_to_others, real, require_one_name, storage_errors
from ternhost.machine_names import HeldName, NameIsHeld

NAME = "store.sqlite"  # the default
_SQLITE_MAGIC = b"SQLite format 3\0"  # the first bytes of every file of SQLite
_OTHERS = 0o077  # the rights of the group and of others, in the mode of a file


def stores_in(directory: Path) -> list[Path]:
    """Return the files of a directory that may be stores by their names, sorted.

    A directory may have such a name as well: that of a run which the user called so.
    """
    return sorted(path for path in directory.glob("*.sqlite") if path.is_file())


def make(path: Path, create: bool) -> None:
    """Make sure that the file of a store exists, and that only its owner can read it.

    create: make the file if it is missing, with mode 0600; otherwise a missing file raises
    UsageError. Raises StorageError if the file cannot be made, has several hard links, or can be
    read by others.
    """
    with storage_errors("check the path and its owner", path):
        if create:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
            os.close(descriptor)
        elif not path.exists():
            raise UsageError(
                f"there is no store at {path}", "check the path; 'tern board provision' makes one"
            )

        # `_may_be_a_store` opens and closes the file, which would release the locks that this
        # process has on it. So it is asked last, and only where the file is about to be refused.
        status = path.stat()
        has_several_names = status.st_nlink > 1
        if has_several_names and _may_be_a_store(path):
            require_one_name(path)  # raises an error
    others_may_read = os.name == "posix" and status.st_mode & _OTHERS != 0
    if others_may_read and _may_be_a_store(path):
        raise StorageError(
            f"{path} holds the devices' keys, and others may read it", f"chmod 600 {path}"
        )


def _may_be_a_store(path: Path) -> bool:
    """Return whether the file is empty or one of SQLite.

    Any other file is no store: it is refused later, without advice on who may read it. The
    application id in the file is not looked at, since it may still be in the log beside the file.
    """
    return _start_of(path) in (b"", _SQLITE_MAGIC)


def is_sqlite(path: Path) -> bool:
    """Return whether a file is a database of SQLite. Raises OSError."""
    return _start_of(path) == _SQLITE_MAGIC


def _start_of(path: Path) -> bytes:
    """Return the first bytes of a file, as many as every file of SQLite begins with."""
    with open(path, "rb") as file:
        return file.read(len(_SQLITE_MAGIC))


def take_lock(path: Path) -> sqlite3.Connection:
    """Lock the store for writing, until the returned connection is closed.

    The lock is an open transaction on an empty database beside the store. On every platform only
    one process can have it, it ends with the process even after a crash, and other processes can
    read the store meanwhile. Raises sqlite3.Error if another process has the lock, StorageError if
    it cannot be made.
    """
    if not _may_be_a_store(path):
        # Opening this file as a store will raise an error: leave no lock beside it.
        return sqlite3.connect(":memory:")
    lock_path = f"{path}-lock"
    # A user who can read the lock can also hold it, and so keep tern from its store.
    close_to_others(lock_path, make=True)
    # It waits 0.1 s, since `in_use` of another process may hold the lock for a moment.
    lock = sqlite3.connect(lock_path, isolation_level=None, timeout=0.1)
    try:
        lock.execute("PRAGMA journal_mode = OFF")
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.Error:
        lock.close()
        raise
    return lock


def lock_inode(path: Path) -> HeldName:
    """Lock the file itself by its inode, so that it stays locked if it is renamed or moved.

    It lasts until the result is closed. Raises sqlite3.Error if another process has the lock. Only
    Linux has such locks; elsewhere a store in use must not be moved.
    """
    status = path.stat()
    try:
        return HeldName(f"tern store {status.st_dev} {status.st_ino}")
    except NameIsHeld:
        busy = sqlite3.OperationalError("database is locked")
        busy.sqlite_errorname = "SQLITE_BUSY"
        raise busy from None


def in_use(path: Path) -> bool:
    """Return whether a process writes to the store, that is, holds the lock of `take_lock`."""
    lock_uri = f"{real(path).absolute().as_uri()}-lock?mode=ro"
    try:
        with closing(sqlite3.connect(lock_uri, uri=True, timeout=0)) as lock:
            lock.execute("SELECT count(*) FROM sqlite_schema")  # raises SQLITE_BUSY if it is locked
    except sqlite3.Error as error:
        return getattr(error, "sqlite_errorname", "") == "SQLITE_BUSY"
    return False
