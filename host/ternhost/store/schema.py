"""The tables of a store (`ternhost.store.store`)."""

import sqlite3
from pathlib import Path

from ternhost.errors import StorageError

VERSION = 10
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
-- For gateways: at a host, answer has the question to each gateway or its answer; at a gateway, question has the digest
-- of each question and its answer (until there is one, the question). Both have in told what the counts of each cohort
-- tell: the report (JSON), and the devices (in a gateway's own store: gateway '').
-- dealt has the groups that a gateway has drawn: hand is the digest of what it was asked to deal, pool the number of
-- devices that it dealt, round the round for which the host got the group.
CREATE TABLE tally (
    round INTEGER NOT NULL, position INTEGER NOT NULL, body BLOB NOT NULL, asked INTEGER NOT NULL,
    reports INTEGER NOT NULL, counts BLOB NOT NULL, PRIMARY KEY (round, position)
) WITHOUT ROWID;
CREATE TABLE board (
    first INTEGER PRIMARY KEY, name TEXT NOT NULL, clients INTEGER NOT NULL, online INTEGER NOT NULL,
    heard REAL NOT NULL, hello TEXT NOT NULL, errors INTEGER NOT NULL, error TEXT, spent INTEGER NOT NULL
);
CREATE TABLE gateway (
    name TEXT PRIMARY KEY, devices BLOB NOT NULL, online INTEGER NOT NULL, heard REAL NOT NULL,
    here TEXT NOT NULL
);
CREATE TABLE answer (
    round INTEGER NOT NULL REFERENCES round (number), gateway TEXT NOT NULL, reports INTEGER NOT NULL,
    answered INTEGER NOT NULL, body BLOB NOT NULL, PRIMARY KEY (round, gateway)
) WITHOUT ROWID;
CREATE TABLE told (
    round INTEGER NOT NULL, gateway TEXT NOT NULL, position INTEGER NOT NULL, report TEXT NOT NULL,
    devices BLOB NOT NULL, PRIMARY KEY (round, gateway, position)
) WITHOUT ROWID;
CREATE TABLE question (round INTEGER PRIMARY KEY, digest BLOB NOT NULL, answer BLOB);
CREATE TABLE dealt (
    draw INTEGER PRIMARY KEY, hand BLOB NOT NULL, pool INTEGER NOT NULL, devices BLOB NOT NULL, round INTEGER
);
"""


def execute(database: sqlite3.Connection, statements: str) -> None:
    """Execute statements in the transaction that is under way; each of them ends a line."""
    for statement in statements.split(";\n"):
        database.execute(statement)


def check(database: sqlite3.Connection, path: Path) -> None:
    """Raise StorageError for a file that is not a store, or one of another version."""
    if database.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise StorageError(f"{path} is not a store of tern", hint="name another file")
    version = database.execute("PRAGMA user_version").fetchone()[0]
    if version != VERSION:
        older = "an older" if version < VERSION else "a newer"
        text = f"{path} was made by {older} version of tern (schema {version}, here {VERSION})"
        raise StorageError(text, "use that version, or start a new store")
