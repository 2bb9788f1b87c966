from tern.boards import Base

def this_board() -> Base:
    """Return its Board."""
