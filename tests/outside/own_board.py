"""A board of another package, on the device: a machine whose os.urandom is good."""

from tern.boards import Base, this


class Board(Base):
    name = "own board"


this.MODULES["linux"] = __name__
