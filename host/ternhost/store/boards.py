"""Figures that boards report about themselves, stored for observers: unverified, and no round
depends on them.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ternhost.store.database import Database


@dataclass(frozen=True)
class BoardRow:
    """A board, identified by its first device."""

    name: str  # its port, or its name on a broker
    first: int
    clients: int
    online: bool
    heard: float  # seconds since 1970
    # With budget and spent: millionths of its measure, heap: bytes.
    hello: Mapping[str, Any] = field(default_factory=dict)
    errors: int = 0  # how often it has failed
    error: str | None = None  # the last one
    # millionths of its measure: reports of its first device in rounds opened since that HELLO
    spent: int = 0

    @property
    def measure(self) -> int:
        """What the ledger of its first device counts, as in tern.ledger."""
        return int(self.hello.get("measure") or 0)

    @property
    def unit(self) -> int:
        """The records of a run that it protects; 0: a device with all of its records."""
        return int(self.hello.get("unit") or 0)

    @property
    def budget_left(self) -> int | None:
        """What its first device has left of its budget, in millionths; None if it is not known.

        That is what the board said last, less the reports that have come since. Reports that were
        lost are paid for, too, so there may be less.
        """
        last_said = self.hello.get("budget")
        if not isinstance(last_said, int):
            return None
        return max(0, last_said - self.spent)

    @property
    def paid(self) -> int | None:
        """What its first device has paid in its life, in millionths; None if it is not known."""
        last_said = self.hello.get("spent")
        if not isinstance(last_said, int):
            return None
        return last_said + self.spent


BOARDS = "SELECT name, first, clients, online, heard, hello, errors, error, spent FROM board ORDER BY first"
_SEEN = """
INSERT INTO board (first, name, clients, online, heard, hello, errors, error, spent)
VALUES (:first, :name, :clients, :online, :heard, :hello, :errors, :error, :spent) ON CONFLICT (first) DO UPDATE SET
name = excluded.name, clients = excluded.clients, online = excluded.online, heard = max(heard, excluded.heard),
hello = CASE excluded.hello WHEN '{}' THEN hello ELSE excluded.hello END,
errors = errors + excluded.errors, error = coalesce(excluded.error, error), spent = excluded.spent
"""


class BoardTable(Database):
    """The table board."""

    def boards_seen(self, boards: Iterable[BoardRow]) -> None:
        """Insert boards or update them.

        Their `errors` are added to those before; the last `hello` stays if the new one is empty.
        """
        rows = []
        for board in boards:
            rows.append({**vars(board), "hello": json.dumps(dict(board.hello))})
        self.write_rows(_SEEN, rows)

    def boards_offline(self) -> None:
        """Store that no board is connected."""
        self.write("UPDATE board SET online = 0")

    def boards(self) -> list[BoardRow]:
        """All boards that ever connected, in the order of their devices."""
        boards = []
        for name, first, clients, online, heard, hello, *rest in self.rows(BOARDS):
            board = BoardRow(name, first, clients, bool(online), heard, json.loads(hello), *rest)
            boards.append(board)
        return boards


_FIELDS = (
    "budget",
    "spent",
    "measure",
    "unit",
    "epoch",
    "heap",
    "records",
    "exceptions",
    "restarts",
    "entropy",
    "assessed",
    "text",
)
_ABSENCE = re.compile(
    r"; (?P<was>was )?absent (?P<reason>[0-9]{1,3}) (?P<seconds>[0-9]{1,9}) s(?:;|$)"
)


def hello_fields(hello: Any) -> dict[str, Any]:
    """Return the fields of a HELLO (tern.host_frames.Hello) for `BoardRow.hello`.

    Empty for a board of another schema. The text of a board on a broker tells of its last absence:
    `absent` is the reason, `absent_seconds` its length, and `absent_now` whether it goes on.
    """
    if hello.first is None:
        return {}
    fields = {name: getattr(hello, name) for name in _FIELDS}
    absence = _ABSENCE.search(hello.text)
    if absence:
        fields |= {
            "absent": int(absence["reason"]),
            "absent_seconds": int(absence["seconds"]),
            "absent_now": not absence["was"],
        }
    fields["release"] = ".".join(str(part) for part in hello.release)
    return fields
