"""What a store says of its fleet, for Prometheus: counted by SQLite when somebody scrapes, so that ingest pays nothing.

What boards say of themselves is proven by nothing.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from tern import wire
from ternhost.aggregate.onlooker import DAY, least_budget, looking_at
from ternhost.text import visible

# Within how many seconds a board was heard.
_AGES = {"1m": 60, "10m": 600, "1h": 3600, "1d": DAY}
_OLDER = "older"
STATES = ("online", "offline", "asleep")
_ENTROPY = {wire.FAILED: "failed", wire.CTR_DRBG: "CTR_DRBG", wire.HASH_DRBG: "Hash_DRBG"}
_MOST_VALUES = 20  # of a label that boards choose; the rest are "other"
_LONGEST_VALUE = 60
_AWAKE = 10  # seconds after its hello in which a board that sleeps is awake

_AGE = "CASE {} ELSE '{}' END".format(
    " ".join(f"WHEN heard >= :now - {seconds} THEN '{age}'" for age, seconds in _AGES.items()), _OLDER
)
# A board that sleeps is there as long as it was heard at its last wake or at the one before.
_STATE = f"""
WITH wake AS MATERIALIZED (
    SELECT CAST(key AS INTEGER) AS device, value AS seconds
    FROM json_each((SELECT value FROM state WHERE name = 'wakes'))
)
SELECT CASE
    WHEN seconds IS NOT NULL AND heard < :now - {_AWAKE} AND heard >= :now - 2 * seconds - 120 THEN 'asleep'
    WHEN online THEN 'online'
    ELSE 'offline'
END, count(*) FROM board LEFT JOIN wake ON device = first GROUP BY 1
"""
_BOARDS = "SELECT {}, count(*) FROM board WHERE {} GROUP BY 1 ORDER BY 2 DESC, 1"
_TOLD = "json_extract(told, '$.{}')"


class FleetMetrics(Collector):
    """Collects the figures of the store at a path. Where that cannot be read, it tells so and nothing else."""

    def __init__(self, store: str | Path) -> None:
        self._store = store

    def describe(self) -> Iterable[Metric]:
        """Nothing: to register this reads no store."""
        return ()

    def collect(self) -> Iterator[Metric]:
        try:
            with looking_at(self._store) as database:
                found = list(_families(database))
        except sqlite3.Error:
            found = []
        readable = GaugeMetricFamily(
            "tern_store_readable", "1 where the store could be read", float(bool(found))
        )
        yield from (*found, readable)


def _families(database: sqlite3.Connection) -> Iterator[Metric]:
    now = {"now": time.time()}

    def rows(statement: str) -> list[tuple[Any, int]]:
        return database.execute(statement, now).fetchall()

    def told(name: str) -> list[tuple[Any, int]]:
        what = _TOLD.format(name)
        return rows(_BOARDS.format(what, f"{what} IS NOT NULL"))

    yield _family(
        "tern_boards_heard",
        "Boards by the time since they were heard last",
        "age",
        dict.fromkeys((*_AGES, _OLDER), 0) | dict(rows(_BOARDS.format(_AGE, "1"))),
    )
    yield _family(
        "tern_boards_by_state",
        "Boards that are connected, that are not, and that sleep",
        "state",
        dict.fromkeys(STATES, 0) | dict(rows(_STATE)),
    )
    yield _family(
        "tern_boards_by_release",
        "Boards by the release that they say they have",
        "release",
        _most(told("release")),
    )
    entropy = dict.fromkeys(_ENTROPY.values(), 0)
    for state, count in told("entropy"):
        name = _ENTROPY.get(state, "other")
        entropy[name] = entropy.get(name, 0) + count
    yield _family(
        "tern_boards_by_entropy",
        "Boards by the random generator that they say they use; failed: a health test of the source has failed",
        "state",
        entropy,
    )
    yield _family(
        "tern_boards_by_error",
        "Boards that have failed, by what they failed with last",
        "error",
        _most(rows(_BOARDS.format("error", "error IS NOT NULL"))),
    )
    if (least := least_budget(database)) is not None:
        yield GaugeMetricFamily(
            "tern_budget_left_least_epsilon",
            "The least epsilon that a board heard within a day says is left to its first device",
            least,
        )
    gateways = dict.fromkeys(("online", "offline"), 0)
    gateways |= dict(rows("SELECT iif(online, 'online', 'offline'), count(*) FROM gateway GROUP BY 1"))
    yield _family("tern_gateways", "Gateways that are connected, and that are not", "state", gateways)


def _family(name: str, text: str, label: str, values: dict[str, int]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=[label])
    for value, count in values.items():
        family.add_metric([value], count)
    return family


def _most(counted: Iterable[tuple[Any, int]]) -> dict[str, int]:
    """The values that most boards have; a board that lies cannot make Prometheus keep more series than these."""
    found: dict[str, int] = {}
    for value, count in counted:
        name = visible(str(value))[:_LONGEST_VALUE]
        if name not in found and len(found) >= _MOST_VALUES:
            name = "other"
        found[name] = found.get(name, 0) + count
    return found
