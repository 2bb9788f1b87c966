"""The boards of a fleet as rows of a table: searched, sorted, and given a page at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ternhost.store.boards import BoardRow
from ternhost.watch.fleet_view import budget, failed, generator

MOST_ROWS = 500  # of an answer

Row = dict[str, Any]


def row(board: BoardRow) -> Row:
    """A board as it is shown: budget as epsilon, heap in kB (1000 bytes), what it did not say as None."""
    told = board.told
    heap = told.get("heap")
    return {
        "name": board.name,
        "online": "online" if board.online else "offline",
        "heard": board.heard,
        "release": told.get("release"),
        "budget": budget(board),
        "entropy": generator(board),
        "heap": heap / 1000 if heap else None,
        "restarts": told.get("restarts"),
        "exceptions": told.get("exceptions"),
        "errors": board.errors,
        "error": board.error,
        "first": board.first,
        "clients": board.clients,
        "records": told.get("records"),
        "epoch": told.get("epoch"),
        "text": told.get("text"),
    }


_SEARCHED = ("name", "online", "release", "entropy", "error", "text")
COLUMNS = frozenset(row(BoardRow("", 0, 0, False, 0.0)))


class Table:
    """The rows of the boards that were seen last; those that have not changed are not made again."""

    def __init__(self) -> None:
        self._boards: tuple[BoardRow, ...] | None = None
        self._rows: dict[int, tuple[BoardRow, Row, str]] = {}
        self.changes = 0  # how often the boards were others than before

    def take(self, boards: tuple[BoardRow, ...]) -> None:
        """These are the boards now."""
        if boards is self._boards:
            return
        rows: dict[int, tuple[BoardRow, Row, str]] = {}
        for board in boards:
            known = self._rows.get(board.first)
            if known is None or known[0] is not board:
                made = row(board)
                known = board, made, " ".join(str(made[name] or "") for name in _SEARCHED).lower()
            rows[board.first] = known
        if (
            self._boards is None
            or any(self._rows.get(first, (None,))[0] is not known[0] for first, known in rows.items())
            or rows.keys() != self._rows.keys()
        ):
            self.changes += 1
        self._boards, self._rows = boards, rows

    def page(
        self, first: int, last: int, search: str = "", sort: str = "", descending: bool = False
    ) -> tuple[int, list[Row]]:
        """How many boards have all the words that are searched for, and the rows `first` to `last` (not included) of
        them, sorted by a column. What a board did not say comes last."""
        words = search.lower().split()
        found = [made for _, made, text in self._rows.values() if all(word in text for word in words)]
        if sort in COLUMNS:
            key: Callable[[Row], Any] = lambda own: own[sort]  # noqa: E731
            known = [own for own in found if own[sort] is not None]
            known.sort(key=key, reverse=descending)
            found = known + [own for own in found if own[sort] is None]
        return len(found), found[first : min(last, first + MOST_ROWS)]


def summary(boards: Sequence[BoardRow]) -> dict[str, int]:
    """How many boards there are, are online, have errors, or fail their entropy test."""
    return {
        "boards": len(boards),
        "online": sum(board.online for board in boards),
        "with errors": sum(bool(board.errors) for board in boards),
        "without entropy": sum(map(failed, boards)),
    }
