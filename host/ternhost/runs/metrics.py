"""Figures of a server for Prometheus, on a loopback port."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

from ternhost.runs.status import END, Status


class Metrics:
    """Serves what `update` was last told. Raises OSError where the port is taken."""

    def __init__(self, port: int, address: str = "127.0.0.1") -> None:
        registry = CollectorRegistry()
        self._gauges = {
            name: Gauge(f"tern_{name}", text, registry=registry)
            for name, text in (
                ("round", "Number of the round under way, or of the last one"),
                ("asked", "Devices asked in it"),
                ("reports", "Reports in it so far"),
                ("refusals", "Refusals in it so far"),
                ("boards", "Boards that are connected"),
                ("strangers", "Boards that are connected and of another version"),
                ("connected", "1 while the host is connected to its broker"),
                ("rounds_ended", "Rounds of this run that have ended"),
                ("reports_accepted", "Reports of this run that were accepted"),
            )
        }
        self._frames = Counter(
            "tern_frames",
            "Frames from devices since this process began, by what became of them",
            ["fate"],
            registry=registry,
        )
        self._seen: dict[str, int] = {}
        self.server, _ = start_http_server(port, address, registry)

    def update(self, status: Status) -> None:
        """Tell a status from now on."""
        told = {
            "round": status.number,
            "asked": status.asked,
            "reports": status.reports,
            "refusals": status.refusals,
            "boards": status.boards or 0,
            "strangers": status.strangers,
            "connected": status.connected,
            "rounds_ended": status.round if status.event == END else status.round - 1,
            "reports_accepted": status.total_reports,
        }
        for name, value in told.items():
            self._gauges[name].set(float(value))
        for fate, count in status.frames.items():
            self._frames.labels(fate).inc(count - self._seen.get(fate, 0))
            self._seen[fate] = count
