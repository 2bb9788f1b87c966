"""Copies stores while other programs write to them, and checks the copies."""

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ternhost.backup.manifest import StoreFigures
from ternhost.errors import StorageError
from ternhost.files import real
from ternhost.store import read_only, schema
from ternhost.store.reader import Reader

_LONGEST_WAIT = 30.0  # seconds to wait for a lock of another program
_FIGURES = """
SELECT (SELECT count(*) FROM device), (SELECT count(*) FROM round),
(SELECT coalesce(sum(reports), 0) FROM batch), (SELECT coalesce(max(number), 0) FROM round)
"""


def copy(source: Path, target: Path) -> StoreFigures | None:
    """Copy a database as it is at one moment, whoever writes to it meanwhile, and check the copy.

    The writers are not held up. target: the new file, which must exist and be empty. Return what
    the store held at that moment; None if the database is not a store of tern. Raises StorageError
    if it cannot be read, or if the copy is not the same.
    """
    try:
        with (
            closing(_open(source)) as database,
            closing(sqlite3.connect(target, isolation_level=None)) as new,
        ):
            # All reads of this transaction, and so the copy, see the database at one moment.
            database.execute("BEGIN")
            figures = _figures(database, what=source)
            database.backup(new)
            new.execute("PRAGMA journal_mode = DELETE")  # the copy is one file, without a log
    except sqlite3.Error as error:
        raise _unreadable(source, error) from error
    copied = check(target, what=source)
    if copied != figures:
        raise StorageError(f"the copy of {source} has {copied}, not {figures}", "try it again")
    return figures


def check(path: Path, what: Path | str) -> StoreFigures | None:
    """Check a database that nobody writes to, and return what the store holds.

    Its pages and its references must be right, and tern's reader must be able to read it. Return
    None if it is not a store of tern; then only the pages and references are checked. what: the
    name for messages. Raises StorageError.
    """
    try:
        with closing(_open(path)) as database:
            (state,) = database.execute("PRAGMA integrity_check(1)").fetchone()
            broken_references = database.execute("PRAGMA foreign_key_check").fetchall()
            figures = _figures(database, what)
    except sqlite3.Error as error:
        raise _unreadable(what, error) from error
    if state != "ok":
        raise _damaged(what, state)
    if broken_references:
        raise _damaged(what, f"{len(broken_references)} rows refer to rows that are not there")
    if figures is not None:
        with Reader(path) as reader:
            note = reader.snapshot().note
        if note is not None:
            raise _damaged(what, note)
    return figures


def options_of_runs(path: Path) -> dict[str, Mapping[str, Any]]:
    """Return the options with which each run of a store began, by its name.

    There are none if the database is not a store of tern. Raises StorageError if it cannot be read.
    """
    try:
        with closing(_open(path)) as database:
            if not _is_store(database):
                return {}
            schema.check(database, path)
            rows = database.execute("SELECT name, asked FROM run").fetchall()
    except sqlite3.Error as error:
        raise _unreadable(path, error) from error
    return {name: json.loads(asked) for name, asked in rows}


def _open(path: Path) -> sqlite3.Connection:
    """Open a database for reading."""
    path = real(path)
    uri = f"file:{quote(str(path.absolute()))}?mode=ro"
    if read_only.at_rest(path):
        uri += "&immutable=1"
    return sqlite3.connect(uri, uri=True, isolation_level=None, timeout=_LONGEST_WAIT)


def _figures(database: sqlite3.Connection, what: Path | str) -> StoreFigures | None:
    """Return what a store holds; None if the database is not a store of tern.

    what: its name for messages. Raises StorageError if it is one of another version.
    """
    if not _is_store(database):
        return None
    schema.check(database, what)
    schema.check_extensions(database, what)
    return StoreFigures(*database.execute(_FIGURES).fetchone())


def _is_store(database: sqlite3.Connection) -> bool:
    """Return whether a database is a store of tern."""
    (application,) = database.execute("PRAGMA application_id").fetchone()
    return bool(application == schema.APPLICATION_ID)


def _unreadable(what: Path | str, error: sqlite3.Error) -> StorageError:
    """Return the error for a database that SQLite cannot read, or cannot copy."""
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith("SQLITE_BUSY"):
        hint = "save it again when that has ended"
        return StorageError(f"{what} is used by another program alone", hint)
    is_of_disk = name.startswith(("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_CANTOPEN"))
    if is_of_disk:
        hint = "see whether a disk is full, and who may read and write there, then try it again"
        return StorageError(f"{what} cannot be read or copied: {error}", hint)
    return _damaged(what, str(error))


def _damaged(what: Path | str, reason: str) -> StorageError:
    return StorageError(f"{what} is damaged: {reason}", hint="use an earlier backup")
