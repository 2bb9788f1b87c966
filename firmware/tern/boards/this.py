"""The board that this runs on."""

import sys

from tern.compat import TYPE_CHECKING

if TYPE_CHECKING:
    from tern.boards import Base


def this_board() -> "Base":
    """The board of the module here that is named after sys.platform, else the emulated one."""
    try:
        module = __import__("tern.boards." + sys.platform, None, None, ("Board",))
    except ImportError:
        module = __import__("tern.boards.emulated", None, None, ("Board",))
    return module.Board()
