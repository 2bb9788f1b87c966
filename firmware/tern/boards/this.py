"""The board that this runs on."""

import sys


def this_board():
    """Return its Board."""
    if sys.platform == "rp2":
        from tern.boards.rp2 import Board
    elif sys.platform == "esp32":
        from tern.boards.esp32 import Board
    else:
        from tern.boards.emulated import Board
    return Board()
