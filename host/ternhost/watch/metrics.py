"""Figures of a run and of its store for Prometheus, on a loopback port.

The store is read when Prometheus scrapes, so that ingest pays nothing. Nothing proves the boards'
own figures.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Metric,
    start_http_server,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from tern import wire
from ternhost.errors import StorageError
from ternhost.privacy.guarantee import Span
from ternhost.run.guarantees import ClassGuarantees, worst
from ternhost.run.status import END, Status
from ternhost.store.reader import Reader
from ternhost.store.snapshot import Snapshot
from ternhost.watch import curves, words
from ternhost.watch.fleet_view import FleetView, fleet_of
from ternhost.watch.loopback import ADDRESS, REFUSED, is_welcome

_MINUTE, _HOUR = 60.0, 3600.0
# Upper bounds of the histogram of round durations, seconds: from a simulated fleet to devices that
# wake once a day.
_SHORT = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
_LONG = (_MINUTE, 5 * _MINUTE, 15 * _MINUTE, _HOUR, 4 * _HOUR, 12 * _HOUR, 30 * _HOUR)
_DURATIONS = _SHORT + _LONG
# Name -> text, and the value in a status.
_GAUGES: dict[str, tuple[str, Callable[[Status], float]]] = {
    "round": ("Number of the current or last round", lambda status: status.number),
    "asked": ("Devices asked in that round", lambda status: status.asked),
    "reports": ("Reports of that round so far", lambda status: status.reports),
    "refusals": ("Refusals of that round so far", lambda status: status.refusals),
    "boards_asleep": ("Boards that sleep now", lambda status: status.asleep),
    "strangers": ("Connected boards of another version", lambda status: status.strangers),
    "connected": ("1 while the host is connected to its broker", lambda status: status.connected),
    "rounds_ended": (
        "Rounds of this run that have ended",
        lambda now: now.round - (now.event != END),
    ),
    "reports_accepted": ("Accepted reports of this run", lambda status: status.total_reports),
}


class Metrics:
    """Serves the last status that `update` received, and the figures of stores."""

    def __init__(self, port: int) -> None:
        """port: 0 for any free one; `port` is the one in use. Raises OSError where it is taken."""
        self._registry = CollectorRegistry()
        self._run = _RunMetrics(self._registry)
        self.server, _ = start_http_server(port, ADDRESS, self._registry)
        self.port: int = self.server.server_port
        # No figure exists yet, so nothing could be read before requests are checked.
        self.server.set_app(_only_here(self.server.get_app(), self.port))

    def add_store(self, store: str | Path, run: str | None = None) -> None:
        """Also serve the figures of a store, read at each scrape."""
        self._registry.register(_StoreCollector(store, run))

    def update(self, status: Status) -> None:
        """Serve this status from now on."""
        self._run.update(status)

    def close(self) -> None:
        """Stop serving."""
        self.server.shutdown()
        self.server.server_close()


def _only_here(app: Any, port: int) -> Any:
    """Wrap a WSGI app so that it answers only requests from this machine, and from no other site."""

    def answer(environ: Mapping[str, Any], start_response: Any) -> Any:
        """Call the app, or refuse with 403. The parameters are those of WSGI."""
        headers = []
        for name, value in environ.items():
            if name.startswith("HTTP_"):
                headers.append((name.removeprefix("HTTP_").replace("_", "-"), value))
        if is_welcome(port, headers):
            return app(environ, start_response)
        start_response("403 Forbidden", [("Content-Type", "text/plain; charset=utf-8")])
        return [REFUSED]

    return answer


class _RunMetrics:
    """The figures of the run in this process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Create the gauges, counters and the histogram of a run in `registry`."""
        self._registry = registry
        self._gauges = [
            (Gauge(f"tern_{name}", text, registry=registry), value)
            for name, (text, value) in _GAUGES.items()
        ]
        self._boards: Gauge | None = None  # only on a broker: 0 would be wrong on ports
        self._ended = Gauge(
            "tern_last_round_ended_timestamp_seconds",
            "When the last round ended, or this process began",
            registry=registry,
        )
        self._ended.set_to_current_time()
        self._figures = Gauge(
            "tern_figure",
            "Figures of the model after the last round",
            ["name"],
            registry=registry,
        )
        self._chosen = Gauge(
            "tern_chosen",
            "Parameters that the algorithm chose for the last round",
            ["name"],
            registry=registry,
        )
        self._frames = Counter(
            "tern_frames",
            "Frames from devices since this process began, by outcome",
            ["fate"],
            registry=registry,
        )
        self._refused = Counter(
            "tern_refused_reports",
            "Reports that devices have refused since this process began, by reason",
            ["reason"],
            registry=registry,
        )
        for reason in wire.ERRORS:  # so that the first refusal is an increase
            self._refused.labels(reason)
        self._rounds = Histogram(
            "tern_round_duration_seconds",
            "Durations of the rounds that have ended since this process began",
            registry=registry,
            buckets=_DURATIONS,
        )
        self._frames_before: dict[str, int] = {}
        self._current: tuple[int, float] | None = None  # number and start of the current round

    def update(self, status: Status) -> None:
        """Take over the figures of a status; at the end of a round, those of the round too."""
        for gauge, value in self._gauges:
            gauge.set(float(value(status)))
        if status.boards is not None:
            self._set_boards(status.boards)
        # The status counts frames since the start, a Prometheus counter is incremented.
        for fate, count in status.frames.items():
            self._frames.labels(fate).inc(count - self._frames_before.get(fate, 0))
            self._frames_before[fate] = count
        if self._current is None or self._current[0] != status.number:
            self._current = status.number, time.monotonic()
        if status.event == END:
            self._end_round(status, begin=self._current[1])

    def _set_boards(self, boards: int) -> None:
        if self._boards is None:
            text = "Boards that are connected to the broker"
            self._boards = Gauge("tern_boards", text, registry=self._registry)
        self._boards.set(float(boards))

    def _end_round(self, status: Status, begin: float) -> None:
        """Record the figures of a round that ends now. begin: the time.monotonic() of its start."""
        self._rounds.observe(time.monotonic() - begin)
        self._ended.set_to_current_time()
        for name, value in status.figures.items():
            self._figures.labels(name).set(value)
        for name, value in status.chosen.items():
            self._chosen.labels(name).set(value)
        for reason, count in status.reasons.items():
            self._refused.labels(reason).inc(count)


class _StoreCollector(Collector):
    """The figures of a store.

    A store that cannot be read now keeps its last figures, and a gauge reports it.
    """

    def __init__(self, store: str | Path, run: str | None) -> None:
        self._reader = Reader(store, run)
        self._lock = threading.Lock()  # each scrape has its own thread

    def describe(self) -> Iterable[Metric]:
        """Nothing, so that registration reads no store."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Read the store and yield its figures; called at each scrape."""
        with self._lock:
            try:
                shown = self._reader.snapshot()
            except StorageError as error:
                shown = Snapshot(str(self._reader.path), note=error.message)
        readable = float(shown.note is None)
        yield GaugeMetricFamily("tern_store_readable", "1 where the store could be read", readable)
        if shown.read:
            yield from _of_fleet(fleet_of(shown.boards, time.time()))
            yield from _of_extensions(shown)
            yield from _of_privacy(shown)


