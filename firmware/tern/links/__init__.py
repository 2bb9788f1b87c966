"""Links: a module's open_link(board) returns what links.serial.Serial offers, and `console`: whether it is the console."""

import os

# The configuration file of a link, among the board's files -> its module.
MODULES = {"mqtt.json": "tern.links.mqtt"}


def open_link(board):
    """Return the link whose configuration file is in board.directory, else the console's. Raises as that, or
    ImportError.
    """
    module = "tern.links.serial"
    for name in MODULES:
        try:
            os.stat(board.directory + "/" + name)
            module = MODULES[name]
        except OSError:
            pass
    return __import__(module, None, None, ("open_link",)).open_link(board)
