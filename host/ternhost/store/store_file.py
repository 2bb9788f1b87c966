"""The file of a store and the lock beside it, before SQLite has opened it."""

import os
import socket
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

from ternhost.errors import StorageError, UsageError
from ternhost.files import close_to_others, real, require_one_name, storage_errors

NAME = "store.sqlite"  # the default
_SQLITE_MAGIC = b"SQLite format 3\0"  # how every file of SQLite begins
_OTHERS = 0o077  # the rights of the group and of others, in the mode of a file


def make(path: Path, create: bool) -> None:
    """Make sure that the file of a store exists, and that only its owner can read it.

    create: make a missing file, with mode 0600. Raises UsageError if there is none, StorageError
    if it cannot be made or others can read it.
    """
    with storage_errors("check the path and its owner", path):
        if create:
            path.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        elif not path.exists():
            raise UsageError(
                f"there is no store at {path}", "check the path; 'tern provision' makes one"
            )
        status = path.stat()
        # It is opened only in these two cases: closing it would release the locks that this process
        # has on it.
        if status.st_nlink > 1 and _may_be_a_store(path):
            require_one_name(path)
    if os.name == "posix" and status.st_mode & _OTHERS and _may_be_a_store(path):
        raise StorageError(
            f"{path} holds the devices' keys, and others may read it", f"chmod 600 {path}"
        )


def _may_be_a_store(path: Path) -> bool:
    """Return whether the file is empty or one of SQLite.

    Any other file is no store, and is none of our business: it is refused later, without advice
    on who may read it. (The application id is not looked at: it may still be in the log.)
    """
    with open(path, "rb") as file:
        start = file.read(len(_SQLITE_MAGIC))
    return not start or start == _SQLITE_MAGIC


def take_lock(path: Path) -> sqlite3.Connection:
    """Lock the store for writing, until the connection that is returned is closed.

    Raises sqlite3.Error if another process has the lock, StorageError if it cannot be made.
    """
    # An open transaction on an empty database beside the store: on every platform only one process
    # can have it, it ends with the process however that dies, and others can read the store
    # meanwhile.
    if not _may_be_a_store(path):  # opening it will raise the error: leave no lock beside it
        return sqlite3.connect(":memory:")
    lock_path = f"{path}-lock"
    # Whoever can read a lock can hold it, and keep tern from its store.
    close_to_others(lock_path, make=True)
    # `in_use` may have it for a moment.
    lock = sqlite3.connect(lock_path, isolation_level=None, timeout=0.1)
    try:
        lock.execute("PRAGMA journal_mode = OFF")
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.Error:
        lock.close()
        raise
    return lock


def hold_file(path: Path) -> socket.socket | None:
    """Lock the file itself by its inode, so that it stays locked if its name changes.

    The lock lasts until the socket that is returned is closed. Raises sqlite3.Error if another
    process has it. Only Linux has names of sockets that end with the process; elsewhere None is
    returned, and a store in use must not be moved.
    """
    if sys.platform != "linux" or not hasattr(socket, "AF_UNIX"):
        return None
    status = path.stat()
    held = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        held.bind(f"\0tern store {status.st_dev} {status.st_ino}")
    except OSError:
        held.close()
        busy = sqlite3.OperationalError("database is locked")
        busy.sqlite_errorname = "SQLITE_BUSY"
        raise busy from None
    return held


def in_use(path: Path) -> bool:
    """Return whether a process holds the lock of a store (`take_lock`): its run is under way."""
    uri = f"{real(path).absolute().as_uri()}-lock?mode=ro"
    try:
        with closing(sqlite3.connect(uri, uri=True, timeout=0)) as lock:
            lock.execute("SELECT count(*) FROM sqlite_schema")
    except sqlite3.Error as error:
        return getattr(error, "sqlite_errorname", "") == "SQLITE_BUSY"
    return False
