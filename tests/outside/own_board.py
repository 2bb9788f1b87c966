"""A board type, on the device: a machine whose os.urandom is good."""

from tern.boards import Base


class Board(Base):
    name = "own board"
