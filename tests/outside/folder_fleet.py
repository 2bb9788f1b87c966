"""A driver of another package: devices that take requests from files and leave reports in files, as
on a memory stick.

The host writes DIR/requests/DEVICE.frame for each device of a round; it reads
DIR/reports/DEVICE.frame, and removes it. Either side first writes a file whose name begins with a
dot, and then renames it: no file is read half-written.
"""

import time
from pathlib import Path

from ternhost.files import write_file
from ternhost.reach.driver import Driver, RoundProgress
from ternhost.reach.fleet import Fleet
from ternhost.reach.stored_rounds import StoredRounds

_LOOK = 0.05  # seconds between two searches for reports


class FolderDriver(Driver):
    """The devices with a key in the store. The aggregator makes requests and checks reports."""

    def __init__(self, folder, store, terms, **options):
        self.rounds = StoredRounds(store, **options)
        super().__init__(terms, self.rounds, individual=options["individual"])
        self._requests, self._reports = folder / "requests", folder / "reports"

    @property
    def devices(self):
        return sorted(self.rounds.aggregator.devices)

    def collect(self, number, on_progress):
        for folder in (self._requests, self._reports):
            folder.mkdir(parents=True, exist_ok=True)
        aggregator = self.rounds.aggregator
        unanswered = aggregator.unanswered(number)
        asked = len(unanswered) + aggregator.reports(number)
        for device in unanswered:
            write_file(self._requests / f"{device}.frame", aggregator.request(number, device))
        while not self.stopped:
            paths = sorted(self._reports.glob("[0-9]*.frame"))
            aggregator.accept([path.read_bytes() for path in paths], time.monotonic())
            for path in paths:  # the store has them by now
                path.unlink()
            on_progress(RoundProgress(number, aggregator.reports(number), asked))
            if result := aggregator.ended(number, time.monotonic()):
                return self.rounds.finish(result, individual=self.individual)
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
