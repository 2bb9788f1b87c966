"""A store as a file of SQLite: one writer at a time, written in transactions."""

import socket
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from ternhost.errors import StorageError
from ternhost.extensions import EXTENSIONS, Extension
from ternhost.files import Closing, real
from ternhost.store import schema
from ternhost.store import store_file as files

_AGAIN = "go on with --resume, or start again what used it"
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
    """The remedy for an error of SQLite, if one is known."""
    name = getattr(error, "sqlite_errorname", None) or ""
    for prefix, hint in _HINTS.items():
        if name.startswith(prefix):
            return hint
    return None


class Database(Closing):
    """The file and its transactions.

    Methods raise StorageError where the disk fails; what was committed stays.
    """

    def __init__(self, path: str | Path, create: bool = True, beside: bool = False) -> None:
        """Open the file, and lock it for writing.

        create: make a missing file (mode 0600: it holds the devices' keys). beside: take no lock,
        so that another process may have the file open for writing, such as a host that serves;
        only to use the keys. A file with hard links is refused.
        """
        self.path = real(Path(path))
        self._lock: sqlite3.Connection | None = None
        self._held: socket.socket | None = None
        with self._errors(), ExitStack() as close_on_error:
            files.make(self.path, create)
            if not beside:
                self._lock = files.take_lock(self.path)
                close_on_error.callback(self._lock.close)
                self._held = files.hold_file(self.path)
                if self._held is not None:
                    close_on_error.callback(self._held.close)
            self._db = sqlite3.connect(self.path, isolation_level=None)
            close_on_error.callback(self._db.close)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.execute("PRAGMA foreign_keys = ON")
            self._check_schema()
            close_on_error.pop_all()

    def _check_schema(self) -> None:
        """Make the tables of an empty file, and check the version of any other."""
        with self.transaction():
            is_empty = self._db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] == 0
            if is_empty:
                schema.execute(self._db, schema.TABLES)
                self._db.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
                self._db.execute(f"PRAGMA user_version = {schema.VERSION}")
            schema.check(self._db, self.path)
            schema.check_extensions(self._db, self.path)

    def add_tables(self, extension: Extension) -> None:
        """Make the tables of an extension, unless the store has them already."""
        assert extension.tables is not None
        with self.transaction():
            if self.has_tables_of(extension):
                return
            schema.execute(self._db, extension.tables.sql)
            row = extension.name, extension.package, extension.tables.version
            self._db.execute("INSERT INTO extension VALUES (?, ?, ?)", row)

    def has_tables_of(self, extension: Extension) -> bool:
        """Whether the extension has ever written to this store."""
        return bool(self.rows("SELECT 1 FROM extension WHERE name = ?", extension.name))

    def extensions(self) -> list[Extension]:
        """The extensions that have tables here, by name."""
        return [EXTENSIONS[name] for (name,) in self.rows("SELECT name FROM extension ORDER BY 1")]

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn errors of SQLite into StorageError with a hint."""
        try:
            yield
        except sqlite3.Error as error:
            raise StorageError(f"{self.path}: {error}", hint=_hint(error)) from error

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit all statements of the block together, or none if it raises an error.

        An inner transaction is part of the outer one.
        """
        is_inner: bool = self._db.in_transaction
        if is_inner:
            yield
            return
        with self._errors():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    def rows(self, statement: str, *values: Any) -> list[Any]:
        """All rows of a query."""
        with self._errors():
            return self._db.execute(statement, values).fetchall()

    def value(self, statement: str, *values: Any) -> Any:
        """The only column of the first row of a query; None if there is no row."""
        rows = self.rows(statement, *values)
        return rows[0][0] if rows else None

    def write(self, statement: str, *values: Any) -> None:
        """Execute a statement in a transaction."""
        with self.transaction():
            self._db.execute(statement, values)

    def write_rows(self, statement: str, rows: Iterable[Any]) -> None:
        """Execute a statement for each of these rows, in one transaction."""
        with self.transaction():
            self._db.executemany(statement, rows)

    def close(self) -> None:
        """Close the file; committed data is already on the disk."""
        if self._lock:
            # Move the log into the file: an observer would keep it alive beside the file, and a
            # copy of the file alone would miss what is in it.
            with suppress(sqlite3.Error):
                self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._lock.close()
        self._db.close()
        if self._held:
            self._held.close()

    def changes(self) -> int:
        """A number that changes with every write of another process."""
        return int(self.value("PRAGMA data_version"))
