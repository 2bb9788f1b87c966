"""The tables of gateways in a store: at a host, each gateway with its questions and answers; at a
gateway, its own.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from terngateway.bound import CohortReports
from terngateway.options import NAME
from ternhost.count.disclosures import Disclosures
from ternhost.count.members import Integers, integers, pack_ids, unpack_ids
from ternhost.extensions import EXTENSIONS, Query, Tables
from ternhost.privacy.composing import ReportKind
from ternhost.store.store import Store

TABLES = Tables(
    version=1,
    sql="""
-- At a host: the gateways that ever connected, with their devices (members.pack_ids) and the fields of their HERE.
CREATE TABLE gateway (
    name TEXT PRIMARY KEY, devices BLOB NOT NULL, online INTEGER NOT NULL, heard REAL NOT NULL,
    here TEXT NOT NULL
);
-- At a host: the question to each gateway in a round, or its answer.
CREATE TABLE answer (
    round INTEGER NOT NULL REFERENCES round (number), gateway TEXT NOT NULL, reports INTEGER NOT NULL,
    answered INTEGER NOT NULL, body BLOB NOT NULL, PRIMARY KEY (round, gateway)
) WITHOUT ROWID;
-- What the counts of each cohort disclose: the report (JSON), and the devices. In a gateway's own store: gateway ''.
CREATE TABLE told (
    round INTEGER NOT NULL, gateway TEXT NOT NULL, position INTEGER NOT NULL, report TEXT NOT NULL,
    devices BLOB NOT NULL, PRIMARY KEY (round, gateway, position)
) WITHOUT ROWID;
-- At a gateway: the digest of each question, and its answer (until there is one, the question).
CREATE TABLE question (round INTEGER PRIMARY KEY, digest BLOB NOT NULL, answer BLOB);
-- At a gateway: the groups that it has drawn. hand is the digest of what it was asked to deal, pool the number of
-- devices that it dealt, round the round for which the host got the group.
CREATE TABLE dealt (
    draw INTEGER PRIMARY KEY, hand BLOB NOT NULL, pool INTEGER NOT NULL, devices BLOB NOT NULL, round INTEGER
);
""",
    readable={
        "gateway": {"name", "devices", "online", "heard", "here"},
        "answer": {"round", "gateway", "reports", "answered"},
    },
)

_GATEWAYS = "SELECT name, devices, online, heard, here FROM gateway ORDER BY name"
_ANSWERS = "SELECT gateway, reports, answered FROM answer WHERE round = ?"
_MOST_GROUPS = 100_000  # that a gateway keeps, lest a host fills its disk
_DRAWS = "draws"  # in the table state: how many groups a gateway has ever drawn


@dataclass(frozen=True)
class StoredGateway:
    """A gateway that has connected to this host, now or earlier.

    devices: the ids of its devices, ascending. heard: when its last message came, in seconds since
    1970. here: the fields of its latest message about itself (`messages.Here`), other than the
    devices.
    """

    name: str
    devices: Integers
    online: bool
    heard: float
    here: Mapping[str, Any]


@dataclass(frozen=True)
class StoredAnswer:
    """How far a gateway is with a round.

    reports: how many reports it has. answered: whether it has sent its answer; else the reports are
    those that have come so far.
    """

    reports: int
    answered: bool


def read_gateways(query: Query) -> list[StoredGateway]:
    """Return all gateways that ever connected, in the order of their names.

    query: reads rows of the store by an SQL statement.
    """
    gateways = []
    for name, packed_devices, online, heard, here in query(_GATEWAYS):
        gateway = StoredGateway(
            name=name,
            devices=integers(unpack_ids(packed_devices)),
            online=bool(online),
            heard=heard,
            here=json.loads(here),
        )
        gateways.append(gateway)
    return gateways


def read_answers(query: Query, number: int) -> dict[str, StoredAnswer]:
    """Return how far each gateway is that was asked in a round, by its name.

    query: reads rows of the store by an SQL statement. number: that of the round.
    """
    answers = {}
    for name, reports, answered in query(_ANSWERS, number):
        answers[name] = StoredAnswer(reports, bool(answered))
    return answers


class GatewayTables:
    """The tables of gateways in a store, which gets them at the first use."""

    def __init__(self, store: Store) -> None:
        store.add_tables(EXTENSIONS[NAME])
        self._store = store

    # At a host: gateways

    def gateways(self) -> list[StoredGateway]:
        """Return all gateways that ever connected, in the order of their names."""
        return read_gateways(self._store.rows)

    def gateway_seen(
        self, name: str, devices: Integers, heard: float, here: Mapping[str, Any]
    ) -> None:
        """Store that a gateway is connected, with its devices, in place of what was stored of it.

        heard: when its message came, in seconds since 1970. here: the fields of that message.
        """
        is_online = 1
        self._store.write(
            "INSERT OR REPLACE INTO gateway VALUES (?, ?, ?, ?, ?)",
            name,
            pack_ids(devices),
            is_online,
            heard,
            json.dumps(here),
        )

    def gateway_gone(self, name: str) -> None:
        """Store that a gateway is not connected."""
        self._store.write("UPDATE gateway SET online = 0 WHERE name = ?", name)

    def gateways_offline(self) -> None:
        """Store that no gateway is connected."""
        self._store.write("UPDATE gateway SET online = 0")

    # At a host: questions and answers

    def save_questions(self, number: int, messages: Mapping[str, bytes]) -> None:
        """Store the question to each of these gateways in a round, before it is sent.

        number: that of the round. messages: the questions by name of the gateway.
        """
        reports, answered = 0, 0  # so far
        rows = []
        for gateway, message in messages.items():
            rows.append((number, gateway, reports, answered, message))
        self._store.write_rows("INSERT INTO answer VALUES (?, ?, ?, ?, ?)", rows)

    def save_answer(self, number: int, gateway: str, reports: int, message: bytes) -> None:
        """Store a gateway's answer in a round, in place of the question to it.

        reports: how many reports the answer has.
        """
        statement = (
            "UPDATE answer SET reports = ?, answered = 1, body = ? WHERE round = ? AND gateway = ?"
        )
        self._store.write(statement, reports, message, number, gateway)

    def save_progress(self, number: int, gateway: str, reports: int) -> None:
        """Store how many reports a gateway has so far, as it says, for those who watch a round."""
        statement = "UPDATE answer SET reports = ? WHERE round = ? AND gateway = ?"
        self._store.write(statement, reports, number, gateway)

    def messages(self, number: int) -> dict[str, bytes]:
        """Return, by gateway of a round, its answer, or its question if it has not answered."""
        statement = "SELECT gateway, body FROM answer WHERE round = ? ORDER BY gateway"
        return dict(self._store.rows(statement, number))

    def answers(self, number: int) -> dict[str, StoredAnswer]:
        """Return how far each gateway is that was asked in a round, by its name."""
        return read_answers(self._store.rows, number)

    # At both: what counts have disclosed

    def save_disclosed(self, number: int, gateway: str, round_reports: CohortReports) -> None:
        """Store what the counts of a gateway disclose in a round, in place of what was stored.

        number: that of the round. gateway: its name, in the store of a host; "" in the gateway's
        own store. round_reports: the kind of the reports and the devices, for each cohort.
        """
        rows = []
        for position, (report, devices) in enumerate(round_reports):
            report_json = json.dumps(report.as_json())
            rows.append((number, gateway, position, report_json, pack_ids(devices)))
        with self._store.transaction():
            self._store.write("DELETE FROM told WHERE round = ? AND gateway = ?", number, gateway)
            self._store.write_rows("INSERT INTO told VALUES (?, ?, ?, ?, ?)", rows)

    def disclosed_in_round(self, number: int, gateway: str) -> CohortReports:
        """Return what `save_disclosed` has stored for a gateway in this round."""
        where = "WHERE gateway = ? AND round = ? ORDER BY position"
        return self._disclosed_reports(where, gateway, number)

    def disclosures_of(self, gateway: str) -> Disclosures:
        """Return what the counts of a gateway have disclosed of each device in all rounds.

        gateway: as in `save_disclosed`. The reports are in the order of the rounds, since the first
        one of a device matters for bounds.
        """
        disclosures = Disclosures()
        where = "WHERE gateway = ? ORDER BY round, position"
        for report, devices in self._disclosed_reports(where, gateway):
            disclosures.add(report, devices)
        return disclosures

    def _disclosed_reports(self, where: str, *values: Any) -> list[tuple[ReportKind, Integers]]:
        """Return kinds of reports that were disclosed, each with the devices that made one.

        where: the condition and the order, in SQL with a "?" for each of the values.
        """
        reports = []
        rows = self._store.rows(f"SELECT report, devices FROM told {where}", *values)
        for report_json, packed_devices in rows:
            report = ReportKind.from_json(json.loads(report_json))
            reports.append((report, integers(unpack_ids(packed_devices))))
        return reports

    # At a gateway: the last question

    def save_question(self, number: int, digest: bytes, message: bytes) -> None:
        """Store a question before any device gets it, and later its answer in its place.

        Questions of earlier rounds are deleted. number: that of the round. digest: the SHA-256 of
        the question. message: the question, or its answer.
        """
        with self._store.transaction():
            self._store.write("DELETE FROM question WHERE round < ?", number)
            statement = "INSERT OR REPLACE INTO question VALUES (?, ?, ?)"
            self._store.write(statement, number, digest, message)

    def last_question(self) -> tuple[int, bytes, bytes] | None:
        """Return the round number, digest and message of the last question; None if there is none.

        The message is the answer, or the question itself as long as there is no answer.
        """
        statement = "SELECT round, digest, answer FROM question ORDER BY round DESC LIMIT 1"
        rows = self._store.rows(statement)
        return rows[0] if rows else None

    # At a gateway: groups that it draws

    def save_groups(self, hand: bytes, groups: Sequence[Integers]) -> None:
        """Store groups of devices that were drawn together from one pool, for later rounds.

        hand: the digest by which `take_group` finds them. groups: the ids of their devices; each
        device of the pool is in one of them.
        """
        # Draws are numbered from 1 on, over the whole life of the gateway.
        stored_draws = self._store.value("SELECT value FROM state WHERE name = ?", _DRAWS)
        draws_before = 0
        if stored_draws is not None:
            draws_before = int(stored_draws)
        last_draw = draws_before + len(groups)

        pool_size = sum(len(group) for group in groups)
        no_round = None  # has got the group yet
        rows = []
        for draw, group in enumerate(groups, start=draws_before + 1):
            rows.append((draw, hand, pool_size, pack_ids(group), no_round))

        with self._store.transaction():
            self._store.write("INSERT OR REPLACE INTO state VALUES (?, ?)", _DRAWS, str(last_draw))
            self._store.write_rows("INSERT INTO dealt VALUES (?, ?, ?, ?, ?)", rows)
            self._store.write("DELETE FROM dealt WHERE draw <= ?", last_draw - _MOST_GROUPS)

    def take_group(self, hand: bytes, number: int) -> tuple[int, Integers] | None:
        """Return a group for a round: the number of its draw and its devices; None if none is left.

        That is the group that the round has got before, or else the next one that no round has got.
        From then on it belongs to this round. Groups of earlier rounds are deleted. hand: the
        digest with which the groups were stored. number: that of the round.
        """
        # A group of this round comes first, since "round IS NULL" is 0 for it and 1 for the others.
        rows = self._store.rows(
            "SELECT draw, devices FROM dealt WHERE hand = ? AND (round = ? OR round IS NULL)"
            " ORDER BY round IS NULL, draw LIMIT 1",
            hand,
            number,
        )
        if not rows:
            return None
        draw, packed_devices = rows[0]
        with self._store.transaction():
            self._store.write("UPDATE dealt SET round = ? WHERE draw = ?", number, draw)
            self._store.write("DELETE FROM dealt WHERE round < ?", number)
        return draw, integers(unpack_ids(packed_devices))

    def drawn(self, number: int, devices: Integers) -> tuple[int, int] | None:
        """Return the size of the pool and the number of the draw from which a group came.

        Returns None if this gateway has not drawn exactly these devices for this round. number:
        that of the round.
        """
        statement = "SELECT pool, draw FROM dealt WHERE round = ? AND devices = ?"
        rows = self._store.rows(statement, number, pack_ids(devices))
        return rows[0] if rows else None
