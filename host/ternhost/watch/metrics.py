"""Figures of a run and of its store for Prometheus, on a loopback port.

The store is read when Prometheus scrapes, so that ingest pays nothing. Nothing proves the boards'
own figures.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
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
from ternhost.learn.distributions.distribution_entries import distributions_of
from ternhost.privacy.guarantee import Span
from ternhost.run.guarantees import ClassGuarantees, worst
from ternhost.run.observer import Observer
from ternhost.run.run import Run
from ternhost.run.status import END, Status
from ternhost.store.reader import Reader
from ternhost.store.snapshot import Snapshot
from ternhost.watch import curves, words
from ternhost.watch.fleet_view import FleetView, fleet_of
from ternhost.watch.host_metrics import HostCollector
from ternhost.watch.loopback import ADDRESS, REFUSED, is_welcome

_MINUTE, _HOUR = 60.0, 3600.0
# Upper bounds of the classes in the histogram of round durations, in seconds: from a simulated fleet
# to devices that wake once a day.
_SHORT = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
_LONG = (_MINUTE, 5 * _MINUTE, 15 * _MINUTE, _HOUR, 4 * _HOUR, 12 * _HOUR, 30 * _HOUR)
_DURATIONS = _SHORT + _LONG


def _ended_rounds(status: Status) -> float:
    """Return how many rounds of the run have ended: the current one only if this is its end."""
    if status.event == END:
        return status.round
    return status.round - 1


# The gauges of a run by name: the text that explains it, and the function that gets its value from
# a status.
_GAUGES: dict[str, tuple[str, Callable[[Status], float]]] = {
    "round": ("Number of the current or last round", attrgetter("number")),
    "asked": ("Devices asked in that round", attrgetter("asked")),
    "reports": ("Reports of that round so far", attrgetter("reports")),
    "refusals": ("Refusals of that round so far", attrgetter("refusals")),
    "boards_asleep": ("Boards that sleep now", attrgetter("asleep")),
    "strangers": ("Connected boards of another version", attrgetter("strangers")),
    "connected": ("1 while the host is connected to its broker", attrgetter("connected")),
    "rounds_ended": ("Rounds of this run that have ended", _ended_rounds),
    "reports_accepted": ("Accepted reports of this run", attrgetter("total_reports")),
}


class Metrics(Observer):
    """Serves metrics to Prometheus: the last status that `update` got, and the figures of stores.

    It goes on after the end of a run, so that its last figures are still read.
    """

    name = "metrics"
    about = "serve metrics for Prometheus"

    def __init__(self, port: int) -> None:
        """Start the server on a loopback port.

        port: 0 takes any free one; the attribute `port` is the one in use. Raises OSError if the
        port is taken.
        """
        self._registry = CollectorRegistry()
        self._run = _RunMetrics(self._registry)
        self.server, _thread = start_http_server(port, ADDRESS, self._registry)
        self.port: int = self.server.server_port
        # Requests are checked from here on. Before, there was no figure that one could have read.
        checked_app = _only_here(self.server.get_app(), self.port)
        self.server.set_app(checked_app)

    def begin(self, run: Run, warn: Callable[[str], None]) -> None:
        """Also serve the figures of the run's store, and of the machine that it is on."""
        self.add_store(run.files.store, run.files.name)
        self.add_host(run.files.store, run.fleet.broker_directory)

    def add_store(self, store: str | Path, run: str | None = None) -> None:
        """Also serve the figures of a store, which is read whenever Prometheus asks.

        run: the name of the run to serve; None for the unfinished or else the newest one.
        """
        self._registry.register(_StoreCollector(store, run))

    def add_host(self, store: Path, broker_directory: Path | None) -> None:
        """Also serve the figures of the machine of a store, and of the certificates of its broker.

        broker_directory: the directory of the broker; None: the fleet has none.
        """
        self._registry.register(HostCollector(store, broker_directory))

    def update(self, status: Status) -> None:
        """Serve this status from now on."""
        self._run.update(status)

    def close(self) -> None:
        """Stop serving."""
        self.server.shutdown()
        self.server.server_close()


