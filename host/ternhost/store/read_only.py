"""Read-only connections to a store, which can read neither keys nor reports: SQLite asks an
authorizer about every column and action of a statement, and refuses anything not listed here before
any row is read.
"""

import os
import sqlite3
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from ternhost.errors import StorageError
from ternhost.extensions import EXTENSIONS
from ternhost.files import real, require_one_name
from ternhost.store import schema

# By table the columns that may be read; the rows of each may be counted. Left out: keys (device,
# revoked), the fleet's key (state), reports (batch.packed) and their devices, models. Extensions say
# the same of their tables.
READABLE: dict[str, set[str]] = {
    "run": {"ROWID", "name", "began", "status", "asked", "state"},
    "history": {"run", "number", "entry", "began", "finished"},
    "round": {"number", "quorum", "deadline", "ended", "run", "began"},
    "cohort": {"round", "devices"},  # counted
    "batch": {"id", "round", "reports"},
    "tally": {"round", "position", "body", "asked", "reports", "counts"},
    "board": {"name", "first", "clients", "online", "heard", "hello", "errors", "error", "spent"},
    "extension": {"name", "package", "version"},
    "device": set(),
}
FUNCTIONS = {"coalesce", "count", "json_extract", "max", "sum"}
PRAGMAS = {"application_id", "data_version", "user_version"}  # to read, not to set

TORN_HINT = "bring it back from a copy, or start a new store"
_NO_STORE = ("SQLITE_NOTADB", "SQLITE_CORRUPT")
_WAIT = 0.2  # seconds for a lock


def _readable(table: str) -> Collection[str] | None:
    """Return the columns of a table that may be read; None if the table may not be read."""
    if table in READABLE:
        return READABLE[table]
    for extension in EXTENSIONS.available():
        if extension.tables is not None and table in extension.tables.readable:
            return extension.tables.readable[table]
    return None


def _authorize(
    action: int, first: str | None, second: str | None, *_database_and_trigger: str | None
) -> int:
    """Decide as SQLite's authorizer whether a statement may do this (sqlite3_set_authorizer).

    first, second: what the action is about; their meaning depends on the action.
    """
    if _is_allowed(action, first, second):
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


def _is_allowed(action: int, first: str | None, second: str | None) -> bool:
    """Return whether an action is one of those that this module lists; see `_authorize`."""
    if action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_TRANSACTION):
        return True
    if action == sqlite3.SQLITE_READ:
        table, column = first or "", second  # the column is empty if rows are only counted
        columns = _readable(table)
        return columns is not None and column in {"", *columns}
    if action == sqlite3.SQLITE_FUNCTION:
        function = second
        return function in FUNCTIONS
    if action == sqlite3.SQLITE_PRAGMA:
        pragma, new_value = first, second
        return pragma in PRAGMAS and new_value is None
    return False


def at_rest(path: Path) -> bool:
    """Return whether no process writes to a store that lies in a folder that we cannot write to.

    There a reader cannot create the log that reading a store in use needs.
    """
    path = real(path)
    return not path.with_name(f"{path.name}-wal").exists() and not os.access(path.parent, os.W_OK)


def connect(path: Path, still: bool = False) -> sqlite3.Connection:
    """Open a connection to a store that can read only `READABLE`.

    still: no process writes to the store meanwhile. Raises StorageError unless the file is a store
    of this version, and sqlite3.Error if it cannot be read now.
    """
    path = real(path)
    if path.exists():
        require_one_name(path)
    uri = f"file:{quote(str(path.absolute()))}?mode=ro"
    if still:
        uri += "&immutable=1"
    database = sqlite3.connect(uri, _WAIT, isolation_level=None, check_same_thread=False, uri=True)
    with _closed_by_errors(database):
        database.set_authorizer(_authorize)
        try:
            schema.check(database, path)
        except sqlite3.DatabaseError as error:
            if _is_torn(error):
                text = f"{path} is not a store of tern: {error}"
                raise StorageError(text, hint="name another file") from error
            raise
        try:
            schema.check_extensions(database, path)
        except sqlite3.DatabaseError as error:
            if _is_torn(error):
                raise StorageError(f"{path} is damaged", hint=TORN_HINT) from error
            raise
    return database


@contextmanager
def _closed_by_errors(database: sqlite3.Connection) -> Iterator[None]:
    """Close the connection if the block raises an error."""
    try:
        yield
    except BaseException:
        database.close()
        raise


def _is_torn(error: sqlite3.DatabaseError) -> bool:
    """Return whether the file, or a part of it, does not have the format of SQLite."""
    return str(getattr(error, "sqlite_errorname", "")).startswith(_NO_STORE)
