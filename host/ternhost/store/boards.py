"""Figures that boards report about themselves, stored for observers: unverified, and no round
depends on them.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from ternhost.store.database import Database


@dataclass(frozen=True)
class BoardRow:
    """A board, identified by its first device.

    A board acts for one device or for several, with consecutive ids from `first` on. Each device
    keeps a ledger: the budget for its life, less what its reports have cost. Amounts are in
    millionths of the ledger's measure (epsilon or rho).
    """

    name: str  # its port, or its name on a broker
    first: int  # the id of its first device
    clients: int  # the number of its devices
    online: bool
    heard: float  # when its last message came, in seconds since 1970
    # What it said in its last HELLO, by the names of `hello_fields`: of its first device budget
    # (what was left) and spent in millionths; heap in bytes, and more.
    hello: Mapping[str, Any] = field(default_factory=dict)
    errors: int = 0  # how often it has failed
    error: str | None = None  # the last error
    # What the reports of its first device in rounds opened since that HELLO have cost, in millionths.
    spent: int = 0

    @classmethod
    def of(cls, row: Sequence[Any], hello: Mapping[str, Any]) -> Self:
        """Return the board of a row that `BOARDS` selects. hello: its HELLO, already parsed."""
        name, first, clients, online, heard, _hello_text, errors, error, spent = row
        return cls(
            name=name,
            first=first,
            clients=clients,
            online=bool(online),
            heard=heard,
            hello=hello,
            errors=errors,
            error=error,
            spent=spent,
        )

    @property
    def measure(self) -> int:
        """Whether its first device counts its costs in epsilon or in rho: a code of tern.ledger."""
        return measure_of(self.hello)

    @property
    def unit(self) -> int:
        """How many records its first device protects together; 0: all of its records."""
        return unit_of(self.hello)

    @property
    def budget_left(self) -> int | None:
        """What its first device has left of its budget, in millionths; None if it is not known."""
        return budget_left(self.hello, self.spent)

    @property
    def allowance(self) -> int | None:
        """What its first device may spend in its life, in millionths; None if it is not known."""
        left, paid = self.hello.get("budget"), self.hello.get("spent")
        if not isinstance(left, int) or not isinstance(paid, int):
            return None
        return left + paid

    @property
    def paid(self) -> int | None:
        """What its first device has paid in its life, in millionths; None if it is not known."""
        return paid_in_life(self.hello, self.spent)


# What a HELLO says of the ledger of a board's first device. `hello`: its fields, by the names of
# `hello_fields`; fields may be missing.


def measure_of(hello: Mapping[str, Any]) -> int:
    """Return whether the ledger counts epsilon or rho, as a code of tern.ledger."""
    return int(hello.get("measure") or 0)


def unit_of(hello: Mapping[str, Any]) -> int:
    """Return how many records the ledger protects together; 0: all records of the device."""
    return int(hello.get("unit") or 0)


def budget_left(hello: Mapping[str, Any], spent_since: int) -> int | None:
    """Return what the device has left of its budget, in millionths; None if it is not known.

    This is what the board said when it connected, less the cost of the reports that have come
    since (`spent_since`). A report that was lost has been paid for, too, so there may be less.
    """
    left_at_hello = hello.get("budget")
    if not isinstance(left_at_hello, int):
        return None
    return max(0, left_at_hello - spent_since)


def paid_in_life(hello: Mapping[str, Any], spent_since: int) -> int | None:
    """Return what the device has paid in its life, in millionths; None if it is not known.

    spent_since: the part that it has paid since it sent the HELLO.
    """
    paid_at_hello = hello.get("spent")
    if not isinstance(paid_at_hello, int):
        return None
    return paid_at_hello + spent_since


BOARDS = "SELECT name, first, clients, online, heard, hello, errors, error, spent FROM board ORDER BY first"
FIRST_COLUMN, HELLO_COLUMN = 1, 5  # where `first` and `hello` stand in its rows
# Inserts a board, or updates the one with the same first device: `errors` are added up, `heard`
# never goes back, and an empty `hello` or `error` leaves the last one.
_INSERT_OR_UPDATE = """
INSERT INTO board (first, name, clients, online, heard, hello, errors, error, spent)
VALUES (:first, :name, :clients, :online, :heard, :hello, :errors, :error, :spent) ON CONFLICT (first) DO UPDATE SET
name = excluded.name, clients = excluded.clients, online = excluded.online, heard = max(heard, excluded.heard),
hello = CASE excluded.hello WHEN '{}' THEN hello ELSE excluded.hello END,
errors = errors + excluded.errors, error = coalesce(excluded.error, error), spent = excluded.spent
"""


class BoardTable(Database):
    """The table board."""

    def boards_seen(self, boards: Iterable[BoardRow]) -> None:
        """Insert these boards, or update those that the store has already.

        The number of `errors` is added to the stored one. The stored `hello` stays if the new one
        is empty.
        """
        rows = []
        for board in boards:
            row = dict(vars(board))
            row["hello"] = json.dumps(dict(board.hello))
            rows.append(row)
        self.write_rows(_INSERT_OR_UPDATE, rows)

    def boards_offline(self) -> None:
        """Store that no board is connected."""
        self.write("UPDATE board SET online = 0")

    def forget_hellos(self) -> None:
        """Forget what boards have said about themselves, such as what they have spent."""
        self.write("UPDATE board SET online = 0, hello = '{}', spent = 0")

    def boards(self) -> list[BoardRow]:
        """Return all boards that ever connected, in the order of their devices."""
        boards = []
        for row in self.rows(BOARDS):
            hello_text = row[HELLO_COLUMN]
            boards.append(BoardRow.of(row, json.loads(hello_text)))
        return boards


# The fields of a HELLO, the message with which a board connects, that are stored as they are.
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
# In the text of a HELLO, such as "...; was absent 3 120 s": why the board was away, as a code, and
# for how long. Without "was" it is absent now.
_ABSENCE = re.compile(
    r"; (?P<was>was )?absent (?P<reason>[0-9]{1,3}) (?P<seconds>[0-9]{1,9}) s(?:;|$)"
)


def hello_fields(hello: Any) -> dict[str, Any]:
    """Return what the store keeps of a HELLO, the message with which a board connects.

    hello: a tern.host_frames.Hello. The result is for `BoardRow.hello`; it is empty for a board of
    another version, whose fields cannot be read. A board on a broker says in the text of its HELLO
    when it was absent: `absent` is the code of the reason, `absent_seconds` the length, and
    `absent_now` says whether the absence goes on.
    """
    is_other_version = hello.first is None
    if is_other_version:
        return {}
    fields = {}
    for name in _FIELDS:
        fields[name] = getattr(hello, name)
    absence = _ABSENCE.search(hello.text)
    if absence:
        fields["absent"] = int(absence["reason"])
        fields["absent_seconds"] = int(absence["seconds"])
        fields["absent_now"] = absence["was"] is None
    fields["release"] = ".".join(str(part) for part in hello.release)
    return fields
