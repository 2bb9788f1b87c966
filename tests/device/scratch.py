"""New folders for tests that write files.

They are removed when the tests end (on a device by device_runner), or by remove() where a flash
would not hold them all.
"""

import os
import sys

_count = 0

if sys.implementation.name == "cpython":
    import tempfile

    _all = tempfile.TemporaryDirectory(prefix="tern-test-", ignore_cleanup_errors=True)


def folder():
    """Return the path of a new, empty folder."""
    global _count
    _count += 1
    path = "scratch%d" % _count
    if sys.implementation.name == "cpython":
        path = os.path.join(_all.name, path)
    os.mkdir(path)
    return path


def write(path, data):
    """Write these bytes to a file, new or not."""
    with open(path, "wb") as file:
        file.write(data)


def read(path):
    """The bytes of a file."""
    with open(path, "rb") as file:
        return file.read()


def remove(path):
    """Remove a folder and all that is in it."""
    if sys.implementation.name == "cpython":
        from shutil import rmtree
    else:
        from device_runner import remove as rmtree
    rmtree(path)
