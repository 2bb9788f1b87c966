"""The tables of gateways in a store: at the host of a federation who they are and what each was asked and has answered;
at a gateway what it was asked, under which number, and its answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ternhost.aggregate.database import Database
from ternhost.aggregate.members import Integers, pack_ids, unpack_ids


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

    def gateway_seen(
        self, name: str, devices: Integers, heard: float, told: Mapping[str, Any], *, online: bool = True
    ) -> None:
        """Remember a gateway as it is now."""
        with self.transaction():
            self._db.execute(
                "INSERT OR REPLACE INTO gateway VALUES (?, ?, ?, ?, ?)",
                (name, pack_ids(devices), online, heard, json.dumps(told)),
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

    def save_exchange(self, number: int, messages: Mapping[str, bytes]) -> None:
        """Remember the last message of a round to or from each of these gateways: the question, then the answer."""
        with self.transaction():
            self._db.executemany(
                "INSERT OR REPLACE INTO answer VALUES (?, ?, ?)",
                ((number, gateway, body) for gateway, body in messages.items()),
            )

    def exchange(self, number: int) -> dict[str, bytes]:
        """That message, of each gateway that was asked in a round."""
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
        """Remember what is asked under a number, before any device hears of it; then, in its place, the answer."""
        with self.transaction():
            self._db.execute("INSERT OR REPLACE INTO question VALUES (?, ?, ?)", (number, digest, message))

    def last_question(self) -> tuple[int, bytes, bytes] | None:
        """(number, digest, message) of the last question: the message is the question itself until it is answered."""
        with self._errors():
            row: tuple[int, bytes, bytes] | None = self._db.execute(
                "SELECT round, digest, answer FROM question ORDER BY round DESC LIMIT 1"
            ).fetchone()
            return row
