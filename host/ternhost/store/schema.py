"""The tables of a store (`ternhost.store.store`), and how one of an older schema becomes one of today's."""

from __future__ import annotations

import sqlite3
from array import array

from ternhost.count.members import pack_ids
from ternhost.store.protocol_1 import translate
from ternhost.store.report_log import insert, reports_of

VERSION = 5
APPLICATION_ID = 0x5445524E  # "TERN"

_TABLES = """
CREATE TABLE device (
    id INTEGER PRIMARY KEY,
    key BLOB NOT NULL CHECK (length(key) = 32)
);
CREATE TABLE revoked (
    id INTEGER NOT NULL,
    round INTEGER NOT NULL,
    key BLOB NOT NULL,
    at REAL NOT NULL,
    PRIMARY KEY (id, round)
) WITHOUT ROWID;
CREATE TABLE round (
    number INTEGER PRIMARY KEY,
    quorum INTEGER NOT NULL,
    deadline REAL,
    ended TEXT,
    run TEXT,
    began REAL,
    finished REAL
);
CREATE TABLE cohort (
    round INTEGER NOT NULL REFERENCES round (number),
    position INTEGER NOT NULL,
    body BLOB NOT NULL,
    devices BLOB NOT NULL,
    PRIMARY KEY (round, position)
) WITHOUT ROWID;
CREATE TABLE model (
    round INTEGER PRIMARY KEY REFERENCES round (number),
    weights BLOB NOT NULL
);
CREATE TABLE state (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
);
"""
# What schema 3 brought.
_RUN_TABLES = """
CREATE TABLE run (
    name TEXT PRIMARY KEY,
    began REAL NOT NULL,
    status TEXT NOT NULL,
    asked TEXT NOT NULL,
    state TEXT NOT NULL
);
CREATE TABLE history (
    run TEXT NOT NULL REFERENCES run (name),
    number INTEGER NOT NULL,
    entry TEXT NOT NULL,
    PRIMARY KEY (run, number)
) WITHOUT ROWID;
"""
# Reports of one round whose symbols take equally many bytes: how many, of which devices (members.pack_ids), and the
# symbols of one after the other.
_BATCH_TABLE = """
CREATE TABLE batch (
    id INTEGER PRIMARY KEY,
    round INTEGER NOT NULL REFERENCES round (number),
    reports INTEGER NOT NULL,
    devices BLOB NOT NULL,
    packed BLOB NOT NULL
);
CREATE INDEX batch_of_round ON batch (round);
"""
_TIMES = """
ALTER TABLE history ADD COLUMN began REAL;
ALTER TABLE history ADD COLUMN finished REAL;
"""
# For who looks on (times are seconds since 1970): what each cohort of a round was asked and has told, a number for each
# coordinate and symbol; and what boards say of themselves, proven by nothing.
# For gateways: what each was asked by the host of a federation, and has answered; and at a gateway, by its number, the
# digest of what it was asked, and its answer (until there is one, the question).
_SIGHT_TABLES = """
CREATE TABLE tally (
    round INTEGER NOT NULL,
    position INTEGER NOT NULL,
    body BLOB NOT NULL,
    asked INTEGER NOT NULL,
    reports INTEGER NOT NULL,
    counts BLOB NOT NULL,
    PRIMARY KEY (round, position)
) WITHOUT ROWID;
CREATE TABLE board (
    first INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    clients INTEGER NOT NULL,
    online INTEGER NOT NULL,
    heard REAL NOT NULL,
    told TEXT NOT NULL,
    errors INTEGER NOT NULL,
    error TEXT,
    spent INTEGER NOT NULL
);
CREATE TABLE gateway (
    name TEXT PRIMARY KEY,
    devices BLOB NOT NULL,
    online INTEGER NOT NULL,
    heard REAL NOT NULL,
    told TEXT NOT NULL
);
CREATE TABLE answer (
    round INTEGER NOT NULL REFERENCES round (number),
    gateway TEXT NOT NULL,
    reports INTEGER NOT NULL,
    answered INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (round, gateway)
) WITHOUT ROWID;
CREATE TABLE question (
    round INTEGER PRIMARY KEY,
    digest BLOB NOT NULL,
    answer BLOB
);
"""
TABLES = _TABLES + _BATCH_TABLE + _RUN_TABLES + _TIMES + _SIGHT_TABLES


def execute(database: sqlite3.Connection, statements: str) -> None:
    """Execute statements, each of which ends a line, in the transaction that is under way."""
    for statement in statements.split(";\n"):
        database.execute(statement)


def _name_runs(database: sqlite3.Connection) -> None:
    execute(database, "ALTER TABLE round ADD COLUMN run TEXT;\n" + _RUN_TABLES)


def _gather_reports(database: sqlite3.Connection) -> None:
    # Each report had a row of its own, devices were u32 one after the other, and rounds were asked by protocol 1.
    execute(database, _BATCH_TABLE)
    asked = database.execute("SELECT round, position, devices, body FROM cohort").fetchall()
    database.executemany(
        "UPDATE cohort SET devices = ?, body = ? WHERE round = ? AND position = ?",
        (
            (pack_ids(array("I", devices)), translate(body), number, position)
            for number, position, devices, body in asked
        ),
    )
    # Whom these asked is of protocol 2 by now, and cannot answer them any more.
    execute(database, "UPDATE round SET ended = 'abandoned' WHERE ended IS NULL")
    for (number,) in database.execute("SELECT DISTINCT round FROM report").fetchall():
        rows = database.execute(
            "SELECT device, payload FROM report WHERE round = ? ORDER BY device", (number,)
        )
        for batch in reports_of(number, rows.fetchall()):
            insert(database, batch)
    database.execute("DROP TABLE report")


def _add_sight(database: sqlite3.Connection) -> None:
    times = "ALTER TABLE round ADD COLUMN began REAL;\nALTER TABLE round ADD COLUMN finished REAL;\n"
    execute(database, times + _TIMES + _SIGHT_TABLES)


# By the version that they take one further.
MIGRATIONS = {2: _name_runs, 3: _gather_reports, 4: _add_sight}
