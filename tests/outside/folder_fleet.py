"""A driver of another package: devices that take requests from files and leave reports in files, as on a memory stick.

DIR/requests gets DEVICE.frame for each device that is asked; DIR/reports/DEVICE.frame is read and removed. Either side
writes a file under another name first, which begins with a dot, and renames it, so that no half of one is read.
"""

import time
from pathlib import Path

from ternhost.files import write_file
from ternhost.reach.driver import RoundProgress
from ternhost.reach.fleet import Fleet
from ternhost.reach.stored import ReportsDriver

_LOOK = 0.05  # seconds between two looks for reports


class FolderDriver(ReportsDriver):
    """The devices with a key in the store. The aggregator makes requests and checks reports."""

    def __init__(self, folder, store, terms, **options):
        super().__init__(store, terms, **options)
        self._requests, self._reports = folder / "requests", folder / "reports"

    @property
    def devices(self):
        return sorted(self.aggregator.devices)

    def collect(self, number, tell):
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
            tell(RoundProgress(number, self.aggregator.reports(number), asked))
            if result := self.aggregator.ended(number, time.monotonic()):
                self.check_refusals(result)
                return self.with_reports(result)
            self.wait(_LOOK)
        return None


class FolderFleet(Fleet):
    """Registered as a fleet kind, `folder`; `tern train --fleet folder:DIR --store FILE` then asks it."""

    form = "folder:DIR"
    about = "devices that exchange files in DIR"
    count = 0  # boards: nobody knows

    def driver(self, setting):
        return FolderDriver(Path(self.rest), setting.store, setting.terms, **setting.driver_options)
