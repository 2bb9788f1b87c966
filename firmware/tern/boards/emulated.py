"""The emulated board: MicroPython's unix port.

It has a directory for its flash and a pty or pipes for its port.

micropython -X heapsize=192k -m tern.boards.emulated DIRECTORY
"""

import os
import sys

from tern.boards import Base
from tern.compat import MICROPYTHON
from tern.storage import StorageError

# by name, the locks of this process, which has them until it ends
_held: "dict[bytes, object]" = {}


class Board(Base):
    """A board whose files are in `directory`, which no other process may open meanwhile.

    Raises StorageError.
    """

    name = "emulated"

    def __init__(self, directory="."):
        """Lock the directory for this process. Raises StorageError if another one has it.

        Two processes on the same ledgers would spend a budget twice.
        """
        self.directory = directory
        # The folder's inode and device identify it, whatever its path; MicroPython has 32 bits.
        inode, device = [number & 0xFFFFFFFF for number in os.stat(directory)[1:3]]
        # MicroPython has no flock. So a socket with this name in Linux's abstract namespace is the
        # lock; only one process can bind it, and the kernel frees it when the process ends.
        name = b"\0tern board %x %x" % (device, inode)
        # A flash that this process emulates has no inode.
        if sys.platform == "linux" and inode and name not in _held:
            import socket

            # The folder stays open, so that no other gets its inode once it is removed. It is
            # opened before the lock, since a process that ends closes its last file first.
            folder = (open if MICROPYTHON else os.scandir)(directory)
            lock = socket.socket(1, socket.SOCK_DGRAM)  # AF_UNIX
            try:
                lock.bind(b"\1\0" + name if MICROPYTHON else name)  # a raw address, little-endian
            except OSError:
                folder.close()
                raise StorageError(
                    "another process runs the board in %s: end that one first" % directory
                )
            _held[name] = lock, folder

    def unique_id(self):
        return self.directory.encode()

    def fuses(self):
        """Return the fuses in the file beside the directory, or None without one."""
        try:
            return File(self.directory + ".count")
        except OSError:
            return None


class File:
    """Fuses of an emulated board: a byte of a file for each.

    The file is beside the board's directory, so that no copy of that contains it.
    """

    def __init__(self, path):
        self._path = path
        self.count = len(self._read())

    def _read(self):
        with open(self._path, "rb") as file:
            return bytearray(file.read())

    def is_burnt(self, n):
        return self._read()[n]

    def burn(self, n):
        """Burn fuse n; a power cut leaves the old file or the new one."""
        data = self._read()
        data[n] = 1
        with open(self._path + ".new", "wb") as file:
            file.write(data)
        os.rename(self._path + ".new", self._path)


if __name__ == "__main__":
    from tern.supervisor import run

    run(Board(sys.argv[-1]))
