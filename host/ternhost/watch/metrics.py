"""Figures of a run for Prometheus, on a loopback port.

What the run says is kept here; what its store says is for a collector (`ternhost.watch.fleet_metrics`).
"""

from __future__ import annotations

import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server
from prometheus_client.registry import Collector

from tern import wire
from ternhost.run.status import END, Status

_MINUTE, _HOUR = 60.0, 3600.0
# Upper bounds of the classes of a round's length, seconds: from a simulated fleet to devices that wake once a day.
_SECONDS = (
    0.1, 0.3, 1.0, 3.0, 10.0, 30.0, _MINUTE, 5 * _MINUTE, 15 * _MINUTE, _HOUR, 4 * _HOUR, 12 * _HOUR, 30 * _HOUR,
)  # fmt: skip


class Metrics:
    """Serves what `update` was last told, and what is collected by whoever was added."""

    def __init__(self, port: int) -> None:
        """port: 0 for any free one; `port` tells which. Raises OSError where it is taken."""
        self._registry = registry = CollectorRegistry()
        self._gauges = {
            name: Gauge(f"tern_{name}", text, registry=registry)
            for name, text in (
                ("round", "Number of the round under way, or of the last one"),
                ("asked", "Devices asked in it"),
                ("reports", "Reports in it so far"),
                ("refusals", "Refusals in it so far"),
                ("boards_asleep", "Boards that sleep now"),
                ("strangers", "Boards that are connected and of another version"),
                ("connected", "1 while the host is connected to its broker"),
                ("rounds_ended", "Rounds of this run that have ended"),
                ("reports_accepted", "Reports of this run that were accepted"),
                ("last_round_ended_timestamp_seconds", "When the last round ended, or this process began"),
            )
        }
        self._boards: Gauge | None = None  # of a fleet on a broker alone: 0 would be wrong of one on ports
        self._gauges["last_round_ended_timestamp_seconds"].set_to_current_time()
        self._figures = Gauge(
            "tern_figure", "What the model was worth after the last round", ["name"], registry=registry
        )
        self._chosen = Gauge(
            "tern_chosen", "What the algorithm chose for the last round", ["name"], registry=registry
        )
        self._frames = Counter(
            "tern_frames",
            "Frames from devices since this process began, by what became of them",
            ["fate"],
            registry=registry,
        )
        self._refused = Counter(
            "tern_refused_reports",
            "Reports that devices have refused since this process began, by the reason they gave",
            ["reason"],
            registry=registry,
        )
        for reason in wire.ERRORS:  # so that the first refusal is an increase
            self._refused.labels(reason)
        self._rounds = Histogram(
            "tern_round_duration_seconds",
            "How long the rounds took that have ended since this process began",
            registry=registry,
            buckets=_SECONDS,
        )
        self._seen: dict[str, int] = {}
        self._began: tuple[int, float] | None = None  # the round under way, and since when
        self.server, _ = start_http_server(port, "127.0.0.1", registry)
        self.port: int = self.server.server_port

    def add(self, collector: Collector) -> None:
        """Serve what this collects, too, whenever somebody scrapes."""
        self._registry.register(collector)

    def close(self) -> None:
        """Serve nothing any more."""
        self.server.shutdown()
        self.server.server_close()

    def update(self, status: Status) -> None:
        """Tell a status from now on."""
        ended = status.event == END
        told = {
            "round": status.number,
            "asked": status.asked,
            "reports": status.reports,
            "refusals": status.refusals,
            "boards_asleep": status.asleep,
            "strangers": status.strangers,
            "connected": status.connected,
            "rounds_ended": status.round if ended else status.round - 1,
            "reports_accepted": status.total_reports,
        }
        for name, value in told.items():
            self._gauges[name].set(float(value))
        if status.boards is not None:
            if self._boards is None:
                text = "Boards that are connected to the broker"
                self._boards = Gauge("tern_boards", text, registry=self._registry)
            self._boards.set(float(status.boards))
        for fate, count in status.frames.items():
            self._frames.labels(fate).inc(count - self._seen.get(fate, 0))
            self._seen[fate] = count
        if self._began is None or self._began[0] != status.number:
            self._began = status.number, time.monotonic()
        if ended:
            self._end(status)

    def _end(self, status: Status) -> None:
        assert self._began is not None
        self._rounds.observe(time.monotonic() - self._began[1])
        self._gauges["last_round_ended_timestamp_seconds"].set_to_current_time()
        for gauge, values in ((self._figures, status.figures), (self._chosen, status.chosen)):
            for name, value in values.items():
                gauge.labels(name).set(value)
        for reason, count in status.reasons.items():
            self._refused.labels(reason).inc(count)