def _only_here(app: Any, port: int) -> Any:
    """Wrap a WSGI app so that it answers only requests from this machine, and from no other site.

    port: of the server, which the requests must name.
    """

    def answer(environ: Mapping[str, Any], start_response: Any) -> Any:
        """Call the app, or refuse with 403. The parameters are those of WSGI."""
        headers = []
        for variable, value in environ.items():
            # WSGI calls the header Sec-Fetch-Site HTTP_SEC_FETCH_SITE.
            if variable.startswith("HTTP_"):
                header = variable.removeprefix("HTTP_").replace("_", "-")
                headers.append((header, value))
        if is_welcome(port, headers):
            return app(environ, start_response)
        start_response("403 Forbidden", [("Content-Type", "text/plain; charset=utf-8")])
        return [REFUSED]

    return answer


class _RunMetrics:
    """The metrics of the run in this process, from its statuses."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Create the gauges, counters and the histogram of a run.

        registry: where Prometheus finds them.
        """
        self._registry = registry

        # The current round. Each gauge stands with the function that gets its value from a status.
        self._gauges: list[tuple[Gauge, Callable[[Status], float]]] = []
        for name, (text, value_of) in _GAUGES.items():
            gauge = Gauge(f"tern_{name}", text, registry=registry)
            self._gauges.append((gauge, value_of))
        # Only a fleet on a broker has this gauge: on ports 0 would be wrong.
        self._boards: Gauge | None = None
        self._round_number: int | None = None
        self._round_began = 0.0  # time.monotonic()

        # The last round that has ended.
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

        # All rounds since this process began.
        self._frames = Counter(
            "tern_frames",
            "Frames from devices since this process began, by outcome",
            ["fate"],
            registry=registry,
        )
        self._frames_before: dict[str, int] = {}  # by outcome, in the last status
        self._refused = Counter(
            "tern_refused_reports",
            "Reports that devices have refused since this process began, by reason",
            ["reason"],
            registry=registry,
        )
        for reason in wire.ERRORS:  # begin at 0, so that the first refusal is an increase
            self._refused.labels(reason)
        self._rounds = Histogram(
            "tern_round_duration_seconds",
            "Durations of the rounds that have ended since this process began",
            registry=registry,
            buckets=_DURATIONS,
        )

    def update(self, status: Status) -> None:
        """Set the metrics from a status of the run; at the end of a round, also those of the round."""
        for gauge, value_of in self._gauges:
            gauge.set(float(value_of(status)))
        if status.boards is not None:
            self._set_boards(status.boards)
        # A status has the number of frames since the start; a counter of Prometheus is told the
        # increase.
        for fate, count in status.frames.items():
            count_before = self._frames_before.get(fate, 0)
            self._frames.labels(fate).inc(count - count_before)
            self._frames_before[fate] = count
        if status.number != self._round_number:
            self._round_number = status.number
            self._round_began = time.monotonic()
        if status.event == END:
            self._end_round(status)

    def _set_boards(self, boards: int) -> None:
        """Set the number of connected boards, in a gauge that is made when it is needed."""
        if self._boards is None:
            text = "Boards that are connected to the broker"
            self._boards = Gauge("tern_boards", text, registry=self._registry)
        self._boards.set(float(boards))

    def _end_round(self, status: Status) -> None:
        """Record the duration, the figures and the refusals of a round that ends now."""
        self._rounds.observe(time.monotonic() - self._round_began)
        self._ended.set_to_current_time()
        for name, value in status.figures.items():
            self._figures.labels(name).set(value)
        for name, value in status.chosen.items():
            self._chosen.labels(name).set(value)
        for reason, count in status.reasons.items():
            self._refused.labels(reason).inc(count)


class _StoreCollector(Collector):
    """The metrics of a store, which is read whenever Prometheus asks for them (a scrape).

    If the store cannot be read, its last figures are served, and a gauge says so.
    """

    def __init__(self, store: str | Path, run: str | None) -> None:
        """Prepare to read a store. run: the name of the run, as for `Reader`."""
        self._reader = Reader(store, run)
        self._lock = threading.Lock()  # each scrape has its own thread

    def describe(self) -> Iterable[Metric]:
        """Return no metric, so that registering this collector does not read the store."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Read the store and yield its metrics; Prometheus's library calls this at each scrape."""
        with self._lock:
            try:
                snapshot = self._reader.snapshot()
            except StorageError as error:
                snapshot = Snapshot(str(self._reader.path), note=error.message)
        is_readable = float(snapshot.note is None)
        text = "1 where the store could be read"
        yield GaugeMetricFamily("tern_store_readable", text, is_readable)
        was_ever_read = snapshot.read > 0
        if was_ever_read:
            yield from _of_fleet(fleet_of(snapshot.boards, time.time()))
            yield from _of_extensions(snapshot)
            yield from _of_quantiles(snapshot)
            yield from _of_privacy(snapshot)


