"""A small disk in memory, which a test can fill."""

import os
import subprocess
from contextlib import contextmanager, suppress

import pytest

_FILLER = "filler"
_BLOCK = bytes(4096)


@contextmanager
def mounted(directory, megabytes):
    """Mount a disk at a directory while the context is open; skip the test where that is forbidden."""
    if os.name != "posix" or os.geteuid() != 0:
        pytest.skip("only root may mount a small disk")
    options = ["-t", "tmpfs", "-o", f"size={megabytes}m,mode=700", "tmpfs", directory]
    tried = subprocess.run(["mount", *options], capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"no small disk can be mounted: {tried.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", directory], check=True)


def fill(directory):
    """Use all space of the disk at a directory."""
    with suppress(OSError), open(directory / _FILLER, "wb", buffering=0) as file:
        while True:
            file.write(_BLOCK)


def make_room(directory):
    (directory / _FILLER).unlink()
