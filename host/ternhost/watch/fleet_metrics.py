"""What a store says of its fleet, for Prometheus: read when somebody scrapes, so that ingest pays nothing.

What boards say of themselves is proven by nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from ternhost.errors import StorageError
from ternhost.store.reader import Reader
from ternhost.store.snapshot import Snapshot
from ternhost.watch import curves
from ternhost.watch.fleet_view import FleetView, fleet_of, states


class FleetMetrics(Collector):
    """Collects the figures of a store. Where that cannot be read now, they are as they were, and it tells so."""

    def __init__(self, store: str | Path, run: str | None = None) -> None:
        self._reader = Reader(store, run)
        self._lock = threading.Lock()  # each scrape has a thread of its own

    def describe(self) -> Iterable[Metric]:
        """Nothing: to register this reads no store."""
        return ()

    def collect(self) -> Iterator[Metric]:
        with self._lock:
            try:
                shown = self._reader.snapshot()
            except StorageError as error:
                shown = Snapshot(str(self._reader.path), note=error.message)
        yield GaugeMetricFamily(
            "tern_store_readable", "1 where the store could be read", float(shown.note is None)
        )
        if shown.read:
            yield from _of_fleet(fleet_of(shown.boards, time.time()))
            yield from _of_gateways(shown)
            yield from _of_privacy(shown)

    def close(self) -> None:
        """Let go of the store."""
        with self._lock:
            self._reader.close()


def _of_fleet(fleet: FleetView) -> Iterator[Metric]:
    for name, text, label, values in (
        ("heard", "Boards by the time since they were heard last", "age", fleet.ages),
        ("by_state", "Boards that are connected, and that are not", "state", fleet.states),
        ("by_release", "Boards by the release that they say they have", "release", fleet.releases),
        (
            "by_entropy",
            "Boards by the random generator that they say they use; failed: a health test of its source has failed",
            "state",
            fleet.generators,
        ),
        ("by_error", "Boards that have failed, by how they did last", "error", fleet.errors),
    ):
        yield _family(f"tern_boards_{name}", text, label, values)
    if fleet.least_budget is not None:
        text = "The least epsilon left to the first device of a board that was heard within a day, as it said"
        yield GaugeMetricFamily("tern_budget_left_least_epsilon", text, fleet.least_budget)


def _of_gateways(shown: Snapshot) -> Iterator[Metric]:
    text = "Gateways that are connected, and that are not"
    yield _family("tern_gateways", text, "state", states(shown.gateways))
    yield _family(
        "tern_gateway_devices",
        "Devices of each gateway",
        "gateway",
        {gateway.name: gateway.devices for gateway in shown.gateways},
    )
    yield _family(
        "tern_gateway_reports",
        "Reports that each gateway has told of in the round under way",
        "gateway",
        {gateway.name: gateway.reports for gateway in shown.gateways},
    )
    yield _family(
        "tern_gateway_answered",
        "1 where a gateway has answered in the round under way",
        "gateway",
        {gateway.name: int(gateway.answered) for gateway in shown.gateways},
    )


def _of_privacy(shown: Snapshot) -> Iterator[Metric]:
    if shown.run is not None and (most := shown.run.costliest) is not None:
        yield GaugeMetricFamily("tern_report_epsilon", "The most that a report costs a device", most)
    if (spent := curves.spent(shown)) is not None:
        text = "What a device has spent in this run, in the mean, by accepted reports"
        yield GaugeMetricFamily("tern_epsilon_spent_mean", text, spent)


def _family(name: str, text: str, label: str, values: Mapping[str, int]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=[label])
    for value, count in values.items():
        family.add_metric([value], count)
    return family
