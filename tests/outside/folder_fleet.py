"""A driver of another package: devices that take requests from files and leave reports in files, as
on a memory stick.

The host writes DIR/requests/DEVICE.frame for each device of a round; it reads
DIR/reports/DEVICE.frame, and removes it. Either side first writes a file whose name begins with a
dot, and then renames it: no file is read half-written.
"""

import time
from pathlib import Path

from ternhost.files import write_file
from ternhost.reach.driver import RoundProgress
from ternhost.reach.fleet import Fleet
from ternhost.reach.stored import ReportsDriver

_LOOK = 0.05  # seconds between two searches for reports


class FolderDriver(ReportsDriver):
    """The devices with a key in the store. The aggregator makes requests and checks reports."""

    def __init__(self, folder, store, terms, **options):
        super().__init__(store, terms, **options)
        self._requests, self._reports = folder / "requests", folder / "reports"

    @property
    def devices(self):
        return sorted(self.aggregator.devices)

    def collect(self, number, on_progress):
        for folder in (self._requests, self._reports):
            folder.mkdir(parents=True, exist_ok=True)
        unanswered = self.aggregator.unanswered(number)
        asked = len(unanswered) + self.aggregator.reports(number)
        for device in unanswered:
            write_file(self._requests / f"{device}.frame", self.aggregator.request(number, device))
        while not self.stopped:
            paths = sorted(self._reports.glob("[0-9]*.frame"))
            self.aggregator.accept([path.read_bytes() for path in paths], time.monotonic())
            for path in paths:  # the store has them by now
                path.unlink()
            on_progress(RoundProgress(number, self.aggregator.reports(number), asked))
            if result := self.aggregator.ended(number, time.monotonic()):
                self.check_refusals(result)
                return self.with_reports(result)
            self.wait(_LOOK)
        return None


class FolderFleet(Fleet):
    """Registered as the fleet kind `folder`, it serves `tern train --fleet folder:DIR --store
    FILE`.
    """

    form = "folder:DIR"
    about = "devices that exchange files in DIR"
    count = 0  # boards: unknown

    def driver(self, setting):
        return FolderDriver(Path(self.rest), setting.store, setting.terms, **setting.driver_options)
