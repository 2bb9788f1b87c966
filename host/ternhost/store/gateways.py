"""The tables of gateways: at a host, each gateway with its questions and answers; at a gateway, its
own.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ternhost.count.disclosures import Disclosures
from ternhost.count.members import Integers, integers, pack_ids, unpack_ids
from ternhost.privacy.composing import ReportKind
from ternhost.store.database import Database

_TOLD_ROWS = "SELECT report, devices FROM told"
_MOST_GROUPS = 100_000  # that a gateway keeps, lest a host fills its disk
_DRAWS = "draws"  # in the table state: how many groups a gateway has ever drawn
GATEWAYS = "SELECT name, devices, online, heard, here FROM gateway ORDER BY name"


@dataclass(frozen=True)
class StoredGateway:
    """A gateway that has connected to this host."""

    name: str
    devices: Integers  # ascending
    online: bool
    heard: float  # seconds since 1970
    here: Mapping[str, Any]  # the fields of its HERE


class GatewayTables(Database):
    """The tables gateway, answer and question."""

    def gateway_seen(
        self, name: str, devices: Integers, heard: float, here: Mapping[str, Any]
    ) -> None:
        row = name, pack_ids(devices), heard, json.dumps(here)
        self._write("INSERT OR REPLACE INTO gateway VALUES (?, ?, 1, ?, ?)", *row)

    def gateway_gone(self, name: str) -> None:
        self._write("UPDATE gateway SET online = 0 WHERE name = ?", name)

    def gateways(self) -> list[StoredGateway]:
        """All gateways that ever connected, by name."""
        return [
            StoredGateway(
                name, integers(unpack_ids(devices)), bool(online), heard, json.loads(here)
            )
            for name, devices, online, heard, here in self._rows(GATEWAYS)
        ]

    def save_questions(self, number: int, messages: Mapping[str, bytes]) -> None:
        """Store the question to each of these gateways in a round, before it is sent."""
        rows = ((number, gateway, body) for gateway, body in messages.items())
        self._write_rows("INSERT INTO answer VALUES (?, ?, 0, 0, ?)", rows)

    def save_answer(self, number: int, gateway: str, reports: int, message: bytes) -> None:
        """Replace the question to a gateway by its answer, which has `reports` reports."""
        update = (
            "UPDATE answer SET reports = ?, answered = 1, body = ? WHERE round = ? AND gateway = ?"
        )
        self._write(update, reports, message, number, gateway)

    def save_progress(self, number: int, gateway: str, reports: int) -> None:
        """Store how many reports a gateway says it has so far, for observers."""
        self._write(
            "UPDATE answer SET reports = ? WHERE round = ? AND gateway = ?",
            reports,
            number,
            gateway,
        )

    def save_told(
        self, number: int, gateway: str, answered: Iterable[tuple[ReportKind, Integers]]
    ) -> None:
        """Store what the counts of a gateway's cohorts tell in a round, in place of what was stored
        before. gateway: "" in its own store.
        """
        rows = [
            (number, gateway, i, json.dumps(report.as_json()), pack_ids(devices))
            for i, (report, devices) in enumerate(answered)
        ]
        with self.transaction():
            self._db.execute("DELETE FROM told WHERE round = ? AND gateway = ?", (number, gateway))
            self._db.executemany("INSERT INTO told VALUES (?, ?, ?, ?, ?)", rows)

    def told_in(self, number: int, gateway: str) -> list[tuple[ReportKind, Integers]]:
        """What was stored by `save_told` for this round."""
        rows = self._rows(
            f"{_TOLD_ROWS} WHERE gateway = ? AND round = ? ORDER BY position", gateway, number
        )
        return [
            (ReportKind.from_json(json.loads(text)), integers(unpack_ids(devices)))
            for text, devices in rows
        ]

    def told(self, gateway: str) -> Disclosures:
        """What the counts of a gateway have told in all rounds, oldest first."""
        disclosures = Disclosures()
        for text, devices in self._rows(
            f"{_TOLD_ROWS} WHERE gateway = ? ORDER BY round, position", gateway
        ):
            disclosures.add(ReportKind.from_json(json.loads(text)), unpack_ids(devices))
        return disclosures

    def gateways_offline(self) -> None:
        self._write("UPDATE gateway SET online = 0")

    def exchange(self, number: int) -> dict[str, bytes]:
        """The stored message of each gateway of a round: its answer, or its question where it has
        not answered.
        """
        return dict(
            self._rows("SELECT gateway, body FROM answer WHERE round = ? ORDER BY gateway", number)
        )

    def by_gateways(self, number: int) -> bool:
        """Whether gateways were asked in a round."""
        return self._value("SELECT 1 FROM answer WHERE round = ? LIMIT 1", number) is not None

    def all_answered_without_reports(self, number: int) -> bool:
        """Whether all gateways that were asked in a round have answered, and none of them with a
        report.
        """
        statement = "SELECT min(answered), sum(reports) FROM answer WHERE round = ?"
        ((answered, reports),) = self._rows(statement, number)
        return bool(answered) and not reports

    def save_question(self, number: int, digest: bytes, message: bytes) -> None:
        """Store a question before any device hears of it, then its answer instead; delete those of
        earlier rounds.
        """
        with self.transaction():
            self._db.execute("DELETE FROM question WHERE round < ?", (number,))
            self._db.execute(
                "INSERT OR REPLACE INTO question VALUES (?, ?, ?)", (number, digest, message)
            )

    def last_question(self) -> tuple[int, bytes, bytes] | None:
        """(number, digest, message) of the last question: the message is the answer, or the
        question until then.
        """
        rows = self._rows("SELECT round, digest, answer FROM question ORDER BY round DESC LIMIT 1")
        return rows[0] if rows else None

    # Groups that a gateway draws

    def deal(self, hand: bytes, groups: Sequence[Integers]) -> None:
        """Store groups that were drawn together, of devices that are in one of them each."""
        first = int(self._value("SELECT value FROM state WHERE name = ?", _DRAWS) or 0) + 1
        pool = sum(map(len, groups))
        rows = [(first + i, hand, pool, pack_ids(group), None) for i, group in enumerate(groups)]
        last = first + len(groups) - 1
        with self.transaction():
            self._db.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (_DRAWS, str(last)))
            self._db.executemany("INSERT INTO dealt VALUES (?, ?, ?, ?, ?)", rows)
            self._db.execute("DELETE FROM dealt WHERE draw <= ?", (last - _MOST_GROUPS,))

    def take_group(self, hand: bytes, number: int) -> tuple[int, Integers] | None:
        """Which draw it is, and its devices: the group of a hand that the round got before, or the
        next one. None: the hand is empty.
        """
        order = "ORDER BY round IS NULL, draw LIMIT 1"
        rows = self._rows(
            f"SELECT draw, devices FROM dealt WHERE hand = ? AND (round = ? OR round IS NULL) {order}",
            hand,
            number,
        )
        if not rows:
            return None
        draw, devices = rows[0]
        with self.transaction():
            self._db.execute("UPDATE dealt SET round = ? WHERE draw = ?", (number, draw))
            self._db.execute("DELETE FROM dealt WHERE round < ?", (number,))
        return draw, integers(unpack_ids(devices))

    def drawn(self, number: int, devices: Integers) -> tuple[int, int] | None:
        """(devices that were dealt, draw) if exactly these devices are a group that the host got
        for this round.
        """
        statement = "SELECT pool, draw FROM dealt WHERE round = ? AND devices = ?"
        rows = self._rows(statement, number, pack_ids(devices))
        return rows[0] if rows else None
