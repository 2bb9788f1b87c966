"""A store as a file of SQLite: one writer at a time, written in transactions."""

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
        """create: make a missing file (mode 0600: it holds the devices' keys). beside: allow
        another process to have it open for writing, such as a host that serves; only to use the
        keys. A file with hard links is refused.
        """
        self.path = real(Path(path))
        with self._errors(), ExitStack() as unless_opened:
            files.make(self.path, create)
            self._lock = None if beside else files.take_lock(self.path)
            if self._lock:
                unless_opened.callback(self._lock.close)
            self._held = None if beside else files.hold_file(self.path)
            if self._held:
                unless_opened.callback(self._held.close)
            self._db = sqlite3.connect(self.path, isolation_level=None)
            unless_opened.callback(self._db.close)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.execute("PRAGMA foreign_keys = ON")
            self._check_schema()
            unless_opened.pop_all()

    def _check_schema(self) -> None:
        with self.transaction():
            if self._db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] == 0:
                schema.execute(self._db, schema.TABLES)
                self._db.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
                self._db.execute(f"PRAGMA user_version = {schema.VERSION}")
            schema.check(self._db, self.path)
            schema.check_extensions(self._db, self.path)

    def add_tables(self, extension: Extension) -> None:
        """Make the tables of an extension where the store does not have them yet."""
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
        try:
            yield
        except sqlite3.Error as error:
            raise StorageError(f"{self.path}: {error}", hint=_hint(error)) from error

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit all statements inside together or none of them; an inner transaction is part of
        the outer one.
        """
        inside: bool = self._db.in_transaction
        if inside:
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
            # Otherwise an observer keeps the log alive, and a copy of the file misses it.
            with suppress(sqlite3.Error):
                self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._lock.close()
        self._db.close()
        if self._held:
            self._held.close()

    def changes(self) -> int:
        """A number that changes with every write of another process."""
        return int(self.value("PRAGMA data_version"))
