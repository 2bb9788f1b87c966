"""The board that this runs on."""

import sys

from tern.compat import TYPE_CHECKING

if TYPE_CHECKING:
    from tern.boards import Base

# Module of each platform, with a class Board. A program may add its own.
MODULES = {"rp2": "tern.boards.rp2", "esp32": "tern.boards.esp32"}


def this_board() -> "Base":
    module = MODULES.get(sys.platform, "tern.boards.emulated")
    return __import__(module, None, None, ("Board",)).Board()
