"""Read-only connections to a store, for observers, which can read neither keys nor reports.

SQLite asks an authorizer function about every column and every action of a statement before it
reads any row. Whatever is not listed here is refused.
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

# The columns that may be read, by table. The rows of each of these tables may also be counted.
# Left out are keys (device, revoked), the fleet's key (state), models, and reports with their
# devices (batch.packed, batch.devices). Extensions have such lists for their own tables.
READABLE: dict[str, set[str]] = {
    "run": {"ROWID", "name", "began", "status", "asked", "state"},
    "history": {"run", "number", "entry", "began", "finished"},
    "round": {"number", "quorum", "deadline", "ended", "run", "began"},
    "cohort": {"round", "devices"},  # to count the devices
    "batch": {"id", "round", "reports"},
    "tally": {"round", "position", "body", "asked", "reports", "counts"},
    "board": {"name", "first", "clients", "online", "heard", "hello", "errors", "error", "spent"},
    "extension": {"name", "package", "version"},
    "device": set(),  # only its rows may be counted
}
FUNCTIONS = {"coalesce", "count", "json_extract", "max", "sum"}
PRAGMAS = {"application_id", "data_version", "user_version"}  # to read, not to set

TORN_HINT = "bring it back from a copy, or start a new store"
_NO_STORE = ("SQLITE_NOTADB", "SQLITE_CORRUPT")
_WAIT = 0.2  # the longest time to wait for a lock, in seconds


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
    """Decide whether a statement may do this; SQLite calls it for each action of a statement.

    action: a code of sqlite3_set_authorizer. first, second: what the action is about; their meaning
    depends on the action. SQLite also passes the names of the database and of the trigger, which
    make no difference here.
    """
    if _is_allowed(action, first, second):
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


def _is_allowed(action: int, first: str | None, second: str | None) -> bool:
    """Return whether an action reads only what `READABLE`, `FUNCTIONS` and `PRAGMAS` list.

    The parameters are those of `_authorize`.
    """
    if action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_TRANSACTION):
        return True  # which columns a SELECT reads is asked separately
    if action == sqlite3.SQLITE_READ:
        table = first or ""
        column = second
        columns = _readable(table)
        if columns is None:
            return False
        only_counts_rows = column == ""
        return only_counts_rows or column in columns
    if action == sqlite3.SQLITE_FUNCTION:
        function = second
        return function in FUNCTIONS
    if action == sqlite3.SQLITE_PRAGMA:
        pragma = first
        new_value = second
        return pragma in PRAGMAS and new_value is None
    return False


def at_rest(path: Path) -> bool:
    """Return whether a store has to be read as a file that nothing changes.

    That is so in a folder that this user cannot write to, while no process writes to the store. To
    read a store in the usual way, SQLite needs a log beside it, which it cannot create there.
    """
    path = real(path)
    log = path.with_name(f"{path.name}-wal")
    can_create_log = os.access(path.parent, os.W_OK)
    return not log.exists() and not can_create_log


def connect(path: Path, still: bool = False) -> sqlite3.Connection:
    """Open a connection to a store that can read only what `READABLE` lists.

    still: no process writes to the store meanwhile, so that SQLite needs no lock and no log. Raises
    StorageError if the file is not a store of this version, and sqlite3.Error if it cannot be read
    now.
    """
    path = real(path)
    if path.exists():
        require_one_name(path)  # raises an error for a file with several hard links
    uri = f"file:{quote(str(path.absolute()))}?mode=ro"
    if still:
        uri += "&immutable=1"
    database = sqlite3.connect(
        uri, timeout=_WAIT, isolation_level=None, check_same_thread=False, uri=True
    )
    with _closed_by_errors(database):
        database.set_authorizer(_authorize)
        try:
            schema.check(database, path)
        except sqlite3.DatabaseError as error:
            if _is_no_database(error):
                text = f"{path} is not a store of tern: {error}"
                raise StorageError(text, hint="name another file") from error
            raise
        try:
            schema.check_extensions(database, path)
        except sqlite3.DatabaseError as error:
            # It has the header of a store, so it was one.
            if _is_no_database(error):
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


def _is_no_database(error: sqlite3.DatabaseError) -> bool:
    """Return whether the file, or a part of it, does not have the format of SQLite."""
    name = str(getattr(error, "sqlite_errorname", ""))
    return name.startswith(_NO_STORE)
