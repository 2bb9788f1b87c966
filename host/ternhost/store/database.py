"""A store as a file of SQLite: one writer at a time, written in transactions."""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from ternhost.errors import StorageError
from ternhost.extensions import EXTENSIONS, Extension
from ternhost.files import Closing, path_text, real
from ternhost.machine_names import HeldName
from ternhost.store import schema
from ternhost.store import store_file as files

# Remedies by the beginning of SQLite's name for an error.
_AGAIN = "go on with 'tern resume', or start again what used it"
_HINTS = {
    "SQLITE_FULL": f"free some space, then {_AGAIN}: every accepted report is safe",
    "SQLITE_IOERR": f"the disk is full or failing; put that right, then {_AGAIN}: "
    "every accepted report is safe",
    "SQLITE_READONLY": "make the file and its directory writable for you",
    "SQLITE_CANTOPEN": "check that the directory exists and is yours to write",
    "SQLITE_NOTADB": "this is not a store of tern; name another file",
    "SQLITE_CORRUPT": "the file is damaged; bring it back from a copy, or start a new store",
    "SQLITE_BUSY": "another program uses this store; end it, or name another store",
    "SQLITE_CONSTRAINT": f"another program wrote to this store; end it, then {_AGAIN}",
}


def _hint(error: sqlite3.Error) -> str | None:
    """Return the remedy for an error of SQLite, or None if none is known."""
    name = getattr(error, "sqlite_errorname", None) or ""  # such as "SQLITE_IOERR_WRITE"
    for prefix, hint in _HINTS.items():
        if name.startswith(prefix):
            return hint
    return None


class Database(Closing):
    """The file of a store and its transactions.

    Methods raise StorageError if the disk fails. What was committed before stays.
    """

    def __init__(self, path: str | Path, create: bool = True, beside: bool = False) -> None:
        """Open the file of a store, and lock it so that no other process writes to it.

        create: make the file if it is missing, with mode 0600, since it holds the devices' keys.
        beside: take no lock, because another process, such as a host that serves a fleet, may have
        the file open; only for commands that use the keys. A file with several hard links is
        refused, since the lock belongs to a name.
        """
        self.path = real(Path(path_text(path, "the path of a store")))
        self._lock: sqlite3.Connection | None = None  # on a file beside the store
        self._inode_lock: HeldName | None = None  # on the store, whatever its name
        with self._errors(), ExitStack() as close_on_error:
            files.make(self.path, create)
            if not beside:
                self._lock = files.take_lock(self.path)
                close_on_error.callback(self._lock.close)
                self._inode_lock = files.lock_inode(self.path)
                close_on_error.callback(self._inode_lock.close)

            # Without an isolation level, Python opens no transactions by itself.
            self._db = sqlite3.connect(self.path, isolation_level=None)
            close_on_error.callback(self._db.close)
            self._db.execute("PRAGMA journal_mode = WAL")  # readers and the writer do not wait
            self._db.execute("PRAGMA synchronous = FULL")  # a commit is on the disk
            self._db.execute("PRAGMA foreign_keys = ON")
            self._check_schema()
            close_on_error.pop_all()  # all went well: close nothing

    def _check_schema(self) -> None:
        """Create the tables in an empty file. Raises StorageError for a file of another version."""
        with self.transaction():
            table_count = self._db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
            if table_count == 0:
                schema.execute(self._db, schema.TABLES)
                self._db.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
                self._db.execute(f"PRAGMA user_version = {schema.VERSION}")
            schema.check(self._db, self.path)
            schema.check_extensions(self._db, self.path)

    def add_tables(self, extension: Extension) -> None:
        """Create the tables of an extension, unless the store has them already."""
        assert extension.tables is not None
        with self.transaction():
            if self.has_tables_of(extension):
                return
            schema.execute(self._db, extension.tables.sql)
            row = (extension.name, extension.package, extension.tables.version)
            self._db.execute("INSERT INTO extension VALUES (?, ?, ?)", row)

    def has_tables_of(self, extension: Extension) -> bool:
        """Return whether the extension has ever written to this store."""
        return bool(self.rows("SELECT 1 FROM extension WHERE name = ?", extension.name))

    def extensions(self) -> list[Extension]:
        """Return the extensions that have tables in this store, sorted by name."""
        rows = self.rows("SELECT name FROM extension ORDER BY name")
        return [EXTENSIONS[name] for (name,) in rows]

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn errors of SQLite in the block into StorageError, with a hint for the user."""
        try:
            yield
        except sqlite3.Error as error:
            raise StorageError(f"{self.path}: {error}", hint=_hint(error)) from error

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit all statements of the block together, or none of them if it raises an error.

        Within another transaction, the statements become part of that one.
        """
        is_inner: bool = self._db.in_transaction
        if is_inner:
            yield
            return
        with self._errors():
            self._db.execute("BEGIN IMMEDIATE")  # locks the file now, not at the first write
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                was_rolled_back = not self._db.in_transaction  # by SQLite, such as on a full disk
                if not was_rolled_back:
                    self._db.execute("ROLLBACK")
                raise

    def rows(self, statement: str, *values: Any) -> list[Any]:
        """Return all rows of a query."""
        with self._errors():
            return self._db.execute(statement, values).fetchall()

    def value(self, statement: str, *values: Any) -> Any:
        """Return the first column of the first row of a query, or None if there is no row."""
        rows = self.rows(statement, *values)
        return rows[0][0] if rows else None

    def write(self, statement: str, *values: Any) -> None:
        """Execute a statement with these parameters, in a transaction."""
        with self.transaction():
            self._db.execute(statement, values)

    def write_rows(self, statement: str, rows: Iterable[Any]) -> None:
        """Execute a statement once for each row of parameters, all in one transaction."""
        with self.transaction():
            self._db.executemany(statement, rows)

    def close(self) -> None:
        """Close the file; committed data is already on the disk."""
        if self._lock:
            # Move the log into the file. An observer that has the store open would keep the log
            # beside the file, and a copy of the file alone would miss what is in it.
            with suppress(sqlite3.Error):
                self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._lock.close()
        self._db.close()
        if self._inode_lock:
            self._inode_lock.close()

    def changes(self) -> int:
        """Return a number that is another one after every write of another process."""
        return int(self.value("PRAGMA data_version"))
