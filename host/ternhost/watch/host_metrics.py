"""Metrics of the machine of a host: the disk of its store, its last backup, its certificates."""

import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from ternhost.files import real
from ternhost.reach import certificates
from ternhost.store import last_backup

_NEVER = 0.0  # the time of the last backup of a store that was never saved


class HostCollector(Collector):
    """The metrics of the machine on which a store is, read whenever Prometheus asks for them."""

    def __init__(self, store: Path, broker_directory: Path | None) -> None:
        """Prepare to read them. broker_directory: that of the fleet's broker; None: it has none."""
        self._store = real(store)
        self._broker_directory = broker_directory

    def describe(self) -> Iterable[Metric]:
        """Return no metric, so that registering this collector reads nothing."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics; Prometheus's library calls this at each scrape."""
        with suppress(OSError):  # the disk is gone: the alert on the store says so
            disk = shutil.disk_usage(self._store.parent)
            yield GaugeMetricFamily(
                "tern_disk_free_bytes", "Free space on the disk of the store", disk.free
            )
            yield GaugeMetricFamily(
                "tern_disk_size_bytes", "Size of the disk of the store", disk.total
            )
        saved = last_backup.last(self._store)
        yield GaugeMetricFamily(
            "tern_last_backup_timestamp_seconds",
            "When 'tern backup save' saved the store last; 0: never",
            _NEVER if saved is None else saved,
        )
        if self._broker_directory is not None:
            yield _expiries(self._broker_directory)


def _expiries(directory: Path) -> GaugeMetricFamily:
    """Return until when the certificates of a broker are valid, by their file names."""
    text = "Until when a certificate of the broker is valid"
    family = GaugeMetricFamily("tern_certificate_expires_timestamp_seconds", text, labels=["file"])
    for name, expires in certificates.expiries(directory).items():
        family.add_metric([name], expires)
    return family
