"""Looks at a store beside the process that writes it: can neither write nor see a key, and SQLite does the counting."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from ternhost.mechanisms.base import MICRO

DAY = 86_400
_WAIT = 2.0  # seconds for a store that is locked
_SECRET = {"device", "revoked"}
_READS = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION}


@contextmanager
def looking_at(store: str | Path) -> Iterator[sqlite3.Connection]:
    """A connection to the store at a path. Raises sqlite3.Error where it cannot be read."""
    uri = f"file:{quote(str(Path(store).absolute()))}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True, timeout=_WAIT)) as database:
        database.set_authorizer(_only_read)
        yield database


def _only_read(action: int, argument: str | None, *_: object) -> int:
    if action == sqlite3.SQLITE_READ and argument in _SECRET:
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK if action in _READS else sqlite3.SQLITE_DENY


def least_budget(database: sqlite3.Connection) -> float | None:
    """The least epsilon that a board heard within a day says is left to its first device; None where none says it."""
    statement = "SELECT min(json_extract(told, '$.budget')) FROM board WHERE heard >= ?"
    micro = database.execute(statement, (time.time() - DAY,)).fetchone()[0]
    return None if micro is None else micro / MICRO
