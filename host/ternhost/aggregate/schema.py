"""The tables of a store (`ternhost.aggregate.store`), and what each older schema lacks."""

from __future__ import annotations

VERSION = 3
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
    run TEXT
);
CREATE TABLE cohort (
    round INTEGER NOT NULL REFERENCES round (number),
    position INTEGER NOT NULL,
    body BLOB NOT NULL,
    devices BLOB NOT NULL,
    PRIMARY KEY (round, position)
) WITHOUT ROWID;
CREATE TABLE report (
    round INTEGER NOT NULL REFERENCES round (number),
    device INTEGER NOT NULL,
    payload BLOB NOT NULL,
    PRIMARY KEY (round, device)
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
TABLES = _TABLES + _RUN_TABLES

# What each older schema lacks, by its version.
MIGRATIONS = {2: "ALTER TABLE round ADD COLUMN run TEXT;\n" + _RUN_TABLES}