def _of_fleet(fleet: FleetView) -> Iterator[Metric]:
    """Yield the figures of the boards of a store."""
    text = "Boards by the time since their last message"
    yield _family("tern_boards_heard", text, "age", fleet.ages)
    yield _family("tern_boards_by_state", "Boards by connection state", "state", fleet.states)
    text = "Boards by release, as they report it"
    yield _family("tern_boards_by_release", text, "release", fleet.releases)
    text = (
        "Boards by their random generator, as they report it; failed: a health test of its source "
        "has failed"
    )
    yield _family("tern_boards_by_entropy", text, "state", fleet.generators)
    text = "Boards that have failed, by their last error"
    yield _family("tern_boards_by_error", text, "error", fleet.errors)
    if fleet.least_budget is not None:
        text = (
            "Least epsilon left to the first device of a board heard within a day, as the board "
            "reports it; of a ledger in rho the epsilon at delta 1e-06, which does not add up with "
            "what was spent"
        )
        yield GaugeMetricFamily("tern_budget_left_least_epsilon", text, fleet.least_budget)


def _of_extensions(shown: Snapshot) -> Iterator[Metric]:
    for view in shown.views.values():
        for gauges in view.gauges():
            yield _family(f"tern_{gauges.name}", gauges.text, gauges.label, gauges.values)


def _of_privacy(shown: Snapshot) -> Iterator[Metric]:
    """Yield what reports cost, what devices have spent, and what is guaranteed to them."""
    if shown.run is None:
        return
    unit = words.epsilon_of(shown.run)
    if shown.run.costliest is not None:
        text = f"Largest cost of a report: {unit}"
        yield GaugeMetricFamily("tern_report_epsilon", text, shown.run.costliest)
    spent = curves.spent(shown)
    if spent is not None:
        text = f"Spent in this run by accepted reports, mean of devices: {unit}"
        yield GaugeMetricFamily("tern_epsilon_spent_mean", text, spent)
    yield from _of_guarantees([ClassGuarantees.from_json(each) for each in shown.run.guarantees])


def _of_guarantees(classes: Sequence[ClassGuarantees]) -> Iterator[Metric]:
    """Yield the guarantees of the class of devices that loses most, as one family.

    Each sample is labelled with the span of time, what is protected, the question that an observer
    might ask about it, and delta.
    """
    text = (
        "What is proved of a report, of this run, and of all runs so far (at a delta: if none was "
        "chosen by the results of earlier ones), for the devices that lose most"
    )
    family = GaugeMetricFamily(
        "tern_guarantee_epsilon", text, labels=["span", "protects", "question", "delta"]
    )
    for span in (Span.REPORT, Span.RUN, Span.LIFE):
        guarantee = worst(classes, span)
        if guarantee is None:
            continue
        if guarantee.content is None:
            bounds_by_question = {"what its records are": guarantee.bounds}
        else:
            bounds_by_question = {
                "that it was there": guarantee.bounds,
                "what it says": guarantee.content,
            }
        for question, bounds in bounds_by_question.items():
            labels = [span.value, guarantee.protects, question, f"{bounds.delta:g}"]
            family.add_metric(labels, bounds.epsilon)
    if family.samples:
        yield family


def _family(name: str, text: str, label: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=[label])
    for value, count in values.items():
        family.add_metric([value], count)
    return family
