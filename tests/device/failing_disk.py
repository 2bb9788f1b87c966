"""A disk that loses its power or is full at a given step.

It stands in for the file system of a ledger or recorder.
"""

import os

from tern import ledger


class PowerCut(Exception):
    """The power failed: nothing after this reaches the disk."""


class Disk:
    """Stands in for `open` and `os` of `module`, and cuts the power before a step.

    It counts steps on the real file system. A step is opening for writing, each half of a write,
    flushing, fsync, closing and renaming. error: an OSError to raise instead; the disk then works
    again from the next step on, or with `for_good` never.
    """

    def __init__(self, step, error=None, for_good=False, module=ledger):
        self.module = module
        self.left = step
        self.error = error
        self.for_good = for_good
        self.failed = False

    def __getattr__(self, name):
        return getattr(os, name)

    def step(self):
        """Count a step, or fail if it is the one. Raises PowerCut, or `error`."""
        if self.left == 0 or (self.for_good and self.failed):
            self.left = -1
            self.failed = True
            raise self.error or PowerCut()
        if self.left > 0:
            self.left -= 1

    def open_file(self, path, mode):
        """Stand in for open(): opening to read is no step."""
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
        self.module.open = self.open_file
        self.module.os = self
        return self

    def __exit__(self, *_):
        del self.module.open
        self.module.os = os


class DiskFile:
    """A file that is written to a Disk."""

    def __init__(self, disk, file):
        self.disk = disk
        self.file = file

    def write(self, data):
        """Write `data` in two halves, each a step."""
        half = len(data) // 2
        written = 0
        for part in (data[:half], data[half:]):
            self.disk.step()
            written += self.file.write(part)
            self.file.flush()
        return written

    def flush(self):
        self.disk.step()

    def __getattr__(self, name):
        return getattr(self.file, name)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.file.close()
        if kind is None:
            self.disk.step()


def steps_of(action, module=ledger):
    """Return how many steps `action` takes on a disk that works."""
    disk = Disk(1 << 20, module=module)
    with disk:
        action()
    return (1 << 20) - disk.left