def _of_fleet(fleet: FleetView) -> Iterator[Metric]:
    """Yield the metrics of the boards of a store: their numbers by state, release and more."""
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


def _of_extensions(snapshot: Snapshot) -> Iterator[Metric]:
    """Yield the metrics that extensions have for the store."""
    for view in snapshot.views.values():
        for gauges in view.gauges():
            yield _family(f"tern_{gauges.name}", gauges.text, gauges.label, gauges.values)


def _of_quantiles(snapshot: Snapshot) -> Iterator[Metric]:
    """Yield the quantiles that a run has collected so far, and both ends of their intervals."""
    collected = distributions_of(snapshot.estimates)
    if not collected:
        return
    labels = ["attribute", "quantile", "unit"]
    text = "of the values that devices hold, estimated from noisy reports"
    value = GaugeMetricFamily("tern_quantile", f"Quantile {text}", labels=labels)
    low = GaugeMetricFamily(
        "tern_quantile_low", "Lower end of the 95 % interval of a quantile", labels=labels
    )
    high = GaugeMetricFamily(
        "tern_quantile_high", "Upper end of the 95 % interval of a quantile", labels=labels
    )
    for distribution in collected:
        for quantile in distribution.quantiles:
            of_quantile = [distribution.name, f"{quantile.level:g}", distribution.unit]
            value.add_metric(of_quantile, quantile.value)
            low.add_metric(of_quantile, quantile.low)
            high.add_metric(of_quantile, quantile.high)
    yield from (value, low, high)


def _of_privacy(snapshot: Snapshot) -> Iterator[Metric]:
    """Yield what reports cost, what devices have spent, and what is guaranteed to them."""
    run = snapshot.run
    if run is None:
        return
    what_it_protects = words.epsilon_of(run)
    if run.costliest is not None:
        text = f"Largest cost of a report: {what_it_protects}"
        yield GaugeMetricFamily("tern_report_epsilon", text, run.costliest)
    spent = curves.spent(snapshot)
    if spent is not None:
        text = f"Spent in this run by accepted reports, mean of devices: {what_it_protects}"
        yield GaugeMetricFamily("tern_epsilon_spent_mean", text, spent)
    classes = [ClassGuarantees.from_json(guarantees) for guarantees in run.guarantees]
    spans = [Span.REPORT]
    if not run.is_endless:
        spans += [Span.RUN, Span.LIFE]
    yield from _of_guarantees(classes, spans)


def _of_guarantees(classes: Sequence[ClassGuarantees], spans: Sequence[Span]) -> Iterator[Metric]:
    """Yield the privacy guarantees of the class of devices with the largest loss, as one metric.

    classes: the guarantees of each class; devices of a class have the same epsilon. spans: which of
    the guarantees of a class are known: of a report, of the run, for life.

    Each sample of the metric is the epsilon that is proved for a report, for the run, or for all
    runs so far. It is labelled with what is protected, with the question that an observer might ask
    about it, and with delta.
    """
    text = (
        "What is proved of a report, of this run, and of all runs so far (at a delta: if none was "
        "chosen by the results of earlier ones), for the devices that lose most"
    )
    family = GaugeMetricFamily(
        "tern_guarantee_epsilon", text, labels=["span", "protects", "question", "delta"]
    )
    for span in spans:
        guarantee = worst(classes, span)
        if guarantee is None:
            continue
        if guarantee.content is None:
            # A whole device is protected: that it takes part is no secret.
            bounds_by_question = {"what its records are": guarantee.bounds}
        else:
            # Records are protected. What one says has a larger epsilon than that it was there.
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
    """Return a metric with a sample for each of `values`.

    text: the explanation of the metric. label: the name of the label. values: the value of each
    sample, by the value of its label.
    """
    family = GaugeMetricFamily(name, text, labels=[label])
    for label_value, value in values.items():
        family.add_metric([label_value], value)
    return family
