"""The tables of gateways in a store: at the host of a federation who they are and what each was asked and has answered;
at a gateway what it was asked, under which number, and its answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ternhost.count.members import Integers, pack_ids, unpack_ids
from ternhost.store.database import Database


@dataclass(frozen=True)
class StoredGateway:
    """A gateway as it was heard last (seconds since 1970): its devices, ascending, and what it told of itself."""

    name: str
    devices: Integers
    online: bool
    heard: float
    told: Mapping[str, Any]


class GatewayTables(Database):
    """The tables gateway, answer and question."""

    # At the host

    def gateway_seen(self, name: str, devices: Integers, heard: float, told: Mapping[str, Any]) -> None:
        """Remember a gateway that is there as it is now."""
        with self.transaction():
            self._db.execute(
                "INSERT OR REPLACE INTO gateway VALUES (?, ?, 1, ?, ?)",
                (name, pack_ids(devices), heard, json.dumps(told)),
            )

    def gateway_gone(self, name: str) -> None:
        """Remember that a gateway does not answer now."""
        with self.transaction():
            self._db.execute("UPDATE gateway SET online = 0 WHERE name = ?", (name,))

    def gateways(self) -> list[StoredGateway]:
        """Every gateway that was ever heard, by name."""
        with self._errors():
            rows = self._db.execute(
                "SELECT name, devices, online, heard, told FROM gateway ORDER BY name"
            ).fetchall()
        return [
            StoredGateway(
                name, np.asarray(unpack_ids(devices), np.int64), bool(online), heard, json.loads(told)
            )
            for name, devices, online, heard, told in rows
        ]

    def save_questions(self, number: int, messages: Mapping[str, bytes]) -> None:
        """Remember what each of these gateways is asked in a round, before it hears of it."""
        with self.transaction():
            self._db.executemany(
                "INSERT INTO answer VALUES (?, ?, 0, 0, ?)",
                ((number, gateway, body) for gateway, body in messages.items()),
            )

    def save_answer(self, number: int, gateway: str, reports: int, message: bytes) -> None:
        """Remember, in the place of what it was asked, that with what it has answered, of so many reports."""
        with self.transaction():
            self._db.execute(
                "UPDATE answer SET reports = ?, answered = 1, body = ? WHERE round = ? AND gateway = ?",
                (reports, message, number, gateway),
            )

    def save_progress(self, number: int, gateway: str, reports: int) -> None:
        """Remember how many reports a gateway says it has so far, for who looks on."""
        with self.transaction():
            self._db.execute(
                "UPDATE answer SET reports = ? WHERE round = ? AND gateway = ?", (reports, number, gateway)
            )

    def gateways_offline(self) -> None:
        """No gateway is there: nobody asks them."""
        with self.transaction():
            self._db.execute("UPDATE gateway SET online = 0")

    def exchange(self, number: int) -> dict[str, bytes]:
        """The message that is kept of each gateway that was asked in a round: its question, and its answer if any."""
        with self._errors():
            return dict(
                self._db.execute(
                    "SELECT gateway, body FROM answer WHERE round = ? ORDER BY gateway", (number,)
                )
            )

    def by_gateways(self, number: int) -> bool:
        """Whether a round was asked of gateways."""
        with self._errors():
            return (
                self._db.execute("SELECT 1 FROM answer WHERE round = ? LIMIT 1", (number,)).fetchone()
                is not None
            )

    # At a gateway

    def save_question(self, number: int, digest: bytes, message: bytes) -> None:
        """Remember what is asked under a number, before any device hears of it; then, in its place, the answer.

        Those of earlier numbers, which nobody may ask again, are forgotten.
        """
        with self.transaction():
            self._db.execute("DELETE FROM question WHERE round < ?", (number,))
            self._db.execute("INSERT OR REPLACE INTO question VALUES (?, ?, ?)", (number, digest, message))

    def last_question(self) -> tuple[int, bytes, bytes] | None:
        """(number, digest, message) of the last question: the message is the question itself until it is answered."""
        with self._errors():
            row: tuple[int, bytes, bytes] | None = self._db.execute(
                "SELECT round, digest, answer FROM question ORDER BY round DESC LIMIT 1"
            ).fetchone()
            return row
