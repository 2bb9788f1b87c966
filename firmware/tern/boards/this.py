"""The board that this runs on."""

import sys

from tern.compat import TYPE_CHECKING

if TYPE_CHECKING:
    from tern.boards import Base


def this_board() -> "Base":
    if sys.platform == "rp2":
        from tern.boards.rp2 import Board
    elif sys.platform == "esp32":
        from tern.boards.esp32 import Board
    else:
        from tern.boards.emulated import Board
    return Board()
