"""The emulated board: MicroPython's unix port, with a directory for its flash and a pty or pipes for its port.

micropython -X heapsize=192k -m tern.boards.emulated DIRECTORY
"""

import sys

from tern.boards import Base


class Board(Base):
    """A board whose files are in `directory`."""

    name = "emulated"

    def __init__(self, directory="."):
        self.directory = directory

    def unique_id(self):
        return self.directory.encode()


if __name__ == "__main__":
    from tern.supervisor import run

    run(Board(sys.argv[-1]))
