"""A disk whose power fails, or that is full, at any step: stands in for the file system under a ledger."""

import os

from tern import ledger


class PowerCut(Exception):
    pass


class Disk:
    """Stands in for `open` and `os` of tern.ledger: counts steps, and fails or cuts power at one of them.

    Behind it is the real file system. A step is opening for writing, each half of a write, flushing, fsync
    where there is one, closing and renaming; power can fail before each of them. `error` (an OSError) is raised instead
    where it is given; then the disk works again from the next step on, or never, with `for_good`.
    """

    def __init__(self, step, error=None, for_good=False):
        self.left = step
        self.error = error
        self.for_good = for_good
        self.failed = False

    def __getattr__(self, name):
        return getattr(os, name)

    def step(self):
        if self.left == 0 or (self.for_good and self.failed):
            self.left = -1
            self.failed = True
            raise self.error or PowerCut()
        if self.left > 0:
            self.left -= 1

    def open_file(self, path, mode):
        if mode == "rb":
            return open(path, mode)
        self.step()
        return DiskFile(self, open(path, mode))

    def fsync(self, _):
        self.step()

    def rename(self, old, new):
        self.step()
        os.rename(old, new)

    def remove(self, path):
        self.step()
        os.remove(path)

    def __enter__(self):
        ledger.open = self.open_file
        ledger.os = self
        self.known = ledger._fsync
        if self.known:
            ledger._fsync = self.known
        return self

    def __exit__(self, *_):
        del ledger.open
        ledger.os = os
        ledger._fsync = self.known


class DiskFile:
    def __init__(self, disk, file):
        self.disk = disk
        self.file = file

    def write(self, data):
        half = len(data) // 2
        for part in (data[:half], data[half:]):
            self.disk.step()
            self.file.write(part)
            self.file.flush()
        return len(data)

    def flush(self):
        self.disk.step()

    def fileno(self):
        return self.file.fileno()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.file.close()
        if kind is None:
            self.disk.step()


def steps_of(action):
    """How many steps `action` takes on a disk that works."""
    disk = Disk(1 << 20)
    with disk:
        action()
    return (1 << 20) - disk.left
