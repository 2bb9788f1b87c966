"""The tables of a store (`ternhost.store.store`)."""

import sqlite3
from pathlib import Path

from ternhost.errors import StorageError
from ternhost.extensions import EXTENSIONS

VERSION = 12
APPLICATION_ID = 0x5445524E  # "TERN"

TABLES = """
CREATE TABLE device (id INTEGER PRIMARY KEY, key BLOB NOT NULL CHECK (length(key) = 32));
CREATE TABLE revoked (
    id INTEGER NOT NULL, round INTEGER NOT NULL, key BLOB NOT NULL, at REAL NOT NULL, PRIMARY KEY (id, round)
) WITHOUT ROWID;
CREATE TABLE round (
    number INTEGER PRIMARY KEY, quorum INTEGER NOT NULL, deadline REAL, ended TEXT, run TEXT, began REAL,
    finished REAL
);
CREATE TABLE cohort (
    round INTEGER NOT NULL REFERENCES round (number), position INTEGER NOT NULL, body BLOB NOT NULL,
    devices BLOB NOT NULL, PRIMARY KEY (round, position)
) WITHOUT ROWID;
CREATE TABLE state (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE run (
    name TEXT PRIMARY KEY, began REAL NOT NULL, status TEXT NOT NULL, asked TEXT NOT NULL, state TEXT NOT NULL
);
CREATE TABLE history (
    run TEXT NOT NULL REFERENCES run (name), number INTEGER NOT NULL, entry TEXT NOT NULL, began REAL,
    finished REAL, PRIMARY KEY (run, number)
) WITHOUT ROWID;
CREATE TABLE model (
    run TEXT NOT NULL, number INTEGER NOT NULL, weights BLOB NOT NULL, PRIMARY KEY (run, number),
    FOREIGN KEY (run, number) REFERENCES history (run, number)
);
-- Reports of one round with equally long symbols: their number, their devices (members.pack_ids) and their symbols, one
-- after the other.
CREATE TABLE batch (
    id INTEGER PRIMARY KEY, round INTEGER NOT NULL REFERENCES round (number), reports INTEGER NOT NULL,
    devices BLOB NOT NULL, packed BLOB NOT NULL
);
CREATE INDEX batch_of_round ON batch (round);
-- For observers (times are seconds since 1970): tally has the question to each cohort and its counts by coordinate and
-- symbol, board the unverified figures of boards.
CREATE TABLE tally (
    round INTEGER NOT NULL, position INTEGER NOT NULL, body BLOB NOT NULL, asked INTEGER NOT NULL,
    reports INTEGER NOT NULL, counts BLOB NOT NULL, PRIMARY KEY (round, position)
) WITHOUT ROWID;
CREATE TABLE board (
    first INTEGER PRIMARY KEY, name TEXT NOT NULL, clients INTEGER NOT NULL, online INTEGER NOT NULL,
    heard REAL NOT NULL, hello TEXT NOT NULL, errors INTEGER NOT NULL, error TEXT, spent INTEGER NOT NULL
);
-- The extensions (ternhost.extensions) whose tables are in this store, too.
CREATE TABLE extension (name TEXT PRIMARY KEY, package TEXT NOT NULL, version INTEGER NOT NULL);
"""


def execute(database: sqlite3.Connection, statements: str) -> None:
    """Execute several statements of SQL in the transaction that is under way.

    statements: each ends with a semicolon at the end of a line. (`Connection.executescript` would
    commit the transaction first.)
    """
    for statement in statements.split(";\n"):
        database.execute(statement)


def check(database: sqlite3.Connection, path: Path | str) -> None:
    """Raise StorageError if the file is not a store of tern, or is one of another version.

    path: the name of the file for messages.
    """
    application_id = database.execute("PRAGMA application_id").fetchone()[0]
    if application_id != APPLICATION_ID:
        raise StorageError(f"{path} is not a store of tern", hint="name another file")
    version = database.execute("PRAGMA user_version").fetchone()[0]
    if version != VERSION:
        raise _other_version(path, package="tern", what="schema", there=version, here=VERSION)


def check_extensions(database: sqlite3.Connection, path: Path | str) -> None:
    """Raise StorageError if the store has tables of an extension that cannot read them.

    Such an extension is not installed, or is installed in another version.
    """
    for name, package, version in database.execute("SELECT name, package, version FROM extension"):
        tables = None
        if name in EXTENSIONS:
            tables = EXTENSIONS[name].tables
        if tables is None:
            text = f"{path} has data of {package}, which is not installed"
            raise StorageError(text, hint=f"install {package}, or name another file")
        if version != tables.version:
            raise _other_version(
                path, package=package, what="tables", there=version, here=tables.version
            )


def _other_version(
    path: Path | str, package: str, what: str, there: int, here: int
) -> StorageError:
    """Return the error for a store of another version.

    package: what made the store. what: what has the version. there, here: the versions of the store
    and of the installed package.
    """
    older = "an older" if there < here else "a newer"
    text = f"{path} was made by {older} version of {package} ({what} {there}, here {here})"
    return StorageError(text, "use that version, or start a new store")
